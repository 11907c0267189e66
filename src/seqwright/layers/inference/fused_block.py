"""Transformer block for inference on a GPU: decoding steps in fused kernels (decision 165)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqwright.layers.cross_attention import CrossKV
from seqwright.layers.inference import decoding_kernels as kernels
from seqwright.layers.inference.decoding_attention import MAX_QUERIES, attention
from seqwright.layers.kv_cache import KVCache
from seqwright.layers.transformer_block import Block, FeedForward, GatedFeedForward, activation_name
from seqwright.layers.tree_cache import TreeCache


class FusedBlock(Block):
    """Inference-only block that shares its modules with the original. One token of each row over a static KV cache is
    computed by fused kernels; everything else by the block itself."""

    def __init__(self, plain: Block, context: int):
        nn.Module.__init__(self)
        self.pre, self.residual, self.context = plain.pre, plain.residual, context
        self.stochastic_depth = 0.0  # of training
        self.cross = None
        for name, module in plain.named_children():
            setattr(self, name, module)

    def masks_cache(self, kv_cache: KVCache, steps: int) -> bool:
        windowed_beams = self.attention.window is not None and isinstance(kv_cache, TreeCache)
        few = steps == 1 and len(kv_cache.length) <= kernels.MAX_ROWS
        branches = kv_cache.branches if isinstance(kv_cache, TreeCache) else 1
        crowded = branches * self.attention.heads // self.attention.kv_heads > MAX_QUERIES
        plain = windowed_beams or crowded or torch.is_autocast_enabled("cuda")
        return few and kv_cache.has_static_shapes and not plain

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
        if kv_cache is None or masked or not self.masks_cache(kv_cache, x.size(1)):
            return super().forward(x, positions, kv_cache, layer, bias=bias, mask=mask, memory=memory)
        x = self._attend(x.squeeze(1), kv_cache, layer)
        if self.cross is not None:
            cross = self.cross
            x = self._sublayer(x.unsqueeze(1), self.cross_norm, lambda y: cross(y, memory)).squeeze(1)
        return self._feed_forward(x).unsqueeze(1)

    def _attend(self, x: Tensor, kv_cache: KVCache, layer: int) -> Tensor:
        """Self-attention of rows (R, D), with its normalization and residual sum."""
        part = self.attention
        projected = kernels.linear(x, part.query_key_value, norm=self.attention_norm if self.pre else None)
        attended = attention(
            projected,
            kv_cache,
            layer,
            heads=part.heads,
            kv_heads=part.kv_heads,
            context=self.context,
            query_norm=part.query_norm,
            key_norm=part.key_norm,
            rotary=None if part.rotary is None else (part.rotary.get_buffer("cos"), part.rotary.get_buffer("sin")),
            window=part.window,
        )
        return self._normalized(kernels.linear(attended, part.output, residual=x), self.attention_norm)

    def _feed_forward(self, x: Tensor) -> Tensor:
        """The feed-forward network on rows (R, D), with its normalization and residual sum."""
        part, norm = self.feed_forward, self.feed_forward_norm if self.pre else None
        if isinstance(part, GatedFeedForward):
            inner = kernels.linear(x, part.up, norm=norm, activation="swiglu", gate=part.gate)
        else:
            assert isinstance(part, FeedForward)
            activation = activation_name(part.activation)
            assert activation is not None
            inner = kernels.linear(x, part.up, norm=norm, activation=activation)
        return self._normalized(kernels.linear(inner, part.down, residual=x), self.feed_forward_norm)

    def _normalized(self, x: Tensor, norm: nn.Module) -> Tensor:
        return x if self.pre else norm(x)
