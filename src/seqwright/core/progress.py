"""Progress of long work: one interface through which training, counting, scoring and encoding report."""

from __future__ import annotations

from typing import Any


class Progress:
    """Callbacks of long work. Each does nothing here; override those that you show or record."""

    unit = "tokens"
    """What the rate of steps counts: targets of the loss."""

    def note(self, text: str) -> None:
        """A sentence that the user should read."""

    def stage(self, text: str) -> None:
        """What work of unknown length is doing now; empty when it is over."""

    def advance(self, done: int, total: int) -> None:
        """How much of the work is done."""

    def step(self, step: int, steps: int, loss: float | None, tokens_per_second: float) -> None:
        """After every optimizer step."""

    def record(self, record: dict[str, Any]) -> None:
        """Measurements: a line of log.jsonl, or the bytes and ids encoded so far."""


SILENT = Progress()
"""Reports to nobody."""
