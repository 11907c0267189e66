"""One Transformer layer: attention, in decoders cross-attention, and a feed-forward network, each with its residual
path and normalisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from seqwright.layers.attention import KeyValues, SelfAttention
from seqwright.layers.cross_attention import CrossAttention, Given
from seqwright.layers.positions import Rotary

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU}


class FeedForward(nn.Sequential):
    """Two linear maps with a nonlinearity between them, for each position alone."""

    def __init__(self, width: int, inner: int, *, activation: str = "gelu", bias: bool = True):
        super().__init__()
        self.up = nn.Linear(width, inner, bias=bias)
        self.activation = ACTIVATIONS[activation]()
        self.down = nn.Linear(inner, width, bias=bias)


class Block(nn.Module):
    """Attention, cross-attention where there is a memory to ask, then feed-forward.

    Post-LN normalises the sum, x = norm(x + f(x)), as Vaswani et al. (2017) drew it; pre-LN normalises what a part
    reads, x = x + f(norm(x)), which trains without warm-up (Xiong et al. 2020).
    """

    def __init__(
        self,
        width: int,
        heads: int,
        inner: int,
        *,
        norm: Literal["pre", "post"] = "pre",
        activation: str = "gelu",
        bias: bool = True,
        dropout: float = 0.0,
        rotary: Rotary | None = None,
        causal: bool = True,
        cross: bool = False,
    ):
        super().__init__()
        self.pre = norm == "pre"
        self.attention = SelfAttention(width, heads, bias=bias, dropout=dropout, rotary=rotary, causal=causal)
        self.attention_norm = nn.LayerNorm(width)
        self.cross: CrossAttention | None = None
        if cross:
            self.cross = CrossAttention(width, heads, bias=bias, dropout=dropout)
            self.cross_norm = nn.LayerNorm(width)
        self.feed_forward = FeedForward(width, inner, activation=activation, bias=bias)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        memory: KeyValues | None = None,
        layer: int = 0,
        *,
        mask: Tensor | None = None,
        given: Given | None = None,
    ) -> Tensor:
        """(B, T, D) from (B, T, D); `given` holds what cross-attention may ask."""
        x = self._part(x, self.attention_norm, lambda y: self.attention(y, positions, memory, layer, mask))
        if self.cross is not None:
            asked = self.cross
            x = self._part(x, self.cross_norm, lambda y: asked(y, given))
        return self._part(x, self.feed_forward_norm, self.feed_forward)

    def _part(self, x: Tensor, norm: nn.Module, part: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre:
            return x + self.dropout(part(norm(x)))
        return norm(x + self.dropout(part(x)))
