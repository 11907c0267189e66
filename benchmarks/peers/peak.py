"""A CPU in numbers: its name, and its peak at matrix products by CPU time, which other work hardly changes."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from seqwright.layers import linear
from seqwright.layers.inference import packed_linear
from seqwright.runs import environment

ROWS, INNER, COLUMNS, REPEATS = 2048, 256, 768, 30


def cpu_peak(dtype: torch.dtype) -> float:
    """Floating-point operations a second of the fastest of some products in a dtype, by PyTorch's default library or
    oneDNN, whichever is faster on this CPU."""
    a, b = torch.randn(ROWS, INNER).to(dtype), torch.randn(COLUMNS, INNER).to(dtype)
    works: list[Callable[[], object]] = [lambda: a @ b.T]
    if packed_linear.available():
        works.append(lambda: linear.product(a, b))
    seconds = []
    for work in works * REPEATS:
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return 2 * ROWS * INNER * COLUMNS / min(seconds)


def cpu_name(threads: int = 1) -> str:
    """How a page calls this machine."""
    cores = "core" if threads == 1 else "cores"
    return f"{threads} {cores} of an {environment.cpu()} ({torch.backends.cpu.get_cpu_capability()})"
