"""Transformer blocks for inference on a CPU: decoding steps in compiled C (decisions 192 and 213)."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import torch
from torch import Tensor, nn

from seqwright.layers.cross_attention import CrossKV
from seqwright.layers.inference.native_linear import Integer, LinearFields, NativeLinear, Pointer, address, kernels
from seqwright.layers.kv_cache import KVCache
from seqwright.layers.positions import Learned, NoPositions, Sinusoidal
from seqwright.layers.slot_cache import SlotCache
from seqwright.layers.transformer_block import Block, FeedForward, GatedFeedForward
from seqwright.layers.transformer_stack import Blocks, Stack

DTYPES = (torch.float32, torch.bfloat16)
"""Of a KV cache that decoding.c reads."""


class NormFields(ctypes.Structure):
    """`Norm` of decoding.c."""

    _fields_ = (("gain", Pointer), ("bias", Pointer), ("kind", Integer), ("eps", ctypes.c_double))


class BlockFields(ctypes.Structure):
    """`Block` of decoding.c."""

    _fields_ = (
        *((name, NormFields) for name in ("attention_norm", "query_norm", "key_norm", "feed_forward_norm")),
        *((name, LinearFields) for name in ("query_key_value", "output", "up", "gate", "down")),
        ("cos", Pointer),
        ("sin", Pointer),
        *((name, Integer) for name in ("heads", "kv_heads", "size", "window", "pre", "residual", "activation")),
        ("scale", ctypes.c_double),
    )


class StackFields(ctypes.Structure):
    """`Stack` of decoding.c."""

    _fields_ = (
        ("blocks", Pointer),
        *((name, Integer) for name in ("layers", "width", "context")),
        ("table", Pointer),
        ("scale", ctypes.c_double),
        ("norm", NormFields),
    )


class CacheFields(ctypes.Structure):
    """`Cache` of decoding.c."""

    _fields_ = (
        ("key", Pointer),
        ("value", Pointer),
        *((name, Integer) for name in ("row_stride", "slots", "half")),
    )

    @classmethod
    def of(cls, cache: SlotCache, layer: int) -> CacheFields:
        """The keys and values of a layer."""
        key, value = cache.key, cache.value
        offset = layer * key.stride(1) * key.element_size()
        half = key.dtype == torch.bfloat16
        return cls(key.data_ptr() + offset, value.data_ptr() + offset, key.stride(0), cache.size, half)


class NativeBlock(Block):
    """Inference-only block that shares its modules with the original, whose linear layers are in C. One token of each
    row over a `SlotCache` is computed in two calls; everything else by the block itself."""

    def __init__(self, plain: Block):
        nn.Module.__init__(self)
        self.pre, self.residual = plain.pre, plain.residual
        self.stochastic_depth = 0.0  # of training
        self.cross = None
        for name, module in plain.named_children():
            setattr(self, name, module)
        attention, feed_forward = self.attention, self.feed_forward
        assert isinstance(feed_forward, FeedForward | GatedFeedForward)
        self.kept: list[Any] = []  # as long as C points to them
        fields = self.fields = BlockFields(
            heads=attention.heads,
            kv_heads=attention.kv_heads,
            size=attention.query_key_value.out_features // (attention.heads + 2 * attention.kv_heads),
            window=attention.window or 0,
            pre=self.pre,
            residual=self.residual,
        )
        fields.scale = 1 / math.sqrt(fields.size) if attention.attend.scaled else 1.0
        for name in ("attention_norm", "feed_forward_norm"):
            setattr(fields, name, norm_fields(getattr(self, name), self.kept))
        for name in ("query_norm", "key_norm"):
            setattr(fields, name, norm_fields(getattr(attention, name), self.kept))
        for parent in (attention, feed_forward):
            for name, part in parent.named_children():
                if isinstance(part, NativeLinear):
                    setattr(fields, name, part.fields)
        assert isinstance(feed_forward.up, NativeLinear)
        fields.activation = feed_forward.up.activation
        if attention.rotary is not None:
            cos, sin = (attention.rotary.get_buffer(name) for name in ("cos", "sin"))
            fields.cos, fields.sin = floats(cos, self.kept), floats(sin, self.kept)

    def masks_cache(self, kv_cache: KVCache, steps: int) -> bool:
        if steps != 1 or not isinstance(kv_cache, SlotCache) or torch.is_autocast_enabled("cpu"):
            return False
        return kv_cache.key.dtype in DTYPES and kv_cache.key.is_contiguous()

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        kv_cache: KVCache | None = None,
        layer: int = 0,
        *,
        bias: Tensor | None = None,
        mask: Tensor | None = None,
        memory: CrossKV | None = None,
    ) -> Tensor:
        masked = bias is not None or mask is not None
        if not isinstance(kv_cache, SlotCache) or masked or not self.masks_cache(kv_cache, x.size(1)):
            return super().forward(x, positions, kv_cache, layer, bias=bias, mask=mask, memory=memory)
        out = self._attend(x.float().contiguous(), positions, kv_cache, layer)
        if self.cross is not None:
            cross = self.cross
            crossed = self._sublayer(out.to(x.dtype), self.cross_norm, lambda y: cross(y, memory))
            out = crossed.float()
        return self._feed_forward(out).to(x.dtype)

    def _attend(self, x: Tensor, positions: Tensor, kv_cache: SlotCache, layer: int) -> Tensor:
        """Self-attention of rows (R, 1, D), with its normalization and residual sum."""
        out = torch.empty_like(x)
        kernels().attention_sublayer(
            ctypes.addressof(self.fields),
            x.data_ptr(),
            len(x),
            positions.expand(len(x), 1).contiguous().data_ptr(),
            kv_cache.length.data_ptr(),
            ctypes.byref(CacheFields.of(kv_cache, layer)),
            out.data_ptr(),
            torch.get_num_threads(),
        )
        return out

    def _feed_forward(self, x: Tensor) -> Tensor:
        """The feed-forward network on rows (R, 1, D), with its normalization and residual sum."""
        out = torch.empty_like(x)
        threads = torch.get_num_threads()
        kernels().feed_forward_sublayer(ctypes.addressof(self.fields), x.data_ptr(), len(x), out.data_ptr(), threads)
        return out


class NativeBlocks(Blocks):
    """Inference-only blocks in C. One token of each row over a `SlotCache` goes through the whole stack in one call,
    where no block attends to a source."""

    def __init__(self, stack: Stack):
        super().__init__(NativeBlock(block) for block in stack.blocks)  # type: ignore[arg-type]
        blocks = [block for block in self if isinstance(block, NativeBlock)]
        self.kept: list[Any] = []  # as long as C points to them
        self.fields: StackFields | None = None
        table = self._table(stack.positions)
        embedded = table is not None or isinstance(stack.positions, NoPositions)
        if embedded and isinstance(stack.embedding_norm, nn.Identity) and all(block.cross is None for block in blocks):
            array = (BlockFields * len(blocks))(*(block.fields for block in blocks))
            self.kept.append(array)
            scale = stack.positions.scale if isinstance(stack.positions, Sinusoidal) else 1.0
            norm = norm_fields(stack.norm, self.kept)
            where = floats(table, self.kept)
            sizes = len(blocks), stack.width, stack.context
            self.fields = StackFields(ctypes.addressof(array), *sizes, where, scale, norm)

    def decode(self, x: Tensor, state: KVCache, count: Tensor | None) -> tuple[Tensor, KVCache] | None:
        if self.fields is None or x.size(1) != 1 or not isinstance(state, SlotCache):
            return None
        if not self.masks_cache(state, 1):
            return None
        positions, state = state.length.contiguous(), state.extended(1, count)
        rows = x.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
        kernels().run_stack(
            ctypes.addressof(self.fields),
            rows.data_ptr(),
            len(rows),
            positions.data_ptr(),
            state.length.data_ptr(),
            ctypes.byref(CacheFields.of(state, 0)),
            state.key.stride(1),
            torch.get_num_threads(),
        )
        return rows.to(x.dtype), state

    def masks_cache(self, kv_cache: KVCache, steps: int) -> bool:
        first = self[0]  # all are alike
        assert isinstance(first, NativeBlock)
        return first.masks_cache(kv_cache, steps)

    def _table(self, positions: nn.Module) -> Tensor | None:
        """What encodes positions, (context, D), where it is added to embeddings."""
        match positions:
            case Learned():
                return positions.table.weight
            case Sinusoidal():
                return positions.get_buffer("table")
        return None


def norm_fields(norm: nn.Module, kept: list[Any]) -> NormFields:
    """A normalization as C reads it; its numbers are `kept`."""
    match norm:
        case nn.LayerNorm():
            return NormFields(floats(norm.weight, kept), floats(norm.bias, kept), 1, norm.eps)
        case nn.RMSNorm():
            return NormFields(floats(norm.weight, kept), None, 2, norm.eps or torch.finfo(torch.float32).eps)
        case nn.Identity():
            return NormFields()
    raise TypeError(f"decoding.c has no {type(norm).__name__}")


def floats(tensor: Tensor | None, kept: list[Any]) -> int | None:
    """Where the numbers of a tensor lie as float32; they are `kept`."""
    if tensor is None:
        return None
    kept.append(tensor.detach().float().contiguous())
    return address(kept[-1])
