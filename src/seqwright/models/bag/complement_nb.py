"""Complement naive Bayes for very many classes (Rennie et al. 2003), with sparse weights.

The weight of an n-gram for a class comes from its counts in all other classes. Written as a difference to a class that
never has the n-gram, which is the same for every such class and cancels, only the pairs of n-gram and class that occur
are stored: thousands of classes take no more memory than their texts.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from seqwright.models.bag.features import CSRMatrix, group_offsets

LOGIT_SCALES = tuple(2 ** (n / 2) for n in range(-12, 13))
"""Grid of logit scales (inverse temperatures): naive Bayes takes n-grams for independent and is overconfident."""
SMOOTHING_FACTORS = (1.0, 3.0, 10.0)
"""Grid of factors on the configured smoothing."""
MAX_HELD_OUT = 1000
"""Maximum number of held-out texts on which the grids are searched."""
TENSOR_NAMES = ("seen.starts", "seen.classes", "seen.values", "rest")
"""Names of the tensors in a state dict."""


@dataclass(frozen=True)
class ComplementNB:
    seen: CSRMatrix  # (F, C): weight of each n-gram for the classes that have it
    rest: Tensor  # (C,): log of the smoothed total count in all other classes

    @classmethod
    def from_counts(cls, counts: CSRMatrix, smoothing: float) -> ComplementNB:
        """The classifier of n-gram counts by class (F, C)."""
        inside, ngram = counts.values, torch.repeat_interleave(torch.arange(len(counts)), counts.indptr.diff())
        assert inside is not None
        total = torch.bincount(ngram, inside, len(counts)).float()  # (F,)
        weight = -torch.log1p(-inside / (total[ngram] + smoothing))
        of_class = torch.bincount(counts.columns, inside, counts.width).float()  # (C,)
        rest = (total.sum() - of_class + smoothing * len(counts)).log()
        return cls(replace(counts, values=weight), rest)

    def __call__(self, x: CSRMatrix) -> Tensor:
        """Logits (N, C)."""
        sparse = _to_torch(x)
        lengths = torch.sparse.sum(sparse, 1).to_dense().unsqueeze(1)  # (N, 1)
        with warnings.catch_warnings():  # PyTorch warns once that sparse products are in beta
            warnings.simplefilter("ignore")
            sums = torch.sparse.mm(sparse, self._table).to_dense()
        return sums + lengths * self.rest

    def weights(self, ngrams: Tensor) -> Tensor:
        """(n, C): what a value of 1 of each of these n-grams adds to the logits."""
        rows = self.seen.select(ngrams)
        row_of = torch.repeat_interleave(torch.arange(len(ngrams)), rows.indptr.diff())
        assert rows.values is not None
        dense = self.rest.repeat(len(ngrams), 1)
        return dense.index_put((row_of, rows.columns), rows.values, accumulate=True)

    @functools.cached_property
    def _table(self) -> Tensor:
        return _to_torch(self.seen).coalesce()

    def scaled(self, by: float) -> ComplementNB:
        """The classifier with its logits multiplied."""
        assert self.seen.values is not None
        return ComplementNB(replace(self.seen, values=by * self.seen.values), by * self.rest)

    def state_dict(self) -> dict[str, Tensor]:
        assert self.seen.values is not None
        tensors = (self.seen.indptr, self.seen.columns, self.seen.values, self.rest)
        return dict(zip(TENSOR_NAMES, tensors, strict=True))

    @classmethod
    def load_state_dict(cls, tensors: Mapping[str, Tensor]) -> ComplementNB:
        indptr, classes, values, rest = (tensors[name] for name in TENSOR_NAMES)
        return cls(CSRMatrix(indptr, classes, len(rest), values), rest)


def class_counts(x: CSRMatrix, target: Tensor, classes: int) -> CSRMatrix:
    """(F, C): counts of n-grams by class, texts weighted by the values of x."""
    values = torch.ones(len(x.columns)) if x.values is None else x.values
    class_of = torch.repeat_interleave(target, x.indptr.diff())
    pairs, index = torch.unique(x.columns * classes + class_of, return_inverse=True)
    counts = torch.bincount(index, values, len(pairs)).float()
    return CSRMatrix(group_offsets(pairs // classes, x.width), pairs % classes, classes, counts)


def fit_complement_nb(x: CSRMatrix, target: Tensor, classes: int, smoothing: float) -> tuple[ComplementNB, str]:
    """The classifier of all texts, with smoothing and logit scale of least held-out loss, and a note on that loss."""
    shuffled = torch.from_numpy(np.random.default_rng(0).permutation(len(x)))
    held, kept = shuffled.tensor_split([min(MAX_HELD_OUT, len(x) // 10)])
    held = held[torch.isin(target[held], target[kept])]  # classes without a training text cannot be predicted
    counts = class_counts(x, target, classes)
    if not len(held):
        return ComplementNB.from_counts(counts, smoothing), ""
    fold_counts, held_out = class_counts(x.select(kept), target[kept], classes), x.select(held)
    loss, accuracy, smoothed, by = min(_grid_search(fold_counts, held_out, target[held], smoothing))
    note = f" ({len(held):,} held-out texts: accuracy {-accuracy:.2f} %, loss {loss:.4f})"
    return ComplementNB.from_counts(counts, smoothed).scaled(by), note


def _grid_search(
    counts: CSRMatrix, held_out: CSRMatrix, truth: Tensor, smoothing: float
) -> Iterator[tuple[float, ...]]:
    """Held-out loss, negated accuracy (so that tuples compare), smoothing and logit scale of every grid point."""
    for factor in SMOOTHING_FACTORS:
        logits = ComplementNB.from_counts(counts, smoothing * factor)(held_out)
        accuracy = 100 * float((logits.argmax(1) == truth).float().mean())
        for by in LOGIT_SCALES:
            yield float(F.cross_entropy(by * logits, truth)), -accuracy, smoothing * factor, by


def _to_torch(x: CSRMatrix) -> Tensor:
    """The matrix as a torch sparse COO tensor, whose sparse products are a hundred times as fast as sums of rows."""
    rows = torch.repeat_interleave(torch.arange(len(x)), x.indptr.diff())
    values = torch.ones(len(x.columns)) if x.values is None else x.values
    indices = torch.stack([rows, x.columns])
    return torch.sparse_coo_tensor(indices, values, (len(x), x.width), check_invariants=False)
