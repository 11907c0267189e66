"""Transformer encoder: bidirectional self-attention over a source (Vaswani et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from seqwright.layers.attention import drop_full_mask
from seqwright.layers.encoder import EncoderOutput
from seqwright.layers.transformer_stack import Stack, StackConfig


@dataclass(frozen=True, kw_only=True)
class TransformerEncoderConfig(StackConfig):
    layers: int = 4
    """Blocks of the encoder."""
    context: int = 512
    """Context length: maximum source (and target) length in tokens; sinusoids and rotations cost nothing for being
    long."""
    positions: Literal["learned", "sinusoidal", "rope", "alibi", "t5", "none"] = "sinusoidal"
    """Positional encoding: added to embeddings (learned, sinusoidal), rotary (rope), or a bias of attention scores by
    distance (alibi: linear; t5: learned by bucket)."""
    activation: Literal["gelu", "gelu-tanh", "relu", "relu2", "swiglu"] = "relu"
    """Activation of the feed-forward networks; gelu-tanh is GPT-2's approximation, swiglu is gated."""
    dropout: float = 0.1
    """Dropout rate of embeddings, sublayer outputs and attention weights."""

    poolings: ClassVar[tuple[str, ...]] = ("mean", "first", "max", "attention")


class TransformerEncoder(Stack):
    """Bidirectional Transformer stack: every position attends to every other, or to those within its window."""

    def __init__(self, config: TransformerEncoderConfig, *, embedding_norm: bool = False):
        super().__init__(config, config.layers, causal=False, embedding_norm=embedding_norm)

    def forward(self, x: Tensor, mask: Tensor) -> EncoderOutput:
        real = drop_full_mask(mask)
        vectors, _ = self.run(x, mask=None if real is None else real[:, None, None])
        return EncoderOutput(vectors, mask)


def transformer_encoder(config: TransformerEncoderConfig) -> TransformerEncoder:
    """A newly initialized Transformer encoder."""
    encoder = TransformerEncoder(config)
    initialize(encoder, config.width)
    return encoder


RESIDUAL_OUTPUTS = ("attention.output", "cross.output", "feed_forward.down")
"""Output projections of residual branches."""


@torch.no_grad()
def initialize(stack: Stack, width: int) -> None:
    """Uniform initialization of Glorot & Bengio (2010), fused maps in parts, as if each stood alone.

    In post-LN stacks, residual branches as large as the residual stream halve a token's own share at every sum, and
    learning rates of a few thousandths learn nothing (decision 77). There output projections are scaled down, so that
    all branches together are as large as the stream (Liu et al. 2020; Wang et al. 2022).
    """
    linear = [(name, module) for name, module in stack.named_modules() if isinstance(module, nn.Linear)]
    branches = sum(name.endswith(RESIDUAL_OUTPUTS) for name, _ in linear)
    for name, module in linear:
        fused = name.endswith(("query_key_value", "keys_values"))
        scaled = stack.post and name.endswith(RESIDUAL_OUTPUTS)
        for part in torch.split(module.weight, width if fused else module.out_features):
            nn.init.xavier_uniform_(part, gain=branches**-0.5 if scaled else 1.0)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
