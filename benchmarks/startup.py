"""Seconds before anything happens: `import seqwright`, `seqwright --help`, opening a run and its first token.

    python benchmarks/startup.py [--rounds 5] [--json FILE]

Each is the CPU time of a fresh process, which other work on the machine hardly changes, beside that of a process that
imports PyTorch: the least that any verb on a run can take. Medians, in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from peers.peak import cpu_name
from seqwright.pipeline import recipe, training

OPEN = "import seqwright; run = seqwright.open('{run}')"
WORK = {
    "python": ["-c", "pass"],
    "import torch": ["-c", "import torch"],
    "import seqwright": ["-c", "import seqwright"],
    "seqwright --help": ["-m", "seqwright", "--help"],
    "seqwright train --help": ["-m", "seqwright", "train", "--help"],
    "open a run": ["-c", OPEN],
    "first token": ["-c", OPEN + "; run.generate('The', max_tokens=1)"],
    "seqwright generate": ["-m", "seqwright", "generate", "{run}", "The", "--max-tokens", "1"],
}
TABLE = {
    "data": {"train": "embedded:topics"},
    "tokenizer": {"kind": "byte-bpe", "size": 1000},
    "model": {"kind": "gpt", "layers": 4, "width": 128, "heads": 4},
    "training": {"steps": 2, "sample_every": 0},
}


def cpu_seconds(arguments: list[str]) -> float:
    """CPU seconds of a process of Python."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{arguments} ended with status {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name in WORK}
    with tempfile.TemporaryDirectory() as folder:
        run = f"{folder}/run"
        training.train(recipe.make(TABLE), Path(run))
        for _ in range(given.rounds):
            for name, arguments in WORK.items():
                seconds[name].append(cpu_seconds([argument.replace("{run}", run) for argument in arguments]))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    for name, median in medians.items():
        print(f"{name:24} {median:6.2f} s, {median / medians['import torch']:5.2f} times the import of torch")
    if given.json:
        given.json.write_text(
            json.dumps({"machine": cpu_name(), "seconds": medians}, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
