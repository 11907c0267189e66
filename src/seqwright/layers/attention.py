"""Multi-head attention: scaled dot-product attention, its masks, and self-attention."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.layers.kv_cache import KVCache, attention_mask
from seqwright.layers.positions import Rotary
from seqwright.layers.rms_norm import RMSNorm

BFLOAT16_KEYS = 512
"""From so many keys on, bfloat16 is no slower than float32 on a CPU."""


class Attend(nn.Module):
    """Scaled dot-product attention: softmax(query keyᵀ / √E + bias) value.

    A module of its own, so that forward hooks can record attention weights without a flag here (decision 75). Keys and
    values may have fewer heads than queries, each shared by a group of consecutive query heads.
    """

    def __init__(self, dropout: float = 0.0, *, scaled: bool = True):
        super().__init__()
        self.dropout = dropout
        self.scaled = scaled

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """(B, H, T, E) from keys and values (B, G, K, E), H a multiple of G.

        mask (B or 1, 1, T or 1, K): True = may be attended; bias (B or 1, H or 1, T or 1, K) is added to the scores.
        """
        dropout = self.dropout if self.training else 0.0
        grouped = query.size(1) != key.size(1)
        if bias is not None:  # SDPA takes one attn_mask: boolean, or float, which is added
            mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
        attend = partial(
            F.scaled_dot_product_attention,
            dropout_p=dropout,
            is_causal=causal,
            scale=None if self.scaled else 1.0,  # None: 1 / √E
            enable_gqa=grouped,
        )
        if query.requires_grad and slow_in_bfloat16(key):
            mask = mask if mask is None or mask.dtype == torch.bool else mask.float()
            with torch.autocast("cpu", enabled=False):
                return attend(query.float(), key.float(), value.float(), attn_mask=mask).to(value.dtype)
        return attend(query, key, value, attn_mask=mask)

    def weights(
        self,
        query: Tensor,
        key: Tensor,
        *,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Attention weights (B, H, T, K) that `forward` averages values with: for inspection, not for speed."""
        return self.scores(query, key, mask=mask, bias=bias, causal=causal).softmax(-1)

    def scores(
        self,
        query: Tensor,
        key: Tensor,
        *,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Scores (B, H, T, K) before the softmax, minus infinity where a mask forbids attention."""
        # Consecutive query heads share a key-value head, as in Llama.
        key = key.repeat_interleave(query.size(1) // key.size(1), 1)  # (B, H, K, E)
        scores = query @ key.transpose(-2, -1)
        if self.scaled:
            scores = scores / math.sqrt(query.size(-1))
        if bias is not None:
            scores = scores + bias
        if causal:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if mask is not None:
            # Minus infinity before the softmax both masks and leaves weights that sum to one (worked example 6).
            scores = scores.masked_fill(~mask, -torch.inf)
        return scores


def slow_in_bfloat16(key: Tensor) -> bool:
    """Whether training attends to these keys (B, G, K, E) faster in float32: PyTorch's kernel of the backward pass on a
    CPU takes twice to five times as long in bfloat16, the longer the fewer keys there are (AVX-512, torch 2.13)."""
    return key.device.type == "cpu" and key.dtype == torch.bfloat16 and key.size(2) < BFLOAT16_KEYS


def drop_full_mask(mask: Tensor) -> Tensor | None:
    """The mask, or None where it is all True: attention is faster without. Only on a CPU: a GPU would synchronize."""
    return None if mask.device.type == "cpu" and bool(mask.all()) else mask


def additive_mask(mask: Tensor, like: Tensor) -> Tensor | None:
    """The mask as an additive bias of 0 and minus infinity, or None where it is all True; shared by all layers."""
    partial = drop_full_mask(mask)
    return None if partial is None else torch.zeros_like(partial, dtype=like.dtype).masked_fill_(~partial, -torch.inf)


class SelfAttention(nn.Module):
    """Multi-head self-attention, causal or bidirectional (Vaswani et al. 2017)."""

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        window: int | None = None,
        qk_norm: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
        scaled: bool = True,
        rotary: Rotary | None = None,
        causal: bool = True,
    ):
        super().__init__()
        size = width // heads
        self.causal = causal
        # Multi-query and grouped-query attention (Shazeer 2019; Ainslie et al. 2023).
        self.heads, self.kv_heads = heads, kv_heads or heads
        self.window = window
        self.query_key_value = nn.Linear(width, (heads + 2 * self.kv_heads) * size, bias=bias)
        # QK-norm: queries and keys of fixed norm bound the logits (Henry et al. 2020).
        self.query_norm = RMSNorm(size, eps=1e-6) if qk_norm else nn.Identity()
        self.key_norm = RMSNorm(size, eps=1e-6) if qk_norm else nn.Identity()
        self.attend = Attend(dropout, scaled=scaled)
        self.output = nn.Linear(width, width, bias=bias)
        self.rotary = rotary

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        kv_cache: KVCache | None = None,
        layer: int = 0,
        *,
        bias: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """(R, T, D) from (R, T, D).

        With a KV cache of B sources, extended for these positions, cached keys and values are attended too, and the
        rows (beams) of a source are folded into the query axis; its mask is part of the bias (B, 1, R / B · T, K), see
        `additive_mask`. An optional mask restricts attention further: (B, 1, T or 1, T) without a cache,
        (B, 1, R / B · T or 1, K) with one.
        """
        projected = self.query_key_value(x).unflatten(-1, (self.heads + 2 * self.kv_heads, -1))
        query, key, value = projected.split([self.heads, self.kv_heads, self.kv_heads], 2)  # (B, T, H or G, E)
        query, key = self.query_norm(query), self.key_norm(key)
        if self.rotary is not None:
            query, key = self.rotary(query, positions), self.rotary(key, positions)
        causal = False
        if kv_cache is not None:
            keys, values = kv_cache.write(layer, key, value)  # (B, G, K, E)
            causal = kv_cache.prefilled and bias is None and mask is None
        else:
            keys, values = key.transpose(1, 2), value.transpose(1, 2)  # (B, G, T, E)
            # The fused causal kernel needs no (T, T) mask in memory.
            windowed = self.window is not None and self.window < x.size(1)
            causal = self.causal and bias is None and mask is None and not windowed
            if windowed or (self.causal and not causal):
                at = torch.arange(x.size(1), device=x.device)
                allowed = attention_mask(
                    at.unsqueeze(0), at, self.window, bidirectional=not self.causal
                )  # (1, 1, T, T)
                mask = allowed if mask is None else allowed & mask
        query = query.reshape(len(keys), -1, *query.shape[2:]).transpose(1, 2)  # (B, H, R / B · T, E)
        attended = self.attend(query, keys, values, mask=mask, bias=bias, causal=causal)
        return self.output(attended.transpose(1, 2).reshape(*x.shape[:2], self.heads * attended.size(-1)))
