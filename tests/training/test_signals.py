"""Stop signals: the first is recorded, the second raises, and handlers are restored afterwards."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from seqwright.core.ranks import SINGLE
from seqwright.training.signals import StopRequest


@pytest.mark.parametrize(("number", "reason"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
def test_stop_signal_is_recorded_as_reason(number: signal.Signals, reason: str) -> None:
    before = signal.getsignal(number)
    with StopRequest() as stop:
        assert stop.reason is None
        os.kill(os.getpid(), number)
        assert stop.reason == reason
    assert signal.getsignal(number) == before


def test_second_stop_signal_raises_keyboard_interrupt() -> None:
    with StopRequest():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_stop_signals_are_not_handled_outside_the_main_thread() -> None:
    reasons = []

    def work() -> None:
        with StopRequest() as stop:
            reasons.append(stop.reason)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert reasons == [None]


def test_ranks_stop_where_their_launcher_was_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = iter([100, 100, 1])
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "run")
    with StopRequest() as stop:
        assert stop.agreed(SINGLE) is None
        assert stop.agreed(SINGLE) == "the end of its launcher"


def test_ranks_stop_where_their_launcher_was_killed_before_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", f"seqwright-{os.getppid()}-0")
    with StopRequest() as stop:
        assert stop.agreed(SINGLE) is None
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", f"seqwright-{os.getpid()}-0")
    with StopRequest() as stop:
        assert stop.agreed(SINGLE) == "the end of its launcher"


def test_a_signal_that_the_launcher_repeats_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "run")
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.agreed(SINGLE) == "SIGTERM"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
