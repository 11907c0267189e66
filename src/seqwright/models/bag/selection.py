"""Model selection on held-out texts: feature weighting, minimum document frequency, loss, regularization, ensemble.

Where naive Bayes alone has a lower held-out loss than any regression, the L2 penalty is centered at naive Bayes instead
of zero: a learned form of Wang & Manning's interpolation (docs/decisions/0132).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from seqwright.core.batch import OutputSpec
from seqwright.core.progress import Progress
from seqwright.models.bag.features import CSRMatrix
from seqwright.models.bag.linear import LOSSES, MAX_ITERATIONS, fit_linear
from seqwright.models.bag.ridge import cross_kernel_matrix, inverse_document_frequency, kernel_matrix, solve_dual

HELD_OUT, FOLDS, MAX_CROSS_VALIDATED, MAX_GRID_WEIGHTS = 10, 5, 2000, 1_000_000
"""A tenth of the texts is held out; up to MAX_CROSS_VALIDATED texts, 5-fold cross-validation is used instead. Above
MAX_GRID_WEIGHTS weights, one weighting and one loss are tried, on a held-out tenth."""
SELECTION_ITERATIONS = 30
"""L-BFGS iterations per point of the regularization path: enough to rank them."""
MIN_TEXTS = 20
"""With fewer texts nothing is held out, and the middle of L2_GRID is used."""
L2_GRID = (1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03)
"""Regularization path, from strong to weak: searched from the middle as far as the held-out loss falls, each point
warm-started from the last."""
NAIVE_BAYES_SCALES = tuple(2 ** (-n / 2) for n in range(20))
"""Grid of factors on naive Bayes: it takes n-grams for independent and is overconfident, hence at most 1."""

MAX_RIDGE_TEXTS, MAX_LBFGS_WEIGHTS = 6000, 2_000_000
"""Up to MAX_RIDGE_TEXTS texts ridge regression is tried too; there, above MAX_LBFGS_WEIGHTS weights, it alone is."""
RIDGE_GRID = (3.0, 1.0, 0.3, 0.1, 0.03)
"""Regularization path of ridge regression, on features of mean squared norm 1."""
RIDGE_SHARES = (0.25, 0.5, 0.75)
"""Grid of weights of ridge regression in an average of its logits and those of the best other model."""

LOGIT_SCALES = tuple(2 ** (n / 2) for n in range(-4, 13))
"""Grid of factors that turn margins (decision values) into logits: calibration by an inverse temperature."""

Scale = Callable[[CSRMatrix, Tensor, bool], Tensor]
"""Column scales (F, C) from features and targets, with naive Bayes or without."""


@dataclass(frozen=True, order=True)
class Candidate:
    """Hyperparameters and their held-out score; ordered by loss, the least is the best."""

    loss: float
    accuracy: float = 0.0
    l2: float = L2_GRID[len(L2_GRID) // 2]
    naive_bayes: bool = True
    center: float = 0.0
    """Center of the L2 penalty; with naive Bayes features, 1 is naive Bayes itself and 0 is ordinary shrinkage."""
    hinge: bool = False
    """Whether the loss is the one-vs-rest squared hinge, whose margins are not probabilities."""
    logit_scale: float = 1.0
    """Factor that turns margins into logits."""
    held_out: int = 0
    """Number of held-out texts, in all folds."""
    folds: int = 0
    ridge_share: float = 0.0
    """Weight of ridge regression in the averaged logits; 1 is ridge regression alone."""
    ridge_l2: float = 0.0
    """L2 penalty of ridge regression."""
    ridge_scale: float = 1.0
    """Logit scale of ridge regression."""
    logits: Tensor | None = field(default=None, compare=False, repr=False)
    """Logits (N, C) of the held-out texts."""
    rows: Tensor | None = field(default=None, compare=False, repr=False)
    """Which texts these are (N,)."""
    fitted: tuple[Tensor, Tensor] | None = field(default=None, compare=False, repr=False)
    """Weight (F, C) and bias (C,) that the other texts gave, from which a fit to all can start; None of several
    folds."""

    def note(self, kind: str) -> str:
        """The selected hyperparameters and their held-out score, as a sentence; for an output of this kind."""
        center = " (penalty centered at it)" if self.center > 0 else ""
        weighting = f" {'with' if self.naive_bayes else 'without'} naive Bayes{center}"
        linear = f"l2 = {self.l2:g}{'' if kind == 'regression' else weighting}"
        ridge = f"ridge regression with l2 = {self.ridge_l2:g}"
        if self.ridge_share:
            share = self.ridge_share
            linear = f"{share:.0%} {ridge} and {1 - share:.0%} regression with {linear}" if share < 1 else ridge
        accuracy = f"accuracy {self.accuracy:.2f} %, " if kind == "class" else ""
        folds = f"in {self.folds} folds " if self.folds > 1 else ""
        return f"{linear}, selected on {self.held_out:,} held-out texts ({folds}{accuracy}loss {self.loss:.4f})."


def can_grid_search(x: CSRMatrix, output: OutputSpec) -> bool:
    """Whether weights are few enough to try several weightings and losses."""
    return x.unmerged_width * output.count <= MAX_GRID_WEIGHTS


def can_cross_validate(x: CSRMatrix, output: OutputSpec) -> bool:
    """Whether texts and weights are few enough for k-fold cross-validation."""
    return MIN_TEXTS <= len(x) <= MAX_CROSS_VALIDATED and can_grid_search(x, output)


def can_use_ridge(x: CSRMatrix, output: OutputSpec) -> bool:
    """Whether dual ridge regression applies: single-label classification of few texts."""
    return output.kind == "class" and MIN_TEXTS <= len(x) <= MAX_RIDGE_TEXTS


def can_use_lbfgs(x: CSRMatrix, output: OutputSpec) -> bool:
    """Whether L-BFGS is used: weights are few enough, or texts too many for ridge regression."""
    return not can_use_ridge(x, output) or x.unmerged_width * output.count <= MAX_LBFGS_WEIGHTS


def fold_rows(x: CSRMatrix, shuffled: Tensor) -> Sequence[Tensor]:
    """The rows of each fold; copies of a text are in one fold, since a copy that was learned would answer for it."""
    _, group = torch.unique(x.row_hashes[shuffled], return_inverse=True)
    position = torch.arange(len(shuffled))
    first = torch.full_like(position, len(position)).scatter_reduce_(0, group, position, "amin")[group]
    first = torch.where(x.indptr.diff()[shuffled] > 0, first, position)  # without n-grams, texts are not copies
    texts, number = torch.unique(first, return_inverse=True)
    fold = torch.cat([torch.full_like(part, n) for n, part in enumerate(texts.tensor_split(FOLDS))])
    return [shuffled[fold[number] == n] for n in range(FOLDS)]


def select(
    x: CSRMatrix,
    *,
    target: Tensor,
    output: OutputSpec,
    scale: Scale,
    min_df: int,
    naive_bayes: Sequence[bool],
    progress: Progress,
    like: Candidate | None = None,
) -> Candidate:
    """The candidate of least held-out loss over the given weightings; the first, unscored, where none can be scored.

    Where the best candidate of other features is given (`like`), its hyperparameters are taken: only the features are
    compared.
    """
    unscored = Candidate(float("inf"), naive_bayes=naive_bayes[0])
    if len(x) < MIN_TEXTS:
        return unscored
    shuffled = torch.from_numpy(np.random.default_rng(0).permutation(len(x)))
    held = fold_rows(x, shuffled) if can_cross_validate(x, output) else shuffled.tensor_split(HELD_OUT)[:1]
    kept = [shuffled[~torch.isin(shuffled, fold)] for fold in held]
    folds = [Fold(output, x, target, *rows) for rows in zip(kept, held, strict=True) if len(rows[0])]
    if not any(len(fold.truth) for fold in folds):
        return unscored
    candidates: list[Candidate] = []
    if like is None and can_use_lbfgs(x, output):
        candidates = _search_regressions(folds, naive_bayes, can_grid_search(x, output), scale, min_df, progress)
    elif like is not None and like.ridge_share < 1:
        for fold in folds:
            fold.fit_scale(scale, like.naive_bayes, min_df)
        candidates = [_search_l2(folds, like.naive_bayes, like.hinge, like.center, (like.l2,), progress)]
    if can_use_ridge(x, output):
        ridge = _search_ridge(folds, min_df, (like.ridge_l2,) if like and like.ridge_l2 else RIDGE_GRID, progress)
        candidates += [*_ensembles(min(candidates), ridge, folds), ridge] if candidates else [ridge]
    return replace(min(candidates, default=unscored), rows=torch.cat([fold.rows for fold in folds]))


def _search_regressions(
    folds: Sequence[Fold], naive_bayes: Sequence[bool], grid_search: bool, scale: Scale, min_df: int, progress: Progress
) -> list[Candidate]:
    """The best regression of each weighting and loss: the first weighting with every loss, others with the better."""
    output, candidates = folds[0].output, list[Candidate]()
    multiclass = output.kind == "class" and output.count > 2  # between two classes, the hinge gains nothing
    hinges: tuple[bool, ...] = ((True, False) if grid_search else (True,)) if multiclass else (False,)
    for weighted in naive_bayes:
        for fold in folds:
            fold.fit_scale(scale, weighted, min_df)
        for hinge in hinges:
            start = min(candidates).l2 if candidates else None
            candidates.append(_search_l2(folds, weighted, hinge, 0.0, L2_GRID, progress, start=start))
        best = min(candidates)
        if weighted and output.kind == "class":
            loss, center = min((_naive_bayes_loss(folds, center), center) for center in NAIVE_BAYES_SCALES)
            if loss < best.loss:
                candidates.append(_search_l2(folds, weighted, best.hinge, center, L2_GRID, progress))
        hinges = (best.hinge,)
    return candidates


def _search(grid: Sequence[float], start: float | None, evaluate: Callable[[float], Candidate]) -> Candidate:
    """The best candidate of a path: from `start`, or its middle, as far as the held-out loss falls, to the weaker side
    first."""
    middle = grid.index(start) if start in grid else len(grid) // 2
    best = evaluate(grid[middle])
    for path in (grid[middle + 1 :], grid[:middle][::-1]):
        before = best
        for strength in path:
            candidate = evaluate(strength)
            if candidate.loss > best.loss:
                break
            best = candidate
        if best is not before:
            break
    return best


def _search_ridge(folds: Sequence[Fold], min_df: int, grid: Sequence[float], progress: Progress) -> Candidate:
    """Ridge regression with the regularization of least held-out loss."""
    truth = torch.cat([fold.truth for fold in folds])
    for fold in folds:
        fold.fit_kernel(min_df)

    def evaluate(l2: float) -> Candidate:
        progress.stage(f"{folds[0].x.unmerged_width:,} n-grams: trying ridge regression with l2 = {l2:g}")
        logits = torch.cat([fold.ridge_logits(l2) for fold in folds])
        loss, by = min((float(F.cross_entropy(by * logits, truth)), by) for by in LOGIT_SCALES)
        accuracy = 100 * float((logits.argmax(1) == truth).float().mean())
        candidate = Candidate(
            loss, accuracy, held_out=len(truth), folds=len(folds), ridge_share=1.0, ridge_l2=l2, ridge_scale=by
        )
        return replace(candidate, logits=by * logits)

    return _search(grid, None, evaluate)


def _ensembles(best: Candidate, ridge: Candidate, folds: Sequence[Fold]) -> Iterator[Candidate]:
    """Weighted averages of the logits of both: their errors differ."""
    truth = torch.cat([fold.truth for fold in folds])
    assert best.logits is not None
    assert ridge.logits is not None
    for share in RIDGE_SHARES:
        logits = best.logits.lerp(ridge.logits, share)
        accuracy = 100 * float((logits.argmax(1) == truth).float().mean())
        both = replace(best, ridge_share=share, ridge_l2=ridge.ridge_l2, ridge_scale=ridge.ridge_scale, logits=logits)
        yield replace(both, loss=float(F.cross_entropy(logits, truth)), accuracy=accuracy)


def _search_l2(
    folds: Sequence[Fold],
    naive_bayes: bool,
    hinge: bool,
    center: float,
    grid: Sequence[float],
    progress: Progress,
    *,
    start: float | None = None,
) -> Candidate:
    """A regression by L-BFGS with the regularization of least held-out loss."""
    output, truth = folds[0].output, torch.cat([fold.truth for fold in folds])
    iterations = SELECTION_ITERATIONS if len(grid) > 1 else MAX_ITERATIONS  # a single point has no warm start
    for fold in folds:
        fold.reset(center)

    name = "squared_hinge" if hinge else output.kind

    def evaluate(l2: float) -> Candidate:
        progress.stage(f"{folds[0].x.unmerged_width:,} n-grams: trying l2 = {l2:g}")
        logits = torch.cat([fold.fit_predict(name, l2, center, iterations) for fold in folds])
        loss, logit_scale = min(
            (float(LOSSES[output.kind](by * logits, truth)), by) for by in (LOGIT_SCALES if hinge else (1.0,))
        )
        accuracy = float((logits.argmax(-1) == truth).float().mean()) if output.kind == "class" else 0.0
        candidate = Candidate(loss, 100 * accuracy, l2, naive_bayes, center, hinge, logit_scale, len(truth), len(folds))
        fitted = (folds[0].weight, folds[0].bias) if len(folds) == 1 else None
        return replace(candidate, logits=logit_scale * logits, fitted=fitted)

    return _search(grid, start, evaluate)


def _naive_bayes_loss(folds: Sequence[Fold], center: float) -> float:
    """Mean held-out loss of naive Bayes, scaled by `center`."""
    return sum(fold.naive_bayes_loss(center) for fold in folds) / sum(len(fold.truth) for fold in folds)


class Fold:
    """Training texts, held-out texts, and the current weights.

    Held-out texts of a class without training texts are dropped: their loss would only measure that the class is
    unknown, and favor the strongest regularization.
    """

    def __init__(self, output: OutputSpec, x: CSRMatrix, target: Tensor, kept: Tensor, held: Tensor):
        self.output = output
        if output.kind == "class":
            held = held[torch.isin(target[held], target[kept])]
        self.rows = held
        self.x, self.target, self.held_out, self.truth = x.select(kept), target[kept], x.select(held), target[held]

    def fit_scale(self, scale: Scale, naive_bayes: bool, min_df: int) -> None:
        """Column scales from the training texts alone: an n-gram that reaches `min_df` only with held-out texts gets 0,
        so that no document frequency leaks."""
        common = torch.bincount(self.x.columns, minlength=self.x.width) >= min_df
        self.scale = scale(self.x, self.target, naive_bayes) * common.unsqueeze(1)
        if self.output.kind == "class":
            self.log_prior = torch.bincount(self.target, minlength=self.output.count).clamp(min=0.1).log()
            self.naive_bayes_logits = self.held_out @ (self.scale * self.x.unit_weight)  # (N, C)

    def reset(self, center: float) -> None:
        """Sets the weights to the center of the penalty."""
        self.weight = center * self.x.unit_weight.expand_as(self.scale)
        self.bias = torch.zeros(self.output.count)

    def naive_bayes_loss(self, center: float) -> float:
        """Summed held-out loss of naive Bayes, its log-ratios scaled by `center`."""
        logits = center * self.naive_bayes_logits + self.log_prior
        return float(F.cross_entropy(logits, self.truth, reduction="sum"))

    def fit_predict(self, loss: str, l2: float, center: float, iterations: int) -> Tensor:
        """Logits (N, C) of the held-out texts after fitting, warm-started from the current weights."""
        start = {"scale": self.scale, "weight": self.weight, "bias": self.bias}
        if len(self.truth):
            self.weight, self.bias = fit_linear(
                self.x, self.target, loss, l2=l2, center=center, max_iter=iterations, **start
            )
        return self.held_out @ (self.scale * self.weight) + self.bias

    def fit_kernel(self, min_df: int) -> None:
        """Kernel matrices of the training texts, and of held-out with training texts."""
        common = torch.bincount(self.x.columns, minlength=self.x.width) >= min_df
        scale = inverse_document_frequency(self.x) * common
        self.kernel, mean = kernel_matrix(self.x, scale)
        self.cross_kernel = cross_kernel_matrix(self.held_out, self.x, scale, mean)

    def ridge_logits(self, l2: float) -> Tensor:
        """Decision values (N, C) of ridge regression for the held-out texts."""
        return self.cross_kernel @ solve_dual(self.kernel, self.target, self.output.count, l2)
