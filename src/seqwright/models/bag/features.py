"""N-gram features of texts as a sparse matrix in CSR form: one column per n-gram, exact, without feature hashing."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from seqwright.models.ngram.tables import ABSENT, binary_search
from seqwright.text.hashing import GOLDEN, mix64

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class CSRMatrix:
    """A sparse matrix (N, F) in compressed sparse row form; entries are 1 unless `values` are given."""

    indptr: Tensor  # (N + 1,): row n has columns[indptr[n] : indptr[n + 1]]
    columns: Tensor  # (P,)
    width: int
    values: Tensor | None = None  # (P,)
    copies: Tensor | None = None  # (F,): number of equal columns that were merged into each (`merge_equal_columns`)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __matmul__(self, weight: Tensor) -> Tensor:
        """(N, F) @ (F, C) -> (N, C)."""
        return F.embedding_bag(
            self.columns, weight, self.indptr, mode="sum", include_last_offset=True, per_sample_weights=self.values
        )

    @property
    def row_sizes(self) -> Tensor:
        """(N, 1): number of stored entries in each row."""
        return self.indptr.diff().float().unsqueeze(1)

    @property
    def row_hashes(self) -> Tensor:
        """(N,): sums of hashes of the columns of each row, the same for rows of the same columns."""
        rows = torch.repeat_interleave(torch.arange(len(self)), self.indptr.diff())
        hashes = torch.from_numpy(mix64(np.arange(1, self.width + 1, dtype=np.uint64) * GOLDEN).view(np.int64))
        return torch.zeros(len(self), dtype=torch.long).index_add_(0, rows, hashes[self.columns])

    @property
    def unmerged_width(self) -> int:
        """Number of columns before equal ones were merged."""
        return self.width if self.copies is None else int(self.copies.sum())

    @property
    def unit_weight(self) -> Tensor:
        """(F, 1): the weights that stand for a weight of 1 of every column before equal ones were merged."""
        return torch.ones(self.width, 1) if self.copies is None else self.copies.sqrt().unsqueeze(1)

    @functools.cached_property
    def transposed(self) -> CSRMatrix:
        order = torch.argsort(self.columns, stable=True)
        rows = torch.repeat_interleave(torch.arange(len(self)), self.indptr.diff())
        values = None if self.values is None else self.values[order]
        return CSRMatrix(group_offsets(self.columns, self.width), rows[order], len(self), values)

    def select(self, rows: Tensor) -> CSRMatrix:
        """The given rows, in the given order."""
        lengths = self.indptr.diff()[rows]
        ends = torch.cumsum(lengths, 0)
        within = torch.arange(int(lengths.sum())) - torch.repeat_interleave(ends - lengths, lengths)
        entries = torch.repeat_interleave(self.indptr[:-1][rows], lengths) + within
        values = None if self.values is None else self.values[entries]
        indptr = torch.cat([torch.zeros(1, dtype=torch.long), ends])
        return CSRMatrix(indptr, self.columns[entries], self.width, values, self.copies)

    def scale_rows(self, factors: Tensor) -> CSRMatrix:
        """The same entries with every row set to its factor (N, 1)."""
        return replace(self, values=torch.repeat_interleave(factors.squeeze(1), self.indptr.diff()))


def hstack(matrices: Sequence[CSRMatrix]) -> CSRMatrix:
    """Matrices with the same rows, concatenated along columns."""
    rows = [torch.repeat_interleave(torch.arange(len(matrix)), matrix.indptr.diff()) for matrix in matrices]
    offsets = np.cumsum([0, *(matrix.width for matrix in matrices)])
    columns = torch.cat([matrix.columns + int(offset) for matrix, offset in zip(matrices, offsets, strict=False)])
    order = torch.argsort(torch.cat(rows), stable=True)
    scaled = [matrix.values for matrix in matrices if matrix.values is not None]
    values = torch.cat(scaled)[order] if scaled else None
    indptr = sum((matrix.indptr for matrix in matrices), torch.zeros(len(matrices[0]) + 1, dtype=torch.long))
    return CSRMatrix(indptr, columns[order], int(offsets[-1]), values)


def merge_equal_columns(x: CSRMatrix, blocks: Sequence[int]) -> tuple[CSRMatrix, Tensor]:
    """The matrix with equal columns merged into one, and (F,) the new column of each; blocks of columns (their widths)
    stay apart, since their rows are scaled differently.

    An L2 penalty gives equal columns equal weights. So k of them with weights w are one column √k x with weight √k w:
    the same products, the same penalty, the same optimum. Columns are compared by a 64-bit sum of hashes of their rows:
    of a million, two that differ collide with probability 1e-7.
    """
    rows = torch.repeat_interleave(torch.arange(len(x)), x.indptr.diff())
    hashes = torch.from_numpy(mix64(np.arange(1, len(x) + 1, dtype=np.uint64) * GOLDEN).view(np.int64))
    sums = torch.zeros(x.width, dtype=torch.long).index_add_(0, x.columns, hashes[rows])
    sums += torch.repeat_interleave(torch.arange(len(blocks)), torch.tensor(blocks))
    _, merged = torch.unique(sums, return_inverse=True)
    copies = torch.bincount(merged).float()
    first = torch.full((len(copies),), x.width).scatter_reduce_(0, merged, torch.arange(x.width), "amin")
    kept = torch.zeros(x.width, dtype=torch.bool).index_fill_(0, first, True)[x.columns]
    columns = merged[x.columns[kept]]
    values = copies.sqrt()[columns] * (1.0 if x.values is None else x.values[kept])
    return CSRMatrix(group_offsets(rows[kept], len(x)), columns, len(copies), values, copies), merged


def group_offsets(groups: Tensor, count: int) -> Tensor:
    """(count + 1,): where each group starts and ends once members are sorted by group (the indptr of a CSR matrix)."""
    return torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(groups, minlength=count).cumsum(0)])


class NGramVectorizer:
    """The n-gram vocabulary, order by order. A key is index(prefix) * V + last id, as in the n-gram language model."""

    def __init__(self, keys: Sequence[Ints], vocabulary: int):
        self.keys, self.vocabulary = list(keys), vocabulary

    @property
    def width(self) -> int:
        """Number of n-grams, which is the number of columns."""
        return sum(map(len, self.keys))

    def made_of(self, ids: Sequence[int]) -> NDArray[np.bool_]:
        """(F,): which n-grams have no other ids than these."""
        orders: list[NDArray[np.bool_]] = []
        for keys in self.keys:
            last = np.isin(keys % self.vocabulary, ids)
            orders.append(last & orders[-1][keys // self.vocabulary] if orders else last)
        return np.concatenate(orders)

    @classmethod
    def fit_transform(
        cls, ids: Ints, lengths: Ints, *, order: int, min_df: int, vocabulary: int
    ) -> tuple[NGramVectorizer, CSRMatrix]:
        """The n-grams with a document frequency of at least `min_df` in the concatenated texts, and their matrix.

        The document frequency of a prefix is at least that of the n-gram, so pruning order by order loses no other.
        """
        vectorizer, text = cls([], vocabulary), np.repeat(np.arange(len(lengths)), lengths)
        pairs: list[tuple[Ints, Ints]] = []
        prefixes = ids
        for _ in range(order):
            key = vectorizer._keys(prefixes, ids, lengths)
            valid = np.flatnonzero(key != ABSENT)
            distinct, index = (t.numpy() for t in torch.unique(torch.from_numpy(key[valid]), return_inverse=True))
            rows, ngrams = _unique_pairs(text[valid], index, len(distinct))
            kept = np.bincount(ngrams, minlength=len(distinct)) >= min_df
            renumbered = np.where(kept, np.cumsum(kept) - 1, ABSENT)
            prefixes = np.full(len(ids), ABSENT)
            prefixes[valid] = renumbered[index]
            pairs.append((rows[kept[ngrams]], renumbered[ngrams[kept[ngrams]]] + vectorizer.width))
            vectorizer.keys.append(distinct[kept])
        return vectorizer, _csr(pairs, len(lengths), vectorizer.width)

    def transform(self, ids: Ints, lengths: Ints) -> CSRMatrix:
        """The matrix of other concatenated texts; n-grams out of vocabulary are ignored."""
        lower, text = NGramVectorizer([], self.vocabulary), np.repeat(np.arange(len(lengths)), lengths)
        pairs: list[tuple[Ints, Ints]] = []
        prefixes = ids
        for keys in self.keys:
            prefixes = binary_search(keys, lower._keys(prefixes, ids, lengths))
            valid = np.flatnonzero(prefixes != ABSENT)
            rows, ngrams = _unique_pairs(text[valid], prefixes[valid], len(keys))
            pairs.append((rows, ngrams + lower.width))
            lower.keys.append(keys)
        return _csr(pairs, len(lengths), self.width)

    def occurrences(self, ids: Ints) -> tuple[Ints, Ints, Ints]:
        """Column, start and end of the first occurrence of each n-gram of one text, sorted by column."""
        lower, length = NGramVectorizer([], self.vocabulary), np.array([len(ids)])
        found: list[tuple[Ints, Ints, Ints]] = []
        prefixes = ids
        for order, keys in enumerate(self.keys, 1):
            prefixes = binary_search(keys, lower._keys(prefixes, ids, length))
            last = np.flatnonzero(prefixes != ABSENT)
            ngrams, first = np.unique(prefixes[last], return_index=True)
            found.append((ngrams + lower.width, last[first] - order + 1, last[first] + 1))
            lower.keys.append(keys)
        columns, starts, ends = (np.concatenate(part) for part in zip(*found, strict=True))
        return columns, starts, ends

    def _keys(self, prefixes: Ints, ids: Ints, lengths: Ints) -> Ints:
        """Keys of the n-grams of the next order that end at each position; ABSENT where a text has none yet."""
        orders = len(self.keys)
        if orders == 0:
            return ids
        prefix = np.concatenate([[ABSENT], prefixes[:-1]])
        within = np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        prefix[within < orders] = ABSENT  # no n-gram spans two texts
        return np.where(prefix == ABSENT, ABSENT, prefix * self.vocabulary + ids)


def _unique_pairs(rows: Ints, ngrams: Ints, count: int) -> tuple[Ints, Ints]:
    """Distinct pairs of a text and an n-gram in it (presence, not frequency), sorted by text."""
    pairs = torch.unique(torch.from_numpy(rows * max(count, 1) + ngrams)).numpy()
    return pairs // max(count, 1), pairs % max(count, 1)


def _csr(pairs: Sequence[tuple[Ints, Ints]], texts: int, width: int) -> CSRMatrix:
    """The matrix with ones at pairs of a row and a column."""
    rows = torch.from_numpy(np.concatenate([row for row, _ in pairs]))
    columns = torch.from_numpy(np.concatenate([column for _, column in pairs]))
    order = torch.argsort(rows, stable=True)
    return CSRMatrix(group_offsets(rows, texts), columns[order], width)
