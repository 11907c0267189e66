"""Requests for a continuation, and the continuations as they grow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from seqwright.core.batch import Source
from seqwright.decoding.options import SamplingOptions

FIRST_DRAFT = 4
"""Tokens that a draft proposes at first (speculative decoding)."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A prompt to continue, and how."""

    prompt: Sequence[int]
    """Ids, at least one."""
    options: SamplingOptions
    seed: int | None = None
    """That of the options unless given."""
    on_token: Callable[[int], bool] | None = None
    """Called with every generated id; return True to stop the sequence."""


@dataclass(eq=False)
class Generation:
    """One continuation as it grows."""

    id: int
    """What `cancel` takes."""
    prompt: list[int]
    options: SamplingOptions
    seed: int
    on_token: Callable[[int], bool] | None = None
    source: Source | None = None
    """The sources it was admitted with, of which `row` is its own."""
    row: int = 0
    ids: list[int] = field(default_factory=list)
    log_prob: float = 0.0
    """Of the generated ids under the model itself, whatever the processors did; that of the end id is included."""
    reason: str | None = None
    """Why it ended: "length", "end" (the end id was generated), "stop" (its callback returned True or raised),
    "canceled", "refused" (its prompt or options, or those of a request beside it, could not be read)."""
    cached: int = 0
    """Ids that its slot of the state holds; 0 before the prompt was read."""
    drafted: int = FIRST_DRAFT
    """Tokens that a draft should propose next."""

    def recent(self, most: int | None) -> list[int]:
        """The last ids of prompt and output together."""
        together = self.prompt + self.ids
        return together if most is None else together[-most:]
