"""Transformer block for inference on a CPU: decoding steps in compiled C (decision 192)."""

from __future__ import annotations

import ctypes
import math

import torch
from torch import Tensor, nn

from seqwright.layers.cross_attention import CrossKV
from seqwright.layers.inference.native_linear import Integer, LinearFields, NativeLinear, Pointer, address, kernels
from seqwright.layers.kv_cache import KVCache
from seqwright.layers.slot_cache import SlotCache
from seqwright.layers.transformer_block import Block, FeedForward, GatedFeedForward


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
            setattr(fields, name, _norm_fields(getattr(self, name)))
        for name in ("query_norm", "key_norm"):
            setattr(fields, name, _norm_fields(getattr(attention, name)))
        for parent in (attention, feed_forward):
            for name, part in parent.named_children():
                if isinstance(part, NativeLinear):
                    setattr(fields, name, part.fields)
        assert isinstance(feed_forward.up, NativeLinear)
        fields.activation = feed_forward.up.activation
        if attention.rotary is not None:
            fields.cos, fields.sin = (address(attention.rotary.get_buffer(name)) for name in ("cos", "sin"))

    def masks_cache(self, kv_cache: KVCache, steps: int) -> bool:
        if steps > 1 or not isinstance(kv_cache, SlotCache) or torch.is_autocast_enabled("cpu"):
            return False
        return kv_cache.key.dtype == torch.float32 and kv_cache.key.is_contiguous()

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
        x = self._attend(x.contiguous(), positions, kv_cache, layer)
        if self.cross is not None:
            cross = self.cross
            x = self._sublayer(x, self.cross_norm, lambda y: cross(y, memory))
        return self._feed_forward(x)

    def _attend(self, x: Tensor, positions: Tensor, kv_cache: SlotCache, layer: int) -> Tensor:
        """Self-attention of rows (R, 1, D), with its normalization and residual sum."""
        out, key, value = torch.empty_like(x), kv_cache.key, kv_cache.value
        offset = layer * key.stride(1) * key.element_size()
        kernels().attention_sublayer(
            ctypes.addressof(self.fields),
            x.data_ptr(),
            len(x),
            positions.expand(len(x), 1).contiguous().data_ptr(),
            kv_cache.length.data_ptr(),
            key.data_ptr() + offset,
            value.data_ptr() + offset,
            key.stride(0),
            kv_cache.size,
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


def _norm_fields(norm: nn.Module) -> NormFields:
    match norm:
        case nn.LayerNorm():
            return NormFields(address(norm.weight), address(norm.bias), 1, norm.eps)
        case nn.RMSNorm():
            return NormFields(address(norm.weight), None, 2, norm.eps or torch.finfo(torch.float32).eps)
        case nn.Identity():
            return NormFields()
    raise TypeError(f"decoding.c has no {type(norm).__name__}")
