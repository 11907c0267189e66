"""Progress of long work: what is said where there is no terminal to draw on."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from seqwright.reporting import progress


def test_encoding_says_how_far_it_is_and_how_long_it_takes(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    """10 MB were found done; 20 MB more take 20 seconds, so the 70 MB left take 70."""
    clock = iter([0.0, 20.0, 25.0, 40.0])
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with progress.encoding(100_000_000) as watch:
        for done in (10_000_000, 15_000_000, 30_000_000):
            watch(done, done // 4)
    first, last = capsys.readouterr().err.splitlines()
    assert first == "encoding  10.0 MB of 100 MB  2.50 M ids"
    assert last == "encoding  30.0 MB of 100 MB  7.50 M ids  1.00 MB/s  1 m 10 s left"


def test_encoding_of_unknown_size_says_no_time(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter([0.0, 20.0, 40.0])
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with progress.encoding(None) as watch:
        watch(0, 0)
        watch(30_000_000, 10)
    assert capsys.readouterr().err.splitlines()[-1] == "encoding  30.0 MB  10 ids  1.50 MB/s"


def test_quiet_is_quiet(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", -1)
    with progress.encoding(100, quiet=True) as watch:
        watch(50, 10)
    assert capsys.readouterr().err == ""


def test_a_sample_shows_what_it_answers_and_a_continuation_only_itself(capsys: pytest.CaptureFixture[str]) -> None:
    listener = progress.TrainingProgress()
    answer = {
        "kind": "sample",
        "step": 1,
        "prompt": f"a {'long ' * 20}text",
        "text": " → good (0.9)",
        "reference": "bad",
    }
    listener.record(answer)
    listener.record(answer | {"prompt": "short\ttext", "text": "Kurzer Text"})
    listener.record({"kind": "sample", "step": 1, "prompt": "once", "text": " upon a\x00time"})
    long, short, more = capsys.readouterr().err.splitlines()
    assert long == f"  sample: {('a ' + 'long ' * 20)[:59]}… → good (0.9)"
    assert short == "  sample: short text → Kurzer Text"
    assert more == "  sample: upon a·time"


def test_work_without_steps_says_what_it_is_at(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A line every ten seconds where there is no terminal, and none of what is done sooner."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: clock.now))
    with progress.TrainingProgress() as listener:
        for clock.now, text in ((100, "one"), (105, "two"), (111, "three"), (112, "four"), (122, "five"), (140, "")):
            listener.doing(text)
    assert capsys.readouterr().err.splitlines() == ["three", "five"]


def test_a_terminal_shows_what_is_done_and_then_nothing() -> None:
    listener, screen = progress.TrainingProgress(), io.StringIO()
    listener.console = progress.Console(file=screen, force_terminal=True)
    listener.doing("counting")
    listener.doing("learning [n-grams]")
    listener.doing("")
    assert listener.status is None
    assert "learning [n-grams]" in screen.getvalue()
