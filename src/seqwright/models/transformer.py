"""The Transformer: an encoder that sees the whole source, a masked decoder that asks it (Vaswani et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from seqwright.batch import Vocabularies
from seqwright.config import check_sizes
from seqwright.interface import State
from seqwright.layers.attention import KeyValues, hiding, needed
from seqwright.layers.block import Block, BlockConfig, normalisation
from seqwright.layers.cross_attention import Memory, Remember
from seqwright.layers.encoder import Reading
from seqwright.layers.positions import Learned, Rotary, Sinusoidal, Unplaced
from seqwright.models.encoder_decoder import EncoderDecoder, Tied, settled_tie


@dataclass(frozen=True, kw_only=True)
class TransformerReaderConfig(BlockConfig):
    layers: int = 4
    """Blocks of the encoder."""
    context: int = 512
    """The longest source (and target), in tokens; sinusoids and rotations cost nothing for being long."""
    positions: Literal["sinusoidal", "learned", "rotary", "none"] = "sinusoidal"
    """How a token knows where it stands."""
    activation: Literal["gelu", "gelu-tanh", "relu", "swiglu"] = "relu"
    """The nonlinearity of the feed-forward networks; gelu-tanh is GPT-2's approximation, swiglu has a gate."""
    dropout: float = 0.1
    """Share of activations dropped in training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self, "layers", "context")
        self.check_positions(self.positions)


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(TransformerReaderConfig):
    decoder_layers: int | None = None
    """Blocks of the decoder; as many as the encoder has unless given."""
    tied: Tied | None = None
    """three-way: both embeddings and the read-out are one table; two-way: target embedding and read-out; or none.
    Left out: as much as the vocabularies allow."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self, "decoder_layers")


class Stack(nn.Module):
    """Positions, blocks and the last normalisation (pre-LN only: post-LN blocks end in one)."""

    def __init__(
        self,
        config: TransformerReaderConfig,
        layers: int,
        *,
        causal: bool,
        cross: bool,
        embedding_norm: bool = False,
    ):
        super().__init__()
        rotary = Rotary(config.size, config.context, config.rotary_base) if config.positions == "rotary" else None
        placed = {"learned": Learned, "sinusoidal": Sinusoidal}.get(config.positions)
        self.positions = placed(config.width, config.context) if placed else Unplaced()
        self.embedding_norm = normalisation(config) if embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(config.dropout if config.embedding_dropout is None else config.embedding_dropout)
        self.blocks = nn.ModuleList(Block(config, rotary=rotary, causal=causal, cross=cross) for _ in range(layers))
        self.norm = normalisation(config) if config.norm == "pre" else nn.Identity()


class TransformerReader(Stack):
    """Every position of the source sees every other."""

    def __init__(self, config: TransformerReaderConfig, *, embedding_norm: bool = False):
        super().__init__(config, config.layers, causal=False, cross=False, embedding_norm=embedding_norm)
        self.width = config.width
        self.context = config.context

    def forward(self, x: Tensor, mask: Tensor) -> Reading:
        positions = torch.arange(x.size(1), device=x.device).unsqueeze(0)  # (1, S)
        x = self.dropout(self.embedding_norm(self.positions(x, positions)))
        real = needed(mask)
        for block in self.blocks:
            x = block(x, positions, mask=None if real is None else real[:, None, None])
        return Reading(self.norm(x), mask)


class TransformerDecoder(Stack):
    """Every position sees those before it and, through cross-attention, the whole source."""

    def __init__(self, config: TransformerConfig):
        super().__init__(config, config.decoder_layers or config.layers, causal=True, cross=True)
        self.width = config.width
        self.context = config.context
        self.key_heads, self.size = config.key_heads or config.heads, config.size
        self.keys_values = Remember(config.width, len(self.blocks), config.heads, bias=config.bias)

    def remember(self, reading: Reading) -> Memory:
        return Memory(self.keys_values(reading.vectors), reading.mask)

    def start(self, memory: State, capacity: int) -> KeyValues:
        assert isinstance(memory, Memory)
        rows = memory.mask.size(0)
        return KeyValues.empty(rows, len(self.blocks), self.key_heads, self.size, capacity, memory.key_value)

    def forward(
        self, x: Tensor, memory: State, state: KeyValues | None = None, count: Tensor | None = None
    ) -> tuple[Tensor, KeyValues | None]:
        assert isinstance(memory, Memory)
        bias = None
        if state is None:
            positions = torch.arange(x.size(1), device=x.device).unsqueeze(0)  # (1, T)
        else:
            positions = state.slots(x.size(1)).clamp(max=self.context - 1)  # (R, T); beyond it stands only padding
            bias = hiding(state.mask(x.size(1)), x)
        x = self.dropout(self.positions(x, positions))
        for layer, (block, given) in enumerate(zip(self.blocks, memory.layers(), strict=True)):
            x = block(x, positions, state, layer, bias=bias, given=given)
        return self.norm(x), state and state.advance(x.size(1), count)


def transformer(config: TransformerConfig, sizes: Vocabularies) -> EncoderDecoder:
    """A Transformer with fresh weights."""
    reader, decoder = TransformerReader(config), TransformerDecoder(config)
    for stack in (reader, decoder):
        initialise(stack, config.width)
    return EncoderDecoder(sizes, config.width, reader, decoder, tied=settled_tie(config.tied, sizes))


@torch.no_grad()
def initialise(stack: nn.Module, width: int) -> None:
    """Glorot & Bengio's (2010) uniform start, for each map as if it stood alone: fused ones are drawn in parts."""
    for name, part in stack.named_modules():
        if isinstance(part, nn.Linear):
            fused = name.endswith(("query_key_value", "keys_values"))
            for piece in torch.split(part.weight, width if fused else part.out_features):
                nn.init.xavier_uniform_(piece)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
