"""GPT: a stack of masked Transformer blocks (Radford et al. 2018, 2019; Brown et al. 2020)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from seqwright.batch import Vocabulary
from seqwright.config import UserError
from seqwright.layers.attention import KeyValues
from seqwright.layers.block import Block
from seqwright.layers.flatten import PrefixFlatten
from seqwright.layers.positions import Learned, Rotary, Sinusoidal, Unplaced
from seqwright.models.language_model import LanguageModel


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    layers: int = 4
    """Blocks."""
    width: int = 128
    """Size of the vectors that flow through the blocks."""
    heads: int = 4
    """Attention heads; they share the width evenly."""
    context: int = 128
    """The longest input, in tokens."""
    inner: int | None = None
    """Width inside the feed-forward networks; four times the width unless given."""
    positions: Literal["learned", "sinusoidal", "rotary", "none"] = "learned"
    """How a token knows where it stands."""
    norm: Literal["pre", "post"] = "pre"
    """Normalise what each part reads (pre) or the sum it makes (post, as in the first papers)."""
    activation: Literal["gelu", "relu"] = "gelu"
    """The nonlinearity of the feed-forward networks."""
    bias: bool = True
    """Whether the linear maps have biases."""
    tied: bool = True
    """Whether the read-out is the embedding transposed."""
    dropout: float = 0.0
    """Share of activations dropped in training."""
    readout: Literal["each", "flatten"] = "each"
    """What predicts: each position's own vector, or all so far flattened to the context (the lectures' way 2)."""

    def __post_init__(self) -> None:
        check_sizes(self, "layers", "width", "heads", "context")
        if self.width % self.heads:
            below = self.width - self.width % self.heads
            near = [size for size in (below, below + self.heads) if size > 0]
            raise UserError(
                f"width {self.width} cannot be split over {self.heads} heads; try {' or '.join(map(str, near))}."
            )
        if self.positions == "rotary" and (self.width // self.heads) % 2:
            raise UserError(f"rotary positions turn pairs: width / heads must be even, not {self.width // self.heads}.")
        if self.positions == "sinusoidal" and self.width % 2:
            raise UserError(f"sinusoidal positions come in pairs: width must be even, not {self.width}.")
        if self.readout == "flatten" and self.tied:
            raise UserError('readout = "flatten" reads context × width numbers; it cannot be tied: set tied = false.')


def check_sizes(config: object, *names: str) -> None:
    """Refuses sizes below one."""
    for name in names:
        if getattr(config, name) < 1:
            raise UserError(f"{name} must be at least 1, not {getattr(config, name)}.")


class GPTEncoder(nn.Module):
    """Positions, blocks and the last normalisation (pre-LN only: post-LN blocks end in one)."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.width = config.width
        self.context = config.context
        self.heads = config.heads
        rotary = Rotary(config.width // config.heads, config.context) if config.positions == "rotary" else None
        placed = {"learned": Learned, "sinusoidal": Sinusoidal}.get(config.positions)
        self.positions = placed(config.width, config.context) if placed else Unplaced()
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(
            Block(
                config.width,
                config.heads,
                config.inner or 4 * config.width,
                norm=config.norm,
                activation=config.activation,
                bias=config.bias,
                dropout=config.dropout,
                rotary=rotary,
            )
            for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(config.width) if config.norm == "pre" else nn.Identity()

    def start(self, rows: int, capacity: int, like: Tensor) -> KeyValues:
        size = self.width // self.heads
        return KeyValues.empty(rows, len(self.blocks), self.heads, size, min(capacity, self.context), like)

    def forward(
        self, x: Tensor, state: KeyValues | None = None, count: Tensor | None = None
    ) -> tuple[Tensor, KeyValues | None]:
        if state is None:
            positions = torch.arange(x.size(1), device=x.device).unsqueeze(0)  # (1, T)
        else:
            positions = state.slots(x.size(1))  # (B, T)
        x = self.dropout(self.positions(x, positions))
        for layer, block in enumerate(self.blocks):
            x = block(x, positions, state, layer)
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
