"""One Transformer layer: attention and a feed-forward network, each with its residual path and normalisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.layers.attention import KeyValues, SelfAttention
from seqwright.layers.positions import Rotary

Normalisation = Literal["layer", "rms"]

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu-tanh": lambda: nn.GELU(approximate="tanh"),
}


def normalisation(kind: Normalisation, width: int, epsilon: float = 1e-5) -> nn.Module:
    """Mean 0 and deviation 1 (Ba et al. 2016), or only a root mean square of 1 (Zhang & Sennrich 2019)."""
    return nn.RMSNorm(width, eps=epsilon) if kind == "rms" else nn.LayerNorm(width, eps=epsilon)


class FeedForward(nn.Sequential):
    """Two linear maps with a nonlinearity between them, for each position alone."""

    def __init__(self, width: int, inner: int, *, activation: str = "gelu", bias: bool = True):
        super().__init__()
        self.up = nn.Linear(width, inner, bias=bias)
        self.activation = ACTIVATIONS[activation]()
        self.down = nn.Linear(inner, width, bias=bias)


class GatedFeedForward(nn.Module):
    """SwiGLU: one linear map opens the gates of another (Shazeer 2020)."""

    def __init__(self, width: int, inner: int, *, bias: bool = True):
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=bias)
        self.up = nn.Linear(width, inner, bias=bias)
        self.down = nn.Linear(inner, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


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
        normalised: Normalisation = "layer",
        epsilon: float = 1e-5,
        activation: str = "gelu",
        bias: bool = True,
        dropout: float = 0.0,
        attention_dropout: float | None = None,
        key_heads: int | None = None,
        window: int | None = None,
        query_key_norm: bool = False,
        rotary: Rotary | None = None,
    ):
        super().__init__()
        self.pre = norm == "pre"
        self.attention = SelfAttention(
            width,
            heads,
            key_heads=key_heads,
            window=window,
            query_key_norm=query_key_norm,
            bias=bias,
            dropout=dropout if attention_dropout is None else attention_dropout,
            rotary=rotary,
        )
        self.feed_forward: nn.Module
        if activation == "swiglu":
            self.feed_forward = GatedFeedForward(width, inner, bias=bias)
        else:
            self.feed_forward = FeedForward(width, inner, activation=activation, bias=bias)
        self.attention_norm = normalisation(normalised, width, epsilon)
        self.feed_forward_norm = normalisation(normalised, width, epsilon)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, positions: Tensor, memory: KeyValues | None = None, layer: int = 0, bias: Tensor | None = None
    ) -> Tensor:
        """(B, T, D) from (B, T, D)."""
        if self.pre:
            x = x + self.dropout(self.attention(self.attention_norm(x), positions, memory, layer, bias))
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x + self.dropout(self.attention(x, positions, memory, layer, bias)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
