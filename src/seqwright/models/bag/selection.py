"""Which regression suits texts that were held out: how n-grams are weighed, which are too rare, how far weights may go.

Where naive Bayes alone answers them better than any regression, weights are held at what it says rather than at zero:
a regression between both, as Wang & Manning's interpolation is, but one that is learned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from seqwright.core.batch import OutputSpec
from seqwright.core.protocols import Doing
from seqwright.models.bag.features import Presence
from seqwright.models.bag.linear import LOSSES, descend
from seqwright.models.bag.ridge import gram, rarity, solve

HELD_OUT, FOLDS, MANY, CHEAP = 10, 5, 2000, 1_000_000
"""Every tenth text says which regression suits; of no more than MANY all do in turn, a fifth at a time. Above CHEAP
weights one way is tried only, and a tenth of the texts."""
GUESSING = 30
"""Steps of descent from one regularization to the next: enough to tell which suits."""
FEWEST = 20
"""With fewer texts there is nothing to hold out, and the middle of L2S is taken."""
L2S = (1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03)
"""Tried from the left, each begun where the last ended, until the held-out loss rises."""
CENTRES = tuple(2 ** (-n / 2) for n in range(20))
"""How far naive Bayes may be believed: it counts every n-gram as if it had said nothing before, so less than 1."""

DUAL, DESCENDED = 6000, 2_000_000
"""Of so many texts ridge regression is tried as well; there more weights than DESCENDED are found by it alone."""
RIDGES = (3.0, 1.0, 0.3, 0.1, 0.03)
"""Tried from the left, of texts whose length is 1 on average."""
SHARES = (0.25, 0.5, 0.75)
"""What ridge regression may have in a sum of its logits and those of the best other way."""

SHARPNESS = tuple(2 ** (n / 2) for n in range(-4, 13))
"""What margins may be multiplied by."""

Scale = Callable[[Presence, Tensor, bool], Tensor]
"""(F, C) by which columns are weighed, from texts and answers, with naive Bayes or without."""


@dataclass(frozen=True, order=True)
class Way:
    """A regression, and how it answered: the least loss is the best."""

    loss: float
    accuracy: float = 0.0
    l2: float = L2S[len(L2S) // 2]
    weighed: bool = True
    center: float = 0.0
    """What weights are held at: with naive Bayes, how far it is believed before anything is learned."""
    margins: bool = False
    """Whether classes are parted by margins, which are no probabilities yet."""
    sharpness: float = 1.0
    """What margins are multiplied by to become logits."""
    told: int = 0
    """Texts that were held out, in so many folds."""
    folds: int = 0
    share: float = 0.0
    """What ridge regression has in the logits; with 1 there is nothing else."""
    ridge: float = 0.0
    """Its regularization."""
    ridge_sharpness: float = 1.0
    said: Tensor | None = field(default=None, compare=False, repr=False)
    """Logits (N, C) of the texts held out."""


def is_cheap(x: Presence, answers: OutputSpec) -> bool:
    """Whether several ways can be tried."""
    return x.width * answers.count <= CHEAP


def is_few(x: Presence, answers: OutputSpec) -> bool:
    """Whether all texts can be held out in turn as well."""
    return FEWEST <= len(x) <= MANY and is_cheap(x, answers)


def is_dual(x: Presence, answers: OutputSpec) -> bool:
    """Whether ridge regression can be tried."""
    return answers.kind == "class" and FEWEST <= len(x) <= DUAL


def is_descended(x: Presence, answers: OutputSpec) -> bool:
    """Whether weights are few enough to be descended with, or texts too many for anything else."""
    return not is_dual(x, answers) or x.width * answers.count <= DESCENDED


def choose(
    x: Presence,
    target: Tensor,
    answers: OutputSpec,
    scale: Scale,
    *,
    min_df: int,
    weighed: Sequence[bool],
    doing: Doing,
) -> Way:
    """The best of these ways to weigh, with the regularization that suits it; the first where none can be held out."""
    nothing = Way(float("inf"), weighed=weighed[0])
    if len(x) < FEWEST:
        return nothing
    shuffled = torch.from_numpy(np.random.default_rng(0).permutation(len(x)))
    held = shuffled.tensor_split(FOLDS) if is_few(x, answers) else shuffled.tensor_split(HELD_OUT)[:1]
    kept = [shuffled[~torch.isin(shuffled, own)] for own in held]
    several = answers.kind == "class" and answers.count > 2  # between two, margins gain nothing
    parted = ((True, False) if is_cheap(x, answers) else (True,)) if several else (False,)
    tried: list[Way] = []
    folds = [Fold(answers, x, target, *rows) for rows in zip(kept, held, strict=True)]
    if not any(len(fold.truth) for fold in folds):
        return nothing
    for own in weighed if is_descended(x, answers) else ():
        for fold in folds:
            fold.weigh(scale, own, min_df)
        tried.append(min(way for margins in parted for way in _path(folds, own, margins, 0.0, doing)))
        if own and answers.kind == "class":
            alone, center = min((_alone(folds, center), center) for center in CENTRES)
            if alone < tried[-1].loss:
                tried.append(min(_path(folds, own, tried[-1].margins, center, doing)))
    if is_dual(x, answers):
        ridge = min(_ridges(folds, min_df, doing))
        tried += [*_sums(min(tried), ridge, folds), ridge] if tried else [ridge]
    return min(tried)


def _ridges(folds: Sequence[Fold], min_df: int, doing: Doing) -> Iterator[Way]:
    """From the strongest regularization on, until the loss rises."""
    truth, least = torch.cat([fold.truth for fold in folds]), float("inf")
    for fold in folds:
        fold.multiply(min_df)
    for l2 in RIDGES:
        doing(f"{folds[0].x.width:,} n-grams: trying ridge regression with l2 = {l2:g}")
        logits = torch.cat([fold.regress(l2) for fold in folds])
        loss, by = min((float(F.cross_entropy(by * logits, truth)), by) for by in SHARPNESS)
        right = 100 * float((logits.argmax(1) == truth).float().mean())
        way = Way(loss, right, told=len(truth), folds=len(folds), share=1.0, ridge=l2, ridge_sharpness=by)
        yield replace(way, said=by * logits)
        if loss > least:
            return
        least = loss


def _sums(way: Way, ridge: Way, folds: Sequence[Fold]) -> Iterator[Way]:
    """Both at once: what either is too sure of the other often is not."""
    truth = torch.cat([fold.truth for fold in folds])
    assert way.said is not None
    assert ridge.said is not None
    for share in SHARES:
        said = way.said.lerp(ridge.said, share)
        right = 100 * float((said.argmax(1) == truth).float().mean())
        shared = replace(way, share=share, ridge=ridge.ridge, ridge_sharpness=ridge.ridge_sharpness, said=said)
        yield replace(shared, loss=float(F.cross_entropy(said, truth)), accuracy=right)


def _path(folds: Sequence[Fold], weighed: bool, margins: bool, center: float, doing: Doing) -> Iterator[Way]:
    """From the strongest regularization on, until the loss rises."""
    answers, truth, least = folds[0].answers, torch.cat([fold.truth for fold in folds]), float("inf")
    for fold in folds:
        fold.begin(center)
    for l2 in L2S:
        so_far = f"; the least loss so far is {least:.4f}" if least < float("inf") else ""
        doing(f"{folds[0].x.width:,} n-grams: trying l2 = {l2:g}{so_far}")
        logits = torch.cat([fold.ask("margins" if margins else answers.kind, l2, center) for fold in folds])
        loss, sharpness = min(
            (float(LOSSES[answers.kind](by * logits, truth)), by) for by in (SHARPNESS if margins else (1.0,))
        )
        right = float((logits.argmax(-1) == truth).float().mean()) if answers.kind == "class" else 0.0
        way = Way(loss, 100 * right, l2, weighed, center, margins, sharpness, len(truth), len(folds))
        yield replace(way, said=sharpness * logits)
        if loss > least:
            return
        least = loss


def _alone(folds: Sequence[Fold], center: float) -> float:
    """The mean loss of naive Bayes, believed so far."""
    return sum(fold.alone(center) for fold in folds) / sum(len(fold.truth) for fold in folds)


class Fold:
    """Texts to learn from, others to be asked about, and the weights so far. Nobody is asked for a class that was not
    learned: its loss would only say how little is known, and ask for the strongest regularization."""

    def __init__(self, answers: OutputSpec, x: Presence, target: Tensor, seen: Tensor, held: Tensor):
        self.answers = answers
        if answers.kind == "class":
            held = held[torch.isin(target[held], target[seen])]
        self.x, self.target, self.unseen, self.truth = x.select(seen), target[seen], x.select(held), target[held]

    def weigh(self, scale: Scale, weighed: bool, min_df: int) -> None:
        """As if there were no other texts: an n-gram that is common by those held out alone says nothing."""
        common = torch.bincount(self.x.columns, minlength=self.x.width) >= min_df
        self.scale = scale(self.x, self.target, weighed) * common.unsqueeze(1)
        if self.answers.kind == "class":
            self.frequent = torch.bincount(self.target, minlength=self.answers.count).clamp(min=0.1).log()
            self.said = self.unseen @ self.scale  # (N, C)

    def begin(self, center: float) -> None:
        self.weight, self.bias = torch.full_like(self.scale, center), torch.zeros(self.answers.count)

    def alone(self, center: float) -> float:
        """The loss of naive Bayes summed over the texts held out."""
        logits = center * self.said + self.frequent
        return float(F.cross_entropy(logits, self.truth, reduction="sum"))

    def ask(self, loss: str, l2: float, center: float) -> Tensor:
        """Logits (N, C) of the texts held out, after going on with another regularization."""
        own = {"scale": self.scale, "weight": self.weight, "bias": self.bias}
        if len(self.truth):
            self.weight, self.bias = descend(self.x, self.target, loss, l2=l2, center=center, rounds=GUESSING, **own)
        return self.unseen @ (self.scale * self.weight) + self.bias

    def multiply(self, min_df: int) -> None:
        """Products of texts learned from with each other and with those held out."""
        common = torch.bincount(self.x.columns, minlength=self.x.width) >= min_df
        scale = rarity(self.x) * common
        self.own, self.across = gram(self.x, self.x, scale), gram(self.unseen, self.x, scale)

    def regress(self, l2: float) -> Tensor:
        """What ridge regression answers (N, C)."""
        coefficients = solve(self.own, self.target, self.answers.count, l2)
        return (self.across / self.own.diagonal().mean() + 1) @ coefficients
