"""Device, precision, determinism and seeding, applied from outside the model."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from seqwright.core.config import UserError
from seqwright.core.native import cache_folder
from seqwright.core.ranks import SINGLE, Ranks
from seqwright.layers import linear
from seqwright.layers.cross_entropy import keep_chunks_out_of_graphs
from seqwright.layers.transformer_block import Block
from seqwright.layers.transformer_stack import Blocks
from seqwright.training.config import TrainingConfig
from seqwright.training.meta_weights import MetaWeights
from seqwright.training.objective import Objective
from seqwright.training.parallel import DataParallel, FullySharded, SingleProcess
from seqwright.training.weights import weights

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""dtype of weights and decoding states by the name of a precision."""


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt: free memory at the end of the heap, and sizes of allocations that are given back."""
MAX_MMAP_THRESHOLD = 32 << 20
"""The greatest that glibc takes."""

CAPTURED = {"cuda"}
"""Device types on which steps are compiled and captured; elsewhere a capture just calls its function, as in tests."""


def device(name: str, *, option: str = "training.device") -> torch.device:
    """The torch.device of a name; `auto` takes a GPU where there is one. `option` is what chose it, for messages."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind in ("cuda", "mps", "cpu") if available[kind])
    if not available.get(name):
        if name not in available:
            raise UserError(f"no device '{name}'; {option} is auto, {', '.join(available)}.")
        usable = " or ".join(["auto", *(kind for kind, there in available.items() if there)])
        raise UserError(f"this machine has no '{name}' device; {option} can be {usable} here.")
    return torch.device(name)


def prepare(
    objective: Objective,
    config: TrainingConfig,
    on: torch.device,
    ranks: Ranks = SINGLE,
    meta: MetaWeights | None = None,
) -> SingleProcess:
    """The objective as it is trained on a device: on a GPU compiled where the recipe says so (decision 160), on several
    ranks with DDP or FSDP2 (decision 173). FSDP2 replaces parameters: make the optimizer afterwards. It gathers weights
    outside of compiled code, so its blocks are compiled one by one, DDP's objective as a whole.

    Weights of an objective on the meta device come from `meta`, once they are sharded.
    Precision is autocast around it (`autocast`), and `training.update` captures the step that calls it.
    """
    if on.type == "cpu":
        keep_freed_memory()
        linear.use_in(objective)
    sharded = ranks.size > 1 and config.parallel == "fsdp"
    if sharded and compiles(config, on):
        compile_blocks(objective)
    if config.activation_checkpointing:
        checkpoint_blocks(objective)
    if sharded:
        return FullySharded(
            objective,
            transformer_stacks(objective),
            ranks,
            on=on,
            bf16=config.precision == "bf16",
            cpu_offload=config.cpu_offload,
            reshard=config.reshard_after_forward,
            stream=config.stream_checkpoints,
            tensor_parallel=config.tensor_parallel,
            meta=meta,
        )
    ranks.copy_from_first(weights(objective).values())
    module = _compiled(objective, config, on)
    return SingleProcess(module) if ranks.size == 1 else DataParallel(module, ranks)


def checkpoint_blocks(module: nn.Module) -> None:
    """Has the Transformer blocks of a model keep their inputs alone, and recompute the rest (Chen et al. 2016)."""
    for block in transformer_blocks(module):
        block.forward = functools.partial(_checkpointed, block.forward)


def keep_freed_memory() -> bool:
    """Has the process keep memory that steps free, where malloc is glibc's; whether it does.

    By default glibc gives freed activations back to the system, and every step pays for their pages again: a fifth of
    the time of an LSTM with an output layer of 10,000 tokens (decision 191).
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all([mallopt(M_MMAP_THRESHOLD, MAX_MMAP_THRESHOLD), mallopt(M_TRIM_THRESHOLD, 2**31 - 1)])


def _checkpointed(forward: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """A forward pass whose activations are recomputed in the backward pass, where there will be one."""
    if not torch.is_grad_enabled():
        return forward(*arguments, **options)
    return checkpoint(forward, *arguments, use_reentrant=False, **options)


def _compiled(objective: Objective, config: TrainingConfig, on: torch.device) -> nn.Module:
    if not compiles(config, on):
        return objective
    _keep_kernels()
    keep_chunks_out_of_graphs()
    # Unless lengths vary, one graph; where they do, the second length compiles one for all lengths.
    return torch.compile(objective)  # type: ignore[return-value]


def compiles(config: TrainingConfig, on: torch.device) -> bool:
    """Whether torch.compile is used; a run that was compiled may be resumed on a CPU."""
    return config.compile == "inductor" and on.type in CAPTURED


def compile_blocks(module: nn.Module) -> None:
    """Has torch.compile fuse the kernels of each Transformer block; all of them share one compiled function."""
    _keep_kernels()
    for block in transformer_blocks(module):
        block.forward = torch.compile(block.forward)


def _keep_kernels() -> None:
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "inductor"))


def transformer_blocks(module: nn.Module) -> list[nn.Module]:
    """The Transformer blocks of a model; none of other encoders."""
    return [part for part in module.modules() if isinstance(part, Block)]


def transformer_stacks(module: nn.Module) -> list[list[nn.Module]]:
    """The Transformer blocks of a model in lists of those that run one after the other."""
    stacks = [list(part) for part in module.modules() if isinstance(part, Blocks)]
    inside = {block for stack in stacks for block in stack}
    return stacks + [[block] for block in transformer_blocks(module) if block not in inside]


def captures(config: TrainingConfig, on: torch.device, ranks: Ranks = SINGLE) -> bool:
    """Whether optimizer steps are captured as CUDA graphs; not on several ranks, nor where blocks are recomputed, which
    restores the state of random generators."""
    return on.type in CAPTURED and config.compile != "off" and ranks.size == 1 and not config.activation_checkpointing


def flops(on: torch.device) -> float:
    """Floating-point operations a second of float32 matrix products, measured."""
    # A GPU needs larger products than a CPU, or the time to launch them is measured.
    rows, inner, columns = (2048, 128, 512) if on.type == "cpu" else (8192, 2048, 2048)
    a, b = torch.randn(rows, inner, device=on), torch.randn(inner, columns, device=on)
    seconds = []
    for _ in range(9):
        start = time.perf_counter()
        a @ b
        synchronize(on)
        seconds.append(time.perf_counter() - start)
    return 2 * rows * inner * columns / min(seconds)  # the fastest, as if the machine were not busy


def multiplies_bfloat16(on: torch.device) -> bool:
    """Whether a device has instructions for products of bfloat16, which others imitate slowly."""
    if on.type == "cuda":
        return torch.cuda.get_device_capability(on) >= (8, 0)
    return on.type == "cpu" and (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def synchronize(on: torch.device) -> None:
    """Waits until a device has computed what was launched."""
    if on.type == "cuda":
        torch.cuda.synchronize(on)
    elif on.type == "mps":
        torch.mps.synchronize()


def autocast(on: torch.device, precision: str) -> contextlib.AbstractContextManager[object]:
    """Mixed precision: autocast to bf16 where the precision is bf16, else no autocast."""
    return torch.autocast(on.type, dtype=torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()


@contextlib.contextmanager
def allow_tf32(on: torch.device, precision: str) -> Iterator[None]:
    """Context manager that allows TF32 matrix products on a GPU where the precision is tf32."""
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
def determinism(enabled: bool) -> Iterator[None]:
    """Context manager under which only deterministic kernels are used, if enabled."""
    if not enabled:
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when the first cuBLAS handle is created
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


@contextlib.contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Context manager under which operations on the CPU use so many threads; None leaves their number as it is."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def seed_step(seed: int, step: int, rank: int = 0) -> None:
    """Seeds the generators so that dropout is a function of (seed, step, rank): a resumed run draws the same masks."""
    number = (seed * 1_000_003 + step + (rank << 40)) & ((1 << 63) - 1)
    # As torch.manual_seed, for the generators that exist. For devices not yet initialized that function queues each
    # call with its stack trace: a third of a millisecond, and memory that is never freed.
    for generator in (torch.default_generator, *torch.cuda.default_generators):
        generator.manual_seed(number)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(number)


@contextlib.contextmanager
def explain_out_of_memory(work: str, *, advice: str) -> Iterator[None]:
    """Context manager that turns out-of-memory errors into a UserError with advice."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise UserError(f"out of memory for {work}; {advice}.") from error


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether an error means that a device or the host ran out of memory."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
