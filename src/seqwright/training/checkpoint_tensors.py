"""Tensors of a checkpoint: gathered from a trainer on rank 0, and loaded one at a time on every rank."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqwright.core.config import UserError
from seqwright.core.ranks import Ranks, TensorGroups
from seqwright.core.state import State
from seqwright.training.averaging import WeightAverage
from seqwright.training.checkpoint_store import SavedGroups
from seqwright.training.optimizer import load_optimizer_tensor, optimizer_state
from seqwright.training.parallel import SingleProcess
from seqwright.training.sharded_tensors import host_copy
from seqwright.training.weights import check_weights, weights


def gathered_groups(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: WeightAverage | None,
    carry: State | None,
    objective: SingleProcess,
    ranks: Ranks,
) -> SavedGroups:
    """Copies of weights, optimizer state, averaged weights and carried states of all rows; complete on rank 0."""
    groups: SavedGroups = {
        "model": objective.saved(weights(model)),
        "optimizer": objective.saved(optimizer_state(optimizer, model, objective.shards)),
    }
    if average is not None:
        groups["ema"] = objective.saved(average.tensors)
    if carry is not None:
        groups["carry"] = {name: host_copy(ranks.cat(rows.contiguous())) for name, rows in carry.named_tensors()}
    return groups


@torch.no_grad()
def load_groups(
    groups: TensorGroups | None,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: WeightAverage | None,
    objective: SingleProcess,
    ranks: Ranks,
) -> dict[str, Tensor]:
    """Loads weights, optimizer state and averaged weights; returns the carried states.

    Rank 0 has the groups (memory-mapped files), the others pass None: each tensor is sent, sharded where the model is,
    and copied into its place before the next one.
    """
    shapes = ranks.shapes_from_first(groups)
    check_weights(model, {name: torch.Size(shape) for name, (_, shape) in shapes["model"].items()})
    if average is not None and "ema" not in shapes:
        raise UserError("the checkpoint has no averaged weights, which this recipe needs; train in a new run.")
    own = {"model": weights(model), "ema": {} if average is None else average.tensors}
    parameters = dict(model.named_parameters())
    carry: dict[str, Tensor] = {}
    optimizer.state.clear()
    for group, named in shapes.items():
        for name, (dtype, shape) in named.items():
            tensor = ranks.tensor_from_first(None if groups is None else groups[group][name], dtype, shape)
            if group == "carry":
                carry[name] = tensor
            elif group == "optimizer":
                parameter, quantity = name.rsplit("/", 1)
                placed = objective.placed(tensor, parameters[parameter], name)
                load_optimizer_tensor(optimizer, parameters[parameter], quantity, placed, objective.shards)
            elif name in own[group]:
                own[group][name].copy_(objective.placed(tensor, own[group][name], name))
    return carry
