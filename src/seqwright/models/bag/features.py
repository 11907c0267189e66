"""The n-grams of texts as rows of a sparse matrix: every n-gram its own column, exactly, and nothing hashed."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from seqwright.models.ngram.tables import ABSENT, search

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Presence:
    """A sparse matrix, held as the columns that are not zero in each row: there it is one, unless values say more."""

    starts: Tensor  # (N + 1,): row n has columns[starts[n] : starts[n + 1]]
    columns: Tensor  # (P,)
    width: int
    values: Tensor | None = None  # (P,)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __matmul__(self, weight: Tensor) -> Tensor:
        """(N, F) @ (F, C) -> (N, C)."""
        return F.embedding_bag(
            self.columns, weight, self.starts, mode="sum", include_last_offset=True, per_sample_weights=self.values
        )

    @property
    def sizes(self) -> Tensor:
        """(N, 1): how many columns are one in each row."""
        return self.starts.diff().float().unsqueeze(1)

    @functools.cached_property
    def transposed(self) -> Presence:
        order = torch.argsort(self.columns, stable=True)
        owners = torch.repeat_interleave(torch.arange(len(self)), self.starts.diff())
        values = None if self.values is None else self.values[order]
        return Presence(borders(self.columns, self.width), owners[order], len(self), values)

    def select(self, rows: Tensor) -> Presence:
        """These rows alone."""
        lengths = self.starts.diff()[rows]
        ends = torch.cumsum(lengths, 0)
        within = torch.arange(int(lengths.sum())) - torch.repeat_interleave(ends - lengths, lengths)
        places = torch.repeat_interleave(self.starts[:-1][rows], lengths) + within
        values = None if self.values is None else self.values[places]
        return Presence(torch.cat([torch.zeros(1, dtype=torch.long), ends]), self.columns[places], self.width, values)

    def scaled(self, rows: Tensor) -> Presence:
        """Each row (N, 1) times its number."""
        return replace(self, values=torch.repeat_interleave(rows.squeeze(1), self.starts.diff()))


def beside(views: Sequence[Presence]) -> Presence:
    """Matrices of the same rows as one, their columns one after the other."""
    owners = [torch.repeat_interleave(torch.arange(len(view)), view.starts.diff()) for view in views]
    offsets = np.cumsum([0, *(view.width for view in views)])
    columns = torch.cat([view.columns + int(offset) for view, offset in zip(views, offsets, strict=False)])
    order = torch.argsort(torch.cat(owners), stable=True)
    scaled = [view.values for view in views if view.values is not None]
    values = torch.cat(scaled)[order] if scaled else None
    starts = sum((view.starts for view in views), torch.zeros(len(views[0]) + 1, dtype=torch.long))
    return Presence(starts, columns[order], int(offsets[-1]), values)


def borders(groups: Tensor, many: int) -> Tensor:
    """Where each of `many` groups begins and ends once members are sorted by group."""
    return torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(groups, minlength=many).cumsum(0)])


class Grams:
    """Which n-grams there are, order by order. A key is place(prefix) * V + last id, as in the counted n-gram."""

    def __init__(self, keys: Sequence[Rows], vocabulary: int):
        self.keys, self.vocabulary = list(keys), vocabulary

    @property
    def width(self) -> int:
        return sum(map(len, self.keys))

    @classmethod
    def of(cls, ids: Rows, lengths: Rows, *, order: int, min_df: int, vocabulary: int) -> tuple[Grams, Presence]:
        """The n-grams of at least `min_df` texts, which lie one after another in ids, and which texts have them.

        An n-gram's prefix is in as many texts or more, so leaving out rare ones order by order loses no other.
        """
        grams, text = cls([], vocabulary), np.repeat(np.arange(len(lengths)), lengths)
        pairs: list[tuple[Rows, Rows]] = []
        places = ids
        for _ in range(order):
            key = grams._keys(places, ids, lengths)
            there = np.flatnonzero(key != ABSENT)
            found, which = (t.numpy() for t in torch.unique(torch.from_numpy(key[there]), return_inverse=True))
            owner, own = _distinct(text[there], which, len(found))
            kept = np.bincount(own, minlength=len(found)) >= min_df
            renumbered = np.where(kept, np.cumsum(kept) - 1, ABSENT)
            places = np.full(len(ids), ABSENT)
            places[there] = renumbered[which]
            pairs.append((owner[kept[own]], renumbered[own[kept[own]]] + grams.width))
            grams.keys.append(found[kept])
        return grams, _matrix(pairs, len(lengths), grams.width)

    def read(self, ids: Rows, lengths: Rows) -> Presence:
        """Which of these n-grams other texts have."""
        reader, text = Grams([], self.vocabulary), np.repeat(np.arange(len(lengths)), lengths)
        pairs: list[tuple[Rows, Rows]] = []
        places = ids
        for keys in self.keys:
            places = search(keys, reader._keys(places, ids, lengths))
            there = np.flatnonzero(places != ABSENT)
            owner, own = _distinct(text[there], places[there], len(keys))
            pairs.append((owner, own + reader.width))
            reader.keys.append(keys)
        return _matrix(pairs, len(lengths), self.width)

    def _keys(self, places: Rows, ids: Rows, lengths: Rows) -> Rows:
        """Keys of the n-grams one longer than those known, that end at each position; ABSENT before there is one."""
        known = len(self.keys)
        if known == 0:
            return ids
        prefix = np.concatenate([[ABSENT], places[:-1]])
        within = np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        prefix[within < known] = ABSENT
        return np.where(prefix == ABSENT, ABSENT, prefix * self.vocabulary + ids)


def _distinct(owner: Rows, which: Rows, many: int) -> tuple[Rows, Rows]:
    """Pairs of a text and an n-gram it has, each once, by text."""
    pairs = torch.unique(torch.from_numpy(owner * max(many, 1) + which)).numpy()
    return pairs // max(many, 1), pairs % max(many, 1)


def _matrix(pairs: Sequence[tuple[Rows, Rows]], texts: int, width: int) -> Presence:
    owner = torch.from_numpy(np.concatenate([own for own, _ in pairs]))
    columns = torch.from_numpy(np.concatenate([own for _, own in pairs]))
    order = torch.argsort(owner, stable=True)
    return Presence(borders(owner, texts), columns[order], width)
