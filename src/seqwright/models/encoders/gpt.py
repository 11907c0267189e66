"""GPT: decoder-only Transformer with causal self-attention (Radford et al. 2018, 2019; Brown et al. 2020)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from seqwright.core.batch import Vocabulary
from seqwright.core.config import UserError
from seqwright.layers.flatten import PrefixFlatten
from seqwright.layers.kv_cache import KVCache
from seqwright.layers.transformer_stack import Stack, StackConfig, StackSizes
from seqwright.models.language_model import LanguageModel


@dataclass(frozen=True, kw_only=True)
class GPTConfig(StackConfig):
    tied: bool = True
    """Tie the output layer to the embedding (Press & Wolf 2017)."""
    readout: Literal["each", "flatten"] = "each"
    """Input of the output layer: each position's hidden state (each), or all so far, flattened and zero-padded to the
    context (flatten, the lectures' way 2)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.readout == "flatten" and self.tied:
            raise UserError('readout = "flatten" has context × width inputs and cannot be tied: set tied = false.')


class GPTEncoder(Stack):
    """Causal Transformer stack with a KV cache as its state."""

    supports_document_mask = True

    def __init__(self, config: StackSizes, *, causal: bool = True):
        super().__init__(config, config.layers, causal=causal)

    def start(self, rows: int, capacity: int, like: Tensor) -> KVCache:
        return self.empty_cache(rows, capacity, like)

    def forward(
        self,
        x: Tensor,
        state: KVCache | None = None,
        count: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> tuple[Tensor, KVCache | None]:
        return self.run(x, state, count, documents=documents)


def gpt(config: GPTConfig, vocabulary: Vocabulary) -> LanguageModel:
    """A newly initialized GPT."""
    encoder: nn.Module = GPTEncoder(config)
    initialize(encoder, config.layers)
    if config.readout == "flatten":
        encoder = PrefixFlatten(encoder, config.width, config.context)
    # As in GPT-2, the output layer has no bias.
    model = LanguageModel(
        vocabulary.size, config.width, encoder, tied=config.tied, readout_bias=config.readout == "flatten"
    )
    nn.init.normal_(model.embedding.weight, std=0.02)
    if not config.tied:
        nn.init.normal_(model.head.readout.weight, std=0.02)
    return model


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
