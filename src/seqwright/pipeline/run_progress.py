"""Progress of a session at a run: shown as it comes, and recorded in the run's log."""

from __future__ import annotations

from typing import Any

from seqwright.core.progress import Progress
from seqwright.pipeline.budget import Forecast
from seqwright.runs.directory import RunDirectory

UNITS = {"labeled": "labels", "tagged": "words", "images": "targets"}
"""Targets of the loss by kind of data, where they are no tokens."""


class RunProgress(Progress):
    """Progress of a session at a run: notes are also recorded in its log, each once however often it is resumed."""

    def __init__(self, directory: RunDirectory, progress: Progress, *, notes: bool = True):
        self.directory, self.progress = directory, progress
        self.notes = notes
        """Without, notes are dropped: data of a finished run are only compared, and its training noted them."""
        self.recorded = set(directory.notes())
        self.held: list[str] | None = []
        """Notes on data that may still be refused; None once it is accepted."""
        self.forecast = Forecast()
        progress.unit = UNITS.get(directory.recipe().get("data", {}).get("kind"), Progress.unit)

    def note(self, text: str) -> None:
        if not self.notes:
            return
        self.progress.note(text)
        if self.held is not None:
            self.held.append(text)
        elif text not in self.recorded:
            self.directory.note(text)
            self.recorded.add(text)

    def accept(self) -> None:
        """Records the notes so far, and the following ones as they come."""
        held, self.held = self.held or [], None
        for text in held:
            if text not in self.recorded:
                self.directory.note(text)
                self.recorded.add(text)

    def stage(self, text: str) -> None:
        self.progress.stage(text)

    def advance(self, done: int, total: int) -> None:
        self.progress.advance(done, total)

    def step(self, step: int, steps: int, loss: float | None, tokens_per_second: float) -> None:
        self.progress.step(step, steps, loss, tokens_per_second)
        if announcement := self.forecast(step, steps):
            self.progress.note(announcement)

    def record(self, record: dict[str, Any]) -> None:
        self.directory.log(record)
        self.progress.record(record)
