"""Complement naive Bayes between very many classes: an n-gram speaks for a class by how little it is seen elsewhere.

Only what a class has seen is held (Rennie et al. 2003, written so that all other weights are the same for every class),
so that thousands of classes take no more memory than their texts do.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from seqwright.models.bags.grams import Presence, borders

SHARPNESS = tuple(2 ** (n / 2) for n in range(-12, 13))
"""What scores may be multiplied by: naive Bayes counts every n-gram as if it had said nothing before."""
ASKED = 1000
"""Texts that are held out to tell how sharp scores are, at most."""
NAMES = ("seen.starts", "seen.classes", "seen.values", "rest")
"""What is held, in a file."""


@dataclass(frozen=True)
class Complement:
    seen: Presence  # (F, C): how much each n-gram speaks for the classes that have it
    rest: Tensor  # (C,): log of what all other classes have of everything

    @classmethod
    def of(cls, x: Presence, target: Tensor, classes: int, smoothing: float) -> Complement:
        """Counts of n-grams by class; there every text weighs as x says."""
        values = torch.ones(len(x.columns)) if x.values is None else x.values
        owners = torch.repeat_interleave(target, x.starts.diff())
        pairs, which = torch.unique(x.columns * classes + owners, return_inverse=True)
        inside = torch.bincount(which, values, len(pairs)).float()
        columns = pairs // classes
        every = torch.bincount(columns, inside, x.width).float()  # (F,)
        speaks = -torch.log1p(-inside / (every[columns] + smoothing))
        of_class = torch.bincount(pairs % classes, inside, classes).float()  # (C,)
        rest = (every.sum() - of_class + smoothing * x.width).log()
        return cls(Presence(borders(columns, x.width), pairs % classes, classes, speaks), rest)

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
        seen = self.seen
        assert seen.values is not None
        return Complement(Presence(seen.starts, seen.columns, seen.width, by * seen.values), by * self.rest)

    def tensors(self) -> dict[str, Tensor]:
        assert self.seen.values is not None
        held = (self.seen.starts, self.seen.columns, self.seen.values, self.rest)
        return dict(zip(NAMES, held, strict=True))

    @classmethod
    def load(cls, tensors: Mapping[str, Tensor]) -> Complement:
        starts, classes, values, rest = (tensors[name] for name in NAMES)
        return cls(Presence(starts, classes, len(rest), values), rest)


def complement(x: Presence, target: Tensor, classes: int, smoothing: float) -> tuple[Complement, str]:
    """Of all texts, as sharp as suits some that were held out, and what those said."""
    shuffled = torch.from_numpy(np.random.default_rng(0).permutation(len(x)))
    held, kept = shuffled.tensor_split([min(ASKED, len(x) // 10)])
    held = held[torch.isin(target[held], target[kept])]
    every = Complement.of(x, target, classes, smoothing)
    if not len(held):
        return every, ""
    logits = Complement.of(x.select(kept), target[kept], classes, smoothing)(x.select(held))
    loss, by = min((float(F.cross_entropy(by * logits, target[held])), by) for by in SHARPNESS)
    right = 100 * float((logits.argmax(1) == target[held]).float().mean())
    return every.sharpened(by), f" ({len(held):,} held-out texts: accuracy {right:.2f} %, loss {loss:.4f})"


def _sparse(x: Presence) -> Tensor:
    """As PyTorch holds it, whose products of two sparse matrices are a hundred times as fast as sums of rows."""
    owners = torch.repeat_interleave(torch.arange(len(x)), x.starts.diff())
    values = torch.ones(len(x.columns)) if x.values is None else x.values
    places = torch.stack([owners, x.columns])
    return torch.sparse_coo_tensor(places, values, (len(x), x.width), check_invariants=False)
