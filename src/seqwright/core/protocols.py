"""The seam: what every model answers, and what it remembers between answers.

A model is asked for the next id. Everything else - training, search, scores, servers - is built on that question,
and knows models only through the protocols of this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from seqwright.core.batch import Batch, Source


def per_source() -> Any:
    """Marks a field of a State that holds one entry for each source, however many rows (beams) share that source."""
    return field(metadata={"per_source": True})


def shared() -> Any:
    """Marks a field of a State that holds one value for all rows: a tensor on the CPU, so that reading it waits for no
    device. Rows that join keep the greater value."""
    return field(metadata={"shared": True})


@dataclass
class State:
    """What a model remembers between steps: a dataclass of tensors (and of States), rows first.

    Rows that share a source are neighbors: with R rows over B sources, row r belongs to source r // (R / B).
    A state is used up by `step`: keep the one it returns.
    """

    def select(self, rows: Tensor, sources: Tensor | None = None) -> Self:
        """These rows, in this order: reorders beams, fans a prompt out to samples, drops finished rows.

        Fields marked `per_source` keep their entries while `sources` is None (rows move within their groups or fan
        out); give the surviving sources where some are dropped or reordered.
        """
        taken: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            index = sources if f.metadata.get("per_source") else rows
            if isinstance(value, State):
                taken[f.name] = value.select(rows, sources)
            elif index is not None and not f.metadata.get("shared"):
                taken[f.name] = value.index_select(0, index)
        return replace(self, **taken)

    def reorder(self, rows: Tensor) -> Self:
        """As `select` within groups, with as many rows as there are; this state is used up, so it may move in place."""
        moved: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, State):
                moved[f.name] = value.reorder(rows)
            elif not f.metadata.get("per_source") and not f.metadata.get("shared"):
                moved[f.name] = value.index_select(0, rows)
        return replace(self, **moved)

    def static(self, steps: int) -> Self | None:
        """This state in shapes that so many steps of one id leave as they are, reading no number from the device: what
        it takes to capture them. None where the model does not promise that."""
        return None

    def copy_(self, other: Self) -> Self:
        """This state, every tensor where it was, holding what `other` holds."""
        for (_, mine), (_, theirs) in zip(self.named_tensors(), other.named_tensors(), strict=True):
            if mine is not theirs:
                mine.copy_(theirs)
        return self

    def cat(self, other: Self) -> Self:
        """The rows of both, ours first: admits new requests. Both must come from `start` with the same capacity."""
        joined: dict[str, Any] = {}
        for f in fields(self):
            mine, theirs = getattr(self, f.name), getattr(other, f.name)
            if isinstance(mine, State):
                joined[f.name] = mine.cat(theirs)
            else:
                joined[f.name] = torch.maximum(mine, theirs) if f.metadata.get("shared") else torch.cat([mine, theirs])
        return replace(self, **joined)

    def detach(self) -> Self:
        """The same values with no history: what truncated back-propagation carries to the next window."""
        return replace(self, **{f.name: getattr(self, f.name).detach() for f in fields(self)})

    def named_tensors(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """Every tensor with its dotted name: what a checkpoint writes."""
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, State):
                yield from value.named_tensors(f"{prefix}{f.name}.")
            else:
                yield prefix + f.name, value

    def from_tensors(self, tensors: Mapping[str, Tensor], prefix: str = "") -> Self:
        """A state of this shape holding `tensors`: what a checkpoint reads."""
        loaded: dict[str, Any] = {}
        for f in fields(self):
            mine = getattr(self, f.name)
            if isinstance(mine, State):
                loaded[f.name] = mine.from_tensors(tensors, f"{prefix}{f.name}.")
            else:
                loaded[f.name] = tensors[prefix + f.name].to(mine.device)
        return replace(self, **loaded)


@runtime_checkable
class Model(Protocol):
    """Every model, those without a next id (BERT, ViT) too."""

    def __call__(self, batch: Batch) -> Tensor:
        """Logits aligned with batch.target: (B, T, V) for tokens."""
        ...


@runtime_checkable
class Autoregressive(Model, Protocol):
    """A model with a next id: n-gram, RNN, GPT, translator, mixture."""

    @property
    def context(self) -> int | None:
        """The longest input it can see at once; None where a state carries any length."""
        ...

    def start(self, source: Source, *, capacity: int) -> State:
        """Before anything is said. `capacity` bounds the ids, padding included, that a row will be given."""
        ...

    def step(self, ids: Tensor, state: State, count: Tensor | None = None) -> tuple[Tensor, State]:
        """Reads ids (B, T); log-probabilities (B, V), natural log, float32, after the last real one.

        `count` (B,) says how many ids of each row, at least one, are real where rows are right-padded. A chunk is a
        prefill: it equals its ids one at a time.
        """
        ...

    def score(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        """log p(target) (B, T) float32, 0 where IGNOREd; never needs a (B * T, V) array.

        With a state it continues from there and returns the state after, so that windows with carried state equal one
        long window; without one, rows begin afresh and None comes back.
        """
        ...


class Head(Protocol):
    """The end of a model: what is made of hidden vectors."""

    def __call__(self, hidden: Tensor) -> Tensor:
        """Logits."""
        ...

    def loss(self, hidden: Tensor, target: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """(sum, count) of the loss over targets that are not IGNOREd: sums add up over batches and ranks."""
        ...

    def predict(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        """The most probable answer: arg max, Viterbi path, several labels, pixels; `real` says which of a row's
        vectors count, where they are answered together."""
        ...


class Trainable(Model, Protocol):
    """A model trained by gradients: hidden vectors, then a head, so that the loss decides how logits are made."""

    head: Head

    def hidden(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        """The vectors the head reads, aligned with batch.target, and the state after where one was given."""
        ...

    def parameters(self) -> Iterator[torch.nn.Parameter]: ...


@runtime_checkable
class Encodes(Protocol):
    """A model with an encoder to look into: language models, translators, readers."""

    @property
    def context(self) -> int | None: ...

    def vectors(self, source: Source) -> Tensor:
        """(B, S, D): what the encoder makes of each position of a source of ids."""
        ...


@runtime_checkable
class TellsTokens(Protocol):
    """A reader that can also be asked for the tokens of its own source, each from those before it."""

    @property
    def tells_tokens(self) -> bool:
        """Whether its encoder reads from left to right, so that the answer does not stand in what is asked."""
        ...

    def hidden_and_surprise(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The vectors the head reads, and the sum over rows of the mean nll of a row's tokens: by rows, so that it adds
        up over batches."""
        ...


Doing = Callable[[str], None]
"""Told now and then what long work is at, for whoever waits."""


def unheard(said: str) -> None:
    """Where nobody waits."""


Watch = Callable[[int, int], None]
"""Told how many of how many are done, as long work goes on."""


def unwatched(done: int, of: int) -> None:
    """Where nobody watches."""


@runtime_checkable
class Counted(Model, Protocol):
    """A model estimated by counting, in one pass and without gradients: n-gram, bag of n-grams, perceptron."""

    def fit(self, corpus: Any, doing: Doing = unheard) -> None:
        """Counts what the data module of its task yields; says how much it read through its own fields."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """All it knows, by name: what model.safetensors holds."""
        ...

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Becomes the model these tensors came from."""
        ...


class Feed(Protocol):
    """Training data in order. The order is a function of (seed, step): any step can be asked for at any time."""

    steps_per_epoch: int
    """Batches in which every example is visited exactly once; batches are disjoint, the last may have fewer rows."""
    carried: bool
    """Row b of a batch continues row b of the batch before (until the epoch ends): its state is carried along."""

    def batch(self, step: int) -> Batch:
        """The batch of step 0, 1, 2, … on the CPU."""
        ...
