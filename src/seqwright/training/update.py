"""One optimizer step: gradients of a batch, gradient clipping and update; on a GPU captured as a CUDA graph."""

from __future__ import annotations

import gc
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn

from seqwright.core.batch import Batch, accumulator_dtype
from seqwright.core.cuda_graph import Captured
from seqwright.core.ranks import SINGLE, Ranks
from seqwright.core.state import State
from seqwright.training import machine
from seqwright.training.accumulation import accumulate, out_of_memory_error
from seqwright.training.config import TrainingConfig
from seqwright.training.optimizer import CAPTURABLE
from seqwright.training.parallel import SingleProcess
from seqwright.training.sharded_tensors import GradientClipping

OPTIMIZER_MEMORY_ADVICE = 'set training.optimizer to "adafactor", or lower model.width or model.layers'
MAX_GRAPHS = 128
"""Batch shapes that are captured; batches of other shapes are computed kernel by kernel."""

Outcome = tuple[Tensor, Tensor, State | None]
"""Loss sum and gradient norm before clipping, of all ranks, and the state after of this one, all on the device."""
ShapeKey = tuple[tuple[str, torch.Size], ...]


class Update:
    """Updates the weights by one batch, of which each rank computes its rows.

    Callback: `split` is called with the new micro-batch size where a larger one did not fit into memory
    (training.micro_batch_size = "auto").
    """

    def __init__(
        self,
        objective: SingleProcess,
        optimizer: torch.optim.Optimizer,
        config: TrainingConfig,
        device: torch.device,
        *,
        ranks: Ranks = SINGLE,
        split: Callable[[int], None] = lambda rows: None,
    ):
        self.objective, self.ranks = objective, ranks
        parameters = [cast(nn.Parameter, objective.shards.of(each)) for each in objective.module.parameters()]
        self.clip = GradientClipping(parameters, config.max_grad_norm or math.inf, ranks, objective.shards)
        self.optimizer, self.config, self.device, self.split = optimizer, config, device, split
        self.capturing = (
            machine.captures(config, device, ranks)
            and config.optimizer in CAPTURABLE
            and config.micro_batch_size is None
        )
        self.graphs: dict[ShapeKey, CapturedUpdate] = {}
        self.pool: object = None
        """Memory that all graphs share, since one is replayed at a time."""

    def release(self) -> None:
        """Forgets captured graphs: weights, optimizer state or what is frozen were replaced."""
        self.objective.release()
        if self.graphs:
            self.graphs.clear()
            gc.collect()  # graphs are in cycles, and their memory is needed now
        self.pool = None  # PyTorch refuses to capture into a pool whose graphs are all gone

    def set_learning_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):  # read by captured graphs
                group["lr"].fill_(rate * group["lr_scale"])
            else:
                group["lr"] = rate * group["lr_scale"]

    def __call__(self, batch: Batch, state: State | None, step: int, micro_batch: int | None = None) -> Outcome:
        """An update by a batch on the CPU; dropout is a function of (seed, step)."""
        if self.capturing and micro_batch is None:
            machine.seed_step(self.config.seed, step)
            try:
                return self._captured(batch, state)
            except RuntimeError as error:
                if not (machine.is_out_of_memory(error) or "synchroniz" in str(error)):
                    raise
            # What waits for the host, or needs the memory of a graph besides that of a step, runs kernel by kernel.
            self.capturing = False
            self.release()
            self._discard_gradients()
        return self._uncaptured(batch, state, step, micro_batch)

    def apply(self, batch: Batch, state: State | None, scale: Tensor, rows: int) -> Outcome:
        """Forward, backward, clipping and the optimizer's step; `scale` is that of `scale_of`."""
        with machine.allow_tf32(self.device, self.config.precision):
            loss, after = accumulate(
                self.objective,
                batch,
                state,
                rows=rows,
                scale=scale,
                device=self.device,
                precision=self.config.precision,
                ranks=self.ranks,
            )
        self.objective.reduce()
        norm = self.clip()  # without a limit it only measures the norm
        with machine.explain_out_of_memory("the optimizer state", advice=OPTIMIZER_MEMORY_ADVICE):
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return self.ranks.sum(loss) / self.ranks.tensor, norm, after  # every rank of a share has the same loss

    def _uncaptured(self, batch: Batch, state: State | None, step: int, micro_batch: int | None) -> Outcome:
        config, scale = self.config, self.scale_of(batch)
        configured = None if config.micro_batch_size == "auto" else config.micro_batch_size
        share = -(-batch.rows // self.ranks.shares)
        rows = min(share, micro_batch or configured or share)
        while True:
            # Also before a retry, which then draws the same dropout masks; those of ranks differ, as their rows do.
            machine.seed_step(config.seed, step, self.ranks.share)
            try:
                return self.apply(batch, state, scale, rows)
            except RuntimeError as error:
                if not machine.is_out_of_memory(error):
                    raise
                if config.micro_batch_size != "auto" or rows == 1:
                    raise out_of_memory_error(batch, rows, self.ranks) from error
            # Outside the handler: the traceback of the exception would keep the failed attempt's tensors alive.
            self._discard_gradients()
            rows = -(-rows // 2)
            self.split(rows)

    def scale_of(self, batch: Batch) -> Tensor:
        """One over the number of targets, filled in on the device: a copy from the host would wait for it. Times the
        number of shares, by which DDP and FSDP divide sums of gradients."""
        dtype = accumulator_dtype(self.device)
        return torch.full((), self.ranks.shares / max(1, batch.count), dtype=dtype, device=self.device)

    def _discard_gradients(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _captured(self, batch: Batch, state: State | None) -> Outcome:
        key = tuple((name, tensor.shape) for name, tensor in batch.named_tensors())
        if key not in self.graphs:
            if len(self.graphs) == MAX_GRAPHS:
                return self.apply(batch, state, self.scale_of(batch), batch.rows)
            if self.pool is None and self.device.type == "cuda":
                self.pool = torch.cuda.graph_pool_handle()
            self.graphs[key] = CapturedUpdate(self, batch, state, self.pool)
        return self.graphs[key](batch, state)


class CapturedUpdate:
    """The update by batches of one shape as a CUDA graph: launched as a whole instead of kernel by kernel.

    Batch, state and scale are copied to where the graph reads them. Law: captured = not captured.
    """

    def __init__(self, update: Update, batch: Batch, state: State | None, pool: object):
        self.update = update
        self.batch = batch.to(update.device)
        self.scale = update.scale_of(batch)
        self.state = None if state is None else state.copied()
        self.outcome: tuple[Tensor, Tensor] | None = None
        self.captured = Captured(self._run, update.device, pool)

    def __call__(self, batch: Batch, state: State | None) -> Outcome:
        for (_, target), (_, tensor) in zip(self.batch.named_tensors(), batch.named_tensors(), strict=True):
            target.copy_(tensor, non_blocking=True)
        self.scale.fill_(1 / max(1, batch.count))
        if self.state is not None and state is not None:
            self.state.copy_(state)
        if self.outcome is None:
            self._run()  # what is computed once, such as cuDNN's dropout state, may wait for the device
        else:
            with _refuse_synchronization(self.update.device, enabled=self.captured.calls == 0):
                self.captured()
        assert self.outcome is not None
        return *self.outcome, self.state

    def _run(self) -> None:
        loss, norm, after = self.update.apply(self.batch, self.state, self.scale, self.batch.rows)
        if self.state is not None and after is not None:
            self.state.copy_(after)
        self.outcome = loss, norm


@contextmanager
def _refuse_synchronization(device: torch.device, *, enabled: bool) -> Iterator[None]:
    """Raises where a step waits for the device, as reading a value does: such a step cannot be captured."""
    if not enabled or device.type != "cuda":
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
