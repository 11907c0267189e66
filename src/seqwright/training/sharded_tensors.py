"""Sharded tensors (DTensor) to plain ones and back; plain ones pass as they are.

A DTensor is known by what it has: importing its class takes a second, which training on one process does not spend.
"""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor


def is_sharded(tensor: Tensor) -> bool:
    """Whether a tensor is a DTensor."""
    return hasattr(tensor, "full_tensor")


def host_copy(tensor: Tensor) -> Tensor:
    """A copy in host memory, which later steps do not change."""
    return tensor.detach().to("cpu", copy=True)


def full(tensor: Tensor) -> Tensor:
    """The plain tensor of all shards. A collective."""
    return cast(Tensor, cast(Any, tensor).full_tensor()) if is_sharded(tensor) else tensor


def placed_like(tensor: Tensor, like: Tensor) -> Tensor:
    """A plain tensor that every rank holds, sharded as `like`: each rank takes its shard."""
    if not is_sharded(like) or like.shape != tensor.shape:
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
