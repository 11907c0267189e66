"""What a model is given: a source (in full), an input (known so far) and a target (to predict)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Literal, Self

import torch

if TYPE_CHECKING:
    from torch import Tensor

IGNORE = -100
"""The target id where no loss is taken (padding, overlap between windows, a prompt)."""


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """How many ids there are, and which of them are reserved; text never produces a reserved id by itself."""

    size: int
    unk: int | None = None
    pad: int | None = None
    sos: int | None = None
    eos: int | None = None
    mask: int | None = None


@dataclass(frozen=True, kw_only=True)
class Vocabularies:
    """The two sides of a source-to-target task; with a joint vocabulary they are one and the same."""

    source: Vocabulary | None
    """None where features are read."""
    target: Vocabulary
    joint: bool = False
    features: int = 0
    """Numbers of a source position, where no ids are read: those of a patch."""


@dataclass(frozen=True, kw_only=True)
class OutputSpec:
    """What a reader is asked: the kind of its answers, and how many there are to choose from."""

    kind: Literal["class", "multilabel", "regression", "tags", "tokens", "pixels"]
    """One class of a text, any number of labels, a number; a class of every word; masked tokens; masked patches."""
    count: int
    """Classes, labels, tags or tokens; 1 for a number; the numbers of a patch."""
    impossible: tuple[tuple[int, int], ...] = ()
    """Pairs of tags of which the second cannot follow the first, which is `count` where a sentence begins."""


@dataclass(frozen=True, kw_only=True)
class EncoderSizes:
    """What a reader is built for: what it is given, and what it answers."""

    answers: OutputSpec
    vocabulary: Vocabulary | None = None
    """Of ids; None where features are read."""
    features: int | None = None
    """Numbers of a position, where no ids are read: those of a patch."""
    length: int | None = None
    """Positions of every source, where all have as many (the patches of an image)."""
    segments: int = 1
    """Parts of a source: 2 for pairs of texts."""


class Movable:
    """A dataclass of optional tensors that can be sent to a device as one thing."""

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Self:
        moved = {}
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, torch.Tensor | Movable):
                moved[field.name] = value.to(device, non_blocking=non_blocking)
        return replace(self, **moved)  # type: ignore[type-var]


@dataclass(frozen=True, kw_only=True)
class Source(Movable):
    """What is given in full before anything is said: ids or float features. It always knows its rows; S may be 0."""

    mask: Tensor
    """(B, S) bool; True = real."""
    ids: Tensor | None = None
    """(B, S) long."""
    features: Tensor | None = None
    """(B, S, D) float: patches of an image, frames of a recording."""
    segments: Tensor | None = None
    """(B, S) long: which sentence of a pair, which of several sources."""
    word_starts: Tensor | None = None
    """(B, S) bool: positions at which a given word begins (a tag per word, whole-word masks)."""
    words: Tensor | None = None
    """(B, S) long, where ids are characters: 1 where a word begins, 2 where it goes on, 0 between words."""
    spelling: Tensor | None = None
    """(B, S, C) long: the code points of the word that begins at a position, counted from 1; 0 behind them."""

    @classmethod
    def empty(cls, rows: int, device: torch.device | str = "cpu") -> Self:
        """The source of a language model: rows, and nothing said to them."""
        return cls(mask=torch.zeros(rows, 0, dtype=torch.bool, device=device))

    @property
    def rows(self) -> int:
        return self.mask.size(0)

    @property
    def device(self) -> torch.device:
        return self.mask.device

    def select(self, rows: Tensor) -> Self:
        """These rows alone."""
        taken = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{k: v.index_select(0, rows) for k, v in taken.items() if v is not None})


@dataclass(frozen=True, kw_only=True)
class Batch(Movable):
    """Rows of one training or scoring step; what to predict is decided by the data alone."""

    source: Source
    input: Tensor
    """(B, T) long, right-padded: what is known when target[:, t] is predicted is input[:, : t + 1]; (B, 0) for
    readers, who know their source alone."""
    target: Tensor
    """(B, T) long for tokens, IGNORE where no loss is taken. Readers: classes (B,), tags of words (B, W) or masked
    tokens (B, S), long; labels (B, C), numbers (B, 1) or patches (B, S, P), float."""
    documents: Tensor | None = None
    """(B, T) long: which document of its row an input token belongs to, where tokens may look no further."""

    @classmethod
    def of_text(cls, input: Tensor, target: Tensor) -> Self:
        """A language model's batch: no source."""
        return cls(source=Source.empty(input.size(0), input.device), input=input, target=target)

    @classmethod
    def of_source(cls, source: Source, target: Tensor) -> Self:
        """A reader's batch: a source and what to answer."""
        nothing = torch.zeros(source.rows, 0, dtype=torch.long, device=source.device)
        return cls(source=source, input=nothing, target=target)

    @property
    def rows(self) -> int:
        return self.input.size(0)

    def with_documents(self, sos: int) -> Self:
        """The same rows, with the documents that `<sos>` begins kept apart."""
        return replace(self, documents=(self.input == sos).cumsum(1))

    @property
    def count(self) -> int:
        """How many targets carry loss: the divisor of a mean. Meant for batches on the CPU."""
        return int((self.target != IGNORE).sum())


def within(lengths: Sequence[int], tokens: int) -> list[int]:
    """Where batches of neighbors begin and end: rows · longest within the tokens, or one row."""
    found, widest = [0], 0
    for n, length in enumerate(lengths):
        widest = max(widest, length)
        if n > found[-1] and (n + 1 - found[-1]) * widest > tokens:
            found.append(n)
            widest = length
    return [*found, len(lengths)]
