"""Progress reporting without and with a terminal."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from seqwright.reporting import progress


def test_encoding_prints_progress_rate_and_eta(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    """10 MB were done before; 20 MB more take 20 seconds, so the remaining 70 MB take 70."""
    clock = iter([0.0, 20.0, 25.0, 40.0])
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with progress.StreamProgress(100_000_000) as encoding:
        for done in (10_000_000, 15_000_000, 30_000_000):
            encoding.record({"kind": "encoding", "bytes": done, "ids": done // 4})
    first, last = capsys.readouterr().err.splitlines()
    assert first == "encoding  10.0 MB of 100 MB  2.50 M ids"
    assert last == "encoding  30.0 MB of 100 MB  7.50 M ids  1.00 MB/s  1 m 10 s left"


def test_encoding_of_unknown_size_has_no_eta(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter([0.0, 20.0, 40.0])
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with progress.StreamProgress(None) as encoding:
        encoding.record({"kind": "encoding", "bytes": 0, "ids": 0})
        encoding.record({"kind": "encoding", "bytes": 30_000_000, "ids": 10})
    assert capsys.readouterr().err.splitlines()[-1] == "encoding  30.0 MB  10 ids  1.50 MB/s"


def test_quiet_prints_nothing(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", -1)
    with progress.StreamProgress(100, quiet=True) as encoding:
        encoding.record({"kind": "encoding", "bytes": 50, "ids": 10})
    assert capsys.readouterr().err == ""


def test_sample_lines_of_outputs_and_continuations(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = progress.TerminalProgress()
    output = {
        "kind": "sample",
        "step": 1,
        "prompt": f"a {'long ' * 20}text",
        "text": " → good (0.9)",
        "reference": "bad",
    }
    reporter.record(output)
    reporter.record(output | {"prompt": "short\ttext", "text": "Kurzer Text"})
    reporter.record({"kind": "sample", "step": 1, "prompt": "once", "text": " upon a\x00time"})
    reporter.record({"kind": "sample", "step": 1, "prompt": "", "text": "3, 1", "reference": "3, 7", "image": "AA"})
    truncated, short, continuation, image = capsys.readouterr().err.splitlines()
    assert image == "  sample: 3, 1 (correct: 3, 7); images in report.html"
    assert truncated == f"  sample: {('a ' + 'long ' * 20)[:59]}… → good (0.9)"
    assert short == "  sample: short text → Kurzer Text"
    assert continuation == "  sample: upon a·time"


def test_status_lines_of_work_without_steps(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One line every ten seconds without a terminal, none for shorter work."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: clock.now))
    with progress.TerminalProgress() as reporter:
        for clock.now, text in ((100, "one"), (105, "two"), (111, "three"), (112, "four"), (122, "five"), (140, "")):
            reporter.stage(text)
    assert capsys.readouterr().err.splitlines() == ["three", "five"]


def test_terminal_status_is_shown_and_cleared() -> None:
    reporter, screen = progress.TerminalProgress(), io.StringIO()
    reporter.console = progress.Console(file=screen, force_terminal=True)
    reporter.stage("counting")
    reporter.stage("learning [n-grams]")
    reporter.stage("")
    assert reporter.status is None
    assert "learning [n-grams]" in screen.getvalue()


def test_scoring_prints_the_time_left_now_and_then(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter([0.0, 5.0, 20.0])
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with progress.TerminalProgress(what="exact search") as search:
        for done in (10, 15, 30):
            search.advance(done, 100)
    assert capsys.readouterr().err.splitlines() == ["exact search  30 %  1 m 10 s left"]


def test_one_long_line_of_a_stream_has_a_time_left(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter([0.0, 1.0, 21.0])
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with progress.StreamProgress(None, what="scoring", unit="lines") as scoring:
        for done in (0, 20):
            scoring.advance(done, 100)
    assert capsys.readouterr().err.splitlines() == ["scoring  a long line after line 0: 20 %  1 m 20 s left"]


def test_early_stopping_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    progress.TerminalProgress().record({"kind": "early", "step": 1507, "best_step": 1351})
    line = "early stopping after step 1,507: the validation loss was best at step 1,351.\n"
    assert capsys.readouterr().err == line
