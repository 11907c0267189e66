"""Complement naive Bayes between very many classes: an n-gram speaks for a class by how little it is seen elsewhere.

Only what a class has seen is held (Rennie et al. 2003, written so that all other weights are the same for every class),
so that thousands of classes take no more memory than their texts do.
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

from seqwright.models.bag.features import Presence, borders

SHARPNESS = tuple(2 ** (n / 2) for n in range(-12, 13))
"""What scores may be multiplied by: naive Bayes counts every n-gram as if it had said nothing before."""
SMOOTHER = (1.0, 3.0, 10.0)
"""Times the smoothing asked for, all of which are tried."""
ASKED = 1000
"""Texts that are held out to tell how sharp scores are, at most."""
NAMES = ("seen.starts", "seen.classes", "seen.values", "rest")
"""What is held, in a file."""


@dataclass(frozen=True)
class Complement:
    seen: Presence  # (F, C): how much each n-gram speaks for the classes that have it
    rest: Tensor  # (C,): log of what all other classes have of everything

    @classmethod
    def of(cls, counts: Presence, smoothing: float) -> Complement:
        """What counts (F, C) say."""
        inside, columns = counts.values, torch.repeat_interleave(torch.arange(len(counts)), counts.starts.diff())
        assert inside is not None
        every = torch.bincount(columns, inside, len(counts)).float()  # (F,)
        speaks = -torch.log1p(-inside / (every[columns] + smoothing))
        of_class = torch.bincount(counts.columns, inside, counts.width).float()  # (C,)
        rest = (every.sum() - of_class + smoothing * len(counts)).log()
        return cls(replace(counts, values=speaks), rest)

    def __call__(self, x: Presence) -> Tensor:
        """Logits (N, C)."""
        present = _sparse(x)
        lengths = torch.sparse.sum(present, 1).to_dense().unsqueeze(1)  # (N, 1)
        with warnings.catch_warnings():  # PyTorch says once that how it multiplies is new
            warnings.simplefilter("ignore")
            sums = torch.sparse.mm(present, self._table).to_dense()
        return sums + lengths * self.rest

    @functools.cached_property
    def _table(self) -> Tensor:
        return _sparse(self.seen).coalesce()

    def sharpened(self, by: float) -> Complement:
        assert self.seen.values is not None
        return Complement(replace(self.seen, values=by * self.seen.values), by * self.rest)

    def state_dict(self) -> dict[str, Tensor]:
        assert self.seen.values is not None
        held = (self.seen.starts, self.seen.columns, self.seen.values, self.rest)
        return dict(zip(NAMES, held, strict=True))

    @classmethod
    def load_state_dict(cls, tensors: Mapping[str, Tensor]) -> Complement:
        starts, classes, values, rest = (tensors[name] for name in NAMES)
        return cls(Presence(starts, classes, len(rest), values), rest)


def counted(x: Presence, target: Tensor, classes: int) -> Presence:
    """(F, C): how often each class has each n-gram; there every text weighs as x says."""
    values = torch.ones(len(x.columns)) if x.values is None else x.values
    owners = torch.repeat_interleave(target, x.starts.diff())
    pairs, which = torch.unique(x.columns * classes + owners, return_inverse=True)
    inside = torch.bincount(which, values, len(pairs)).float()
    return Presence(borders(pairs // classes, x.width), pairs % classes, classes, inside)


def complement(x: Presence, target: Tensor, classes: int, smoothing: float) -> tuple[Complement, str]:
    """Of all texts, as smooth and as sharp as suits some that were held out, and what those said."""
    shuffled = torch.from_numpy(np.random.default_rng(0).permutation(len(x)))
    held, kept = shuffled.tensor_split([min(ASKED, len(x) // 10)])
    held = held[torch.isin(target[held], target[kept])]
    every = counted(x, target, classes)
    if not len(held):
        return Complement.of(every, smoothing), ""
    counts, unseen = counted(x.select(kept), target[kept], classes), x.select(held)
    loss, right, added, by = min(_tried(counts, unseen, target[held], smoothing))
    said = f" ({len(held):,} held-out texts: accuracy {-right:.2f} %, loss {loss:.4f})"
    return Complement.of(every, added).sharpened(by), said


def _tried(counts: Presence, unseen: Presence, truth: Tensor, smoothing: float) -> Iterator[tuple[float, ...]]:
    """Loss of the texts held out, accuracy below zero, what was added, how sharp it was."""
    for times in SMOOTHER:
        logits = Complement.of(counts, smoothing * times)(unseen)
        right = 100 * float((logits.argmax(1) == truth).float().mean())
        for by in SHARPNESS:
            yield float(F.cross_entropy(by * logits, truth)), -right, smoothing * times, by


def _sparse(x: Presence) -> Tensor:
    """As PyTorch holds it, whose products of two sparse matrices are a hundred times as fast as sums of rows."""
    owners = torch.repeat_interleave(torch.arange(len(x)), x.starts.diff())
    values = torch.ones(len(x.columns)) if x.values is None else x.values
    places = torch.stack([owners, x.columns])
    return torch.sparse_coo_tensor(places, values, (len(x), x.width), check_invariants=False)
