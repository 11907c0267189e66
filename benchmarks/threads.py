"""Training on a busy machine: tokens a second alone, and beside processes that take a core each.

    python benchmarks/threads.py [--busy 1] [--rounds 5] [--json FILE]

Both are measured in turns, for the waiting policy that seqwright sets before PyTorch is loaded (docs/decisions/0157)
and for that of GNU OpenMP itself. The cores that were free before are printed: "alone" is only true if all were.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import seqwright  # noqa: F401, sets the waiting policy before PyTorch is loaded

POLICIES = {"seqwright": {}, "GNU OpenMP": {"GOMP_SPINCOUNT": "300000"}}
"""Variables of the environment by whose policy it is; the number is the default of GNU OpenMP."""
SECONDS = 2.0
BUSY = "while True: pass"


def child() -> None:
    """Prints a rate for every line of standard input."""
    import torch

    from peers.loop import Options
    from peers.workloads import WORKLOADS, ours

    workload = next(workload for workload in WORKLOADS if workload.device == "cpu")
    _, step = ours(workload, Options(device=torch.device("cpu")), [])
    for _ in range(5):
        step()
    print("ready", flush=True)
    for _ in sys.stdin:
        start, steps = time.perf_counter(), 0
        while time.perf_counter() - start < SECONDS:
            step()
            steps += 1
        print(steps * workload.rows * workload.length / (time.perf_counter() - start), flush=True)


class Trainee:
    """A process that trains for a while whenever it is told to."""

    def __init__(self, environment: dict[str, str]):
        others = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--child"],
            env={key: value for key, value in os.environ.items() if key not in others} | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._line()

    def rate(self) -> float:
        assert self.process.stdin is not None
        print(file=self.process.stdin, flush=True)
        return float(self._line())

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


def busy_seconds() -> float:
    """CPU seconds of all processes since boot."""
    ticks = Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:4]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def idle_cores() -> float:
    """Cores that other processes leave free, over half a second."""
    start = busy_seconds()
    time.sleep(0.5)
    return (os.cpu_count() or 1) - (busy_seconds() - start) / 0.5


def measured(name: str, environment: dict[str, str], busy: int, rounds: int) -> dict[str, Any]:
    """Median rates alone and beside busy processes, in turns."""
    trainee = Trainee(environment)
    alone, beside, free = [], [], []
    try:
        for _ in range(rounds):
            free.append(idle_cores())
            alone.append(trainee.rate())
            others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(busy)]
            try:
                beside.append(trainee.rate())
            finally:
                for other in others:
                    other.kill()
                    other.wait()
    finally:
        trainee.process.kill()
        trainee.process.wait()
    quiet, loaded = statistics.median(alone), statistics.median(beside)
    print(
        f"{name:11} alone {quiet:8,.0f}, beside {busy} busy {loaded:8,.0f} tokens/s: {quiet / loaded:.2f} times slower"
        f" ({statistics.median(free):.1f} cores were free)",
        flush=True,
    )
    return {"policy": name, "alone": quiet, "busy": loaded, "ratio": quiet / loaded, "free_cores": free}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--busy", type=int, default=1, help="processes that take a core each")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child()
        return
    results = [measured(name, policy, given.busy, given.rounds) for name, policy in POLICIES.items()]
    if given.json:
        from peers.peak import cpu_name  # PyTorch is loaded only once all is measured: here it has no part in it

        about = {"date": time.strftime("%Y-%m-%d"), "machine": cpu_name(os.cpu_count() or 1), "others": given.busy}
        given.json.write_text(json.dumps(about | {"results": results}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
