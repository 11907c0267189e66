"""A task: what a kind of data makes of a run - its tokenizer, examples, scores and samples.

`data.kind` in a recipe picks the task from `build.TASKS`. A session trains any task through this protocol; what can be
done with a finished run is the business of the task's `Run`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch

from seqwright.core.batch import Batch, Source
from seqwright.core.protocols import Feed
from seqwright.runs.directory import RunDirectory
from seqwright.text.tokenizer import Tokenizer
from seqwright.training.config import TrainingConfig

Note = Callable[[str], None]
"""Says a sentence and puts it on record."""


def fingerprint_of(*parts: str) -> str:
    """One fingerprint of several."""
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def held_out_notes(split: str | None, count: int | None, what: str) -> list[str]:
    """What should be said of validation data: that there is none, or which part of the training data it was."""
    if count is None:
        return [
            f"all {what} are learned from, so the run has no score of its own, and samples are training {what}; give"
            " --valid FILE, or set data.split."
        ]
    return [] if split is None else [f"held out for validation: {split} of the {what} ({count:,})."]


def spread(count: int, most: int) -> range:
    """At most so many of `count` places, evenly spread: what is sampled for the log."""
    return range(0, count, max(1, count // most))[:most]


def made_up_source(tokenizer: Tokenizer, rows: int, length: int, *, ended: bool = False) -> Source:
    """Sources of different lengths, of ids that the tokenizer can produce; ended by `<eos>` where sources are."""
    plain = torch.from_numpy(np.flatnonzero(tokenizer.is_text))
    drawn = plain[torch.arange(rows * length) * 7919 % len(plain)].view(rows, length)
    lengths = torch.tensor([max(1, length - 3 * row) for row in range(rows)])
    if ended:
        drawn[torch.arange(rows), lengths - 1] = tokenizer.eos  # type: ignore[assignment]
    marks = None
    if tokenizer.kind == "characters":
        flat = tokenizer.word_bio(drawn.flatten().numpy(), np.arange(0, rows * length, length))
        marks = torch.from_numpy(flat).long().view(rows, length)
    return Source(mask=torch.arange(length) < lengths.unsqueeze(1), ids=drawn, words=marks)


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
    """The data side of a training. Made from (settings, directory, note); what it noticed is noted on the way."""

    def __init__(self, settings: Settings, directory: RunDirectory, note: Note): ...

    @property
    def sizes(self) -> Any:
        """What a model of this task is built for: a `Vocabulary`, or several, or classes."""
        ...

    @property
    def fingerprint(self) -> str:
        """Of training and validation data: a resumed run must find what it left, or scores could not be compared."""
        ...

    @property
    def corpus(self) -> Any:
        """What counted models count."""
        ...

    def feed(self, model: Any) -> Feed:
        """Examples in the order of training."""
        ...

    def evaluate(self, model: Any, device: torch.device | str, *, quick: bool) -> dict[str, Any] | None:
        """Scores on the validation data, "nll" among them; `quick` ones are for the log. None without such data."""
        ...

    def sample(self, model: Any, device: torch.device | str) -> list[dict[str, str]]:
        """A few outputs for the log, each with its "prompt" and "text"."""
        ...

    def show(self, batch: Batch) -> str:
        """The beginning of a batch as a person reads it."""
        ...
