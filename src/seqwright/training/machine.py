"""The machine: device and precision, applied to an objective from outside the model."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch

from seqwright.core.config import UserError

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""What weights and states are held in, by the name of a precision."""


def device(name: str) -> torch.device:
    """The device a recipe names; `auto` takes a GPU where there is one."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind in ("cuda", "mps", "cpu") if there[kind])
    if not there[name]:
        raise UserError(f"this machine has no '{name}' device; use training.device=auto or cpu.")
    return torch.device(name)


def autocast(on: torch.device, precision: str) -> contextlib.AbstractContextManager[object]:
    """Where matrix products are computed in bf16, if that is asked for."""
    return torch.autocast(on.type, dtype=torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()


@contextlib.contextmanager
def tensor_cores(on: torch.device, precision: str) -> Iterator[None]:
    """Inside, a GPU's float32 products may round their factors to ten bits, if tf32 is asked for."""
    if precision != "tf32" or on.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextlib.contextmanager
def determinism(wanted: bool) -> Iterator[None]:
    """Inside, only deterministic kernels, if wanted; outside, as before."""
    if not wanted:
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when its first handle is made
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def seed_step(seed: int, step: int) -> None:
    """Makes dropout a function of (seed, step), so that a resumed run draws what the uninterrupted one drew."""
    number = (seed * 1_000_003 + step) & ((1 << 63) - 1)
    # What torch.manual_seed does to the generators there are. For devices that are not in use it would note down each
    # call with its stack, as a third of a millisecond and memory that is never given back.
    for generator in (torch.default_generator, *torch.cuda.default_generators):
        generator.manual_seed(number)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(number)


@contextlib.contextmanager
def memory_for(work: str, *, instead: str) -> Iterator[None]:
    """Inside, a device without memory left is an error that says what to change."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise UserError(f"out of memory for {work}; {instead}.") from error


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether a device, or the machine itself, had no memory left."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
