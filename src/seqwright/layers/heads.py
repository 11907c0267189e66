"""Output heads: hidden states to logits, loss and predictions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.core.batch import IGNORE
from seqwright.layers.cross_entropy import cross_entropy, token_log_probs, upcast
from seqwright.layers.encoder import EncoderConfig
from seqwright.layers.gelu import GELU


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """Base of head options, which are combined with those of any encoder."""

    name: ClassVar[str]
    """The head's name in `EncoderConfig.head_defaults` and `head_fixed`."""

    def check(self, encoder: EncoderConfig) -> None:
        """Refuses options that do not fit those of the encoder."""


class TokenHead(nn.Module):
    """Language modeling head over V tokens; its weight may be tied to the embedding (Press & Wolf 2017)."""

    def __init__(self, width: int, vocabulary: int, *, bias: bool = True):
        super().__init__()
        self.readout = nn.Linear(width, vocabulary, bias=bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits (..., V)."""
        return self.readout(hidden)

    def log_probs(self, hidden: Tensor) -> Tensor:
        """Log-probabilities (..., V), natural log, at least float32."""
        logits = upcast(self.readout(hidden))
        if torch.is_inference_mode_enabled() and logits.device.type == "cpu":
            # In place: no gradient needs the logits, and a decoding step touches less memory.
            return torch.log_softmax(logits, -1, out=logits)
        return logits.log_softmax(-1)

    def score(self, hidden: Tensor, target: Tensor) -> Tensor:
        """log p(target), shaped like target."""
        return token_log_probs(hidden, self.readout.weight, self.readout.bias, target)

    def loss(self, hidden: Tensor, target: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        return cross_entropy(hidden, self.readout.weight, self.readout.bias, target, smoothing=smoothing)

    def predict(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        return self.readout(hidden).argmax(-1)


class HiddenHead(nn.Module):
    """Language modeling head without parameters: the hidden states, as wide as the vocabulary, are the logits."""

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits (..., V)."""
        return hidden

    def log_probs(self, hidden: Tensor) -> Tensor:
        """Log-probabilities (..., V), natural log, at least float32."""
        return upcast(hidden).log_softmax(-1)

    def score(self, hidden: Tensor, target: Tensor) -> Tensor:
        """log p(target), shaped like target; 0 for IGNORE."""
        chosen = self.log_probs(hidden).gather(-1, target.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        return chosen.masked_fill(target == IGNORE, 0.0)

    def loss(self, hidden: Tensor, target: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        logits = upcast(hidden).flatten(0, -2)
        total = F.cross_entropy(
            logits, target.flatten(), ignore_index=IGNORE, reduction="sum", label_smoothing=smoothing
        )
        return total, (target != IGNORE).sum()

    def predict(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        return hidden.argmax(-1)


class MLMHead(TokenHead):
    """Masked language modeling head: dense, GELU and LayerNorm before the output layer (Devlin et al. 2019).

    The loss computes logits of masked positions only, about one in seven. Selecting them synchronizes a GPU, which
    costs less than the logits of all positions.
    """

    def __init__(self, width: int, vocabulary: int, *, embedding: int | None = None, epsilon: float = 1e-12):
        inner = embedding or width  # the embedding may be narrower than the encoder, and is tied to the output layer
        super().__init__(inner, vocabulary)
        self.transform = nn.Sequential(nn.Linear(width, inner), GELU(), nn.LayerNorm(inner, eps=epsilon))

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
    """Softmax classifier over C classes, for texts or for each word."""

    def __init__(self, width: int, classes: int):
        super().__init__()
        self.readout = nn.Linear(width, classes)

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits (..., C)."""
        return self.readout(hidden)

    def loss(self, hidden: Tensor, target: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        logits = upcast(self.readout(hidden)).flatten(0, -2)
        total = F.cross_entropy(
            logits, target.flatten(), ignore_index=IGNORE, reduction="sum", label_smoothing=smoothing
        )
        return total, (target != IGNORE).sum()

    def predict(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        return self.readout(hidden).argmax(-1)


class MultiLabelHead(ClassHead):
    """Multi-label classifier: C independent binary labels, target (B, C) of 0 and 1, binary cross-entropy."""

    def loss(self, hidden: Tensor, target: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        smoothed = target.clamp(min=0) * (1 - smoothing) + smoothing / 2
        losses = F.binary_cross_entropy_with_logits(upcast(self.readout(hidden)), smoothed, reduction="none")
        real = target != IGNORE
        return (losses * real).sum(), real.sum()

    def predict(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        return self.readout(hidden) > 0


class RegressionHead(nn.Module):
    """Least-squares regression: one value for a text, or the pixels of a patch.

    Predictions are means of normal distributions with standard deviation 1 / √2π: the density at the mean is 1, so the
    nll in nats is π times the squared error and 0 where the prediction is exact (decision 126).
    """

    def __init__(self, width: int, count: int = 1):
        super().__init__()
        self.readout = nn.Linear(width, count)

    def forward(self, hidden: Tensor) -> Tensor:
        """Predicted values (..., count)."""
        return self.readout(hidden)

    def loss(self, hidden: Tensor, target: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """π times the sum of squared errors, and the count; label smoothing is not defined here and ignored."""
        real = target != IGNORE
        errors = (upcast(self.readout(hidden)) - target).square()
        return math.pi * (errors * real).sum(), real.sum()

    def predict(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        return self.readout(hidden)
