"""Requests to stop: heard once politely, obeyed at once the second time, and forgotten afterwards."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from seqwright.training.signals import StopRequest


@pytest.mark.parametrize(("number", "reason"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
def test_a_signal_is_remembered_as_a_reason(number: signal.Signals, reason: str) -> None:
    before = signal.getsignal(number)
    with StopRequest() as stop:
        assert stop.reason is None
        os.kill(os.getpid(), number)
        assert stop.reason == reason
    assert signal.getsignal(number) == before


def test_asked_twice_it_ends_at_once() -> None:
    with StopRequest():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_outside_the_main_thread_nothing_is_heard_or_broken() -> None:
    reasons = []

    def work() -> None:
        with StopRequest() as stop:
            reasons.append(stop.reason)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert reasons == [None]
