"""What a micro-batch takes on one device: operations, and memory beside weights and optimizer state (decision 189)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from seqwright.core.batch import Batch
from seqwright.layers import softmax_loss
from seqwright.layers.cross_entropy import ALIGNMENT, MAX_LOGITS, MAX_LOGITS_CUDA, chunk_rows
from seqwright.layers.heads import MLMHead
from seqwright.studies.layer_table import Layer, is_recurrent, needs_values, on_meta_device
from seqwright.studies.step_trace import LOSS, Operation, trace_step
from seqwright.training import machine
from seqwright.training.config import TrainingConfig

MASKED = 0.15
"""Share of positions that masked language models predict."""


NEW_PAGES = 3
"""What the first use of memory that every step takes anew costs on a CPU, in readings of it: tensors that are too large
for what the process keeps (`machine.keep_freed_memory`)."""


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """Passes over one micro-batch, with the loss. Bytes are beside weights and optimizer state."""

    operations: tuple[Operation, ...]
    activations: int
    """At the loss: what is kept for the backward pass, and logits."""
    weight_copies: int
    """Half-precision copies of weights, also kept."""
    peak: int
    """At most: activations are freed while gradients are made."""

    def memory(self, parameters: int, passes: int) -> int:
        """At most, with gradients, which are complete after the first of several passes."""
        gradients = 4 * parameters
        return max(self.peak, gradients + (self.activations + self.weight_copies if passes > 1 else 0))


@dataclass(frozen=True, kw_only=True)
class Loss:
    """The output layer and cross-entropy of a micro-batch."""

    operations: tuple[Operation, ...] = ()
    transient: int = 0
    """Bytes at most: logits, or a chunk of them, and what is made of them."""
    gradient: int = 0
    """Bytes of the gradient of the output layer."""


def step_cost(
    make: Callable[[], nn.Module], layers: Sequence[Layer], row: Batch, rows: int, config: TrainingConfig, on: str
) -> StepCost:
    """The cost of a micro-batch of so many rows like `row` on a type of device."""
    half, model = config.precision == "bf16", on_meta_device(make)
    batch = row.rows_of(torch.zeros(rows, dtype=torch.long))
    loss = _loss(model, batch.target.numel(), half=half, on=on)
    if is_recurrent(model):
        return _by_outputs(model, layers, rows, loss, half=half)
    try:
        trace = trace_step(model, batch, half=half, checkpointed=config.activation_checkpointing)
    except RuntimeError as error:
        if not needs_values(error):
            raise
        return _by_outputs(model, layers, rows, loss, half=half)
    kept = trace.kept + trace.weight_copies
    return StepCost(
        operations=(*trace.operations, *loss.operations),
        activations=trace.kept + loss.transient,
        weight_copies=trace.weight_copies,
        peak=max(kept + loss.transient, trace.peak) + loss.gradient,
    )


def _loss(model: nn.Module, targets: int, *, half: bool, on: str) -> Loss:
    """The loss of heads that end in a linear layer; that of others is small."""
    head: Any = model.head
    readout = getattr(head, "readout", None)
    if not isinstance(readout, nn.Linear):
        return Loss()
    if isinstance(head, MLMHead):
        targets = math.ceil(MASKED * targets)
    (classes, width), size = readout.weight.shape, 2 if half else 4
    logits, gradient = targets * classes, 4 * classes * width
    product = Operation("mm", 2 * logits * width, size * (logits + classes * width + targets * width))
    if logits <= MAX_LOGITS and on == "cpu" and softmax_loss.kernels() is not None:
        held = 2 * size * logits  # they, and their gradient
        new = NEW_PAGES * held if size * logits > machine.MAX_MMAP_THRESHOLD else 0
        return Loss(
            operations=(product, product, product, Operation(LOSS, 0, 3 * size * logits + new)),
            transient=held,
            gradient=gradient,
        )
    if logits <= MAX_LOGITS:
        # The log-softmax, its gradient and that of the logits, all float32.
        return Loss(
            operations=(product, product, product, Operation(LOSS, 0, 36 * logits)),
            transient=12 * logits,
            gradient=gradient,
        )
    rows = min(targets, chunk_rows(classes, MAX_LOGITS_CUDA if on == "cuda" else MAX_LOGITS))
    padded = classes + (-classes % ALIGNMENT if on == "cuda" else 0)
    made = min(targets, 2 * rows)  # a chunk lives until the next one is made
    temporary = 0 if on == "cuda" else 8  # a Triton kernel works in place, operations of PyTorch make a softmax each
    copies = 2 * size if half else size  # of the weight, where it is cast, and the product added to its gradient
    return Loss(
        operations=(product, product, product, Operation(LOSS, 0, (4 * size + 4 * temporary) * logits)),
        transient=(size * made + temporary * rows) * padded + copies * classes * width + 2 * size * targets * width,
        gradient=gradient,
    )


def _by_outputs(model: nn.Module, layers: Sequence[Layer], rows: int, loss: Loss, *, half: bool) -> StepCost:
    """By the outputs of all layers, of which the last ones are the loss's."""
    body = [layer for layer in layers if not layer.path.startswith("head")]
    kept = rows * sum(layer.output_bytes for layer in body) // (2 if half else 1)
    operations = [Operation(layer.kind, 6 * rows * layer.mult_adds, 6 * rows * layer.output_bytes) for layer in body]
    gradients = 4 * sum(parameter.numel() for parameter in model.parameters())
    return StepCost(
        operations=(*operations, *loss.operations),
        activations=kept + loss.transient,
        weight_copies=0,
        peak=kept + max(loss.transient, gradients),
    )
