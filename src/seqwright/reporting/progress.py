"""Progress reporting on standard error: bars with rate and ETA on a terminal, periodic lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.status import Status
from rich.text import Text

from seqwright.core.printable import printable
from seqwright.core.progress import Progress
from seqwright.core.wording import worded
from seqwright.reporting.numbers import count, duration, figure

LINE_SECONDS = 10.0
"""Seconds between progress lines where standard error is no terminal."""
LONG_LINE_SECONDS = 2.0
"""Seconds of one line of a stream after which its progress is shown."""
RATED_STEPS = 3
"""Steps after which the time left is estimated."""
SAMPLE_CHARACTERS, SOURCE_CHARACTERS = 160, 60
"""Maximum number of characters of a sample on a line, and of its source."""


class TimeLeft:
    """The time left of work that advances evenly, from its first report on."""

    def __init__(self) -> None:
        self.first: tuple[float, int] | None = None
        self.seconds = 0.0
        """Since the first report of the present work."""

    def __call__(self, done: int, total: int, now: float) -> str:
        """Percentage done and, as soon as it can be estimated, the time left."""
        if self.first is None or done <= self.first[1]:  # the first report, or other work
            self.first = (now, done)
        self.seconds, taken = now - self.first[0], done - self.first[1]
        left = f"  {duration(self.seconds / taken * (total - done))} left" if taken else ""
        return f"{done / max(total, 1):.0%}{left}".replace("%", " %", 1)


class StreamProgress(Progress):
    """Progress of reading `total` bytes (None: unknown): bytes, units (ids, lines), rate and ETA.

    The rate is measured from the first record on, so that shards finished before a resume do not count.
    """

    def __init__(self, total: int | None, *, what: str = "encoding", unit: str = "ids", quiet: bool = False):
        self.total, self.what, self.unit = total, what, unit
        self.console = Console(file=sys.stderr, quiet=quiet, highlight=False)
        columns = (TextColumn(what), BarColumn(bar_width=24), TextColumn("{task.fields[status]}"))
        shown = self.console.is_terminal and not quiet
        self.bar = Bar(*columns, console=self.console, transient=True, disable=not shown)
        self.task = self.bar.add_task(what, total=total, status="")
        self.first: tuple[float, int] | None = None
        self.lines_read = 0
        self.time_left = TimeLeft()
        self.last_line = time.monotonic()

    def __enter__(self) -> StreamProgress:
        self.bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.bar.stop()

    def note(self, text: str) -> None:
        """Prints a note."""
        self.console.print(Text(printable(text)), style="dim", soft_wrap=True)

    def record(self, record: dict[str, Any]) -> None:
        """Updates the bar with the "bytes" and units so far."""
        done, units, now = record["bytes"], record[self.unit], time.monotonic()
        self.lines_read = units
        self.first = self.first or (now, done)
        rate = (done - self.first[1]) / max(now - self.first[0], 1e-9)
        size = f"{count(done)}B" + ("" if self.total is None else f" of {count(self.total)}B")
        status = f"{size}  {count(units)} {self.unit}"
        if rate:
            status += f"  {count(rate)}B/s"
            status += "" if self.total is None else f"  {duration(max(0, self.total - done) / rate)} left"
        self.bar.update(self.task, completed=done, status=status)
        self._print_line(status, now)

    def advance(self, done: int, total: int) -> None:
        """Shows how much of one long line is done; nothing of lines that take less than LONG_LINE_SECONDS."""
        now = time.monotonic()
        left = self.time_left(done, total, now)
        if self.time_left.seconds < LONG_LINE_SECONDS:
            return
        status = f"a long line after line {self.lines_read:,}: {left}"
        self.bar.update(self.task, status=status)
        self._print_line(status, now)

    def _print_line(self, status: str, now: float) -> None:
        if not self.console.is_terminal and now - self.last_line > LINE_SECONDS:
            self.last_line = now
            self.console.print(Text(f"{self.what}  {status}"), soft_wrap=True)


class TerminalProgress(Progress):
    """Progress of training and scoring: notes, bars, evaluations and samples on standard error."""

    def __init__(self, *, what: str = "scoring", quiet: bool = False):
        self.what, self.time_left = what, TimeLeft()
        self.console = Console(file=sys.stderr, quiet=quiet, highlight=False)
        self.bar: Bar | None = None
        self.task: Any = None
        self.started: tuple[float, int] | None = None
        self.last_line = 0.0
        self.status: Status | None = None

    def __enter__(self) -> TerminalProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stage("")
        if self.bar is not None:
            self.bar.stop()
            self.bar = None
        self.started = None

    def note(self, text: str) -> None:
        """Prints a note."""
        self.console.print(Text(printable(worded(text))), style="dim", soft_wrap=True)

    def stage(self, text: str) -> None:
        """Shows the status of work without steps, such as fitting counts; an empty text clears it."""
        if self.console.is_terminal:
            self._spin(text)
        elif text and time.monotonic() - self.last_line > LINE_SECONDS:
            if self.last_line:  # no line for work that takes less than LINE_SECONDS
                self.console.print(Text(text), soft_wrap=True)
            self.last_line = time.monotonic()

    def advance(self, done: int, total: int) -> None:
        """Updates the bar of an evaluation, or prints a line now and then where standard error is no terminal."""
        if not self.console.is_terminal:
            now = time.monotonic()
            status = self.time_left(done, total, now)
            self.last_line = self.last_line or now  # no line for work that takes less than LINE_SECONDS
            if now - self.last_line > LINE_SECONDS:
                self.last_line = now
                self.console.print(Text(f"{self.what}  {status}"), soft_wrap=True)
            return
        if self.bar is None:
            percentage = TextColumn("{task.percentage:.0f} %")
            self._start(TextColumn(self.what), BarColumn(bar_width=24), percentage, TimeRemainingColumn(), total=total)
        assert self.bar is not None
        self.bar.update(self.task, completed=done, total=total)

    def step(self, step: int, steps: int, loss: float | None, tokens_per_second: float) -> None:
        """Updates the bar after an optimizer step; `loss` is the latest one known, None before the first."""
        now = time.monotonic()
        if self.started is None or step <= self.started[1]:
            self.started = (now, step)
        seconds, taken = now - self.started[0], step - self.started[1]
        loss_text = "" if loss is None else f"loss {figure(loss)}  "
        status = f"{loss_text}{count(tokens_per_second)} {self.unit}/s"
        if taken >= RATED_STEPS:  # one step says little about the others
            status += f"  {duration(seconds / taken * (steps - step))} left"
        if self.console.is_terminal:
            self._draw(step, steps, status)
        elif now - self.last_line > LINE_SECONDS:
            self.last_line = now
            self.console.print(Text(f"step {step:,}/{steps:,}  {status}"), soft_wrap=True)

    def record(self, record: dict[str, Any]) -> None:
        """Prints evaluations and samples among the records of log.jsonl."""
        if record["kind"] == "evaluation":
            bits = record.get("bits_per_byte")
            suffix = "" if bits is None else f"  bits/byte {figure(bits)}"
            if "train_accuracy" in record:
                suffix = f"  accuracy {record['accuracy']:.1f} %, of training texts {record['train_accuracy']:.1f} %"
            line = f"step {record['step']:,}  validation nll {figure(record['nll'])}{suffix}"
            self.console.print(Text(line), style="bold", soft_wrap=True)
        elif record["kind"] == "baseline":
            bits = record.get("bits_per_byte")
            suffix = "" if bits is None else f"  bits/byte {figure(bits)}"
            line = (
                f"{record['model']} baseline after {duration(record['seconds'])}:  nll {figure(record['nll'])}{suffix}"
            )
            self.console.print(Text(line), style="bold", soft_wrap=True)
        elif record["kind"] == "early":
            step, best = record["step"], record["best_step"]
            line = f"early stopping after step {step:,}: the validation loss was best at step {best:,}."
            self.console.print(Text(line), style="dim", soft_wrap=True)
        elif record["kind"] == "sample":
            self.console.print(Text(f"  sample: {_sample_line(record)}"), style="italic dim", soft_wrap=True)

    def _spin(self, text: str) -> None:
        if self.status is None and text:
            self.status = self.console.status(Text(text), refresh_per_second=4)
            self.status.start()
        elif self.status is not None and text:
            self.status.update(Text(text))
        elif self.status is not None:
            self.status.stop()
            self.status = None

    def _draw(self, step: int, steps: int, status: str) -> None:
        if self.bar is None:
            numbers, text = TextColumn("{task.completed:,}/{task.total:,}"), TextColumn("{task.fields[status]}")
            self._start(BarColumn(bar_width=24), numbers, text, total=steps, status=status)
        assert self.bar is not None
        self.bar.update(self.task, completed=step, total=steps, status=status)
        if step == steps:
            self.__exit__(None, None, None)

    def _start(self, *columns: ProgressColumn, total: int, **fields: Any) -> None:
        self.bar = Bar(*columns, console=self.console, transient=True, refresh_per_second=4)
        self.bar.start()
        self.task = self.bar.add_task("", total=total, **fields)


def _sample_line(record: dict[str, Any]) -> str:
    """A sample on one line: a continuation by itself, an output with a reference as `source → output`, or labels of
    images with the correct ones; the images are in the report."""
    source, output = (
        "".join(c if c.isprintable() else "·" for c in " ".join(record.get(key, "").split()))
        for key in ("prompt", "text")
    )
    if "reference" in record and source:
        source = source if len(source) <= SOURCE_CHARACTERS else f"{source[: SOURCE_CHARACTERS - 1]}…"
        output = f"{source} → {output.removeprefix('→').lstrip()}"
    if "image" in record:
        correct = f" (correct: {record['reference']})" if "reference" in record else ""
        return f"{output}{correct}; images in report.html"
    return output[:SAMPLE_CHARACTERS]
