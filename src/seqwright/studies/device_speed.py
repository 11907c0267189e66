"""How fast a device trains: data sheets of GPUs and the share of them that training reaches, or a measurement."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from seqwright.layers.linear import linear
from seqwright.studies.step_trace import LOSS, Operation
from seqwright.training import machine
from seqwright.training.mfu import PEAKS

PRODUCTS_REACHED = 0.76
"""Share of a GPU's peak that matrix products and attention reach. This and the numbers below are of an H200, bf16, by
the kernels of GPTs of 39 million to 1.3 billion parameters (benchmarks/plan_check.py, docs/scaling.md)."""
BANDWIDTH_REACHED = 0.5
"""Share of its memory's bandwidth that other kernels of forward and backward pass reach."""
UPDATE_REACHED = 0.7
"""The same of clipping and the optimizer, whose kernels are the simplest."""
COPY_REACHED = 0.85
"""And of a large copy, for GPUs without a data sheet here."""
ON_CPU_REACHED, ON_CPU_UPDATE_REACHED = 0.25, 0.5
"""On a CPU, the shares of a large sum's bandwidth that other kernels, and clipping and the optimizer, reach: by seven
trainings on one core with AVX-512 (benchmarks/plan_check.py)."""
KERNEL_SECONDS = 5e-6
"""The least time of a kernel."""
LAUNCH_SECONDS = 65e-6
"""Time of an operation on the host where steps are not captured: forward, autograd and Python."""
UNFUSED = 0.6
"""Share of the time of other kernels that is left where torch.compile fuses them."""
PRECISIONS = {"bf16": 1.0, "tf32": 1 / 2, "fp32": 1 / 16}
"""Speed of matrix products by precision, as a share of the bf16 peak (A100, H100)."""
UPDATE_TRAFFIC = 40
"""Bytes that clipping and AdamW move for a parameter: its gradient is read three times and written once, weight and
moments are read and written."""
TIMED = {"cpu": (1024, 512), "cuda": (16384, 8192), "mps": (4096, 2048)}
"""Rows of a matrix product that is timed, and its greatest width: a GPU is faster the larger it is."""

TIMED_ATTENTION = (4, 4, 256)
"""Rows, heads and tokens of attention that is timed on a CPU."""
STREAMED = 1 << 24
"""Numbers of a sum that is timed: more than caches hold."""
REPEATED = 20
"""How often each is timed: on a busy machine the fastest is rare."""


@dataclass(frozen=True, kw_only=True)
class DeviceSpeed:
    """Floating-point operations and bytes a second of one device."""

    products: float
    attention: float
    """Of products within fused attention."""
    bandwidth: float
    update_bandwidth: float
    kernel: float = 0.0
    launch: float = 0.0

    def seconds(self, operations: Sequence[Operation], *, captured: bool = False, compiled: bool = False) -> float:
        """The roofline of each operation (Williams et al. 2009): its arithmetic or its traffic, whichever is longer; in
        all no less than launching them takes, unless they are captured."""
        total = 0.0
        for each in operations:
            moved = max(each.traffic / self.bandwidth, self.kernel)
            fused = compiled and not each.flops and each.name != LOSS  # chunks of logits are kept out of graphs
            products = self.attention if "attention" in each.name else self.products
            total += max(each.flops / products, moved * (UNFUSED if fused else 1))
        return total if captured else max(total, self.launch * len(operations))

    def update_seconds(self, parameters: float) -> float:
        """Clipping and the optimizer's step, which only move memory."""
        return UPDATE_TRAFFIC * parameters / self.update_bandwidth


@dataclass(frozen=True)
class GPU:
    """A kind of GPU, by data sheets: memory in bytes, and bytes a second."""

    peak: float
    """Dense bf16 floating-point operations a second."""
    memory: float
    bandwidth: float
    """Of its memory."""
    node_bandwidth: float
    """Within a node (NVLink, one direction)."""
    network_bandwidth: float
    """Between nodes: one adapter for each GPU, of 200 Gb/s (DGX A100) or 400 Gb/s (DGX H100)."""

    def speed(self, precision: str) -> DeviceSpeed:
        """What training reaches."""
        return DeviceSpeed(
            products=PRODUCTS_REACHED * PRECISIONS[precision] * self.peak,
            attention=PRODUCTS_REACHED * PRECISIONS[precision] * self.peak,
            bandwidth=BANDWIDTH_REACHED * self.bandwidth,
            update_bandwidth=UPDATE_REACHED * self.bandwidth,
            kernel=KERNEL_SECONDS,
            launch=LAUNCH_SECONDS,
        )


GPUS = {
    "A100": GPU(PEAKS["A100"], 80e9, 2.0e12, 300e9, 25e9),
    "H100": GPU(PEAKS["H100"], 80e9, 3.35e12, 450e9, 50e9),
    "H200": GPU(PEAKS["H200"], 141e9, 4.8e12, 450e9, 50e9),
}


def device_speed(on: torch.device, precision: str, width: int, head_size: int) -> DeviceSpeed:
    """The speed of a device of this machine: by its data sheet, or measured in products of a model's sizes."""
    name = torch.cuda.get_device_name(on) if on.type == "cuda" else ""
    known = next((gpu for kind, gpu in GPUS.items() if re.search(rf"\b{kind}\b", name)), None)
    return known.speed(precision) if known else measured_speed(on, precision, width, head_size)


def measured_speed(on: torch.device, precision: str, width: int, head_size: int) -> DeviceSpeed:
    """The speed of products of a width, of attention on a CPU, and of sums, each the fastest of a few."""
    rows, widest = TIMED[on.type]
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    width = min(width, widest)
    columns = 4 * width  # of feed-forward networks
    x, weight = torch.randn(rows, width, device=on, dtype=dtype), torch.randn(columns, width, device=on, dtype=dtype)
    weight.requires_grad_()  # on some CPUs layers that are trained have products of their own, and attention has not
    stream, sums = torch.zeros(2, STREAMED, device=on)
    with machine.allow_tf32(on, precision):
        product = _fastest(lambda: linear(x, weight), on)
    # Into memory that is there: training keeps what its steps free (decision 191).
    bandwidth = 2 * stream.nbytes / _fastest(lambda: torch.add(stream, stream, out=sums), on)
    products = 2 * rows * width * columns / product
    if on.type == "cpu":
        return DeviceSpeed(
            products=products,
            attention=_attention_speed(dtype, head_size),
            bandwidth=ON_CPU_REACHED * bandwidth,
            update_bandwidth=ON_CPU_UPDATE_REACHED * bandwidth,
        )
    return DeviceSpeed(
        products=products,
        attention=products,
        bandwidth=BANDWIDTH_REACHED / COPY_REACHED * bandwidth,
        update_bandwidth=UPDATE_REACHED / COPY_REACHED * bandwidth,
        kernel=KERNEL_SECONDS,
        launch=LAUNCH_SECONDS,
    )


def _attention_speed(dtype: torch.dtype, head_size: int) -> float:
    """Floating-point operations a second of fused causal attention on a CPU, forward and backward, counted as traces
    count them: without what the mask saves."""
    query = torch.randn(*TIMED_ATTENTION, head_size, dtype=dtype, requires_grad=True)
    upstream = torch.ones_like(query)

    def passes() -> None:
        F.scaled_dot_product_attention(query, query, query, is_causal=True).backward(upstream)  # type: ignore[no-untyped-call]

    rows, heads, tokens = TIMED_ATTENTION
    products = 2 + 5  # backward, one of them is computed again
    return products * 2 * rows * heads * tokens**2 * head_size / _fastest(passes, torch.device("cpu"))


def _fastest(work: Callable[[], Any], on: torch.device) -> float:
    """Seconds as if the machine were not busy: on a CPU those of this process, shared by its threads."""
    clock, threads = (time.process_time, torch.get_num_threads()) if on.type == "cpu" else (time.perf_counter, 1)
    seconds = []
    for _ in range(REPEATED):
        start = clock()
        work()
        machine.synchronize(on)
        seconds.append(clock() - start)
    return min(seconds) / threads
