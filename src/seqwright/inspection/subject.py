"""What is inspected: a run, an example and one recorded forward pass, which all views share."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from seqwright.core.config import UserError
from seqwright.inspection.forward import Forward, forward
from seqwright.runs.run import Run
from seqwright.studies.explain.explanation import Step
from seqwright.tasks.example import Example
from seqwright.tasks.translation.task import TranslationRun
from seqwright.text.tokenizer import Tokenizer


class EmptySpanError(UserError):
    """A span that has none of the tokens of a view."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What of a view is shown."""

    layer: int | None = None
    """Of attention, gates and logit lens, from 0; all by default."""
    head: int | None = None
    """Of attention, from 0; all by default."""
    top: int = 5
    """Alternatives and neighbors of a token."""
    on: str | None = None
    """File over which statistics of heads are taken."""
    span: tuple[int, int] | None = None
    """Tokens that are shown, from the first to before the second, as tables number them; all by default."""

    def __post_init__(self) -> None:
        if self.top < 1:
            raise UserError(f"top must be at least 1, not {self.top}.")
        if self.span is not None and not 0 <= self.span[0] < self.span[1]:
            raise UserError(f"a span goes from a token to a later one, as in 3:8, not {self.span[0]}:{self.span[1]}.")

    def has_rows(self, count: int, first: int = 0) -> bool:
        """Whether any of `count` rows, numbered from `first`, is in the span."""
        return self.span is None or (self.span[0] < first + count and self.span[1] > first)

    def shown(self, count: int, first: int = 0) -> slice:
        """Those of `count` rows that the span has; they are numbered from `first`."""
        if self.span is None:
            return slice(0, count)
        start, stop = (min(count, max(0, number - first)) for number in self.span)
        if start == stop:
            numbers = f"{first} to {first + count - 1}"
            raise EmptySpanError(f"no tokens {self.span[0]}:{self.span[1]} here: they have the numbers {numbers}.")
        return slice(start, stop)


@dataclass(frozen=True)
class ViewResult:
    """A view as a step of prose and figures, and as values for Python."""

    step: Step
    value: Any


@dataclass(frozen=True)
class Subject:
    """A run and the example it is inspected on."""

    run: Run
    example: Example
    options: Options
    against: Run | None = None
    """An n-gram, or another run with the same tokenizer, to compare with."""

    beside: Example | None = None
    """A second text whose attention is shown beside that of the first."""

    @functools.cached_property
    def forward(self) -> Forward:
        return forward(self.run, self.example)

    @property
    def target_tokenizer(self) -> Tokenizer:
        """The tokenizer of what is predicted."""
        return self.run.tokenizers.target if isinstance(self.run, TranslationRun) else self.run.tokenizer
