"""Models that no rank but the first holds whole: shapes on the meta device, given memory block by block (decision 206).

Every rank has a copy of the model without memory. Blocks get the weights of rank 0, are sharded, and keep their shards
before the next ones come: weights are those of one process bit for bit, and no rank holds more than a group of blocks
besides.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from seqwright.core.ranks import Ranks


class MetaWeights:
    """A model on the meta device, and where its values come from: those of `full`, which rank 0 has."""

    def __init__(self, full: nn.Module, ranks: Ranks, device: torch.device):
        self.full, self.ranks, self.device = full, ranks, device
        tensors = [*full.parameters(), *full.buffers()]
        memo = {id(tensor): _without_memory(tensor) for tensor in tensors}
        self.values = {id(memo[id(tensor)]): tensor.detach() for tensor in tensors} if ranks.first else {}
        self.model: nn.Module = copy.deepcopy(full, dict(memo))
        self.shapes = list(memo.values())
        """Kept, since tensors are known by their ids."""

    def fill(self, module: nn.Module) -> None:
        """Gives the weights and buffers of a module memory and their values; tied ones stay tied. A collective."""
        made: dict[int, Tensor] = {}
        for part in module.modules():
            for tensors in (part._parameters, part._buffers):
                for name, tensor in tensors.items():
                    if tensor is not None and tensor.is_meta:
                        if id(tensor) not in made:
                            made[id(tensor)] = self._value(tensor)
                        tensors[name] = made[id(tensor)]  # type: ignore[assignment]

    def _value(self, meta: Tensor) -> Tensor:
        dtype = str(meta.dtype).removeprefix("torch.")
        sent = self.ranks.tensor_from_first(self.values.get(id(meta)), dtype, meta.shape)
        value = sent.to(self.device, copy=self.ranks.first)  # rank 0 keeps its own
        return nn.Parameter(value, requires_grad=meta.requires_grad) if isinstance(meta, nn.Parameter) else value


def _without_memory(tensor: Tensor) -> Tensor:
    empty = torch.empty_like(tensor, device="meta")
    return nn.Parameter(empty, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty
