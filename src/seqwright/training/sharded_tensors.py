"""Sharded tensors (DTensor) to plain ones and back, and plain shards for optimizers; plain ones pass as they are.

A DTensor is known by what it has: importing its class takes a second, which training on one process does not spend.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn

from seqwright.core.ranks import Ranks


def is_sharded(tensor: Tensor) -> bool:
    """Whether a tensor is a DTensor."""
    return hasattr(tensor, "full_tensor")


def host_copy(tensor: Tensor) -> Tensor:
    """A copy in host memory, which later steps do not change."""
    return tensor.detach().to("cpu", copy=True)


def local(tensor: Tensor) -> Tensor:
    """This rank's shard as a plain tensor over the same memory."""
    if not is_sharded(tensor):
        return tensor
    with torch.no_grad():  # a plain attribute; with gradients, a view in the graph
        return cast(Tensor, cast(Any, tensor).to_local()).detach()


def full(tensor: Tensor) -> Tensor:
    """The plain tensor of all shards. A collective."""
    return cast(Tensor, cast(Any, tensor).full_tensor()) if is_sharded(tensor) else tensor


def full_copy(tensor: Tensor) -> Tensor:
    """A copy in host memory of the plain tensor of all shards. A collective."""
    plain = full(tensor.detach())
    # What was gathered is new memory, unless a mesh of one rank had nothing to gather.
    gathered = is_sharded(tensor) and plain.data_ptr() != cast(Any, tensor).to_local().data_ptr()
    return plain.cpu() if gathered else host_copy(plain)


def placed_like(tensor: Tensor, like: Tensor) -> Tensor:
    """A plain tensor that every rank holds, sharded as `like`: each rank takes its shard."""
    if not is_sharded(like) or like.shape != tensor.shape:
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


class Shards:
    """This rank's shards of a model's parameters as plain parameters over the same memory, which optimizers step: of
    DTensors, every operation on every parameter would be dispatched in Python (decision 223). A parameter that is not
    sharded is its own. Laws: the steps and the gradient norm of shards are those of the whole model."""

    def __init__(self, parameters: Iterable[nn.Parameter] = ()):
        self.locals = {each: nn.Parameter(local(each)) for each in parameters if is_sharded(each)}
        self.sharded = {mine: each for each, mine in self.locals.items()}

    def of(self, parameter: Tensor) -> Tensor:
        """What the optimizer steps in place of a parameter of the model."""
        return self.locals.get(cast(nn.Parameter, parameter), parameter)

    def take_gradients(self) -> None:
        """Gives the shards the gradients of their parameters, which then have none."""
        with torch.no_grad():
            for parameter, mine in self.locals.items():
                mine.grad = None if parameter.grad is None else cast(Any, parameter.grad).to_local()
                parameter.grad = None

    def shape(self, mine: Tensor) -> torch.Size:
        """The shape of the parameter that this is a shard of."""
        return self.sharded.get(cast(nn.Parameter, mine), mine).shape

    def joined(self, tensor: Tensor, mine: Tensor) -> Tensor:
        """A tensor of a shard's shape (a gradient, a moment) as the sharded tensor of all ranks."""
        parameter = self.sharded.get(cast(nn.Parameter, mine))
        if parameter is None or tensor.shape != mine.shape:
            return tensor
        from torch.distributed.tensor import DTensor

        about = cast(DTensor, parameter)
        return DTensor.from_local(
            tensor, about.device_mesh, about.placements, run_check=False, shape=about.shape, stride=about.stride()
        )

    def part(self, tensor: Tensor, mine: Tensor) -> Tensor:
        """This rank's shard of a plain tensor that every rank holds, of a parameter's shape."""
        return local(placed_like(tensor, self.sharded.get(cast(nn.Parameter, mine), mine)))

    def copies(self, mine: Tensor, ranks: Ranks) -> int:
        """How many ranks hold each element of a parameter."""
        parameter = self.sharded.get(cast(nn.Parameter, mine))
        if parameter is None:
            return ranks.size
        mesh, placements = cast(Any, parameter).device_mesh, cast(Any, parameter).placements
        shards = math.prod(mesh.size(axis) for axis, each in enumerate(placements) if not each.is_replicate())
        return ranks.size // shards


class GradientClipping:
    """Clips gradients (Pascanu et al. 2013); returns the norm of all of them before it."""

    def __init__(self, parameters: list[nn.Parameter], max_norm: float, ranks: Ranks, shards: Shards):
        self.max_norm, self.ranks, self.sharded = max_norm, ranks, bool(shards.sharded)
        self.by_copies: dict[int, list[nn.Parameter]] = {}
        for parameter in parameters:
            copies = shards.copies(parameter, ranks) if self.sharded else 1
            self.by_copies.setdefault(copies, []).append(parameter)

    def __call__(self) -> Tensor:
        if not self.sharded:
            return nn.utils.clip_grad_norm_(self.by_copies[1], self.max_norm)
        squares = []
        for copies, parameters in self.by_copies.items():
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            if gradients:  # of none, as where LoRA freezes all vectors, PyTorch returns a norm on the CPU
                squares.append(nn.utils.get_total_norm(gradients).square() / copies)  # every element counts once
        norm = self.ranks.sum(torch.stack(squares).sum()).sqrt()
        for parameters in self.by_copies.values():
            nn.utils.clip_grads_with_norm_(parameters, self.max_norm, norm)
        return norm
