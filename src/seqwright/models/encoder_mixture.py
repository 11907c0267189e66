"""Mixtures of classifiers: weighted means of their class probabilities, each with its own tokenizer.

A bag of n-grams and a network make different errors, so that together they are better than either (Mesnil et al. 2015).
Weights and kind of mean are those with the least loss on held-out texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from seqwright.core.batch import Batch, Vocabulary
from seqwright.core.config import UserError
from seqwright.models.mixture import Parts


@dataclass(frozen=True, kw_only=True)
class EncoderMixtureConfig:
    weights: tuple[float, ...]
    """Weight of each part."""
    mean: Literal["arithmetic", "geometric"] = "geometric"
    """arithmetic: Σ weight p, with weights that sum to one; geometric: ∝ Π p^weight, whose weights sum to an inverse
    temperature."""
    parts: Any
    """[model] table, vocabulary and truncation of each part, as [model.parts.1.model], …."""

    def __post_init__(self) -> None:
        if not isinstance(self.parts, dict) or not all(isinstance(part, dict) for part in self.parts.values()):
            raise UserError("parts are tables, as in [model.parts.1]; `seqwright mix RUN RUN --on FILE` writes them.")

    @property
    def truncation(self) -> list[dict[str, Any]]:
        """The keys of [data] by which each part truncates texts."""
        return [part["data"] for part in self.parts.values()]

    @property
    def vocabularies(self) -> list[Vocabulary]:
        """The vocabulary of each part."""
        return [Vocabulary(**part["vocabulary"]) for part in self.parts.values()]


class EncoderMixture(Parts):
    """Weighted mean of the class probabilities of several classifiers."""

    def __init__(self, models: Sequence[Any], config: EncoderMixtureConfig):
        self.models = list(models)
        if len(self.models) < 2 or len(self.models) != len(config.weights):
            raise UserError(
                f"a mixture needs two or more parts and a weight for each, not {len(config.weights)} weights."
            )
        if any(weight < 0 for weight in config.weights):
            raise UserError(f"no weight of a mixture is negative, unlike {list(config.weights)}.")
        self.weights, self.mean = torch.tensor(config.weights, dtype=torch.float64), config.mean
        self.context = min((model.context for model in self.models if model.context is not None), default=None)

    def __call__(self, batch: Batch) -> Tensor:
        """Log-probabilities (B, C) of a source whose ids are those of all parts."""
        return self.mix(torch.stack([model(batch).log_softmax(-1).cpu() for model in self.models]))

    def mix(self, log_probs: Tensor) -> Tensor:
        """Log-probabilities (B, C) from those of the parts (M, B, C)."""
        return weighted_mean(log_probs, self.weights, self.mean)


def weighted_mean(log_probs: Tensor, weights: Tensor, mean: str) -> Tensor:
    """The weighted mean of distributions (M, B, C), as log-probabilities (B, C)."""
    weights = weights.to(log_probs).view(-1, 1, 1)
    if mean == "arithmetic":
        return torch.logsumexp(log_probs + weights.log(), 0)
    return (weights * log_probs).sum(0).log_softmax(-1)
