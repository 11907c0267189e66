"""What a training costs on several GPUs: memory of each, communication and time, with DDP and FSDP2 (decision 173)."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch

from seqwright.core.config import UserError, did_you_mean
from seqwright.studies.device_speed import GPUS
from seqwright.studies.layer_table import Layer
from seqwright.studies.step_cost import StepCost
from seqwright.training import machine
from seqwright.training.config import TrainingConfig
from seqwright.training.parallel import grouped

GPUS_PER_NODE = 8
GRADIENT_BYTES = 4
"""Gradients are kept and reduced in float32."""


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """A step of one rank with a value of training.parallel. Bytes are of one GPU."""

    parallel: str
    weights: float
    """Parameters: all of them, or a shard and what is gathered at a time (two groups of blocks, and what is outside of
    them)."""
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


@dataclass(frozen=True)
class RankSizes:
    """Rows that one rank has in memory at a time, and its passes in a step."""

    micro: int
    passes: int

    @classmethod
    def of(cls, config: TrainingConfig, *, rows: int, gpus: int) -> Self:
        if rows < gpus:
            raise UserError(
                f"a step has {rows} rows, too few for {gpus} GPUs; set training.batch_size to {gpus} or more."
            )
        each = math.ceil(rows / gpus)
        micro = min(config.micro_batch_size, each) if isinstance(config.micro_batch_size, int) else each
        return cls(micro, math.ceil(each / micro))


def strategies(
    layers: Sequence[Layer],
    parameters: int,
    config: TrainingConfig,
    rank: RankSizes,
    cost: StepCost,
    *,
    optimizer_bytes: int,
    gpus: int,
    gpu: str,
) -> list[Strategy]:
    """DDP and, for Transformers, FSDP2 on so many GPUs; `cost` is of one pass of one rank."""
    if gpu not in GPUS:
        raise UserError(f"--gpu has no data sheet of '{gpu}'.{did_you_mean(gpu, GPUS)}")
    about, half = GPUS[gpu], config.precision == "bf16"
    speed = about.speed(config.precision)
    # Steps of several ranks are not captured, and compiled only where the recipe says so.
    captured = gpus == 1 and rank.passes == 1 and machine.captures(config, torch.device("cuda"))
    seconds = speed.seconds(cost.operations, captured=captured, compiled=config.compile == "inductor")
    sent = (gpus - 1) / gpus
    blocks = [sum(layer.parameters for layer in block) for block in _blocks(layers)]
    outside = parameters - sum(blocks)
    gathered = (2 if half else 4) * parameters

    def strategy(
        parallel: str, weights: float, gradients: float, activations: float, shards: int, communication: float
    ) -> Strategy:
        optimizer = optimizer_bytes / shards
        bandwidth = about.node_bandwidth if gpus <= GPUS_PER_NODE else about.network_bandwidth
        return Strategy(
            parallel=parallel,
            weights=weights,
            gradients=gradients,
            optimizer=optimizer,
            activations=activations,
            communication=communication,
            communication_seconds=communication / bandwidth,
            compute_seconds=rank.passes * seconds + speed.update_seconds(parameters / shards),
            fits=weights + gradients + optimizer + activations <= about.memory,
        )

    reduced = GRADIENT_BYTES * parameters
    kept = cost.activations + cost.weight_copies
    made = [strategy("ddp", 4 * parameters, reduced, kept, 1, 2 * sent * reduced)]
    if blocks and gpus > 1:
        held = sum(sorted(map(sum, grouped(blocks, float)))[-2:]) + outside
        weights = 4 * parameters / gpus + ((2 if half else 4) * held if config.reshard_after_forward else gathered)
        # While passes accumulate, gradients are not sharded.
        gradients = reduced if rank.passes > 1 else reduced / gpus + GRADIENT_BYTES * held
        gathers = 2 * rank.passes if config.reshard_after_forward else 1
        communication = sent * (gathers * gathered + reduced)
        made.append(strategy("fsdp", weights, gradients, cost.activations, gpus, communication))
    return made


def _blocks(layers: Sequence[Layer]) -> list[list[Layer]]:
    """The layers of each Transformer block."""
    blocks: dict[str, list[Layer]] = {}
    for layer in layers:
        if found := re.match(r"(.*\bblocks\.\d+)\.", layer.path):
            blocks.setdefault(found[1], []).append(layer)
    return list(blocks.values())
