"""Pooling: encoder output to the vectors a head reads: one per text, one per word, or all positions."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.core.batch import Source
from seqwright.layers.encoder import EncoderOutput


class Pooling(nn.Module, ABC):
    """Encoder output (B, S, D) to the input of a head; masked positions are ignored."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width
        """Size of the pooled vectors."""

    @abstractmethod
    def forward(self, encoded: EncoderOutput, source: Source) -> Tensor:
        """(B, width), (B, W, width) or (B, S, width)."""


class FirstToken(Pooling):
    """The hidden state of the first position, a class token ([CLS], Devlin et al. 2019)."""

    def forward(self, encoded: EncoderOutput, source: Source) -> Tensor:
        return encoded.vectors[:, 0]  # (B, D)


class LastToken(Pooling):
    """The hidden state of the last real position, as for causal encoders (Radford et al. 2018)."""

    def forward(self, encoded: EncoderOutput, source: Source) -> Tensor:
        positions = torch.arange(encoded.mask.size(1), device=encoded.mask.device)
        last = (positions * encoded.mask).amax(1)  # (B,)
        return encoded.vectors[torch.arange(len(last), device=last.device), last]  # (B, D)


class LastState(Pooling):
    """The final hidden state of a recurrent encoder: top layer, directions concatenated."""

    def forward(self, encoded: EncoderOutput, source: Source) -> Tensor:
        assert encoded.last is not None
        return encoded.last[:, 0, -1]  # (B, D)


class BackwardState(Pooling):
    """The top layer's backward final state alone: the lectures' `hidden[-1]` of a bidirectional network."""

    def __init__(self, width: int):
        super().__init__(width // 2)

    def forward(self, encoded: EncoderOutput, source: Source) -> Tensor:
        assert encoded.last is not None
        return encoded.last[:, 0, -1, self.width :]  # (B, D / 2)


class Mean(Pooling):
    """The mean of the hidden states over real positions."""

    def forward(self, encoded: EncoderOutput, source: Source) -> Tensor:
        real = encoded.mask.unsqueeze(-1)  # (B, S, 1)
        return (encoded.vectors * real).sum(1) / real.sum(1).clamp(min=1)  # (B, D)


class Max(Pooling):
    """Max over time: the maximum of each feature over real positions (Collobert et al. 2011)."""

    def forward(self, encoded: EncoderOutput, source: Source) -> Tensor:
        hidden = encoded.vectors.masked_fill(~encoded.mask.unsqueeze(-1), -torch.inf)
        return hidden.amax(1).masked_fill(~encoded.mask.any(1, keepdim=True), 0.0)  # (B, D)


class Attention(Pooling):
    """Attention pooling: a mean weighted by softmax(v · tanh(W h)) (Lin et al. 2017)."""

    def __init__(self, width: int):
        super().__init__(width)
        self.hidden = nn.Linear(width, width)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, encoded: EncoderOutput, source: Source) -> Tensor:
        scores = self.score(torch.tanh(self.hidden(encoded.vectors))).squeeze(-1)  # (B, S)
        # The smallest finite number rather than minus infinity: all positions of an empty text would give NaN.
        weights = scores.masked_fill(~encoded.mask, torch.finfo(scores.dtype).min).softmax(-1)
        return torch.einsum("bs,bsd->bd", weights, encoded.vectors)  # (B, D)


class ConcatPooling(Pooling):
    """Several poolings concatenated, as ULMFiT's last, max and mean (Howard & Ruder 2018)."""

    def __init__(self, *parts: Pooling):
        super().__init__(sum(part.width for part in parts))
        self.parts = nn.ModuleList(parts)

    def forward(self, encoded: EncoderOutput, source: Source) -> Tensor:
        return torch.cat([part(encoded, source) for part in self.parts], -1)


class Flatten(Pooling):
    """All positions flattened to one vector, truncated or zero-padded to a fixed length."""

    def __init__(self, width: int, length: int):
        super().__init__(width * length)
        self.length = length

    def forward(self, encoded: EncoderOutput, source: Source) -> Tensor:
        vectors = (encoded.vectors * encoded.mask.unsqueeze(-1))[:, : self.length]
        return F.pad(vectors, (0, 0, 0, self.length - vectors.size(1))).flatten(1)  # (B, length · D)


class FirstSubword(Pooling):
    """The hidden state of each word's first subword token, so that word labels stay aligned; zeros at padding."""

    def forward(self, encoded: EncoderOutput, source: Source) -> Tensor:
        starts = source.word_starts
        assert starts is not None
        counts = starts.sum(1, keepdim=True)  # (B, 1)
        words = int(counts.amax()) if starts.numel() else 0
        order = torch.argsort(~starts, dim=1, stable=True)[:, :words]  # (B, W): word starts first, in order
        vectors = encoded.vectors.gather(1, order.unsqueeze(-1).expand(-1, -1, encoded.vectors.size(-1)))
        real = torch.arange(words, device=starts.device) < counts
        return vectors * real.unsqueeze(-1)  # (B, W, D)


class NoPooling(Pooling):
    """Every position of the source, without a prepended class token: for masked tokens and pixels."""

    def forward(self, encoded: EncoderOutput, source: Source) -> Tensor:
        return encoded.vectors[:, -source.mask.size(1) :]  # (B, S, D)


POOLINGS: dict[str, type[Pooling]] = {
    "first": FirstToken,
    "final": LastToken,
    "last": LastState,
    "backward": BackwardState,
    "mean": Mean,
    "max": Max,
    "attention": Attention,
}
"""Poolings to one vector per text of any length."""
