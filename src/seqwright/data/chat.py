"""Conversations: JSON lines of messages, framed as turns, with a loss on the assistant's words alone."""

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
from seqwright.data.files import Errors, read_text, resolve
from seqwright.data.order import permutation
from seqwright.data.records import object_of
from seqwright.data.samples.text import embedded_text, is_embedded
from seqwright.data.text.corpus import Corpus, check_split, documents_of, split
from seqwright.data.text.stream import to_batch
from seqwright.text.tokenizer import Tokenizer

ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, kw_only=True)
class ChatConfig:
    kind: Literal["chat"] = "chat"
    """Conversations for an assistant."""
    train: tuple[str, ...] | str = ()
    """Files of JSON lines, each {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", …}]}."""
    valid: tuple[str, ...] | str | None = None
    """Files to measure progress on."""
    split: str | None = None
    """Conversations held out for validation: "tail 10%", or "documents 5%" for a fixed choice of them."""
    errors: Errors = "strict"
    """strict refuses files that are not UTF-8 text; replace reads U+FFFD where they are broken, and says how often."""
    system: str = "<|system|>"
    """The reserved token that begins a turn of the system."""
    user: str = "<|user|>"
    """The reserved token that begins a turn of the user."""
    assistant: str = "<|assistant|>"
    """The reserved token that begins a turn of the assistant."""
    end: str = "<|end|>"
    """The reserved token that ends every turn."""

    files: ClassVar[tuple[str, ...]] = ("train", "valid")
    """The keys that name files."""

    def __post_init__(self) -> None:
        if not self.train:
            raise UserError("train names no file; give conversations with --chat FILE.")
        if len(set(self.markers)) < len(self.markers):
            raise UserError(f"system, user, assistant and end must differ, but are {', '.join(self.markers)}.")
        check_split(self.split, self.valid)

    @property
    def markers(self) -> tuple[str, str, str, str]:
        return (self.system, self.user, self.assistant, self.end)


class Message(NamedTuple):
    role: str
    content: str


Conversation = tuple[Message, ...]


def read_conversations(files: Sequence[str] | str, errors: Errors = "strict") -> Corpus:
    """The lines of some files, each checked to be a conversation; empty lines are left out."""
    lines: list[str] = []
    notes: list[str] = []
    for file in [files] if isinstance(files, str) else files:
        text, replaced = (embedded_text(file), 0) if is_embedded(file) else read_text(resolve(file), errors)
        if replaced:
            notes.append(f"{file}: {replaced:,} places were not UTF-8 text and are read as U+FFFD.")
        for number, line in enumerate(documents_of(text, "line"), 1):
            if line.strip():
                conversation_of(line, f"{file}, line {number:,}")
                lines.append(line)
    if not lines:
        raise UserError(f"{files} holds no conversations.")
    return Corpus(documents=lines, kind="line", notes=tuple(notes))


def conversation_of(line: str, place: str) -> Conversation:
    """The messages of a line; the place is for what is wrong with it."""
    table = object_of(line, place)
    try:
        return _messages(table)
    except ValueError as error:
        raise UserError(f"{place} is no conversation: {error}") from error


def _messages(table: Mapping[str, Any]) -> Conversation:
    if not isinstance(table.get("messages"), list):
        raise ValueError('write {"messages": [{"role": "user", "content": "…"}, …]}.')
    messages = []
    for entry in table["messages"]:
        if not isinstance(entry, dict) or not isinstance(entry.get("content"), str):
            raise ValueError(f'a message has a "role" and a "content" in words, but one is {json.dumps(entry)[:80]}.')
        if entry.get("role") not in ROLES:
            raise ValueError(f"no role {entry.get('role')!r}.{did_you_mean(str(entry.get('role')), ROLES)}")
        messages.append(Message(entry["role"], entry["content"]))
    if not any(message.role == "assistant" for message in messages):
        raise ValueError("it has no turn of the assistant, so there is nothing to learn from it.")
    return tuple(messages)


def read_splits(config: ChatConfig) -> tuple[list[Conversation], list[Conversation] | None, tuple[str, ...]]:
    """Training and validation conversations, and what was noticed."""
    train = read_conversations(config.train, config.errors)
    valid = None if config.valid is None else read_conversations(config.valid, config.errors)
    notes = (*train.notes, *(valid.notes if valid else ()))
    if config.split is not None:
        train, valid = split(train, config.split)
    return parsed(train), None if valid is None else parsed(valid), notes


def parsed(corpus: Corpus) -> list[Conversation]:
    return [conversation_of(line, "a line") for line in corpus.documents]


class Turns:
    """The turn template of a run: `<sos>`, then for each message its role's marker, its text, and the end marker."""

    def __init__(self, tokenizer: Tokenizer, config: ChatConfig):
        if tokenizer.sos is None:
            raise UserError("conversations begin with <sos>; add it to tokenizer.special_tokens.")
        self.tokenizer, self.sos = tokenizer, tokenizer.sos
        system, user, assistant, self.end = (tokenizer.special_tokens[name] for name in config.markers)
        self.marker = {"system": system, "user": user, "assistant": assistant}

    def frame(self, conversation: Conversation) -> tuple[list[int], list[bool]]:
        """Ids, and which of them the assistant says: its words and their end, not the marker that hands it the word."""
        ids, said = [self.sos], [False]
        for role, content in conversation:
            body = [*self.tokenizer.encode(content), self.end]
            ids += [self.marker[role], *body]
            said += [False, *[role == "assistant"] * len(body)]
        return ids, said

    def prompt(self, conversation: Conversation) -> list[int]:
        """The ids after which the assistant speaks."""
        return [*self.frame(conversation)[0], self.marker["assistant"]]


class Conversations:
    """Each conversation is one example, right-padded to the longest of its batch; long ones are read in pieces."""

    carried = False

    def __init__(self, conversations: Sequence[Conversation], turns: Turns, *, context: int, batch: int, seed: int):
        self.rows, self.seed = batch, seed
        tokenizer = turns.tokenizer
        self.pad = turns.sos if tokenizer.pad is None else tokenizer.pad
        self.examples: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        """Input and target of each."""
        self.cut = 0
        """Conversations longer than the context."""
        self.unlearned = 0
        """Pieces in which the assistant says nothing; they are left out."""
        for conversation in conversations:
            ids, said = (np.array(row) for row in turns.frame(conversation))
            target = np.where(said[1:], ids[1:], IGNORE)
            self.cut += len(target) > context
            for begin in range(0, len(target), context):
                piece = slice(begin, begin + context)
                if said[1:][piece].any():
                    self.examples.append((ids[:-1][piece], target[piece]))
                else:
                    self.unlearned += 1
        self.steps_per_epoch = -(-len(self.examples) // batch)

    @functools.cached_property
    def fingerprint(self) -> str:
        """sha256 of all examples: a resumed run must find the conversations it left."""
        digest = hashlib.sha256()
        for input, target in self.examples:
            digest.update(np.stack([input, target]).astype("<i8").tobytes())
        return digest.hexdigest()

    @property
    def targets(self) -> int:
        """Tokens that are learned."""
        return sum(int((target != IGNORE).sum()) for _, target in self.examples)

    def batch(self, step: int) -> Batch:
        epoch, number = divmod(step, self.steps_per_epoch)
        return self.of(permutation(self.seed, epoch, len(self.examples))[number * self.rows : (number + 1) * self.rows])

    def of(self, chosen: Sequence[int] | NDArray[np.int64]) -> Batch:
        """These examples."""
        width = max(len(self.examples[n][0]) for n in chosen)
        input = np.full((len(chosen), width), self.pad)
        target = np.full((len(chosen), width), IGNORE)
        for row, n in enumerate(chosen):
            given, wanted = self.examples[n]
            input[row, : len(given)], target[row, : len(wanted)] = given, wanted
        return to_batch(input, target)
