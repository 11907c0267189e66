"""Progress of long work: a bar with rate and time left on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.status import Status
from rich.text import Text

from seqwright.reporting.numbers import count, duration, figure

QUIET_SECONDS = 10.0
"""Pause between lines where there is no terminal to redraw."""
SAID, ASKED = 160, 60
"""Characters of a sample on a line, and of what it answers."""


@contextlib.contextmanager
def scoring(*, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Something to call with (done, of) while a text is scored: a bar on a terminal's standard error."""
    console = Console(file=sys.stderr, quiet=quiet)
    columns = (
        TextColumn("scoring"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:.0f} %"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("scoring", total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


@contextlib.contextmanager
def encoding(whole: int | None, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Something to call with (bytes, ids) done while a text is encoded, of `whole` bytes where that is known.

    The rate is that since the first call: what was found done before costs no time.
    """
    console = Console(file=sys.stderr, quiet=quiet, highlight=False)
    columns = (TextColumn("encoding"), BarColumn(bar_width=24), TextColumn("{task.fields[status]}"))
    first: tuple[float, int] | None = None
    last_line = time.monotonic()

    def watch(done: int, ids: int) -> None:
        nonlocal first, last_line
        now = time.monotonic()
        first = first or (now, done)
        rate = (done - first[1]) / max(now - first[0], 1e-9)
        status = f"{count(done)}B" + ("" if whole is None else f" of {count(whole)}B") + f"  {count(ids)} ids"
        if rate:
            status += f"  {count(rate)}B/s"
            status += "" if whole is None else f"  {duration(max(0, whole - done) / rate)} left"
        bar.update(task, completed=done, status=status)
        if not console.is_terminal and now - last_line > QUIET_SECONDS:
            last_line = now
            console.print(Text(f"encoding  {status}"), soft_wrap=True)

    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("encoding", total=whole, status="")
        yield watch


class TrainingProgress:
    """Listens to a training: notes, steps and log records, all written to standard error."""

    def __init__(self, *, quiet: bool = False):
        self.console = Console(file=sys.stderr, quiet=quiet, highlight=False)
        self.bar: Progress | None = None
        self.task: Any = None
        self.begun: tuple[float, int] | None = None
        self.last_line = 0.0
        self.status: Status | None = None

    def __enter__(self) -> TrainingProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.doing("")
        if self.bar is not None:
            self.bar.stop()
            self.bar = None
        self.begun = None

    def say(self, text: str) -> None:
        self.console.print(Text(text), style="dim", soft_wrap=True)

    def doing(self, text: str) -> None:
        """What work without steps is at, on a line that goes when there is nothing more to say."""
        if self.console.is_terminal:
            self._wait(text)
        elif text and time.monotonic() - self.last_line > QUIET_SECONDS:
            if self.last_line:  # what is soon done needs no line
                self.console.print(Text(text), soft_wrap=True)
            self.last_line = time.monotonic()

    def step(self, step: int, steps: int, loss: float | None, tokens_per_second: float) -> None:
        now = time.monotonic()
        if self.begun is None or step <= self.begun[1]:
            self.begun = (now, step - 1)
        left = (now - self.begun[0]) / max(1, step - self.begun[1]) * (steps - step)
        shown = "" if loss is None else f"loss {figure(loss)}  "
        status = f"{shown}{count(tokens_per_second)} tokens/s  {duration(left)} left"
        if self.console.is_terminal:
            self._draw(step, steps, status)
        elif now - self.last_line > QUIET_SECONDS:
            self.last_line = now
            self.console.print(Text(f"step {step:,}/{steps:,}  {status}"), soft_wrap=True)

    def record(self, record: dict[str, Any]) -> None:
        if record["kind"] == "evaluation":
            bits = record.get("bits_per_byte")
            tail = "" if bits is None else f"  bits/byte {figure(bits)}"
            line = f"step {record['step']:,}  validation nll {figure(record['nll'])}{tail}"
            self.console.print(Text(line), style="bold", soft_wrap=True)
        elif record["kind"] == "sample":
            self.console.print(Text(f"  sample: {_said(record)}"), style="italic dim", soft_wrap=True)

    def _wait(self, text: str) -> None:
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
            columns = (
                BarColumn(bar_width=24),
                TextColumn("{task.completed:,}/{task.total:,}"),
                TextColumn("{task.fields[status]}"),
            )
            self.bar = Progress(*columns, console=self.console, transient=True, refresh_per_second=4)
            self.bar.start()
            self.task = self.bar.add_task("training", total=steps, status=status)
        self.bar.update(self.task, completed=step, total=steps, status=status)
        if step == steps:
            self.__exit__(None, None, None)


def _said(record: dict[str, Any]) -> str:
    """A sample on a line: what a text goes on with; of an answer, which has a reference, what was asked as well."""
    asked, said = (
        "".join(c if c.isprintable() else "·" for c in " ".join(record.get(key, "").split()))
        for key in ("prompt", "text")
    )
    if "reference" in record and asked:
        asked = asked if len(asked) <= ASKED else f"{asked[: ASKED - 1]}…"
        said = f"{asked} → {said.removeprefix('→ ')}"
    return said[:SAID]
