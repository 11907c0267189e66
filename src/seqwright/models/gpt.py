"""GPT: a stack of masked Transformer blocks (Radford et al. 2018, 2019; Brown et al. 2020)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from seqwright.batch import Vocabulary
from seqwright.config import UserError, check_sizes
from seqwright.layers.attention import KeyValues, hiding
from seqwright.layers.block import Block, BlockConfig, normalisation
from seqwright.layers.flatten import PrefixFlatten
from seqwright.layers.packing import places_inside, same_document
from seqwright.layers.positions import Learned, Rotary, Sinusoidal, Unplaced
from seqwright.layers.relative import ALiBi, Buckets
from seqwright.models.language_model import LanguageModel


@dataclass(frozen=True, kw_only=True)
class GPTSizes(BlockConfig):
    """What every stack of this kind has, whatever its positions see."""

    layers: int = 4
    """Blocks."""
    context: int = 128
    """The longest input, in tokens."""
    positions: Literal["learned", "sinusoidal", "rotary", "alibi", "relative", "none"] = "learned"
    """How a token knows where it stands: vectors added to the tokens (learned, sinusoidal), turned queries and keys
    (rotary), or numbers added to the scores by distance (alibi: straight lines; relative: T5's learned buckets)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self, "layers", "context")
        self.check_positions(self.positions)


@dataclass(frozen=True, kw_only=True)
class GPTStackConfig(GPTSizes):
    window: int | None = None
    """How many tokens, itself included, each position attends to; all before it unless given (sliding window)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self, "window")


@dataclass(frozen=True, kw_only=True)
class GPTConfig(GPTStackConfig):
    tied: bool = True
    """Whether the read-out is the embedding transposed."""
    readout: Literal["each", "flatten"] = "each"
    """What predicts: each position's own vector, or all so far flattened to the context (the lectures' way 2)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.readout == "flatten" and self.tied:
            raise UserError('readout = "flatten" reads context × width numbers; it cannot be tied: set tied = false.')


class GPTEncoder(nn.Module):
    """Positions, blocks and the last normalisation (pre-LN only: post-LN blocks end in one)."""

    apart = True

    def __init__(self, config: GPTSizes, *, causal: bool = True):
        super().__init__()
        self.width = config.width
        self.context = config.context
        self.size = config.size
        self.window = config.window if isinstance(config, GPTStackConfig) else None
        self.key_heads = config.key_heads or config.heads
        rotary = Rotary(self.size, config.context, config.rotary_base) if config.positions == "rotary" else None
        placed = {"learned": Learned, "sinusoidal": Sinusoidal}.get(config.positions)
        self.positions = placed(config.width, config.context) if placed else Unplaced()
        distance = {"alibi": ALiBi, "relative": Buckets}.get(config.positions)
        self.distance = distance(config.heads) if distance else None
        self.dropout = nn.Dropout(config.dropout if config.embedding_dropout is None else config.embedding_dropout)
        self.blocks = nn.ModuleList(
            Block(config, rotary=rotary, causal=causal, window=self.window) for _ in range(config.layers)
        )
        self.norm = normalisation(config) if config.norm == "pre" else nn.Identity()

    def start(self, rows: int, capacity: int, like: Tensor) -> KeyValues:
        return KeyValues.empty(rows, len(self.blocks), self.key_heads, self.size, capacity, like)

    def forward(
        self,
        x: Tensor,
        state: KeyValues | None = None,
        count: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> tuple[Tensor, KeyValues | None]:
        bias = mask = None
        if state is None:
            places = torch.arange(x.size(1), device=x.device)  # (K,) = (T,)
            positions = places.unsqueeze(0)  # (1, T)
        else:
            places, positions = state.places(x.size(1)), state.slots(x.size(1))  # (K,), (B, T)
            bias = hiding(state.mask(x.size(1), self.window), x)  # (B, 1, T, K)
        if self.distance is not None:  # its numbers are shared by the layers, as in both papers
            far = self.distance(positions, places).to(x.dtype)  # (B or 1, H, T, K)
            bias = far if bias is None else far + bias
        positions = positions.clamp(max=self.context - 1)  # beyond it stands only padding
        if documents is not None:  # distances inside a document are those inside the row
            positions, mask = places_inside(documents), same_document(documents)
        return self.through(x, positions, state, count, bias=bias, mask=mask)

    def through(
        self,
        x: Tensor,
        positions: Tensor,
        state: KeyValues | None = None,
        count: Tensor | None = None,
        *,
        bias: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, KeyValues | None]:
        """All blocks, for tokens (B, T, D) that stand at these positions (B or 1, T); bias and mask as for them."""
        x = self.dropout(self.positions(x, positions))
        for layer, block in enumerate(self.blocks):
            x = block(x, positions, state, layer, bias=bias, mask=mask)
        return self.norm(x), state and state.advance(x.size(1), count)


def gpt(config: GPTConfig, vocabulary: Vocabulary) -> LanguageModel:
    """A GPT with fresh weights."""
    encoder: nn.Module = GPTEncoder(config)
    initialise(encoder, config.layers)
    if config.readout == "flatten":
        encoder = PrefixFlatten(encoder, config.width, config.context)
    model = LanguageModel(
        vocabulary.size, config.width, encoder, tied=config.tied, readout_bias=config.readout == "flatten"
    )
    nn.init.normal_(model.embedding.weight, std=0.02)
    if not config.tied:
        nn.init.normal_(model.head.readout.weight, std=0.02)
    return model


def initialise(module: nn.Module, layers: int) -> None:
    """GPT-2's start: normal with deviation 0.02; less where a residual branch ends, since 2 · layers of them add up."""
    for name, part in module.named_modules():
        if isinstance(part, nn.Linear):
            last = name.endswith(("attention.output", "feed_forward.down"))
            nn.init.normal_(part.weight, std=0.02 / math.sqrt(2 * layers) if last else 0.02)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight, std=0.02)
