"""Assistants: conversations under a chat template, loss on the assistant's tokens; runs that reply."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from seqwright import __version__
from seqwright.core.batch import Batch
from seqwright.core.config import UserError, with_options
from seqwright.core.notebook import NotebookTable
from seqwright.core.progress import SILENT, Progress
from seqwright.core.protocols import Autoregressive
from seqwright.data.chat import (
    ChatTemplate,
    Conversation,
    Conversations,
    messages_of,
    parse_conversations,
    read_conversations,
    read_splits,
)
from seqwright.decoding.generate import stream
from seqwright.decoding.options import SamplingOptions
from seqwright.metrics.counts import Counts, nll_counts
from seqwright.metrics.examples import Examples
from seqwright.metrics.score import signature
from seqwright.runs.directory import RunDirectory
from seqwright.runs.overlap import warns_of_training_data
from seqwright.runs.run import Run
from seqwright.tasks.base import Settings, combined_fingerprint, few_held_out
from seqwright.tasks.codec import TextCodec, learn_tokenizer, open_or_learn
from seqwright.tasks.scores import Scores
from seqwright.tasks.scoring import score_epoch, target_nll

DEFAULT_LENGTH = 512
"""Tokens of a row in a step, for models without a context limit."""


@dataclass(frozen=True, kw_only=True)
class ChatReply(NotebookTable):
    """What an assistant replies."""

    content: str
    reason: str
    """Why it ended: "end" (the assistant's turn was over), "stop" or "length"."""
    forgotten: int
    """Messages at the front that did not fit the model's context any more."""
    unread: int
    """Tokens at the front of what is left of the conversation that did not fit either: its last message is too long."""


class ChatTask:
    """Training of an assistant."""

    def __init__(self, settings: Settings, directory: RunDirectory, progress: Progress):
        self.settings, self.progress = settings, progress
        self.train, self.valid, notes = read_splits(settings.data)
        for note in notes:
            progress.note(note)
        texts = [message.content for talk in self.train for message in talk]
        self.codec = open_or_learn(
            TextCodec,
            directory,
            lambda: TextCodec(
                tokenizer=learn_tokenizer(settings, texts, progress, special_tokens=settings.data.markers)
            ),
        )
        self.tokenizer = self.codec.tokenizer
        self.turns = ChatTemplate(self.tokenizer, settings.data)
        self.examples = self._untruncated(self.train)
        held_out = "none held out" if self.valid is None else f"{len(self.valid):,} held out"
        progress.note(
            f"{len(self.train):,} conversations ({held_out}), {self.examples.targets:,} tokens of the assistant to"
            f" learn; {self.tokenizer.kind} vocabulary of {self.tokenizer.size:,}."
        )
        for text in [] if self.valid is None else few_held_out(len(self.valid), "conversations"):
            progress.note(text)

    def _untruncated(self, talks: Sequence[Conversation]) -> Conversations:
        """Conversations in one row each, however long."""
        return Conversations(talks, self.turns, context=1 << 30, batch=1, seed=0)

    @functools.cached_property
    def fingerprint(self) -> str:
        held_out = [] if self.valid is None else [self._untruncated(self.valid).fingerprint]
        return combined_fingerprint(self.examples.fingerprint, *held_out)

    @property
    def corpus(self) -> Any:
        raise UserError("an assistant is trained by gradients; choose another model.kind.")

    def feed(self, model: Autoregressive) -> Conversations:
        training = self.settings.training
        length = training.sequence_length or model.context or DEFAULT_LENGTH
        feed = Conversations(self.train, self.turns, context=length, batch=training.batch_size, seed=training.seed)
        if feed.cut:
            self.progress.note(
                f"{feed.cut:,} conversations are longer than {length} tokens and are read in pieces;"
                f" {feed.without_loss:,} pieces without a word of the assistant are left out."
            )
        return feed

    def evaluate(self, model: Autoregressive, device: torch.device | str, *, quick: bool) -> Scores | None:
        if self.valid is None:
            return None
        return evaluate(model, self.codec, self.valid, self.settings, device=device, quick=quick)

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

    description = "replies in a conversation"
    verbs = ("chat", "evaluate")
    codec_class = TextCodec

    @functools.cached_property
    def turns(self) -> ChatTemplate:
        return ChatTemplate(self.tokenizer, self.settings.data)

    def chat(
        self,
        messages: str | Sequence[Mapping[str, str]],
        *,
        on_text: Callable[[str], None] | None = None,
        **options: Any,
    ) -> ChatReply:
        """Replies to a question, or a conversation of {"role", "content"} tables; options are those of [decoding]."""
        try:
            talk = messages_of([{"role": "user", "content": messages}] if isinstance(messages, str) else messages)
        except ValueError as error:
            raise UserError(f"no conversation: {error}") from None
        decoding = with_options(self.settings.decoding, options)
        return reply(self.model, self.turns, talk, decoding, device=self.device, on_text=on_text)

    @warns_of_training_data
    def evaluate(self, on: str | Sequence[str] | None = None, *, progress: Progress = SILENT, **options: Any) -> Scores:
        """Scores of the assistant's tokens in files of conversations, or in those that the run held out."""
        if on is not None:
            talks: list[Conversation] | None = parse_conversations(
                read_conversations(on, self.settings.data.errors, self.settings.data.encoding)
            )
        else:
            _, talks, _ = read_splits(self.settings.data)
        if talks is None:
            raise self._nothing_held_out("conversations")
        settings = replace(self.settings, evaluation=with_options(self.settings.evaluation, options))
        scores = evaluate(self.model, self.codec, talks, settings, device=self.device, progress=progress)
        return scores.with_precision(self.precision)


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


def evaluate(
    model: Autoregressive,
    codec: TextCodec,
    conversations: Sequence[Conversation],
    settings: Settings,
    *,
    device: torch.device | str = "cpu",
    quick: bool = False,
    progress: Progress = SILENT,
) -> Scores:
    """nll and perplexity of the assistant's tokens, conversation by conversation."""
    config, length = settings.evaluation, model.context or DEFAULT_LENGTH
    if quick:
        config = replace(config, resamples=0)
    template = ChatTemplate(codec.tokenizer, settings.data)
    feed = Conversations(conversations, template, context=length, batch=config.batch_size, seed=0, shuffle=False)
    chunks = score_epoch(model, feed, target_nll(model), device=device, progress=progress)
    kept, owners = np.unique(feed.conversations, return_inverse=True)
    rows = np.zeros((len(kept), chunks.shape[1]))
    np.add.at(rows, owners, chunks)  # chunks of a conversation are not independent: conversations are resampled
    facts = signature(
        tokens=feed.targets,
        turns="assistant",
        context=length,
        tokenizer=codec.tokenizer.signature,
        ids=feed.fingerprint[:8],
        bootstrap=f"{config.resamples}-{config.seed}",
        seqwright=__version__,
    )
    counts = nll_counts(rows, facts)
    scores = Scores.of(counts, config, quick=False)
    return Scores(scores.as_json() | {"tokens": feed.targets}).with_examples(
        lambda: conversation_examples(counts, [conversations[n] for n in kept], facts)
    )


def conversation_examples(counts: Sequence[Counts], conversations: Sequence[Conversation], facts: str) -> Examples:
    """Conversations: their messages, the assistant's as references, and the nll of those."""

    def messages(conversation: Conversation, *, assistant: bool) -> str:
        return "\n".join(text for role, text in conversation if (role == "assistant") == assistant)

    rows = counts[0].rows[:, :2].tolist()
    return Examples(
        unit="conversation",
        counts=counts,
        fingerprint=facts,
        inputs=[messages(one, assistant=False) for one in conversations],
        references=[messages(one, assistant=True) for one in conversations],
        outputs=[f"{nll / max(1, tokens):.3f} nats per token" for nll, tokens in rows],
    )
