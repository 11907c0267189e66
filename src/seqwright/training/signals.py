"""Graceful shutdown on Ctrl-C, SIGTERM and SIGHUP: finish the step, save and exit; a second signal exits at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from seqwright.core.ranks import Ranks
from seqwright.training.launcher import launcher_pid

REASONS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
"""Signals that stop a training, and their names in logs."""
LAUNCHER = "the end of its launcher"
"""The reason of ranks whose launcher was killed: they would hold GPUs and the run directory unseen."""


class StopRequest:
    """Context manager that handles stop signals; `reason` names the first one received, or is None."""

    reason: str | None = None

    def __enter__(self) -> StopRequest:
        self._before: dict[int, Any] = {}
        self._launcher = launcher_pid()
        if threading.current_thread() is threading.main_thread():  # Python sets handlers only there
            for number in REASONS:
                if signal.getsignal(number) is not signal.SIG_IGN:  # under nohup SIGHUP stays ignored
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.reason is None:
            self.reason = REASONS[signal.Signals(number)]
        elif self._launcher is None or number == signal.SIGINT:
            raise KeyboardInterrupt
        # Else a scheduler has signaled a rank and its launcher, which signals the rank once more.

    def agreed(self, ranks: Ranks) -> str | None:
        """The reason on which all ranks stop at this step, or None: a signal may have reached one of them only."""
        if self._launcher is not None and os.getppid() != self._launcher:
            self.reason = self.reason or LAUNCHER
        names = [*REASONS.values(), LAUNCHER]
        number = ranks.max(0 if self.reason is None else 1 + names.index(self.reason))
        return names[number - 1] if number else None
