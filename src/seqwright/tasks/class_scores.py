"""What a classifier answers, and how good its answers are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqwright import __version__
from seqwright.batch import IGNORE
from seqwright.config import UserError
from seqwright.data.labels import LabelledTexts, Labels, Unknown
from seqwright.data.lengths import ByLength
from seqwright.data.sources import Sources
from seqwright.metrics.counts import Counts, ratio
from seqwright.metrics.score import Floats

TOKENS = 16384
"""Tokens read at a time."""
LEAST = 1e-15
"""Probabilities nearer to 0 or 1 are not told apart from it."""

LIKELY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "one": lambda logits: logits.softmax(-1),
    "several": torch.sigmoid,
    "value": lambda logits: logits,
}
"""From logits to what is answered."""


@dataclass(frozen=True, kw_only=True)
class ClassEvaluationConfig:
    unknown: Unknown = "refuse"
    """What to do about labels that were not learnt: refuse the file, naming the line, or count such texts as wrong."""
    resamples: int = 1000
    """Bootstrap resamples behind an interval; 0 for none."""
    seed: int = 1
    """Fixes the bootstrap."""

    def __post_init__(self) -> None:
        for name in ("resamples", "seed"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must not be below 0, but is {getattr(self, name)}.")


@dataclass(frozen=True, kw_only=True)
class AnswerOptions:
    threshold: float = 0.5
    """Probability from which on a label is given, where a text may have several."""

    def __post_init__(self) -> None:
        if not 0 < self.threshold < 1:
            raise UserError(f"threshold lies between 0 and 1, not at {self.threshold}.")


@torch.inference_mode()
def answers(
    model: Any,
    sources: Sources,
    labels: Labels,
    device: torch.device | str,
    watch: Callable[[int, int], None] = lambda done, of: None,
) -> Floats:
    """(texts, C): probabilities of classes or labels, or a value; the mean over the windows of a long text."""
    if isinstance(model, torch.nn.Module):
        model.eval()
    unlabelled = LabelledTexts(sources=sources, targets=np.zeros(int(sources.origin[-1]) + 1, np.int64))
    feed = ByLength(unlabelled, seed=0, batch=1, tokens=TOKENS)
    found = np.zeros((len(unlabelled.targets), labels.answers.count))
    done = 0
    for step in range(feed.steps_per_epoch):
        rows = feed.rows(step)
        logits = model(unlabelled.batch(rows).to(device)).cpu().double()
        likely = LIKELY[labels.kind](logits)
        np.add.at(found, sources.origin[rows], likely.numpy())
        done += len(rows)
        watch(done, len(sources))
    found /= np.bincount(sources.origin)[:, None]
    return found * labels.deviation + labels.mean if labels.kind == "value" else found


def counted(
    found: Floats, targets: NDArray[Any], labels: Labels, options: AnswerOptions, fingerprint: str
) -> Iterator[Counts]:
    """nll and what the answers are worth, as additive counts of texts."""
    facts = f"texts:{len(found)}|classes:{labels.answers.count}|text:{fingerprint[:8]}|seqwright:{__version__}"
    for name, rows, formula, better in _KINDS[labels.kind](found, targets, labels, options):
        yield Counts(name=name, rows=rows, formula=formula, signature=f"{name}|{facts}", better=better)


def scored(counts: Iterator[Counts], config: ClassEvaluationConfig) -> dict[str, Any]:
    """Values, and scores with interval and signature."""
    scores = {one.name: one.score(resamples=config.resamples, seed=config.seed).as_json() for one in counts}
    return {name: score["value"] for name, score in scores.items()} | {"scores": scores}


Found = Iterator[tuple[str, Floats, Callable[[Floats], Floats], int]]


def _one(found: Floats, targets: NDArray[Any], labels: Labels, options: AnswerOptions) -> Found:
    texts, classes = np.arange(len(found)), found.shape[1]
    said, known = found.argmax(1), targets != IGNORE
    nll = -np.log(np.maximum(found[texts, np.where(known, targets, 0)], LEAST)) * known
    yield "nll", np.stack([nll, known.astype(float)], 1), mean, -1
    yield "accuracy", np.stack([said == targets, np.ones(len(found))], 1).astype(float), ratio, 1
    rows = np.zeros((len(found), 3 * classes))  # right, said and true of every class
    rows[texts[said == targets], said[said == targets]] = 1
    rows[texts, classes + said] = 1
    rows[texts[known], 2 * classes + targets[known]] = 1
    yield "macro_f1", rows, macro_f1, 1


def _several(found: Floats, targets: NDArray[Any], labels: Labels, options: AnswerOptions) -> Found:
    wanted, said = targets > 0, found >= options.threshold
    sure = np.clip(np.where(wanted, found, 1 - found), LEAST, 1)
    yield "nll", np.stack([-np.log(sure).sum(1), np.full(len(found), found.shape[1])], 1), mean, -1
    yield "accuracy", np.stack([(wanted == said).all(1), np.ones(len(found))], 1).astype(float), ratio, 1
    yield "macro_f1", np.concatenate([wanted & said, said, wanted], 1).astype(float), macro_f1, 1


def _value(found: Floats, targets: NDArray[Any], labels: Labels, options: AnswerOptions) -> Found:
    errors = found[:, 0] - (targets[:, 0] * labels.deviation + labels.mean)
    # Of a normal distribution about the answer, as wide as the training values are.
    width = np.log(labels.deviation * np.sqrt(2 * np.pi))
    ones = np.ones(len(found))
    yield "nll", np.stack([(errors / labels.deviation) ** 2 / 2 + width, ones], 1), mean, -1
    yield "mean_absolute_error", np.stack([np.abs(errors), ones], 1), mean, -1


_KINDS: dict[str, Callable[[Floats, NDArray[Any], Labels, AnswerOptions], Found]] = {
    "one": _one,
    "several": _several,
    "value": _value,
}


def mean(sums: Floats) -> Floats:
    return sums[:, 0] / np.maximum(sums[:, 1], 1)


def macro_f1(sums: Floats) -> Floats:
    """The mean of F1 over classes that are true or said of any text, in per cent."""
    right, said, true = np.split(sums, 3, axis=1)
    seen = said + true
    f1 = 2 * right / np.maximum(seen, 1)
    return 100 * f1.sum(1) / np.maximum((seen > 0).sum(1), 1)
