"""The Transformer: an encoder that sees the whole source, a masked decoder that asks it (Vaswani et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from seqwright.core.batch import Vocabularies
from seqwright.core.config import check_sizes
from seqwright.core.state import State
from seqwright.layers.attention import drop_full_mask
from seqwright.layers.cross_attention import CrossKVCache
from seqwright.layers.encoder import EncoderOutput
from seqwright.layers.kv_cache import KVCache
from seqwright.layers.transformer_stack import Stack, StackConfig
from seqwright.models.encoder_decoder import EncoderDecoder, Tied, settled_tie


@dataclass(frozen=True, kw_only=True)
class TransformerEncoderConfig(StackConfig):
    layers: int = 4
    """Blocks of the encoder."""
    context: int = 512
    """The longest source (and target), in tokens; sinusoids and rotations cost nothing for being long."""
    positions: Literal["learned", "sinusoidal", "rope", "alibi", "t5", "none"] = "sinusoidal"
    """How a token knows where it stands: vectors added to the tokens (learned, sinusoidal), turned queries and keys
    (rotary), or numbers added to the scores by distance (alibi: straight lines; relative: T5's learned buckets)."""
    activation: Literal["gelu", "gelu-tanh", "relu", "swiglu"] = "relu"
    """The nonlinearity of the feed-forward networks; gelu-tanh is GPT-2's approximation, swiglu has a gate."""
    dropout: float = 0.1
    """Share of activations dropped in training."""


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(TransformerEncoderConfig):
    decoder_layers: int | None = None
    """Blocks of the decoder; as many as the encoder has unless given."""
    tied: Tied | None = None
    """three-way: both embeddings and the read-out are one table; two-way: target embedding and read-out; or none.
    Left out: as much as the vocabularies allow."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self, "decoder_layers")


class TransformerEncoder(Stack):
    """Every position of the source sees every other, or those within its window."""

    def __init__(self, config: TransformerEncoderConfig, *, embedding_norm: bool = False):
        super().__init__(config, config.layers, causal=False, embedding_norm=embedding_norm)

    def forward(self, x: Tensor, mask: Tensor) -> EncoderOutput:
        real = drop_full_mask(mask)
        vectors, _ = self.run(x, mask=None if real is None else real[:, None, None])
        return EncoderOutput(vectors, mask)


class TransformerDecoder(Stack):
    """Every position sees those before it and, through cross-attention, the whole source."""

    def __init__(self, config: TransformerConfig):
        super().__init__(config, config.decoder_layers or config.layers, cross=True)
        self.layout = (len(self.blocks), 2, config.heads, config.head_size)
        self.keys_values = nn.Linear(config.width, 2 * len(self.blocks) * config.width, bias=config.bias)

    def memory_of(self, reading: EncoderOutput) -> CrossKVCache:
        key_value = self.keys_values(reading.vectors).unflatten(-1, self.layout)  # (B, S, L, 2, H, E)
        return CrossKVCache(key_value.permute(0, 2, 3, 4, 1, 5).contiguous(), reading.mask)

    def start(self, memory: State, capacity: int) -> KVCache:
        assert isinstance(memory, CrossKVCache)
        return self.empty_cache(memory.mask.size(0), capacity, memory.key_value)

    def forward(
        self, x: Tensor, memory: State, state: KVCache | None = None, count: Tensor | None = None
    ) -> tuple[Tensor, KVCache | None]:
        assert isinstance(memory, CrossKVCache)
        return self.run(x, state, count, memory=memory.layers())

    @property
    def source_attention(self) -> list[nn.Module]:
        return [block.get_submodule("cross.attend") for block in self.blocks]


def transformer(config: TransformerConfig, sizes: Vocabularies) -> EncoderDecoder:
    """A Transformer with fresh weights."""
    reader, decoder = TransformerEncoder(config), TransformerDecoder(config)
    for stack in (reader, decoder):
        initialize(stack, config.width)
    return EncoderDecoder(sizes, config.width, reader, decoder, tied=settled_tie(config.tied, sizes))


BRANCH_ENDS = ("attention.output", "cross.output", "feed_forward.down")


@torch.no_grad()
def initialize(stack: Stack, width: int) -> None:
    """Glorot & Bengio's (2010) uniform start, for each map as if it stood alone: fused ones are drawn in parts.

    Where sums are normalized (post-LN), branches as large as the stream halve at every one what a token says of itself,
    and rates of a few thousandths learn nothing (decision 77). There branches begin smaller, so that all of them
    together are as large as the stream (Liu et al. 2020; Wang et al. 2022).
    """
    parts = [(name, part) for name, part in stack.named_modules() if isinstance(part, nn.Linear)]
    branches = sum(name.endswith(BRANCH_ENDS) for name, _ in parts)
    for name, part in parts:
        fused = name.endswith(("query_key_value", "keys_values"))
        small = stack.post and name.endswith(BRANCH_ENDS)
        for piece in torch.split(part.weight, width if fused else part.out_features):
            nn.init.xavier_uniform_(piece, gain=branches**-0.5 if small else 1.0)
        if part.bias is not None:
            nn.init.zeros_(part.bias)
