"""A stack of Transformer layers: positions, blocks and the last normalization, for every Transformer there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from seqwright.core.config import UserError, check_sizes
from seqwright.layers.attention import hiding
from seqwright.layers.attention_bias import ALiBi, Buckets
from seqwright.layers.cross_attention import Given
from seqwright.layers.document_mask import places_inside, same_document
from seqwright.layers.kv_cache import KVCache
from seqwright.layers.positions import Learned, Rotary, Sinusoidal, Unplaced
from seqwright.layers.transformer_block import Block, BlockConfig, normalization


@dataclass(frozen=True, kw_only=True)
class StackSizes(BlockConfig):
    """Blocks, and where their tokens stand."""

    layers: int = 4
    """Blocks."""
    context: int = 128
    """The longest input, in tokens."""
    positions: Literal["learned", "sinusoidal", "rope", "alibi", "t5", "none"] = "learned"
    """How a token knows where it stands: vectors added to the tokens (learned, Radford et al. 2018; sinusoidal, Vaswani
    et al. 2017), turned queries and keys (rotary, Su et al. 2021), or numbers added to the scores by distance (alibi:
    straight lines, Press et al. 2022; relative: learned buckets, Raffel et al. 2020)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self, "layers", "context")
        if self.positions == "rope" and self.size % 2:
            raise UserError(f"rotary positions turn pairs: width / heads must be even, not {self.size}.")
        if self.positions == "sinusoidal" and self.width % 2:
            raise UserError(f"sinusoidal positions come in pairs: width must be even, not {self.width}.")


@dataclass(frozen=True, kw_only=True)
class StackConfig(StackSizes):
    """And how far they see."""

    attention_window: int | None = None
    """A position attends to those less than this far away, itself included; all unless given (sliding
    window, Beltagy et al. 2020)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self, "attention_window")


class Stack(nn.Module):
    """Every position reads those before it, or all of them. Post-LN blocks end in a normalization of their own."""

    def __init__(
        self,
        config: StackSizes,
        layers: int,
        *,
        causal: bool = True,
        cross: bool = False,
        embedding_norm: bool = False,
    ):
        super().__init__()
        self.width, self.context = config.width, config.context
        self.size, self.kv_heads = config.size, config.kv_heads or config.heads
        self.window = config.attention_window if isinstance(config, StackConfig) else None
        rotary = Rotary(config.size, config.context, config.rope_base) if config.positions == "rope" else None
        placed = {"learned": Learned, "sinusoidal": Sinusoidal}.get(config.positions)
        self.positions = placed(config.width, config.context) if placed else Unplaced()
        self.distance: ALiBi | Buckets | None = None
        if config.positions == "alibi":
            self.distance = ALiBi(config.heads)
        elif config.positions == "t5":
            self.distance = Buckets(config.heads, both=not causal)
        self.embedding_norm = normalization(config) if embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(config.dropout if config.embedding_dropout is None else config.embedding_dropout)
        self.blocks = nn.ModuleList(
            Block(config, rotary=rotary, window=self.window, causal=causal, cross=cross) for _ in range(layers)
        )
        self.post = config.norm_position == "post"
        self.norm = nn.Identity() if self.post else normalization(config)

    def empty(self, rows: int, capacity: int, like: Tensor) -> KVCache:
        """The keys and values of nothing read."""
        return KVCache.empty(rows, len(self.blocks), self.kv_heads, self.size, capacity, like)

    def run(
        self,
        x: Tensor,
        state: KVCache | None = None,
        count: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        given: Sequence[Given | None] | None = None,
        documents: Tensor | None = None,
    ) -> tuple[Tensor, KVCache | None]:
        """(B, T, D) and the state after, where one was given; mask (B, 1, 1, T) of what is real where all is seen,
        `given` is what the cross-attention of each layer may ask, `documents` (B, T) are kept apart."""
        bias = None
        if state is None:
            places = torch.arange(x.size(1), device=x.device)  # (K,) = (T,)
            positions = places.unsqueeze(0)  # (1, T)
        else:
            positions = state.positions(x.size(1))  # (R, T)
            state = state.extended(x.size(1), count)
            places, bias = state.places, hiding(state.mask(positions, self.window), x)  # (B, K), (B, 1, R / B · T, K)
        if self.distance is not None:  # its numbers are shared by the layers, as in both papers
            asking = positions if state is None else positions.view(len(places), -1)  # (B or 1, R / B · T)
            far = self.distance(asking, places).to(x.dtype)  # (B or 1, H, R / B · T, K)
            bias = far if bias is None else far + bias
        positions = positions.clamp(max=self.context - 1)  # beyond it stands only padding
        if documents is not None:  # distances inside a document are those inside the row
            positions, mask = places_inside(documents), same_document(documents)
        return self.through(x, positions, state, bias=bias, mask=mask, given=given), state

    def through(
        self,
        x: Tensor,
        positions: Tensor,
        state: KVCache | None = None,
        *,
        bias: Tensor | None = None,
        mask: Tensor | None = None,
        given: Sequence[Given | None] | None = None,
    ) -> Tensor:
        """All blocks, for tokens (B, T, D) that stand at these positions (B or 1, T), for which the state was extended;
        bias and mask as for them."""
        x = self.dropout(self.embedding_norm(self.positions(x, positions)))
        for layer, (block, asked) in enumerate(zip(self.blocks, given or [None] * len(self.blocks), strict=True)):
            x = block(x, positions, state, layer, bias=bias, mask=mask, given=asked)
        return self.norm(x)
