"""The command line as a user meets it: in a process of its own, or in this one where many cases are tried."""

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
class Said:
    """How a command ended and what it said."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON value on standard output."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """One JSON value a line."""
        return [json.loads(line) for line in self.out.splitlines()]


def text_of(lines: int, seed: int = 0) -> str:
    """Lines of a small language, the same for the same seed."""
    chosen = random.Random(seed)
    return "".join(" ".join(chosen.choices(WORDS, k=8)) + "\n" for _ in range(lines))


def start(*arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
    """A command in a process of its own, which listens to Ctrl-C even where this one was told not to."""
    return subprocess.Popen(
        [sys.executable, "-m", "seqwright", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        preexec_fn=options.pop("before", lambda: signal.signal(signal.SIGINT, signal.default_int_handler)),
        **options,
    )


def ended(process: subprocess.Popen[str], input: str | None = None) -> Said:
    """How it ended."""
    out, err = process.communicate(input, timeout=120)
    return Said(process.returncode, out, err)


def wait_until(met: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Until something happens that a living process brings about."""
    deadline = time.monotonic() + 60
    while not met():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def records(run: Path, kind: str) -> list[dict[str, Any]]:
    """The whole lines of a run's log that are of one kind."""
    log = run / "log.jsonl"
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def files(folder: Path) -> set[str]:
    """Every name in a folder, hidden ones too."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}
