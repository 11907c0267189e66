"""Heads: what is made of hidden vectors. Each owns its logits, its loss and its prediction."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.core.batch import IGNORE
from seqwright.layers.cross_entropy import cross_entropy, exact, token_log_probs


class TokenHead(nn.Module):
    """One of V tokens for each hidden vector; its weight may be the embedding's (Press & Wolf 2017)."""

    def __init__(self, width: int, vocabulary: int, *, bias: bool = True):
        super().__init__()
        self.readout = nn.Linear(width, vocabulary, bias=bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits (..., V)."""
        return self.readout(hidden)

    def log_probs(self, hidden: Tensor) -> Tensor:
        """(..., V), natural log, at least float32."""
        logits = exact(self.readout(hidden))
        if torch.is_inference_mode_enabled() and logits.device.type == "cpu":
            # Nobody else holds them, and a search's step goes through less memory.
            return torch.log_softmax(logits, -1, out=logits)
        return logits.log_softmax(-1)

    def score(self, hidden: Tensor, target: Tensor) -> Tensor:
        """log p(target), shaped like target."""
        return token_log_probs(hidden, self.readout.weight, self.readout.bias, target)

    def loss(self, hidden: Tensor, target: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        return cross_entropy(hidden, self.readout.weight, self.readout.bias, target, smoothing=smoothing)

    def predict(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        return self.readout(hidden).argmax(-1)


class MaskedHead(TokenHead):
    """Hidden tokens: a layer of its own before the read-out (Devlin et al. 2019). Only what is asked for is computed,
    one position in seven; counting those makes a GPU wait, which costs less."""

    def __init__(self, width: int, vocabulary: int, *, embedding: int | None = None, epsilon: float = 1e-12):
        inner = embedding or width
        super().__init__(inner, vocabulary)
        self.transform = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.LayerNorm(inner, eps=epsilon))

    def forward(self, hidden: Tensor) -> Tensor:
        return super().forward(self.transform(hidden))

    def log_probs(self, hidden: Tensor) -> Tensor:
        return super().log_probs(self.transform(hidden))

    def loss(self, hidden: Tensor, target: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        real = target != IGNORE
        return super().loss(self.transform(hidden[real]), target[real], smoothing)

    def predict(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        return super().predict(self.transform(hidden))


class ClassHead(nn.Module):
    """One of C classes for each hidden vector: a text's, or every word's."""

    def __init__(self, width: int, classes: int):
        super().__init__()
        self.readout = nn.Linear(width, classes)

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits (..., C)."""
        return self.readout(hidden)

    def loss(self, hidden: Tensor, target: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        logits = exact(self.readout(hidden)).flatten(0, -2)
        total = F.cross_entropy(
            logits, target.flatten(), ignore_index=IGNORE, reduction="sum", label_smoothing=smoothing
        )
        return total, (target != IGNORE).sum()

    def predict(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        return self.readout(hidden).argmax(-1)


class MultiLabelHead(ClassHead):
    """Any number of C labels, each true or not: a target (B, C) of 0 and 1."""

    def loss(self, hidden: Tensor, target: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        wanted = target.clamp(min=0) * (1 - smoothing) + smoothing / 2
        losses = F.binary_cross_entropy_with_logits(exact(self.readout(hidden)), wanted, reduction="none")
        real = target != IGNORE
        return (losses * real).sum(), real.sum()

    def predict(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        return self.readout(hidden) > 0


class RegressionHead(nn.Module):
    """Numbers for each hidden vector, by least squares: one for a regression, those of a patch for pixels. Each is the
    middle of a normal distribution with deviation 1 / √2π: its density is 1 there, so nll begins at 0."""

    def __init__(self, width: int, count: int = 1):
        super().__init__()
        self.readout = nn.Linear(width, count)

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., count)."""
        return self.readout(hidden)

    def loss(self, hidden: Tensor, target: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """π times the squared errors; label smoothing has no meaning here and changes nothing."""
        real = target != IGNORE
        errors = (exact(self.readout(hidden)) - target).square()
        return math.pi * (errors * real).sum(), real.sum()

    def predict(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        return self.readout(hidden)
