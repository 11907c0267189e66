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
from seqwright.layers.block import Block, normalisation
from seqwright.layers.flatten import PrefixFlatten
from seqwright.layers.positions import Learned, Rotary, Sinusoidal, Unplaced
from seqwright.layers.relative import ALiBi, Buckets
from seqwright.models.language_model import LanguageModel


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    layers: int = 4
    """Blocks."""
    width: int = 128
    """Size of the vectors that flow through the blocks."""
    heads: int = 4
    """Attention heads; they share the width evenly."""
    key_heads: int | None = None
    """Heads of keys and values, each shared by a group of query heads (grouped-query attention); as heads unless
    given, 1 is multi-query attention."""
    context: int = 128
    """The longest input, in tokens."""
    inner: int | None = None
    """Width inside the feed-forward networks; four times the width unless given, 8/3 of it for swiglu."""
    positions: Literal["learned", "sinusoidal", "rotary", "alibi", "relative", "none"] = "learned"
    """How a token knows where it stands: vectors added to the tokens (learned, sinusoidal), turned queries and keys
    (rotary), or numbers added to the scores by distance (alibi: straight lines; relative: T5's learned buckets)."""
    rotary_base: float = 10000.0
    """The longest wavelength of rotary positions, over 2π; greater for longer contexts."""
    window: int | None = None
    """How many tokens, itself included, each position attends to; all before it unless given (sliding window)."""
    query_key_norm: bool = False
    """Whether queries and keys are normalised, head by head, before they meet (QK-norm)."""
    norm: Literal["pre", "post"] = "pre"
    """Normalise what each part reads (pre) or the sum it makes (post, as in the first papers)."""
    normalised: Literal["layer", "rms"] = "layer"
    """What a normalisation does: LayerNorm, or RMSNorm, which leaves the mean alone."""
    epsilon: float = 1e-5
    """What normalisations add to a variance before they divide by its root."""
    activation: Literal["gelu", "gelu-tanh", "relu", "swiglu"] = "gelu"
    """The nonlinearity of the feed-forward networks; gelu-tanh is GPT-2's approximation, swiglu has a gate."""
    bias: bool = True
    """Whether the linear maps have biases."""
    tied: bool = True
    """Whether the read-out is the embedding transposed."""
    dropout: float = 0.0
    """Share of activations dropped in training: of the embedding, of each branch's output, of attention weights."""
    attention_dropout: float | None = None
    """Share of attention weights dropped, where it is not that of dropout."""
    embedding_dropout: float | None = None
    """Share of the embedding dropped, where it is not that of dropout."""
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
        if self.key_heads is not None and (self.key_heads < 1 or self.heads % self.key_heads):
            fitting = [str(n) for n in range(1, self.heads + 1) if self.heads % n == 0]
            raise UserError(f"{self.heads} heads cannot share {self.key_heads} key heads; try {' or '.join(fitting)}.")
        if self.window is not None and self.window < 1:
            raise UserError(f"window must be at least 1 (each token sees itself), not {self.window}.")
        for name in ("dropout", "attention_dropout", "embedding_dropout"):
            if not 0 <= (getattr(self, name) or 0) < 1:
                raise UserError(f"{name} is a share: 0 or more and below 1, not {getattr(self, name)}.")
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
        self.size = config.width // config.heads
        self.key_heads = config.key_heads or config.heads
        rotary = Rotary(self.size, config.context, config.rotary_base) if config.positions == "rotary" else None
        placed = {"learned": Learned, "sinusoidal": Sinusoidal}.get(config.positions)
        self.positions = placed(config.width, config.context) if placed else Unplaced()
        distance = {"alibi": ALiBi, "relative": Buckets}.get(config.positions)
        self.distance = distance(config.heads) if distance else None
        self.dropout = nn.Dropout(config.dropout if config.embedding_dropout is None else config.embedding_dropout)
        self.blocks = nn.ModuleList(
            Block(
                config.width,
                config.heads,
                config.inner or default_inner(config),
                norm=config.norm,
                normalised=config.normalised,
                epsilon=config.epsilon,
                activation=config.activation,
                bias=config.bias,
                dropout=config.dropout,
                attention_dropout=config.attention_dropout,
                key_heads=config.key_heads,
                window=config.window,
                query_key_norm=config.query_key_norm,
                rotary=rotary,
            )
            for _ in range(config.layers)
        )
        last = normalisation(config.normalised, config.width, config.epsilon)
        self.norm = last if config.norm == "pre" else nn.Identity()

    def start(self, rows: int, capacity: int, like: Tensor) -> KeyValues:
        return KeyValues.empty(rows, len(self.blocks), self.key_heads, self.size, min(capacity, self.context), like)

    def forward(
        self, x: Tensor, state: KeyValues | None = None, count: Tensor | None = None
    ) -> tuple[Tensor, KeyValues | None]:
        if state is None:
            places = torch.arange(x.size(1), device=x.device)  # (K,) = (T,)
            positions = places.unsqueeze(0)  # (1, T)
        else:
            places, positions = state.places(x.size(1)), state.slots(x.size(1))  # (K,), (B, T)
        # Numbers for distances are shared by the layers, as in both papers.
        bias = None if self.distance is None else self.distance(positions, places).to(x.dtype)  # (B or 1, H, T, K)
        x = self.dropout(self.positions(x, positions))
        for layer, block in enumerate(self.blocks):
            x = block(x, positions, state, layer, bias)
        return self.norm(x), state and state.advance(x.size(1), count)


def default_inner(config: GPTConfig) -> int:
    """Four times the width; with a gate's third matrix, 8/3 of it (rounded up to eights) makes as many parameters."""
    return -(-8 * config.width // 24) * 8 if config.activation == "swiglu" else 4 * config.width


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
