"""What a classifier answers, and how good its answers are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqwright import __version__
from seqwright.core.batch import IGNORE
from seqwright.core.config import UserError, check_not_negative
from seqwright.core.protocols import Watch, unwatched
from seqwright.data.bucketing import ByLength
from seqwright.data.labeled.labels import LabeledTexts, Labels, Unknown
from seqwright.data.labeled.sources import Sources
from seqwright.metrics.calibration import log_softmax, probability_counts
from seqwright.metrics.classification import class_counts, multilabel_counts
from seqwright.metrics.correlation import regression_counts
from seqwright.metrics.counts import Counts, mean
from seqwright.metrics.score import Floats

TOKENS = 16384
"""Tokens read at a time."""
LEAST = 1e-15
"""Probabilities nearer to 0 or 1 are not told apart from it."""

LIKELY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "single": lambda logits: logits.softmax(-1),
    "multi": torch.sigmoid,
    "regression": lambda logits: logits,
}
"""From logits to what is answered."""


@dataclass(frozen=True, kw_only=True)
class ClassificationEvaluationConfig:
    unknown: Unknown = "few"
    """What to do with texts whose label is unknown: count them as wrong unless they are more than half (few), count
    them as wrong however many they are (wrong), or refuse the file and name the line (refuse). Unknown labels of
    multi-label texts are ignored."""
    resamples: int = 1000
    """Bootstrap resamples behind an interval; 0 for none."""
    seed: int = 1
    """Fixes the bootstrap."""

    def __post_init__(self) -> None:
        check_not_negative(self, "resamples", "seed")


@dataclass(frozen=True, kw_only=True)
class ClassificationOptions:
    threshold: float = 0.5
    """Probability from which on a label is given, where a text may have several."""
    temperature: float | None = None
    """Divides the logits of classes: above 1 answers are less sure, 1 leaves them as they are. Left out: what suited
    the validation texts."""

    def __post_init__(self) -> None:
        if not 0 < self.threshold < 1:
            raise UserError(f"threshold lies between 0 and 1, not at {self.threshold}.")
        if self.temperature is not None and self.temperature <= 0:
            raise UserError(f"temperature must be above 0, but is {self.temperature:g}.")


@torch.inference_mode()
def answers(
    model: Any, sources: Sources, labels: Labels, device: torch.device | str, watch: Watch = unwatched
) -> Floats:
    """(texts, C): probabilities of classes or labels, or a value; the mean over the windows of a long text."""
    if isinstance(model, torch.nn.Module):
        model.eval()
    unlabeled = LabeledTexts(sources=sources, targets=np.zeros(int(sources.origin[-1]) + 1, np.int64))
    feed = ByLength(unlabeled, seed=0, batch=1, tokens=TOKENS)
    found = np.zeros((len(unlabeled.targets), labels.output_spec.count))
    done = 0
    for step in range(feed.steps_per_epoch):
        rows = feed.rows(step)
        logits = model(unlabeled.batch(rows).to(device)).cpu().double()
        likely = LIKELY[labels.kind](logits)
        np.add.at(found, sources.origin[rows], likely.numpy())
        done += len(rows)
        watch(done, len(sources))
    found /= np.bincount(sources.origin)[:, None]
    return found * labels.deviation + labels.mean if labels.kind == "regression" else found


def counted(
    found: Floats, targets: NDArray[Any], labels: Labels, options: ClassificationOptions, fingerprint: str
) -> Iterator[Counts]:
    """nll and what the answers are worth, as additive counts of texts."""
    facts = f"text:{fingerprint[:8]}|seqwright:{__version__}"
    if options.temperature is not None and labels.kind == "single":
        facts = f"temperature:{options.temperature:.4g}|{facts}"
    for one in _KINDS[labels.kind](found, targets, labels, options):
        yield replace(one, signature=f"{one.signature}|{facts}")


def log_probs_of(found: Floats) -> Floats:
    """Of probabilities; those nearest to nothing are something."""
    return np.log(np.maximum(found, LEAST))


def tempered(found: Floats, temperature: float | None) -> Floats:
    """Class probabilities (N, C) softened (T > 1) or sharpened: softmax(log p / T) (Guo et al. 2017)."""
    return found if temperature in (None, 1) else np.exp(log_softmax(log_probs_of(found) / temperature))


def _one(found: Floats, targets: NDArray[Any], labels: Labels, options: ClassificationOptions) -> Iterator[Counts]:
    known = targets != IGNORE
    yield from class_counts(found.argmax(1), targets, labels.names)
    yield from probability_counts(log_probs_of(found[known]), targets[known])


def _several(found: Floats, targets: NDArray[Any], labels: Labels, options: ClassificationOptions) -> Iterator[Counts]:
    wanted = targets > 0
    sure = log_probs_of(np.where(wanted, found, 1 - found))
    rows = np.stack([-sure.sum(1), np.full(len(found), float(found.shape[1]))], 1)
    signature = f"nll|examples:{len(found)}|classes:{found.shape[1]}"
    yield Counts(name="nll", rows=rows, formula=mean, signature=signature, better=-1)
    yield from multilabel_counts(found >= options.threshold, wanted, labels.names)


def _value(found: Floats, targets: NDArray[Any], labels: Labels, options: ClassificationOptions) -> Iterator[Counts]:
    wanted = targets[:, 0].astype(np.float64) * labels.deviation + labels.mean
    # Of the normal distribution that numbers are learned by (RegressionHead), in deviations of the training values.
    nll = np.pi * ((found[:, 0] - wanted) / labels.deviation) ** 2
    rows = np.stack([nll, np.ones(len(found))], 1)
    signature = f"nll|unit:{labels.deviation:.4g}|examples:{len(found)}"
    yield Counts(name="nll", rows=rows, formula=mean, signature=signature, better=-1)
    yield from regression_counts(found[:, 0], wanted)


_KINDS: dict[str, Callable[[Floats, NDArray[Any], Labels, ClassificationOptions], Iterator[Counts]]] = {
    "single": _one,
    "multi": _several,
    "regression": _value,
}
