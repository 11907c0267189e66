"""Ctrl-C and SIGTERM at any moment of a command: exit status 130 or 143, no traceback and no half-written file."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.journeys.commands import Result, files, finish, start, wait_until

SCRIPT = "import sys; from seqwright.__main__ import main; sys.exit(main())"
"""What pip writes as the console script."""
ENTRIES = {"module": ["-m", "seqwright"], "script": ["-c", SCRIPT]}
PYTHON_ITSELF = ("site.py", "runpy.py", "<frozen ", "encodings/", '"<string>"', "seqwright/__init__.py")
"""Files that run before our entry point."""


def interrupted(entry: str, run: Path, delay: float | None) -> tuple[Result, float]:
    """A command that is interrupted after `delay` seconds, and its duration."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, *ENTRIES[entry], "generate", str(run), "the", "--max-tokens", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        process.wait(delay)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    return finish(process), time.monotonic() - began


def exits_without_traceback(entry: str, run: Path, times: int) -> None:
    complete, seconds = interrupted(entry, run, None)
    assert complete.status == 0, complete.err
    rng, statuses = random.Random(entry), []
    for _ in range(times):
        delay = rng.uniform(0, seconds)
        result, _ = interrupted(entry, run, delay)
        assert result.status in (0, 130, -signal.SIGINT), (delay, result)
        statuses.append(result.status)
        places = [line for line in result.err.splitlines() if line.lstrip().startswith("File ")]
        assert all(any(name in line for name in PYTHON_ITSELF) for line in places), (delay, result.err)
        assert "Exception ignored" not in result.err, (delay, result.err)
    assert set(statuses) - {0}, "no interrupt came before the end"


@pytest.mark.parametrize("entry", ENTRIES)
def test_interrupts_of_the_start_show_no_traceback(entry: str, trained: Path) -> None:
    exits_without_traceback(entry, trained, 2)


@pytest.mark.slow
@pytest.mark.parametrize("entry", ENTRIES)
def test_fifty_interrupts_of_the_start_show_no_traceback(entry: str, trained: Path) -> None:
    exits_without_traceback(entry, trained, 50)


def test_interrupt_that_an_import_swallows(tmp_path: Path) -> None:
    (tmp_path / "swallowing.py").write_text(
        "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\nexcept KeyboardInterrupt:\n    pass\n"
    )
    program = (
        "import signal, sys, types\n"
        "import seqwright.__main__ as command\n"
        "def main():\n    import swallowing\n    print('continued')\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.modules['seqwright.cli'] = cli = types.ModuleType('cli')\n"
        "cli.main = main\n"
        "command.main()\n"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "stopped.\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_of_an_import_within_a_training_waits_for_its_end(number: int, tmp_path: Path) -> None:
    (tmp_path / "interrupted.py").write_text(
        f"import os, time\nos.kill(os.getpid(), {number})\ntime.sleep(0.1)\nprint('imported')\n"
    )
    program = (
        "import signal, sys, time, types\n"
        "import seqwright.__main__ as command\n"
        "from seqwright.commands.common import resumable\n"
        "def main():\n"
        "    with resumable():\n        import interrupted\n        time.sleep(10)\n        print('continued')\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.modules['seqwright.cli'] = cli = types.ModuleType('cli')\n"
        "cli.main = main\n"
        "command.main()\n"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (result.stdout, result.stderr) == ("imported\n", "stopped; the same command resumes.\n")
    assert result.returncode == 128 + number


def test_a_terminated_command_leaves_no_half_written_file(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "scores.csv").write_text("of before\n")
    process = start("score", trained, "-", "--out", tmp_path / "scores.csv", stdin=subprocess.PIPE)
    wait_until(lambda: len(files(tmp_path)) > 1, process)  # the file that will take its place
    process.send_signal(signal.SIGTERM)
    result = finish(process)
    assert (result.status, result.out, result.err.strip()) == (143, "", "stopped.")
    assert files(tmp_path) == {"scores.csv"}
    assert (tmp_path / "scores.csv").read_text() == "of before\n"


def test_an_interrupt_before_the_first_step_says_that_nothing_is_lost(workdir: Path) -> None:
    process = start("train", "--text", "text.txt", "--minutes", "5", "--run", "run", cwd=workdir)
    wait_until(lambda: (workdir / "run" / "tokenizer.json").exists(), process)  # then steps are measured
    process.send_signal(signal.SIGINT)
    result = finish(process)
    assert result.status == 130
    assert "nothing is lost but the time, and the same command starts again." in result.err.splitlines()[-1]
    assert not (workdir / "run").exists()
