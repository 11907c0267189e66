"""Tensor parallelism of Transformer blocks (Shoeybi et al. 2019) by PyTorch's `parallelize_module`: each rank has some
of the heads and some of the inner width of every block (decision 190).

Projections to queries, keys and values and to the inner width are split by columns, those back by rows, whose partial
sums are added over ranks. Everything else is replicated.
"""

from __future__ import annotations

import logging

import torch
from torch import Tensor, nn

from seqwright.core.config import UserError
from seqwright.layers.attention import SelfAttention
from seqwright.layers.attention_bias import ALiBi, RelativePositionBias
from seqwright.layers.transformer_block import Block

COLUMNS = ("attention.query_key_value", "feed_forward.up", "feed_forward.gate")
ROWS = ("attention.output", "feed_forward.down")


def refuse_unsplit(model: nn.Module, ranks: int) -> None:
    """Raises where the blocks of a model cannot be split over so many ranks."""
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    why = ""
    if not blocks:
        why = "this model has no Transformer blocks"
    elif any(block.cross is not None for block in blocks):
        why = "decoders with cross-attention are not split"
    elif any(isinstance(module, ALiBi | RelativePositionBias) for module in model.modules()):
        why = "positions alibi and t5 have a bias for each head, which is not split"
    elif any(not isinstance(block.attention.query_norm, nn.Identity) for block in blocks):
        why = "qk_norm has gains that all heads share"
    if why:
        raise UserError(
            f"training.tensor_parallel = {ranks} splits the heads of Transformer blocks, and {why}; leave it out."
        )
    for block in blocks:
        inner = dict(block.feed_forward.named_parameters())["up.weight"].size(0)
        sizes = {"heads": block.attention.heads, "kv_heads": block.attention.kv_heads, "ffn_width": inner}
        if wrong := {name: size for name, size in sizes.items() if size % ranks}:
            name, size = next(iter(wrong.items()))
            raise UserError(
                f"model.{name} is {size}, which training.tensor_parallel = {ranks} cannot split equally; use a divisor"
                " of it."
            )


class TensorParallel:
    """Splits blocks over a mesh of ranks, and knows the rows of parameters that it has permuted.

    The rows of query_key_value are all query heads, then all key heads, then all value heads; while they are split,
    each rank's heads of all three follow each other.
    """

    def __init__(self, model: nn.Module, mesh: object):
        self.mesh = mesh
        self.ranks: int = mesh.size()  # type: ignore[attr-defined]
        refuse_unsplit(model, self.ranks)
        # It warns of two collectives where a tensor is gathered from two dimensions, which checkpoints do.
        logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)
        self.rows: dict[str, Tensor] = {}
        for path, part in model.named_modules():
            if isinstance(part, SelfAttention):
                for name, _ in part.query_key_value.named_parameters():
                    self.rows[f"{path}.query_key_value.{name}"] = head_rows(part, self.ranks)

    def __call__(self, block: nn.Module) -> None:
        """Splits a block, whose weights are in memory."""
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        for part in block.modules():
            if isinstance(part, SelfAttention):
                rows = head_rows(part, self.ranks)
                for parameter in part.query_key_value.parameters():
                    parameter.data = parameter.data[rows]
                part.heads, part.kv_heads = part.heads // self.ranks, part.kv_heads // self.ranks
        names = dict(block.named_modules())
        plan = {name: ColwiseParallel() for name in COLUMNS if name in names}
        plan |= {name: RowwiseParallel() for name in ROWS}  # type: ignore[misc]
        parallelize_module(block, self.mesh, plan)  # type: ignore[arg-type]

    def plain(self, name: str, tensor: Tensor) -> Tensor:
        """A full tensor in the order of the model's own rows; `name` is of a parameter, or of its optimizer state."""
        rows = self._rows(name, tensor)
        return tensor if rows is None else tensor[torch.argsort(rows)]

    def permuted(self, name: str, tensor: Tensor) -> Tensor:
        """The reverse."""
        rows = self._rows(name, tensor)
        return tensor if rows is None else tensor[rows]

    def _rows(self, name: str, tensor: Tensor) -> Tensor | None:
        return self.rows.get(name.rsplit("/", 1)[0]) if tensor.dim() else None  # step counters have no rows


def head_rows(part: SelfAttention, ranks: int) -> Tensor:
    """Rows of query_key_value in the order of ranks: of each its query, key and value heads."""
    size = part.query_key_value.out_features // (part.heads + 2 * part.kv_heads)
    counts = [part.heads, part.kv_heads, part.kv_heads]
    heads = torch.arange(sum(counts) * size).view(-1, size)
    shares = [group.chunk(ranks) for group in torch.split(heads, counts)]
    return torch.cat([share[rank].flatten() for rank in range(ranks) for share in shares])
