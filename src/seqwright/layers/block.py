"""One Transformer layer: attention and a feed-forward network, each with its residual path and normalisation."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from seqwright.layers.attention import KeyValues, SelfAttention
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
    """Attention, then feed-forward.

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
    ):
        super().__init__()
        self.pre = norm == "pre"
        self.attention = SelfAttention(width, heads, bias=bias, dropout=dropout, rotary=rotary)
        self.feed_forward = FeedForward(width, inner, activation=activation, bias=bias)
        self.attention_norm = nn.LayerNorm(width)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, positions: Tensor, memory: KeyValues | None = None, layer: int = 0) -> Tensor:
        """(B, T, D) from (B, T, D)."""
        if self.pre:
            x = x + self.dropout(self.attention(self.attention_norm(x), positions, memory, layer))
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x + self.dropout(self.attention(x, positions, memory, layer)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
