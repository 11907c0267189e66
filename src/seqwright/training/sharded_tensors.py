"""Sharded tensors (DTensor) to plain ones and back; plain ones pass as they are.

A DTensor is known by what it has: importing its class takes a second, which training on one process does not spend.
"""

from __future__ import annotations

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


def full(tensor: Tensor) -> Tensor:
    """The plain tensor of all shards. A collective."""
    return cast(Tensor, cast(Any, tensor).full_tensor()) if is_sharded(tensor) else tensor


def full_copy(tensor: Tensor) -> Tensor:
    """A copy in host memory of the plain tensor of all shards. A collective."""
    plain = full(tensor.detach())
    # What was gathered is new memory, unless a mesh of one rank had nothing to gather.
    gathered = is_sharded(tensor) and plain.data_ptr() != cast(Any, tensor).to_local().data_ptr()
    return plain.cpu() if gathered else host_copy(plain)


def by_mesh(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    """The tensors in lists of one device mesh each: foreach and fused kernels take no others together."""
    groups: dict[Any, list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(getattr(tensor, "device_mesh", None), []).append(tensor)
    return list(groups.values())


def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float, ranks: Ranks) -> Tensor:
    """Gradient clipping (Pascanu et al. 2013): the norm of all gradients before it, which may be of several meshes."""
    groups = by_mesh(parameters)
    if len(groups) == 1:
        return full(nn.utils.clip_grad_norm_(groups[0], max_norm))
    norms = [full(nn.utils.get_total_norm([each.grad for each in group if each.grad is not None])) for group in groups]
    total = torch.stack(norms).norm()
    ranks.copy_from_first([total])  # sums over two dimensions of a mesh may round differently
    for group in groups:
        nn.utils.clip_grads_with_norm_(group, max_norm, total)
    return total


def placed_like(tensor: Tensor, like: Tensor) -> Tensor:
    """A plain tensor that every rank holds, sharded as `like`: each rank takes its shard."""
    if not is_sharded(like) or like.shape != tensor.shape:
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
