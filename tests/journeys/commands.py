"""Helpers that run the command line as a subprocess, and synthetic data."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "big", "dogs", "run", "by", "sea"]

TINY = [
    *("--set", "tokenizer.kind=characters"),
    *("--set", "training.steps=6", "--set", "training.batch_size=4", "--set", "training.sample_every=0"),
]
TINY_GPT = [
    *TINY,
    *("--set", "model.layers=1", "--set", "model.width=16", "--set", "model.heads=2", "--set", "model.context=16"),
]


@dataclass(frozen=True)
class Result:
    """Exit status and output of a command."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as one JSON value."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


def synthetic_text(lines: int, seed: int = 0) -> str:
    """Random lines over a small vocabulary, a function of the seed."""
    rng = random.Random(seed)
    return "".join(" ".join(rng.choices(WORDS, k=8)) + "\n" for _ in range(lines))


def start(*arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
    """A command in a subprocess that handles SIGINT even where this process ignores it."""
    return subprocess.Popen(
        [sys.executable, "-m", "seqwright", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        preexec_fn=options.pop("preexec", lambda: signal.signal(signal.SIGINT, signal.default_int_handler)),
        **options,
    )


def finish(process: subprocess.Popen[str], input: str | None = None) -> Result:
    """Waits for a process and returns its result."""
    out, err = process.communicate(input, timeout=120)
    return Result(process.returncode, out, err)


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Waits for a condition while a process is running."""
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def records(run: Path, kind: str) -> list[dict[str, Any]]:
    """Complete log records of one kind."""
    log = run / "log.jsonl"
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def files(folder: Path) -> set[str]:
    """Relative paths of everything in a folder, hidden files included."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}
