"""Graceful shutdown on Ctrl-C, SIGTERM and SIGHUP: finish the step, save and exit; a second signal exits at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class StopRequest:
    """Context manager that handles stop signals; `reason` names the first one received, or is None."""

    reason: str | None = None

    def __enter__(self) -> StopRequest:
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():  # Python sets handlers only there
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:  # under nohup SIGHUP stays ignored
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.reason is not None:
            raise KeyboardInterrupt
        self.reason = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
