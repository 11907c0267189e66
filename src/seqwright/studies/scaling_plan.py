"""What a training costs on several GPUs: memory of each, communication and time, with DDP and FSDP2 (decision 173)."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seqwright.core.config import UserError, did_you_mean
from seqwright.studies.layer_table import Layer
from seqwright.tasks.defaults import UTILIZATION
from seqwright.training.config import TrainingConfig
from seqwright.training.mfu import PEAKS

GPUS_PER_NODE = 8
SPEED = {"bf16": 1.0, "tf32": 1 / 2, "fp32": 1 / 16}
"""Speed of matrix products by precision, as a share of the bf16 peak (A100, H100)."""
GRADIENT_BYTES = 4
"""Gradients are kept and reduced in float32."""


@dataclass(frozen=True)
class GPU:
    """A kind of GPU, by data sheets: memory in bytes, and bytes a second that each sends to others."""

    memory: float
    node_bandwidth: float
    """Within a node (NVLink, one direction)."""
    network_bandwidth: float
    """Between nodes: one adapter for each GPU, of 200 Gb/s (DGX A100) or 400 Gb/s (DGX H100)."""


GPUS = {"A100": GPU(80e9, 300e9, 25e9), "H100": GPU(80e9, 450e9, 50e9), "H200": GPU(141e9, 450e9, 50e9)}


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """A step of one rank with a value of training.parallel. Bytes are of one GPU."""

    parallel: str
    weights: float
    """Parameters: all of them, or a shard and what is gathered at a time (two blocks, and what is outside of them)."""
    gradients: float
    optimizer: float
    activations: float
    communication: float
    """Bytes that a GPU sends in a step: ring all-reduce 2 (N - 1) / N of the gradients, all-gather and reduce-scatter
    (N - 1) / N each (Rajbhandari et al. 2020, §7)."""
    communication_seconds: float
    compute_seconds: float
    fits: bool

    @property
    def memory(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.activations

    @property
    def step_seconds(self) -> float:
        """At best: communication overlaps with computation."""
        return max(self.compute_seconds, self.communication_seconds)

    def as_json(self) -> dict[str, Any]:
        return vars(self) | {"memory": self.memory, "step_seconds": self.step_seconds}


def strategies(
    layers: Sequence[Layer],
    parameters: int,
    config: TrainingConfig,
    *,
    rows: int,
    step_flops: float,
    optimizer_bytes: int,
    gpus: int,
    gpu: str,
) -> list[Strategy]:
    """DDP and, for Transformers, FSDP2 on so many GPUs; `optimizer_bytes` are those of a parameter."""
    if gpu not in GPUS:
        raise UserError(f"no data sheet of '{gpu}'; --gpu is {', '.join(GPUS)}.{did_you_mean(gpu, GPUS)}")
    if rows < gpus:
        raise UserError(f"a step has {rows} rows, too few for {gpus} GPUs; set training.batch_size to {gpus} or more.")
    about, half = GPUS[gpu], config.precision == "bf16"
    rows_each = math.ceil(rows / gpus)
    micro = min(config.micro_batch_size, rows_each) if isinstance(config.micro_batch_size, int) else rows_each
    passes = math.ceil(rows_each / micro)
    activations = micro * activation_bytes(layers, config) * (2 if half else 4) / 4
    recomputed = 4 / 3 if config.activation_checkpointing else 1  # a second forward pass
    compute = recomputed * step_flops / (gpus * UTILIZATION * SPEED[config.precision] * PEAKS[gpu])
    sent = (gpus - 1) / gpus
    blocks = [sum(layer.parameters for layer in block) for block in _blocks(layers)]
    outside = parameters - sum(blocks)
    gathered = (2 if half else 4) * parameters

    def strategy(parallel: str, weights: float, gradients: float, shards: int, communication: float) -> Strategy:
        optimizer = optimizer_bytes * parameters / shards
        bandwidth = about.node_bandwidth if gpus <= GPUS_PER_NODE else about.network_bandwidth
        return Strategy(
            parallel=parallel,
            weights=weights,
            gradients=gradients,
            optimizer=optimizer,
            activations=activations,
            communication=communication,
            communication_seconds=communication / bandwidth,
            compute_seconds=compute,
            fits=weights + gradients + optimizer + activations <= about.memory,
        )

    reduced = GRADIENT_BYTES * parameters
    made = [strategy("ddp", 4 * parameters, reduced, 1, 2 * sent * reduced)]
    if blocks and gpus > 1:
        held = 2 * max(blocks) + outside
        weights = 4 * parameters / gpus + (2 if half else 4) * held
        # While passes accumulate, gradients are not sharded.
        gradients = reduced if passes > 1 else reduced / gpus + GRADIENT_BYTES * held
        made.append(strategy("fsdp", weights, gradients, gpus, sent * (2 * passes * gathered + reduced)))
    return made


def activation_bytes(layers: Sequence[Layer], config: TrainingConfig) -> int:
    """Outputs of all layers for one row in float32; with activation checkpointing those of one block, the inputs of the
    others, and what is outside of blocks."""
    everything = sum(layer.output_bytes for layer in layers)
    blocks = _blocks(layers)
    if not config.activation_checkpointing or not blocks:
        return everything
    inside = [sum(layer.output_bytes for layer in block) for block in blocks]
    inputs = sum(block[-1].output_bytes for block in blocks)  # of one block is the output of the one before
    return everything - sum(inside) + max(inside) + inputs


def _blocks(layers: Sequence[Layer]) -> list[list[Layer]]:
    """The layers of each Transformer block."""
    blocks: dict[str, list[Layer]] = {}
    for layer in layers:
        if found := re.match(r"(.*\bblocks\.\d+)\.", layer.path):
            blocks.setdefault(found[1], []).append(layer)
    return list(blocks.values())
