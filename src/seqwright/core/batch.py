"""Batches of training and scoring: source (encoder input), input (decoder input) and target, and their vocabularies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import torch

if TYPE_CHECKING:
    from torch import Tensor

IGNORE = -100
"""Target id without loss (padding, overlap between windows, a prompt): the default ignore_index of PyTorch."""


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """The size of a vocabulary and its special tokens; encoding text never yields a special token."""

    size: int
    unk: int | None = None
    pad: int | None = None
    sos: int | None = None
    eos: int | None = None
    mask: int | None = None


@dataclass(frozen=True, kw_only=True)
class Vocabularies:
    """The vocabularies of source and target; with a joint vocabulary both are the same."""

    source: Vocabulary | None
    """None for sources of features."""
    target: Vocabulary
    joint: bool = False
    features: int = 0
    """Feature dimension of a source position, instead of ids: the values of a patch."""


@dataclass(frozen=True, kw_only=True)
class OutputSpec:
    """The output of an encoder model: the kind of its predictions, and their number."""

    kind: Literal["class", "multilabel", "regression", "tags", "tokens", "pixels"]
    """A class, any number of labels or a value for each text; a tag for each word; masked tokens; masked patches."""
    count: int
    """Classes, labels, tags or tokens; 1 for regression; the values of a patch."""
    impossible: tuple[tuple[int, int], ...] = ()
    """Invalid transitions between tags (from, to); `count` stands for the start of a sentence."""


@dataclass(frozen=True, kw_only=True)
class EncoderSizes:
    """Input and output sizes that an encoder model is built for."""

    answers: OutputSpec
    vocabulary: Vocabulary | None = None
    """None for sources of features."""
    features: int | None = None
    """Feature dimension of a position, instead of ids: the values of a patch."""
    length: int | None = None
    """Fixed number of source positions (the patches of an image)."""
    segments: int = 1
    """Number of segment ids: 2 for pairs of texts."""
    causal: bool = False
    """Whether the output of a position must not depend on later ones."""


class Movable:
    """A dataclass of optional tensors that moves to a device as a whole."""

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Self:
        """A copy with all tensors on a device."""
        return self.mapped(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Self:
        """A copy in page-locked memory, from which a GPU copies without the host waiting."""
        return self.mapped(lambda tensor: tensor.pin_memory())

    def named_tensors(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """Every tensor with its dotted name."""
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, torch.Tensor):
                yield prefix + field.name, value
            elif isinstance(value, Movable):
                yield from value.named_tensors(f"{prefix}{field.name}.")

    def mapped(self, function: Callable[[Tensor], Tensor]) -> Self:
        """A copy with what a function makes of each tensor."""
        mapped: dict[str, Any] = {}
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, torch.Tensor):
                mapped[field.name] = function(value)
            elif isinstance(value, Movable):
                mapped[field.name] = value.mapped(function)
        return replace(self, **mapped)  # type: ignore[type-var]


@dataclass(frozen=True, kw_only=True)
class Source(Movable):
    """The encoder input: ids or float features. The mask gives the number of rows even where S is 0."""

    mask: Tensor
    """(B, S) bool; True = real, False = padding."""
    ids: Tensor | None = None
    """(B, S) long."""
    features: Tensor | None = None
    """(B, S, D) float: patches of an image, frames of a recording."""
    segments: Tensor | None = None
    """(B, S) long: segment ids as in BERT: the sentence of a pair, one of several sources, or masked patches."""
    visible: Tensor | None = None
    """(B, K) long: positions of the patches that are not masked, ascending; as many in every row."""
    word_starts: Tensor | None = None
    """(B, S) bool: first subword of each word (tagging, whole-word masking)."""
    words: Tensor | None = None
    """(B, S) long, where ids are characters: 1 for the first character of a word, 2 for the others, 0 between words."""
    spelling: Tensor | None = None
    """(B, S, C) long: code points + 1 of the word whose first subword is at a position; 0 for padding."""

    @classmethod
    def empty(cls, rows: int, device: torch.device | str = "cpu") -> Self:
        """The source of a language model: no positions, (B, 0)."""
        return cls(mask=torch.zeros(rows, 0, dtype=torch.bool, device=device))

    @property
    def rows(self) -> int:
        return self.mask.size(0)

    @property
    def device(self) -> torch.device:
        return self.mask.device

    def select(self, rows: Tensor) -> Self:
        """The source of these rows."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{k: v.index_select(0, rows) for k, v in tensors.items() if v is not None})


@dataclass(frozen=True, kw_only=True)
class Batch(Movable):
    """Rows of one training or scoring step. The data choose the targets, the head scores them."""

    source: Source
    input: Tensor
    """(B, T) long, right-padded: target[:, t] is predicted from input[:, : t + 1] (teacher forcing); (B, 0) for encoder
    models."""
    target: Tensor
    """(B, T) long, IGNORE where no loss is taken. Encoder models: classes (B,), tags of words (B, W) or masked tokens
    (B, S), long; multi-hot labels (B, C), regression values (B, 1) or patches (B, S, P), float."""
    documents: Tensor | None = None
    """(B, T) long: document number of each input token, where attention stays within documents (decision 65)."""

    @classmethod
    def of_text(cls, input: Tensor, target: Tensor) -> Self:
        """The batch of a language model: no source."""
        return cls(source=Source.empty(input.size(0), input.device), input=input, target=target)

    @classmethod
    def of_source(cls, source: Source, target: Tensor) -> Self:
        """The batch of an encoder model: a source and its target, no decoder input."""
        empty = torch.zeros(source.rows, 0, dtype=torch.long, device=source.device)
        return cls(source=source, input=empty, target=target)

    @property
    def rows(self) -> int:
        return self.input.size(0)

    def rows_of(self, rows: slice | Tensor) -> Self:
        """The batch of some of its rows, in their order."""
        return self.mapped(lambda tensor: tensor[rows])

    def with_documents(self, sos: int) -> Self:
        """The same rows with document numbers: each `<sos>` starts a document."""
        return replace(self, documents=(self.input == sos).cumsum(1))

    @property
    def count(self) -> int:
        """Number of targets with loss: the divisor of a mean. It synchronizes, so it is for batches on the CPU."""
        return int((self.target != IGNORE).sum())


def token_batch_boundaries(lengths: Sequence[int], batch_tokens: int) -> list[int]:
    """Boundaries of batches of consecutive rows whose padded size, rows · longest, is at most `batch_tokens`; a longer
    row is a batch by itself."""
    boundaries, longest = [0], 0
    for n, length in enumerate(lengths):
        longest = max(longest, length)
        if n > boundaries[-1] and (n + 1 - boundaries[-1]) * longest > batch_tokens:
            boundaries.append(n)
            longest = length
    return [*boundaries, len(lengths)]


def accumulator_dtype(device: torch.device) -> torch.dtype:
    """dtype of long sums: float64, or float32 on MPS, which has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64
