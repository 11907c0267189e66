"""Predictions of a text classifier: of one model, or of a mixture whose models encode the text each in its own way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from seqwright.core.progress import SILENT, Progress
from seqwright.data.bucketing import ByLength, Ints
from seqwright.data.labeled.labels import LabeledTexts, Labels
from seqwright.data.labeled.rows import LabeledConfig
from seqwright.data.labeled.sources import EncodedTexts, Sources, encode, frame
from seqwright.metrics.score import Floats
from seqwright.tasks.classification.scores import log_probs_of
from seqwright.tasks.scoring import score_epoch, visited
from seqwright.text.tokenizer import Tokenizer

BATCH_TOKENS = 16384
"""Tokens per batch."""

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "single": lambda logits: logits.softmax(-1),
    "multi": torch.sigmoid,
    "regression": lambda logits: logits,
}
"""Logits to outputs: class probabilities, label probabilities, or a standardized value."""


@runtime_checkable
class ReadsRagged(Protocol):
    """A classifier that reads texts of any length without padding: the bag of n-grams."""

    def logits(self, texts: Sources) -> Tensor:
        """(rows, C)"""
        ...


class Selected(Protocol):
    """Predictions for the training texts that were held out while hyperparameters were selected."""

    @property
    def rows(self) -> Tensor | None:
        """Which rows of the training data these are (N,); None where nothing was held out."""
        ...

    @property
    def logits(self) -> Tensor | None:
        """(N, C)"""
        ...

    @property
    def folds(self) -> int: ...


@runtime_checkable
class SelectsHyperparameters(Protocol):
    """A classifier that selects its hyperparameters on held-out training texts: the bag of n-grams."""

    @property
    def selected(self) -> Selected | None:
        """None before `fit`."""
        ...


@dataclass(frozen=True, kw_only=True)
class Member:
    """A model, and how it encodes and truncates texts."""

    model: Any
    tokenizer: Tokenizer
    data: LabeledConfig

    def sources(self, texts: EncodedTexts) -> Sources:
        """Texts with special tokens, truncated to what the model can read."""
        return truncated_sources(texts, self.tokenizer, self.data, self.model.context)


def truncated_sources(texts: EncodedTexts, tokenizer: Tokenizer, data: LabeledConfig, context: int | None) -> Sources:
    """Texts with special tokens, truncated to `data.max_length` and the context."""
    return frame(
        texts,
        tokenizer,
        max_length=max_length(data, context),
        truncation=data.truncation,
        add_special_tokens=data.add_special_tokens,
        padding=data.padding,
    )


def max_length(data: LabeledConfig, context: int | None) -> int | None:
    """Maximum number of tokens of a row; None without a limit."""
    limits = [limit for limit in (data.max_length, context) if limit is not None]
    return min(limits) if limits else None


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """Outputs for texts, before any temperature scaling."""

    outputs: Floats
    """(texts, C): probabilities, or values."""
    lost: Ints
    """(texts,): tokens that every model truncated."""
    truncated: int
    """Number of texts that lost tokens."""


@dataclass(frozen=True, kw_only=True)
class Predictor:
    """Predicts texts with one model, or with the mean of several."""

    members: Sequence[Member]
    labels: Labels
    mix: Callable[[Tensor], Tensor] | None = None
    """Log-probabilities (M, N, C) of M models to those of the mixture (N, C)."""
    device: torch.device | str = "cpu"

    def encode(self, texts: Sequence[tuple[str, ...]]) -> list[EncodedTexts]:
        """The texts, encoded for each model."""
        return [encode(texts, member.tokenizer) for member in self.members]

    def __call__(self, encoded: Sequence[EncodedTexts], progress: Progress = SILENT) -> Predictions:
        """Predictions for texts that `encode` made."""
        sources = [member.sources(texts) for member, texts in zip(self.members, encoded, strict=True)]
        outputs = [
            predict(member.model, rows, self.labels, device=self.device, progress=progress)
            for member, rows in zip(self.members, sources, strict=True)
        ]
        mixed = outputs[0]
        if self.mix is not None:
            mixed = self.mix(torch.from_numpy(np.stack([log_probs_of(probs) for probs in outputs]))).exp().numpy()
        lost = np.stack([rows.lost for rows in sources]).min(0)
        return Predictions(outputs=mixed, lost=lost, truncated=int((lost > 0).sum()))


def predict(
    model: Any, sources: Sources, labels: Labels, *, device: torch.device | str, progress: Progress = SILENT
) -> Floats:
    """(texts, C): probabilities of classes or labels, or a value; the mean over the windows of a long text."""
    activation = ACTIVATIONS[labels.kind]
    texts = int(sources.origin[-1]) + 1
    if isinstance(model, ReadsRagged):
        rows, order = activation(model.logits(sources).double()).numpy(), np.arange(len(sources))
    else:
        unlabeled = LabeledTexts(sources=sources, targets=np.zeros(texts, np.int64))
        feed = ByLength(unlabeled, seed=0, batch=1, tokens=BATCH_TOKENS)
        rows = score_epoch(
            model,
            feed,
            lambda batch: activation(model(batch).cpu().double()).numpy(),
            device=device,
            progress=progress,
        )
        order = visited(feed)
    outputs = np.zeros((texts, labels.output_spec.count))
    np.add.at(outputs, sources.origin[order], rows)
    outputs /= np.bincount(sources.origin)[:, None]
    return _rescaled(outputs, labels)


def held_out_predictions(model: Any, labels: Labels) -> tuple[Ints, Floats, int] | None:
    """Training rows that were held out to select hyperparameters, their outputs, and the number of folds."""
    selected = model.selected if isinstance(model, SelectsHyperparameters) else None
    if selected is None or selected.rows is None or selected.logits is None or not len(selected.rows):
        return None
    outputs = ACTIVATIONS[labels.kind](selected.logits.double()).numpy()
    return selected.rows.numpy(), _rescaled(outputs, labels), selected.folds


def _rescaled(outputs: Floats, labels: Labels) -> Floats:
    """Outputs in the unit of the labels: regression targets are standardized."""
    return outputs * labels.deviation + labels.mean if labels.kind == "regression" else outputs
