"""A task: what a kind of data makes of a training - its codec, examples, scores and samples.

`data.kind` in a recipe picks the task from `build.TASKS`. A session trains any task through this protocol; what can be
done with a finished run is the business of the task's `Run`. Both share a `Codec`.
"""

from __future__ import annotations

import hashlib
from typing import Any, Protocol

import numpy as np
import torch

from seqwright.core.batch import Batch, Source
from seqwright.core.progress import Progress
from seqwright.core.protocols import Feed
from seqwright.runs.directory import RunDirectory
from seqwright.runs.run import Codec
from seqwright.tasks.scores import Scores
from seqwright.text.tokenizer import Tokenizer
from seqwright.training.config import TrainingConfig

FEW_HELD_OUT = 10
"""Validation examples below which scores and the choice of weights are pointed out as unreliable."""


def combined_fingerprint(*parts: str) -> str:
    """One fingerprint of several."""
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def held_out_notes(split: str | None, count: int | None, what: str) -> list[str]:
    """Notes on the validation data: that there is none, or which split of the training data it is."""
    if count is None:
        return [
            f"all {what} are learned from, so the run has no score of its own, and samples are training {what}; give"
            " --valid FILE, or set data.split."
        ]
    named = [] if split is None else [f"held out for validation: {split} of the {what} ({count:,})."]
    return named + few_held_out(count, what)


def few_held_out(count: int, what: str) -> list[str]:
    """A note where the validation data is too small to choose weights by."""
    if count >= FEW_HELD_OUT:
        return []
    return [
        f"validation {what}: {count:,} only, so that scores and the choice of weights are little better than chance;"
        " give more with --valid FILE, or hold out more with data.split."
    ]


def evenly_spaced(count: int, limit: int) -> range:
    """At most `limit` of `count` indices, evenly spaced: what is sampled for the log."""
    return range(0, count, max(1, count // limit))[:limit]


def synthetic_source(tokenizer: Tokenizer, rows: int, length: int, *, eos: bool = False) -> Source:
    """Sources of different lengths, of ids that the tokenizer can produce; ended by `<eos>` where sources are."""
    plain = torch.from_numpy(np.flatnonzero(tokenizer.is_text))
    ids = plain[torch.arange(rows * length) * 7919 % len(plain)].view(rows, length)
    lengths = torch.tensor([max(1, length - 3 * row) for row in range(rows)])
    if eos:
        ids[torch.arange(rows), lengths - 1] = tokenizer.eos  # type: ignore[assignment]
    words = None
    if tokenizer.kind == "characters":
        flat = tokenizer.word_bio(ids.flatten().numpy(), np.arange(0, rows * length, length))
        words = torch.from_numpy(flat).long().view(rows, length)
    return Source(mask=torch.arange(length) < lengths.unsqueeze(1), ids=ids, words=words)


class Settings(Protocol):
    """The sections of a recipe that a task reads."""

    @property
    def data(self) -> Any: ...

    @property
    def tokenizer(self) -> Any: ...

    @property
    def training(self) -> TrainingConfig: ...

    @property
    def decoding(self) -> Any: ...

    @property
    def evaluation(self) -> Any: ...

    @property
    def kind(self) -> str:
        """The model's kind."""
        ...


class Task(Protocol):
    """The training side of a task. Reads its data when it is made, and notes what the user should know of it."""

    def __init__(self, settings: Settings, directory: RunDirectory, progress: Progress): ...

    @property
    def codec(self) -> Codec:
        """Tokenizers, labels and sizes, shared with the run."""
        ...

    @property
    def fingerprint(self) -> str:
        """Of training and validation data: a run is resumed on the same data only, or scores could not be compared."""
        ...

    @property
    def corpus(self) -> Any:
        """The training data of counted models."""
        ...

    def feed(self, model: Any) -> Feed:
        """Training examples in order."""
        ...

    def evaluate(self, model: Any, device: torch.device | str, *, quick: bool) -> Scores | None:
        """Scores on the validation data, "nll" among them; `quick` ones are for the log. None without such data."""
        ...

    def sample(self, model: Any, device: torch.device | str) -> list[dict[str, str]]:
        """A few outputs for the log, each with its "prompt" and "text"."""
        ...

    def show(self, batch: Batch) -> str:
        """The beginning of a batch as text."""
        ...
