"""A CPU in numbers: its name, and its peak at matrix products by CPU time, which other work hardly changes."""

from __future__ import annotations

import time

import torch

ROWS, INNER, COLUMNS, REPEATS = 2048, 256, 768, 30


def cpu_peak(dtype: torch.dtype) -> float:
    """Floating-point operations a second of the fastest of some products in a dtype."""
    a, b = torch.randn(ROWS, INNER).to(dtype), torch.randn(INNER, COLUMNS).to(dtype)
    seconds = []
    for _ in range(REPEATS):
        start = time.process_time()
        a @ b
        seconds.append(time.process_time() - start)
    return 2 * ROWS * INNER * COLUMNS / min(seconds)


def cpu_name(threads: int = 1) -> str:
    """How a page calls this machine."""
    return f"{threads} x86 {'core' if threads == 1 else 'cores'} ({torch.backends.cpu.get_cpu_capability()})"
