"""Prefix language model: one Transformer stack, bidirectional over the source and causal over the target (Liu et al.
2018; Raffel et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from seqwright.core.batch import Batch, Source, Vocabularies
from seqwright.core.config import UserError
from seqwright.core.state import State
from seqwright.layers.encoder import last_real
from seqwright.layers.heads import TokenHead
from seqwright.layers.kv_cache import KVCache, attention_mask
from seqwright.layers.transformer_stack import StackSizes
from seqwright.models.encoders.gpt import GPTEncoder, initialize


@dataclass(frozen=True, kw_only=True)
class PrefixLMConfig(StackSizes):
    context: int = 256
    """Context length: maximum tokens of source and target together; each may take half."""
    positions: Literal["learned", "sinusoidal", "rope", "none"] = "learned"
    """Positional encoding; positions of a target continue those of its source."""
    tied: bool = True
    """Tie the output layer to the embedding (Press & Wolf 2017)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.context < 2:
            raise UserError(f"context {self.context} has no room for a source and a target; give at least 2.")


class PrefixLanguageModel(nn.Module):
    """Embed → encode → linear: a GPT with bidirectional attention over the source; without a source, that GPT."""

    def __init__(self, config: PrefixLMConfig, vocabulary: int):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, config.width)
        self.encoder = GPTEncoder(config, causal=False)
        self.head = TokenHead(config.width, vocabulary, bias=False)
        initialize(self, config.layers)
        if config.tied:
            self.head.readout.weight = self.embedding.weight

    @property
    def context(self) -> int:
        """Maximum length of a source, and of a target."""
        return self.encoder.context // 2

    def hidden(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        """Hidden states (B, T, D), and the state after where one was passed, which then replaces the source."""
        x = self.embedding(batch.input)
        if state is not None:
            assert isinstance(state, KVCache)
            return self.encoder(x, state)
        mask = batch.source.mask  # (B, S)
        prefix, length = mask.size(1), x.size(1)
        steps = torch.arange(length, device=x.device)
        positions = torch.cat([self._source_positions(mask), mask.sum(1, keepdim=True) + steps], 1)  # (B, S + T)
        visible = torch.zeros(len(mask), prefix + length, prefix + length, dtype=torch.bool, device=x.device)
        visible[:, :, :prefix] = mask.unsqueeze(1)
        visible[:, prefix:, prefix:] = attention_mask(steps.unsqueeze(0), steps)[0]
        both = torch.cat([self._embedded(batch.source), x], 1)
        hidden = self.encoder.run_blocks(both, self._clamped(positions), mask=visible.unsqueeze(1))
        return hidden[:, prefix:], None

    def forward(self, batch: Batch) -> Tensor:
        """Logits (B, T, V)."""
        return self.head(self.hidden(batch)[0])

    def encode(self, source: Source) -> Tensor:
        """(B, S, D): hidden states of the source."""
        return self._run_source(source)

    def start(self, source: Source, *, capacity: int) -> KVCache:
        """The initial decoding state: a KV cache of the source."""
        mask = source.mask
        state = self.encoder.start(source.rows, mask.size(1) + capacity, self.embedding.weight)
        if not mask.size(1):
            return state
        prefilled = state.extended(mask.size(1), mask.sum(1))
        self._run_source(source, prefilled)
        return prefilled

    def step(
        self, ids: Tensor, state: State, count: Tensor | None = None, *, all_positions: bool = False
    ) -> tuple[Tensor, State]:
        """Log-probabilities (B, V) of the next token after ids (B, T), or (B, T, V) after each, and the state after."""
        assert isinstance(state, KVCache)
        hidden, after = self.encoder(self.embedding(ids), state, count)
        assert after is not None
        return self.head.log_probs(hidden if all_positions else last_real(hidden, count)), after

    def score(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        """log p(target) (B, T) by teacher forcing, and the state after where one was passed."""
        hidden, after = self.hidden(batch, state)
        return self.head.score(hidden, batch.target), after

    def _run_source(self, source: Source, cache: KVCache | None = None) -> Tensor:
        """Hidden states (B, S, D) of the source; its keys and values are written to the cache, where one is passed."""
        positions = self._clamped(self._source_positions(source.mask))
        return self.encoder.run_blocks(self._embedded(source), positions, cache, mask=source.mask[:, None, None])

    def _embedded(self, source: Source) -> Tensor:
        ids = source.mask.new_zeros(source.mask.shape, dtype=torch.long) if source.ids is None else source.ids
        return self.embedding(ids)  # (B, S, D)

    def _source_positions(self, mask: Tensor) -> Tensor:
        return torch.arange(mask.size(1), device=mask.device).expand(len(mask), -1)  # (B, S)

    def _clamped(self, positions: Tensor) -> Tensor:
        """Positions within the context; only padding lies beyond it."""
        return positions.clamp(max=self.encoder.context - 1)


def prefix_lm(config: PrefixLMConfig, sizes: Vocabularies) -> PrefixLanguageModel:
    """A newly initialized prefix language model."""
    if not sizes.joint:
        raise UserError("a prefix language model has one vocabulary for both sides: set tokenizer.joint = true.")
    return PrefixLanguageModel(config, sizes.target.size)
