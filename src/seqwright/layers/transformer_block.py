"""One Transformer layer: self-attention, cross-attention in decoders, and a feed-forward network, each with a residual
connection and normalization."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.core.config import UserError, check_shares, check_sizes
from seqwright.layers.attention import SelfAttention
from seqwright.layers.cross_attention import CrossAttention, CrossKV
from seqwright.layers.encoder import EncoderConfig
from seqwright.layers.gelu import GELU, gelu_linear, joins_linear
from seqwright.layers.kv_cache import KVCache
from seqwright.layers.positions import Rotary
from seqwright.layers.rms_norm import RMSNorm


class SquaredReLU(nn.Module):
    """ReLU² (So et al. 2021)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x).square()


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "relu2": SquaredReLU,
    "gelu": GELU,
    "gelu-tanh": lambda: nn.GELU(approximate="tanh"),
}


def activation_name(module: nn.Module) -> str | None:
    """The name in ACTIVATIONS of what a module computes; None for other modules."""
    match module:
        case nn.ReLU():
            return "relu"
        case SquaredReLU():
            return "relu2"
        case nn.GELU():
            return "gelu" if module.approximate == "none" else "gelu-tanh"
    return None


@dataclass(frozen=True, kw_only=True)
class BlockConfig(EncoderConfig):
    """Options of the blocks of every Transformer."""

    width: int = 128
    """Model width: size of the residual stream."""
    heads: int = 4
    """Attention heads; the width must be divisible by them."""
    kv_heads: int | None = None
    """Key-value heads, each shared by a group of query heads (grouped-query attention, Ainslie et al. 2023); as many as
    heads by default, 1 is multi-query attention (Shazeer 2019)."""
    ffn_width: int | None = None
    """Inner width of the feed-forward networks; by default 4 × width, for swiglu 8/3 × width."""
    rope_base: float = 10000.0
    """Base of the rotary frequencies (Su et al. 2021; rope_theta elsewhere): the longest wavelength over 2π; greater
    for longer contexts."""
    qk_norm: bool = False
    """QK-norm: RMSNorm of queries and keys in each head before their dot product (Henry et al. 2020)."""
    norm_position: Literal["pre", "post"] = "pre"
    """Pre-LN: normalize the input of each sublayer (pre, Xiong et al. 2020); post-LN: normalize the residual sum (post,
    Vaswani et al. 2017)."""
    norm: Literal["layernorm", "rmsnorm", "none"] = "layernorm"
    """LayerNorm (Ba et al. 2016), RMSNorm, which does not subtract the mean (Zhang & Sennrich 2019), or none."""
    norm_eps: float = 1e-5
    """Epsilon of the normalizations, added to the variance."""
    residual: bool = True
    """Residual connections around sublayers (He et al. 2016); without them deep stacks hardly train."""
    scale_attention: bool = True
    """Divide attention scores by the square root of the head size (Vaswani et al. 2017, §3.2.1)."""
    activation: Literal["gelu", "gelu-tanh", "relu", "relu2", "swiglu"] = "gelu"
    """Activation of the feed-forward networks; gelu-tanh is GPT-2's approximation (Hendrycks & Gimpel 2016), relu2 is
    ReLU² (So et al. 2021), swiglu is gated (Shazeer 2020)."""
    bias: bool = True
    """Biases in linear layers; without them large models train more stably (Chowdhery et al. 2022)."""
    dropout: float = 0.0
    """Dropout rate (Srivastava et al. 2014) of embeddings, sublayer outputs and attention weights."""
    attention_dropout: float | None = None
    """Dropout rate of attention weights (Radford et al. 2018); as dropout by default."""
    embedding_dropout: float | None = None
    """Dropout rate of embeddings (Radford et al. 2018); as dropout by default."""
    stochastic_depth: float = 0.0
    """Stochastic depth (Huang et al. 2016): rate at which the sublayers of the last block are skipped in training, for
    each row anew; it falls linearly towards the first block."""

    def __post_init__(self) -> None:
        check_sizes(self, "width", "heads", "ffn_width")
        check_shares(self, "dropout", "attention_dropout", "embedding_dropout", "stochastic_depth")
        if self.stochastic_depth and not self.residual:
            raise UserError(
                "stochastic_depth skips sublayers, around which only residual connections lead: set residual = true."
            )
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
            divisors = [str(n) for n in range(1, self.heads + 1) if self.heads % n == 0]
            raise UserError(
                f"{self.heads} heads cannot share {self.kv_heads} key-value heads; try {' or '.join(divisors)}."
            )

    @property
    def input_width(self) -> int:
        return self.width

    @property
    def head_norm_eps(self) -> float:
        return self.norm_eps

    @property
    def head_size(self) -> int:
        """Size of an attention head."""
        return self.width // self.heads

    @property
    def inner_width(self) -> int:
        """Inner width of the feed-forward network: 4 × width; for swiglu 8/3 × width, up to a multiple of 8, whose
        third matrix then leaves the parameter count about the same (Shazeer 2020)."""
        gated = -(-8 * self.width // 24) * 8
        return self.ffn_width or (gated if self.activation == "swiglu" else 4 * self.width)


def normalization(config: BlockConfig) -> nn.Module:
    """LayerNorm (Ba et al. 2016) or RMSNorm (Zhang & Sennrich 2019) of the model width; the identity for none."""
    if config.norm == "none":
        return nn.Identity()
    kind = RMSNorm if config.norm == "rmsnorm" else nn.LayerNorm
    return kind(config.width, eps=config.norm_eps)


class FeedForward(nn.Sequential):
    """Position-wise feed-forward network: linear, activation, linear."""

    def __init__(self, width: int, inner: int, *, activation: str = "gelu", bias: bool = True):
        super().__init__()
        self.up = nn.Linear(width, inner, bias=bias)
        self.activation = ACTIVATIONS[activation]()
        self.down = nn.Linear(inner, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.up(x)
        if joins_linear(hidden, self.activation, self.down):
            return gelu_linear(hidden, self.down.weight, self.down.bias)
        return self.down(self.activation(hidden))


class GatedFeedForward(nn.Module):
    """SwiGLU: down(silu(gate(x)) · up(x)) (Shazeer 2020)."""

    def __init__(self, width: int, inner: int, *, bias: bool = True):
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=bias)
        self.up = nn.Linear(width, inner, bias=bias)
        self.down = nn.Linear(inner, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Self-attention, cross-attention in decoders, then feed-forward.

    Post-LN normalizes the residual sum, x = norm(x + f(x)), as in Vaswani et al. (2017); pre-LN normalizes the input of
    a sublayer, x = x + f(norm(x)), which trains without warmup (Xiong et al. 2020).
    """

    def __init__(
        self,
        config: BlockConfig,
        *,
        rotary: Rotary | None = None,
        window: int | None = None,
        causal: bool = True,
        cross: bool = False,
        stochastic_depth: float = 0.0,
    ):
        super().__init__()
        self.stochastic_depth = stochastic_depth
        self.pre = config.norm_position == "pre"
        self.residual = config.residual
        attention_dropout = config.dropout if config.attention_dropout is None else config.attention_dropout
        self.attention = SelfAttention(
            config.width,
            config.heads,
            kv_heads=config.kv_heads,
            window=window,
            qk_norm=config.qk_norm,
            bias=config.bias,
            dropout=attention_dropout,
            scaled=config.scale_attention,
            rotary=rotary,
            causal=causal,
        )
        self.attention_norm = normalization(config)
        self.cross: CrossAttention | None = None
        if cross:  # with all heads: kv_heads applies to self-attention only
            self.cross = CrossAttention(
                config.width,
                config.heads,
                bias=config.bias,
                dropout=attention_dropout,
                scaled=config.scale_attention,
            )
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
        kv_cache: KVCache | None = None,
        layer: int = 0,
        *,
        bias: Tensor | None = None,
        mask: Tensor | None = None,
        memory: CrossKV | None = None,
    ) -> Tensor:
        """(B, T, D) from (B, T, D); bias and mask as for self-attention, `memory` for cross-attention."""
        x = self._sublayer(
            x, self.attention_norm, lambda y: self.attention(y, positions, kv_cache, layer, bias=bias, mask=mask)
        )
        if self.cross is not None:
            cross = self.cross
            x = self._sublayer(x, self.cross_norm, lambda y: cross(y, memory))
        return self._sublayer(x, self.feed_forward_norm, self.feed_forward)

    def masks_cache(self, kv_cache: KVCache, steps: int) -> bool:
        """Whether `steps` new tokens attend to a KV cache without a mask in `bias`."""
        return False

    def _sublayer(self, x: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        output = self.dropout(sublayer(norm(x) if self.pre else x))
        if self.stochastic_depth and self.training:
            output = output * F.dropout(output.new_ones(len(output), 1, 1), self.stochastic_depth)
        if self.residual:
            output = x + output
        return output if self.pre else norm(output).to(x.dtype)  # autocast computes normalizations in float32
