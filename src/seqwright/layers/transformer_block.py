"""One Transformer layer: attention, in decoders cross-attention, and a feed-forward network, each with its residual
path and normalization."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.core.config import UserError, check_shares, check_sizes
from seqwright.layers.attention import SelfAttention
from seqwright.layers.cross_attention import CrossAttention, Given
from seqwright.layers.kv_cache import KVCache
from seqwright.layers.positions import Rotary

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu-tanh": lambda: nn.GELU(approximate="tanh"),
}


@dataclass(frozen=True, kw_only=True)
class BlockConfig:
    """The switches that every Transformer's blocks share."""

    width: int = 128
    """Size of the vectors that flow through the blocks."""
    heads: int = 4
    """Attention heads; they share the width evenly."""
    kv_heads: int | None = None
    """Heads of keys and values, each shared by a group of query heads (grouped-query attention, Ainslie et al. 2023);
    as heads unless given, 1 is multi-query attention (Shazeer 2019)."""
    ffn_width: int | None = None
    """Width inside the feed-forward networks; four times the width unless given, 8/3 of it for swiglu."""
    rope_base: float = 10000.0
    """The longest wavelength of rotary positions (Su et al. 2021), over 2π; greater for longer contexts."""
    qk_norm: bool = False
    """Whether queries and keys are normalized, head by head, before they meet (QK-norm, Henry et al. 2020)."""
    norm_position: Literal["pre", "post"] = "pre"
    """Normalize what each part reads (pre, Xiong et al. 2020) or the sum it makes (post, Vaswani et al. 2017)."""
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    """What a normalization is: LayerNorm (layer, Ba et al. 2016), or RMSNorm, which leaves the mean alone (rms, Zhang &
    Sennrich 2019)."""
    norm_eps: float = 1e-5
    """What normalizations add to a variance before they divide by its root."""
    activation: Literal["gelu", "gelu-tanh", "relu", "swiglu"] = "gelu"
    """The nonlinearity of the feed-forward networks; gelu-tanh is GPT-2's approximation (Hendrycks & Gimpel 2016),
    swiglu has a gate (Shazeer 2020)."""
    bias: bool = True
    """Whether the linear maps have biases; without, large models train more stably (Chowdhery et al. 2022)."""
    dropout: float = 0.0
    """Share of activations dropped in training (Srivastava et al. 2014): of the embedding, of each branch's output, of
    attention weights."""
    attention_dropout: float | None = None
    """Share of attention weights dropped (Radford et al. 2018), where it is not that of dropout."""
    embedding_dropout: float | None = None
    """Share of the embedding dropped (Radford et al. 2018), where it is not that of dropout."""

    def __post_init__(self) -> None:
        check_sizes(self, "width", "heads", "ffn_width")
        check_shares(self, "dropout", "attention_dropout", "embedding_dropout")
        if self.rope_base <= 0:
            raise UserError(f"rope_base must be above 0, not {self.rope_base}; 10000 is usual.")
        if self.norm_eps < 0:
            raise UserError(f"norm_eps must not be below 0, but is {self.norm_eps}; 1e-5 is usual.")
        if self.width % self.heads:
            below = self.width - self.width % self.heads
            near = [size for size in (below, below + self.heads) if size > 0]
            raise UserError(
                f"width {self.width} cannot be split over {self.heads} heads; try {' or '.join(map(str, near))}."
            )
        if self.kv_heads is not None and (self.kv_heads < 1 or self.heads % self.kv_heads):
            fitting = [str(n) for n in range(1, self.heads + 1) if self.heads % n == 0]
            raise UserError(
                f"{self.heads} heads cannot share {self.kv_heads} key-value heads; try {' or '.join(fitting)}."
            )

    @property
    def size(self) -> int:
        """Width of a head."""
        return self.width // self.heads

    @property
    def inner_width(self) -> int:
        """Four times the width; with a gate's third matrix, 8/3 of it (up to eights) makes as many parameters."""
        gated = -(-8 * self.width // 24) * 8
        return self.ffn_width or (gated if self.activation == "swiglu" else 4 * self.width)


def normalization(config: BlockConfig) -> nn.Module:
    """Mean 0 and deviation 1 (Ba et al. 2016), or only a root mean square of 1 (Zhang & Sennrich 2019)."""
    kind = nn.RMSNorm if config.norm == "rmsnorm" else nn.LayerNorm
    return kind(config.width, eps=config.norm_eps)


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
    """Attention, cross-attention where there is a memory to ask, then feed-forward.

    Post-LN normalizes the sum, x = norm(x + f(x)), as Vaswani et al. (2017) drew it; pre-LN normalizes what a part
    reads, x = x + f(norm(x)), which trains without warm-up (Xiong et al. 2020).
    """

    def __init__(
        self,
        config: BlockConfig,
        *,
        rotary: Rotary | None = None,
        window: int | None = None,
        causal: bool = True,
        cross: bool = False,
    ):
        super().__init__()
        self.pre = config.norm_position == "pre"
        dropped = config.dropout if config.attention_dropout is None else config.attention_dropout
        self.attention = SelfAttention(
            config.width,
            config.heads,
            kv_heads=config.kv_heads,
            window=window,
            qk_norm=config.qk_norm,
            bias=config.bias,
            dropout=dropped,
            rotary=rotary,
            causal=causal,
        )
        self.attention_norm = normalization(config)
        self.cross: CrossAttention | None = None
        if cross:
            self.cross = CrossAttention(config.width, config.heads, bias=config.bias, dropout=dropped)
            self.cross_norm = normalization(config)
        self.feed_forward: nn.Module
        if config.activation == "swiglu":
            self.feed_forward = GatedFeedForward(config.width, config.inner_width, bias=config.bias)
        else:
            self.feed_forward = FeedForward(
                config.width, config.inner_width, activation=config.activation, bias=config.bias
            )
        self.feed_forward_norm = normalization(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        memory: KVCache | None = None,
        layer: int = 0,
        *,
        bias: Tensor | None = None,
        mask: Tensor | None = None,
        given: Given | None = None,
    ) -> Tensor:
        """(B, T, D) from (B, T, D); bias and mask as for self-attention, `given` holds what cross-attention may ask."""
        x = self._part(
            x, self.attention_norm, lambda y: self.attention(y, positions, memory, layer, bias=bias, mask=mask)
        )
        if self.cross is not None:
            asked = self.cross
            x = self._part(x, self.cross_norm, lambda y: asked(y, given))
        return self._part(x, self.feed_forward_norm, self.feed_forward)

    def _part(self, x: Tensor, norm: nn.Module, part: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre:
            return x + self.dropout(part(norm(x)))
        return norm(x + self.dropout(part(x)))
