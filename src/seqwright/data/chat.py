"""Chat data: conversations as JSON lines, the chat template, and a loss on the assistant's tokens only."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqwright.core.batch import IGNORE, Batch
from seqwright.core.config import UserError, did_you_mean
from seqwright.data.files import UTF_8, Errors, as_list, check_encoding, read_text, refuse_blank, resolve
from seqwright.data.order import permutation
from seqwright.data.records import parse_object
from seqwright.data.samples.text import embedded_text, is_embedded
from seqwright.data.text.corpus import Corpus, check_split, documents_of, split
from seqwright.data.text.stream import to_batch
from seqwright.text.tokenizer import Tokenizer

ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, kw_only=True)
class ChatConfig:
    kind: Literal["chat"] = "chat"
    """Conversations for instruction tuning."""
    train: tuple[str, ...] | str = ()
    """Training files of JSON lines: {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", …}]}."""
    valid: tuple[str, ...] | str | None = None
    """Validation files."""
    split: str | None = None
    """Conversations held out for validation: "tail 10%", or "documents 5%", a fixed choice by hash."""
    errors: Errors = "strict"
    """Decoding errors: strict refuses files with bytes that are invalid in their encoding; replace decodes them as
    U+FFFD and reports how many."""
    encoding: str = UTF_8
    """Encoding of the files: utf-8, latin-1, cp1252, utf-16 or another that Python knows."""
    system: str = "<|system|>"
    """Special token that opens a system turn."""
    user: str = "<|user|>"
    """Special token that opens a user turn."""
    assistant: str = "<|assistant|>"
    """Special token that opens an assistant turn."""
    end: str = "<|end|>"
    """Special token that ends every turn."""

    files: ClassVar[tuple[str, ...]] = ("train", "valid")
    """Keys whose values are paths."""

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        if not self.train:
            raise UserError("train names no file; give conversations with --chat FILE.")
        if len(set(self.markers)) < len(self.markers):
            raise UserError(f"system, user, assistant and end must differ, but are {', '.join(self.markers)}.")
        check_split(self.split, self.valid)

    @property
    def markers(self) -> tuple[str, str, str, str]:
        """The special tokens of the template: the three roles, then the end of a turn."""
        return (self.system, self.user, self.assistant, self.end)


class Message(NamedTuple):
    role: str
    content: str


Conversation = tuple[Message, ...]


def read_conversations(files: Sequence[str] | str, errors: Errors = "strict", encoding: str = UTF_8) -> Corpus:
    """The lines of the files as a corpus, each validated as a conversation; blank lines are skipped."""
    lines: list[str] = []
    notes: list[str] = []
    for file in as_list(files):
        embedded = is_embedded(file)
        text, decoding_notes = (embedded_text(file), []) if embedded else read_text(resolve(file), errors, encoding)
        refuse_blank(text, file)
        if text.lstrip().startswith("["):
            raise UserError(f"{file} is a JSON array; write one conversation a line, as a .jsonl file.")
        notes += decoding_notes
        for number, line in enumerate(documents_of(text, "line"), 1):
            if line.strip():
                parse_conversation(line, f"{file}, line {number:,}")
                lines.append(line)
    if not lines:
        raise UserError(f"{', '.join(as_list(files))}: no conversations; write one per line.")
    return Corpus(documents=lines, kind="line", notes=tuple(notes))


def parse_conversation(line: str, place: str) -> Conversation:
    """The messages of a JSON line; `place` (file and line) is for messages."""
    table = parse_object(line, place)
    try:
        return _messages(table)
    except ValueError as error:
        raise UserError(f"{place} is no conversation: {error}") from error


def _messages(table: Mapping[str, Any]) -> Conversation:
    if not isinstance(table.get("messages"), list):
        raise ValueError('write {"messages": [{"role": "user", "content": "…"}, …]}.')
    messages = messages_of(table["messages"])
    if not any(message.role == "assistant" for message in messages):
        raise ValueError("it has no turn of the assistant, so there is nothing to train on.")
    return messages


def messages_of(entries: Any) -> Conversation:
    """The messages of a list of {"role", "content"} tables; ValueError where it is none."""
    if isinstance(entries, str | bytes | Mapping) or not isinstance(entries, Sequence) or not entries:
        raise ValueError(f'write [{{"role": "user", "content": "…"}}, …], not {entries!r:.60}.')
    messages = []
    for entry in entries:
        if not isinstance(entry, Mapping) or not all(isinstance(entry.get(key), str) for key in Message._fields):
            shown = json.dumps(entry, ensure_ascii=False, default=repr)[:80]
            raise ValueError(f'a message has a "role" and a string "content", but one is {shown}.')
        if entry["role"] not in ROLES:
            raise ValueError(f"no role {entry['role']!r}.{did_you_mean(entry['role'], ROLES)}")
        messages.append(Message(entry["role"], entry["content"]))
    return tuple(messages)


def read_splits(config: ChatConfig) -> tuple[list[Conversation], list[Conversation] | None, tuple[str, ...]]:
    """Training and validation conversations, and notes about the files."""
    train = read_conversations(config.train, config.errors, config.encoding)
    valid = None if config.valid is None else read_conversations(config.valid, config.errors, config.encoding)
    notes = (*train.notes, *(valid.notes if valid else ()))
    if config.split is not None:
        if len(train.documents) == 1:
            raise UserError(f"{as_list(config.train)[0]} holds one conversation; give more, or --valid FILE.")
        train, valid = split(train, config.split)
    learned = parse_conversations(train)
    if valid is None:
        return learned, None, notes
    held_out = parse_conversations(valid)
    seen = set(learned)
    if count := sum(talk in seen for talk in held_out):
        notes += (
            f"{count:,} of {len(held_out):,} validation conversations are exact duplicates of training conversations.",
        )
    return learned, held_out, notes


def parse_conversations(corpus: Corpus) -> list[Conversation]:
    """The conversations of a corpus of JSON lines."""
    return [parse_conversation(line, "a line") for line in corpus.documents]


class ChatTemplate:
    """The chat template of a run: `<sos>`, then per message the marker of its role, its tokens and the end marker."""

    def __init__(self, tokenizer: Tokenizer, config: ChatConfig):
        if tokenizer.sos is None:
            raise UserError("conversations begin with <sos>; add it to tokenizer.special_tokens.")
        self.tokenizer, self.sos = tokenizer, tokenizer.sos
        system, user, assistant, self.end = (tokenizer.special_tokens[name] for name in config.markers)
        self.marker = {"system": system, "user": user, "assistant": assistant}

    def encode(self, conversation: Conversation) -> tuple[list[int], list[bool]]:
        """Ids, and the loss mask: True for the assistant's content and end markers, not for the marker of its role."""
        ids, loss_mask = [self.sos], [False]
        for role, content in conversation:
            body = [*self.tokenizer.encode(content), self.end]
            ids += [self.marker[role], *body]
            loss_mask += [False, *[role == "assistant"] * len(body)]
        return ids, loss_mask

    def prompt(self, conversation: Conversation) -> list[int]:
        """Ids of the generation prompt: the conversation, then the marker that opens an assistant turn."""
        return [*self.encode(conversation)[0], self.marker["assistant"]]


class Conversations:
    """A feed of one conversation per row, right-padded to the longest of the batch; long ones are split into chunks."""

    carried = False

    def __init__(
        self,
        conversations: Sequence[Conversation],
        template: ChatTemplate,
        *,
        context: int,
        batch: int,
        seed: int,
        shuffle: bool = True,
    ):
        self.rows, self.seed, self.shuffle = batch, seed, shuffle
        tokenizer = template.tokenizer
        self.pad = template.sos if tokenizer.pad is None else tokenizer.pad
        self.examples: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        """(input, target) of each example."""
        self.conversations: list[int] = []
        """Of each example, the index of its conversation."""
        self.cut = 0
        """Conversations longer than the context."""
        self.without_loss = 0
        """Chunks dropped because they hold no assistant token."""
        for number, conversation in enumerate(conversations):
            ids, loss_mask = (np.array(row) for row in template.encode(conversation))
            target = np.where(loss_mask[1:], ids[1:], IGNORE)
            self.cut += len(target) > context
            for begin in range(0, len(target), context):
                chunk = slice(begin, begin + context)
                if loss_mask[1:][chunk].any():
                    self.examples.append((ids[:-1][chunk], target[chunk]))
                    self.conversations.append(number)
                else:
                    self.without_loss += 1
        self.steps_per_epoch = -(-len(self.examples) // batch)

    @functools.cached_property
    def fingerprint(self) -> str:
        """sha256 of all examples: a resumed run must find the same conversations."""
        digest = hashlib.sha256()
        for input, target in self.examples:
            digest.update(np.stack([input, target]).astype("<i8").tobytes())
        return digest.hexdigest()

    @property
    def targets(self) -> int:
        """Number of tokens that carry loss."""
        return sum(int((target != IGNORE).sum()) for _, target in self.examples)

    def batch(self, step: int) -> Batch:
        epoch, number = divmod(step, self.steps_per_epoch)
        count = len(self.examples)
        order = permutation(self.seed, epoch, count) if self.shuffle else np.arange(count)
        return self.of(order[number * self.rows : (number + 1) * self.rows])

    def of(self, indices: Sequence[int] | NDArray[np.int64]) -> Batch:
        """The batch of these examples."""
        width = max(len(self.examples[n][0]) for n in indices)
        input = np.full((len(indices), width), self.pad)
        target = np.full((len(indices), width), IGNORE)
        for row, n in enumerate(indices):
            example_input, example_target = self.examples[n]
            input[row, : len(example_input)], target[row, : len(example_target)] = example_input, example_target
        return to_batch(input, target)
