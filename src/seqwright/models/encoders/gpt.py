"""GPT: decoder-only Transformer with causal self-attention (Radford et al. 2018, 2019; Brown et al. 2020)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from seqwright.layers.kv_cache import KVCache
from seqwright.layers.segment_memory import SegmentMemory
from seqwright.layers.transformer_stack import Stack, StackConfig, StackSizes


@dataclass(frozen=True, kw_only=True)
class GPTConfig(StackConfig):
    autoregressive: ClassVar[bool] = True
    poolings: ClassVar[tuple[str, ...]] = ("final", "mean", "max", "attention")
    head_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {"text": {"tied": True}}
    head_fixed: ClassVar[Mapping[str, Mapping[str, Any]]] = {"text": {"length": None}}
    """A flattened prefix has the length of the context."""
    token_std: ClassVar[float | None] = 0.02
    readout_bias: ClassVar[bool] = False
    """As in GPT-2, the output layer has no bias."""

    def initialize(self, module: nn.Module) -> None:
        initialize(module, self.layers)


class GPTEncoder(Stack):
    """Causal Transformer stack with a KV cache as its state."""

    masks_documents = True

    def __init__(self, config: StackSizes, *, causal: bool = True):
        super().__init__(config, config.layers, causal=causal)

    def start(self, rows: int, capacity: int, like: Tensor) -> KVCache:
        return self.empty_cache(rows, capacity, like)

    def segment_memory(self, rows: int, length: int, like: Tensor) -> SegmentMemory:
        """The empty memory beside segments of `length` tokens: as many as fit into the context with them."""
        sizes = (len(self.blocks), self.kv_heads, self.head_size, self.context - length)
        return SegmentMemory.empty(rows, *sizes, like)

    def forward(
        self,
        x: Tensor,
        state: KVCache | None = None,
        count: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> tuple[Tensor, KVCache | None]:
        return self.run(x, state, count, documents=documents)


def gpt_encoder(config: GPTConfig) -> GPTEncoder:
    """A newly initialized GPT encoder."""
    encoder = GPTEncoder(config)
    initialize(encoder, config.layers)
    return encoder


def initialize(module: nn.Module, layers: int) -> None:
    """GPT-2's initialization: normal with standard deviation 0.02, biases 0; output projections of residual branches
    divided by √(2 · layers), since as many branches add up."""
    for name, part in module.named_modules():
        if isinstance(part, nn.Linear):
            residual = name.endswith(("attention.output", "feed_forward.down"))
            nn.init.normal_(part.weight, std=0.02 / math.sqrt(2 * layers) if residual else 0.02)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight, std=0.02)
