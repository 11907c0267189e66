"""The prefix language model: one stack of blocks that sees a source both ways and says its target from left to right
(Liu et al. 2018; Raffel et al. 2020)."""

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
    """The longest source and target together, in tokens; each may take half."""
    positions: Literal["learned", "sinusoidal", "rope", "none"] = "learned"
    """How a token knows where it stands; targets stand behind their own source."""
    tied: bool = True
    """Whether the read-out is the embedding transposed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.context < 2:
            raise UserError(f"context {self.context} has no room for a source and a target; give at least 2.")


class PrefixLanguageModel(nn.Module):
    """Embed, encode, read out, as a GPT whose source is given in full: without one it is that GPT."""

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
        return self.encoder.context // 2

    def hidden(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        """(B, T, D), and the state after where one was given, which then stands for the source."""
        x = self.embedding(batch.input)
        if state is not None:
            assert isinstance(state, KVCache)
            return self.encoder(x, state)
        mask = batch.source.mask  # (B, S)
        given, said = mask.size(1), x.size(1)
        inside = torch.arange(said, device=x.device)
        positions = torch.cat([self._places(mask), mask.sum(1, keepdim=True) + inside], 1)  # (B, S + T)
        seen = torch.zeros(len(mask), given + said, given + said, dtype=torch.bool, device=x.device)
        seen[:, :, :given] = mask.unsqueeze(1)
        seen[:, given:, given:] = attention_mask(inside.unsqueeze(0), inside)[0]
        whole = torch.cat([self._embedded(batch.source), x], 1)
        hidden = self.encoder.run_blocks(whole, self._within(positions), mask=seen.unsqueeze(1))
        return hidden[:, given:], None

    def forward(self, batch: Batch) -> Tensor:
        """Logits (B, T, V)."""
        return self.head(self.hidden(batch)[0])

    def encode(self, source: Source) -> Tensor:
        """(B, S, D): the source, seen both ways."""
        mask = source.mask
        return self.encoder.run_blocks(
            self._embedded(source), self._within(self._places(mask)), mask=mask[:, None, None]
        )

    def start(self, source: Source, *, capacity: int) -> KVCache:
        mask = source.mask
        state = self.encoder.start(source.rows, mask.size(1) + capacity, self.embedding.weight)
        if not mask.size(1):
            return state
        read = state.extended(mask.size(1), mask.sum(1))
        self.encoder.run_blocks(
            self._embedded(source), self._within(self._places(mask)), read, mask=mask[:, None, None]
        )
        return read

    def step(self, ids: Tensor, state: State, count: Tensor | None = None) -> tuple[Tensor, State]:
        assert isinstance(state, KVCache)
        hidden, after = self.encoder(self.embedding(ids), state, count)
        assert after is not None
        return self.head.log_probs(last_real(hidden, count)), after

    def score(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        hidden, after = self.hidden(batch, state)
        return self.head.score(hidden, batch.target), after

    def _embedded(self, source: Source) -> Tensor:
        ids = source.mask.new_zeros(source.mask.shape, dtype=torch.long) if source.ids is None else source.ids
        return self.embedding(ids)  # (B, S, D)

    def _places(self, mask: Tensor) -> Tensor:
        return torch.arange(mask.size(1), device=mask.device).expand(len(mask), -1)  # (B, S)

    def _within(self, positions: Tensor) -> Tensor:
        """Positions that the tables know; beyond them stands only padding."""
        return positions.clamp(max=self.encoder.context - 1)


def prefix(config: PrefixLMConfig, sizes: Vocabularies) -> PrefixLanguageModel:
    """A prefix language model with fresh weights."""
    if not sizes.joint:
        raise UserError("a prefix language model reads and says one vocabulary: set tokenizer.joint = true.")
    return PrefixLanguageModel(config, sizes.target.size)
