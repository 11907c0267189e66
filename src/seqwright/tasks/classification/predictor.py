"""Who answers for a run that classifies: one reader, or several that each cut the text their own way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from seqwright.core.protocols import Watch, unwatched
from seqwright.data.bucketing import Ints
from seqwright.data.labeled.labels import Labels
from seqwright.data.labeled.rows import LabeledConfig
from seqwright.data.labeled.sources import EncodedTexts, Sources, encode, frame
from seqwright.metrics.score import Floats
from seqwright.tasks.classification.scores import answers, log_probs_of, tempered
from seqwright.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Member:
    """A model and how texts are cut for it."""

    model: Any
    tokenizer: Tokenizer
    data: LabeledConfig


def framed(texts: EncodedTexts, tokenizer: Tokenizer, data: LabeledConfig, context: int | None) -> Sources:
    """Texts as a recipe cuts them to what the model sees."""
    return frame(
        texts,
        tokenizer,
        max_length=longest(data, context),
        truncation=data.truncation,
        add_special_tokens=data.add_special_tokens,
    )


def longest(data: LabeledConfig, context: int | None) -> int | None:
    """The most tokens read at once."""
    limits = [limit for limit in (data.max_length, context) if limit is not None]
    return min(limits) if limits else None


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """What was answered."""

    found: Floats
    """(texts, C): probabilities, or values."""
    lost: Ints
    """(texts,): tokens that nobody's context held."""
    cut: int
    """Texts that did not fit."""
    fingerprint: str
    """Of the texts as the first reader cut them."""


@dataclass(frozen=True, kw_only=True)
class Predictor:
    """Probabilities of texts: of the only reader, or mixed."""

    readers: Sequence[Member]
    labels: Labels
    mix: Callable[[torch.Tensor], torch.Tensor] | None = None
    """Log-probabilities (M, N, C) of several readers to those of the mixture (N, C)."""
    temperature: float | None = None
    device: torch.device | str = "cpu"

    def __call__(self, texts: Sequence[tuple[str, ...]], watch: Watch = unwatched) -> Predictions:
        encoded = [encode(texts, reader.tokenizer) for reader in self.readers]
        sources = [
            framed(own, reader.tokenizer, reader.data, reader.model.context)
            for reader, own in zip(self.readers, encoded, strict=True)
        ]
        found = [
            answers(reader.model, own, self.labels, self.device, watch)
            for reader, own in zip(self.readers, sources, strict=True)
        ]
        together = found[0]
        if self.mix is not None:
            together = self.mix(torch.from_numpy(np.stack([log_probs_of(own) for own in found]))).exp().numpy()
        if self.labels.kind == "single":
            together = tempered(together, self.temperature)
        lost = np.stack([own.lost for own in sources]).min(0)
        return Predictions(found=together, lost=lost, cut=int((lost > 0).sum()), fingerprint=encoded[0].fingerprint)
