"""Pooling: what a head reads of a whole reading. One vector for a text, one for each word, or all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.core.batch import Source
from seqwright.layers.encoder import EncoderOutput


class Pooling(nn.Module, ABC):
    """From a reading (B, S, D) to what a head reads; what is masked never counts."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width
        """Size of the vectors that come out."""

    @abstractmethod
    def forward(self, reading: EncoderOutput, source: Source) -> Tensor:
        """(B, width), (B, W, width) or (B, S, width)."""


class First(Pooling):
    """The vector of a class token that stands in front (Devlin et al. 2019)."""

    def forward(self, reading: EncoderOutput, source: Source) -> Tensor:
        return reading.vectors[:, 0]  # (B, D)


class Final(Pooling):
    """The vector of the last real position: what a causal reader knows in the end (Radford et al. 2018)."""

    def forward(self, reading: EncoderOutput, source: Source) -> Tensor:
        places = torch.arange(reading.mask.size(1), device=reading.mask.device)
        last = (places * reading.mask).amax(1)  # (B,)
        return reading.vectors[torch.arange(len(last), device=last.device), last]  # (B, D)


class Last(Pooling):
    """Where a recurrent reader ended: the top layer's state, both directions of it."""

    def forward(self, reading: EncoderOutput, source: Source) -> Tensor:
        assert reading.last is not None
        return reading.last[:, 0, -1]  # (B, D)


class Backward(Pooling):
    """The lectures' `hidden[-1]` of a bidirectional network: the top layer's backward state alone."""

    def __init__(self, width: int):
        super().__init__(width // 2)

    def forward(self, reading: EncoderOutput, source: Source) -> Tensor:
        assert reading.last is not None
        return reading.last[:, 0, -1, self.width :]  # (B, D / 2)


class Mean(Pooling):
    """The mean of the real positions."""

    def forward(self, reading: EncoderOutput, source: Source) -> Tensor:
        real = reading.mask.unsqueeze(-1)  # (B, S, 1)
        return (reading.vectors * real).sum(1) / real.sum(1).clamp(min=1)  # (B, D)


class Max(Pooling):
    """The largest of every feature over the real positions (Collobert et al. 2011)."""

    def forward(self, reading: EncoderOutput, source: Source) -> Tensor:
        hidden = reading.vectors.masked_fill(~reading.mask.unsqueeze(-1), -torch.inf)
        return hidden.amax(1).masked_fill(~reading.mask.any(1, keepdim=True), 0.0)  # (B, D)


class Attention(Pooling):
    """A mean whose weights are learned: softmax of v · tanh(W h) (Lin et al. 2017)."""

    def __init__(self, width: int):
        super().__init__(width)
        self.hidden = nn.Linear(width, width)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, reading: EncoderOutput, source: Source) -> Tensor:
        scores = self.score(torch.tanh(self.hidden(reading.vectors))).squeeze(-1)  # (B, S)
        # The smallest number rather than minus infinity: an empty text has no weights, not NaN ones.
        weights = scores.masked_fill(~reading.mask, torch.finfo(scores.dtype).min).softmax(-1)
        return torch.einsum("bs,bsd->bd", weights, reading.vectors)  # (B, D)


class Several(Pooling):
    """Several poolings side by side: last, largest and mean as in ULMFiT (Howard & Ruder 2018)."""

    def __init__(self, *parts: Pooling):
        super().__init__(sum(part.width for part in parts))
        self.parts = nn.ModuleList(parts)

    def forward(self, reading: EncoderOutput, source: Source) -> Tensor:
        return torch.cat([part(reading, source) for part in self.parts], -1)


class Flatten(Pooling):
    """All positions as one vector, zeros up to the fixed length."""

    def __init__(self, width: int, length: int):
        super().__init__(width * length)
        self.length = length

    def forward(self, reading: EncoderOutput, source: Source) -> Tensor:
        kept = (reading.vectors * reading.mask.unsqueeze(-1))[:, : self.length]
        return F.pad(kept, (0, 0, 0, self.length - kept.size(1))).flatten(1)  # (B, length · D)


class Words(Pooling):
    """The vector at which each given word begins, so that labels of words never shift under subword tokens; zeros
    behind the words of a row."""

    def forward(self, reading: EncoderOutput, source: Source) -> Tensor:
        starts = source.word_starts
        assert starts is not None
        counts = starts.sum(1, keepdim=True)  # (B, 1)
        most = int(counts.amax()) if starts.numel() else 0
        order = torch.argsort(~starts, dim=1, stable=True)[:, :most]  # (B, W): real words first, in order
        vectors = reading.vectors.gather(1, order.unsqueeze(-1).expand(-1, -1, reading.vectors.size(-1)))
        real = torch.arange(most, device=starts.device) < counts
        return vectors * real.unsqueeze(-1)  # (B, W, D)


class Everything(Pooling):
    """Every position of the source, without a class token in front: for masked tokens and pixels."""

    def forward(self, reading: EncoderOutput, source: Source) -> Tensor:
        return reading.vectors[:, -source.mask.size(1) :]  # (B, S, D)


POOLINGS: dict[str, type[Pooling]] = {
    "first": First,
    "final": Final,
    "last": Last,
    "backward": Backward,
    "mean": Mean,
    "max": Max,
    "attention": Attention,
}
"""Those that make one vector of a text of any length."""
