"""Transformer stack: positional encoding, blocks and final normalization, the base of all Transformers here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from seqwright.core.config import UserError, check_sizes
from seqwright.layers.attention import additive_mask
from seqwright.layers.attention_bias import ALiBi, RelativePositionBias
from seqwright.layers.cross_attention import CrossKV
from seqwright.layers.kv_cache import KVCache
from seqwright.layers.positions import Learned, NoPositions, Rotary, Sinusoidal
from seqwright.layers.slot_cache import SlotCache
from seqwright.layers.transformer_block import Block, BlockConfig, normalization


@dataclass(frozen=True, kw_only=True)
class StackSizes(BlockConfig):
    """Size of a stack and its positional encoding."""

    layers: int = 4
    """Number of Transformer blocks."""
    context: int = 128
    """Context length: maximum input length in tokens."""
    positions: Literal["learned", "sinusoidal", "rope", "alibi", "t5", "none"] = "learned"
    """Positional encoding: added to embeddings (learned, Radford et al. 2018; sinusoidal, Vaswani et al. 2017), rotary
    (rope, Su et al. 2021), or a bias of attention scores by distance (alibi: linear, Press et al. 2022; t5: learned by
    bucket, Raffel et al. 2020)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self, "layers", "context")
        if self.positions == "rope" and self.head_size % 2:
            raise UserError(f"rope rotates pairs of features: width / heads must be even, not {self.head_size}.")


@dataclass(frozen=True, kw_only=True)
class StackConfig(StackSizes):
    """Options of a stack, with sliding-window attention."""

    attention_window: int | None = None
    """Sliding-window attention (Beltagy et al. 2020): attend to positions less than this far away, itself included;
    unlimited by default."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self, "attention_window")


class Blocks(nn.ModuleList):
    """Transformer blocks, one after the other."""

    def masks_cache(self, kv_cache: KVCache, steps: int) -> bool:
        """Whether `steps` new tokens attend to a KV cache without a mask in `bias`, in all blocks."""
        return all(block.masks_cache(kv_cache, steps) for block in self)  # type: ignore[operator]

    def decode(self, x: Tensor, state: KVCache, count: Tensor | None) -> tuple[Tensor, KVCache] | None:
        """Outputs of the whole stack for embeddings (R, 1, D) and the KV cache after, where one call computes both."""
        return None

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        kv_cache: KVCache | None = None,
        *,
        bias: Tensor | None = None,
        mask: Tensor | None = None,
        memory: Sequence[CrossKV | None] | None = None,
    ) -> Tensor:
        """Hidden states (B, T, D) after all blocks; arguments as for each, `memory` for every one of them."""
        for layer, (block, layer_memory) in enumerate(zip(self, memory or [None] * len(self), strict=True)):
            x = block(x, positions, kv_cache, layer, bias=bias, mask=mask, memory=layer_memory)
        return x


class Stack(nn.Module):
    """Causal or bidirectional Transformer blocks. A final normalization follows pre-LN blocks only: post-LN blocks end
    in one of their own."""

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
        self.head_size, self.kv_heads = config.head_size, config.kv_heads or config.heads
        self.window = config.attention_window if isinstance(config, StackConfig) else None
        rotary = Rotary(config.head_size, config.context, config.rope_base) if config.positions == "rope" else None
        absolute = {"learned": Learned, "sinusoidal": Sinusoidal}.get(config.positions)
        self.positions = absolute(config.width, config.context) if absolute else NoPositions()
        self.distance: ALiBi | RelativePositionBias | None = None
        if config.positions == "alibi":
            self.distance = ALiBi(config.heads)
        elif config.positions == "t5":
            self.distance = RelativePositionBias(config.heads, bidirectional=not causal)
        self.embedding_norm = normalization(config) if embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(config.dropout if config.embedding_dropout is None else config.embedding_dropout)
        self.blocks = Blocks(
            Block(
                config,
                rotary=rotary,
                window=self.window,
                causal=causal,
                cross=cross,
                stochastic_depth=config.stochastic_depth * n / layers,
            )
            for n in range(1, layers + 1)
        )
        self.post = config.norm_position == "post"
        self.norm = nn.Identity() if self.post else normalization(config)

    @property
    def has_relative_positions(self) -> bool:
        """Whether only the distance between tokens enters, not where they are."""
        return isinstance(self.positions, NoPositions)

    def empty_cache(self, rows: int, capacity: int, like: Tensor) -> SlotCache:
        """An empty KV cache for this stack."""
        return SlotCache.empty(rows, len(self.blocks), self.kv_heads, self.head_size, capacity, like)

    def run(
        self,
        x: Tensor,
        state: KVCache | None = None,
        count: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        memory: Sequence[CrossKV | None] | None = None,
        documents: Tensor | None = None,
    ) -> tuple[Tensor, KVCache | None]:
        """Hidden states (B, T, D) and, where a KV cache was passed, the cache after.

        mask (B, 1, 1, T) marks real positions in bidirectional stacks, `memory` holds each layer's cross-attention keys
        and values, `documents` (B, T) masks attention to a token's own document.
        """
        if state is not None and mask is None and memory is None:
            decoded = self.blocks.decode(x, state, count)
            if decoded is not None:
                return decoded
        bias = None
        if state is None:
            positions = torch.arange(x.size(1), device=x.device).unsqueeze(0)  # (1, T)
        else:
            positions = state.positions(x.size(1))  # (R, T)
            state = state.extended(x.size(1), count)
            masked = mask is None and self.blocks.masks_cache(state, x.size(1))
            if not masked and (not state.prefilled or self.window is not None or self.distance is not None):
                bias = additive_mask(state.mask(positions, self.window), x)  # (B, 1, R / B · T, K)
        if self.distance is not None:  # one bias for all layers, as in both papers
            key_positions = positions.squeeze(0) if state is None else state.key_positions  # (T,) or (B, K)
            queries = positions if state is None else positions.view(len(key_positions), -1)  # (B or 1, R / B · T)
            distance_bias = self.distance(queries, key_positions).to(x.dtype)  # (B or 1, H, R / B · T, K)
            bias = distance_bias if bias is None else distance_bias + bias
        positions = positions.clamp(max=self.context - 1)  # only padding lies beyond the context
        if documents is not None:  # distance biases need no change: distances within a document are those in the row
            positions, mask = document_positions(documents), same_document(documents)
        hidden = self.run_blocks(x, positions, state, bias=bias, mask=mask, memory=memory)
        first: Block = self.blocks[0]  # type: ignore[assignment]
        return hidden, None if state is None else state.committed(first.attention.rotary)

    def run_blocks(
        self,
        x: Tensor,
        positions: Tensor,
        state: KVCache | None = None,
        *,
        bias: Tensor | None = None,
        mask: Tensor | None = None,
        memory: Sequence[CrossKV | None] | None = None,
    ) -> Tensor:
        """Hidden states after all blocks and the final normalization, from embeddings (B, T, D) at positions
        (B or 1, T); a KV cache must have been extended for them. bias and mask as for `SelfAttention`."""
        x = autocast_dtype(self.dropout(self.embedding_norm(self.positions(x, positions))))
        return self.norm(self.blocks(x, positions, state, bias=bias, mask=mask, memory=memory))


def autocast_dtype(x: Tensor) -> Tensor:
    """x in the dtype of autocast, where it is enabled: the residual stream, which every sublayer reads and writes, then
    takes half the memory. Sums within normalizations and attention stay float32."""
    device = x.device.type
    if device == "meta" or not torch.is_autocast_enabled(device):  # the meta device knows no autocast
        return x
    return x.to(torch.get_autocast_dtype(device))


def document_positions(documents: Tensor) -> Tensor:
    """(B, T): positions that restart at 0 with each document of a packed row (decision 65)."""
    positions = torch.arange(documents.size(1), device=documents.device)  # (T,)
    starts = documents != documents.roll(1, 1)
    starts[:, 0] = True
    return positions - torch.where(starts, positions, 0).cummax(1).values


def same_document(documents: Tensor) -> Tensor:
    """(B, 1, T, T): block-diagonal mask, True where two positions of a row belong to the same document."""
    return (documents.unsqueeze(-1) == documents.unsqueeze(-2)).unsqueeze(1)
