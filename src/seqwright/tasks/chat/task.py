"""Assistants: conversations in turns, a loss on what the assistant says, runs that answer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from seqwright import __version__
from seqwright.core.batch import IGNORE, Batch, Vocabulary
from seqwright.core.config import UserError
from seqwright.core.protocols import Autoregressive, Watch, unwatched
from seqwright.data.chat import (
    ChatTemplate,
    Conversation,
    Conversations,
    Message,
    parse_conversations,
    read_conversations,
    read_splits,
)
from seqwright.decoding.generate import stream
from seqwright.decoding.options import SamplingOptions
from seqwright.metrics.counts import nll_counts, scores_json
from seqwright.metrics.likelihood import EvaluationConfig
from seqwright.runs.directory import RunDirectory
from seqwright.runs.run import Run
from seqwright.tasks.base import Note, Settings, fingerprint_of
from seqwright.tasks.tokenizers import saved_tokenizer

DEFAULT_LENGTH = 512
"""Tokens that a step reads in each row, for models that see any length."""


@dataclass(frozen=True, kw_only=True)
class ChatReply:
    content: str
    reason: str
    """Why it ended: "end" (the assistant's turn was over), "stop" or "length"."""
    forgotten: int
    """Messages at the front that did not fit the model's context any more."""
    unread: int
    """Tokens at the front of what is left of the conversation that did not fit either: its last message is too long."""


class ChatTask:
    """The data side of training an assistant."""

    def __init__(self, settings: Settings, directory: RunDirectory, note: Note):
        self.settings, self.note = settings, note
        self.train, self.valid, notes = read_splits(settings.data)
        for said in notes:
            note(said)
        texts = [message.content for talk in self.train for message in talk]
        self.tokenizer = saved_tokenizer(settings, directory, texts, note, special_tokens=settings.data.markers)
        self.turns = ChatTemplate(self.tokenizer, settings.data)
        self.examples = self._whole(self.train)
        held_out = "none held out" if self.valid is None else f"{len(self.valid):,} held out"
        note(
            f"{len(self.train):,} conversations ({held_out}), {self.examples.targets:,} tokens of the assistant to"
            f" learn; {self.tokenizer.kind} vocabulary of {self.tokenizer.size:,}."
        )

    def _whole(self, talks: Sequence[Conversation]) -> Conversations:
        """Conversations that nothing is cut from."""
        return Conversations(talks, self.turns, context=1 << 30, batch=1, seed=0)

    @property
    def sizes(self) -> Vocabulary:
        return self.tokenizer.vocabulary

    @functools.cached_property
    def fingerprint(self) -> str:
        held_out = [] if self.valid is None else [self._whole(self.valid).fingerprint]
        return fingerprint_of(self.examples.fingerprint, *held_out)

    @property
    def corpus(self) -> Any:
        raise UserError("an assistant is trained by gradients; choose another model.kind.")

    def feed(self, model: Autoregressive) -> Conversations:
        training = self.settings.training
        length = training.sequence_length or model.context or DEFAULT_LENGTH
        feed = Conversations(self.train, self.turns, context=length, batch=training.batch_size, seed=training.seed)
        if feed.cut:
            self.note(
                f"{feed.cut:,} conversations are longer than {length} tokens and are read in pieces;"
                f" {feed.without_loss:,} pieces without a word of the assistant are left out."
            )
        return feed

    def evaluate(self, model: Autoregressive, device: torch.device | str, *, quick: bool) -> dict[str, Any] | None:
        if self.valid is None:
            return None
        config = self.settings.evaluation
        return evaluate_turns(
            model, self.turns, self.valid, replace(config, resamples=0) if quick else config, device=device
        )

    def sample(self, model: Autoregressive, device: torch.device | str) -> list[dict[str, str]]:
        """The answer to the first question of a held-out conversation."""
        talk = (self.valid or self.train)[0]
        asked = next(n for n, message in enumerate(talk) if message.role == "assistant")
        said = reply(model, self.turns, talk[:asked], self.settings.decoding, device=device)
        return [{"prompt": "".join(f"{m.role}: {m.content}\n" for m in talk[:asked]), "text": said.content}]

    def show(self, batch: Batch) -> str:
        return " ".join(self.tokenizer.tokens(batch.input[0].tolist()))[:200]


class ChatRun(Run):
    """An assistant: `run = seqwright.open("runs/x"); run.chat("How are you?").content`."""

    does = "answers in a conversation"
    verbs = ("chat", "evaluate")

    def __init__(self, directory: RunDirectory, settings: Any, model: Any, **where: str):
        super().__init__(directory, settings, model, **where)
        self.turns = ChatTemplate(self.tokenizer, settings.data)

    @staticmethod
    def sizes(directory: RunDirectory) -> Vocabulary:
        return directory.tokenizer.vocabulary

    def chat(
        self,
        messages: str | Sequence[Mapping[str, str]],
        *,
        on_text: Callable[[str], None] | None = None,
        **options: Any,
    ) -> ChatReply:
        """Replies to a question, or a conversation of {"role", "content"} tables; options are those of [decoding]."""
        several = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        talk = tuple(Message(entry["role"], entry["content"]) for entry in several)
        decoding = replace(self.settings.decoding, **options)
        return reply(self.model, self.turns, talk, decoding, device=self.device, on_text=on_text)

    def evaluate(
        self, on: str | Sequence[str] | None = None, *, watch: Watch = unwatched, **options: Any
    ) -> dict[str, Any]:
        """Scores of the assistant's words in files of conversations, or in those the run held out."""
        if on is not None:
            talks: list[Conversation] | None = parse_conversations(read_conversations(on, self.settings.data.errors))
        else:
            _, talks, _ = read_splits(self.settings.data)
        if talks is None:
            raise UserError(f"{self.path} held out no conversations; name a file with --on.")
        config = replace(self.settings.evaluation, **options)
        scores = evaluate_turns(self.model, self.turns, talks, config, device=self.device, watch=watch)
        return self.signed(scores)


def reply(
    model: Autoregressive,
    turns: ChatTemplate,
    talk: Conversation,
    options: SamplingOptions,
    *,
    device: torch.device | str = "cpu",
    on_text: Callable[[str], None] | None = None,
) -> ChatReply:
    """What the assistant says next; the oldest messages are forgotten where all do not fit the model's context."""
    prompt, forgotten = fitting(turns, talk, model.context, options.max_tokens)
    [(row, text, stopped)] = stream(
        model,
        turns.tokenizer,
        [prompt],
        options,
        end=turns.end,
        device=device,
        on_text=None if on_text is None else lambda _, piece: on_text(piece),
    )
    unread = max(0, len(prompt) - model.context) if model.context is not None else 0
    return ChatReply(content=text, reason="stop" if stopped else str(row.reason), forgotten=forgotten, unread=unread)


def fitting(turns: ChatTemplate, talk: Conversation, context: int | None, tokens: int) -> tuple[list[int], int]:
    """The prompt of a conversation with room for an answer, and how many of its messages were left out for that.

    The system's first word and the last message always stay; half the context is room enough.
    """
    lead = 1 if talk and talk[0].role == "system" else 0
    forgotten = 0
    prompt = turns.prompt(talk)
    while context is not None and len(prompt) + min(tokens, context // 2) > context:
        if lead + forgotten + 1 >= len(talk):
            break
        forgotten += 1
        prompt = turns.prompt((*talk[:lead], *talk[lead + forgotten :]))
    return prompt, forgotten


@torch.inference_mode()
def evaluate_turns(
    model: Autoregressive,
    turns: ChatTemplate,
    talks: Sequence[Conversation],
    config: EvaluationConfig,
    *,
    device: torch.device | str = "cpu",
    watch: Watch = unwatched,
) -> dict[str, Any]:
    """nll and perplexity of what the assistant says, conversation by conversation, with intervals and signature."""
    if isinstance(model, torch.nn.Module):
        model.eval()
    length = model.context or DEFAULT_LENGTH
    examples = Conversations(talks, turns, context=length, batch=config.batch_size, seed=0)
    counts = np.zeros((len(examples.examples), 2))
    for begin in range(0, len(counts), config.batch_size):
        batch = examples.of(range(begin, min(begin + config.batch_size, len(counts))))
        found, _ = model.score(batch.to(device))
        counts[begin : begin + batch.rows, 0] = -found.double().sum(1).cpu().numpy()
        counts[begin : begin + batch.rows, 1] = (batch.target != IGNORE).sum(1).numpy()
        watch(begin + batch.rows, len(counts))
    tokenizer = turns.tokenizer
    signature = (
        f"tokens:{examples.targets}|turns:assistant|context:{length}"
        f"|tokenizer:{tokenizer.signature}|text:{examples.fingerprint[:8]}"
        f"|bootstrap:{config.resamples}-{config.seed}|seqwright:{__version__}"
    )
    scores = scores_json(nll_counts(counts, signature), config)
    return scores | {"tokens": examples.targets}
