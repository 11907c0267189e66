"""Queries of n-gram tables in compiled C: running text order by order, each lookup within the rows of its prefix."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import numpy as np

from seqwright.core import native
from seqwright.models.ngram.counting import Ints
from seqwright.models.ngram.smoothing import LogProbs
from seqwright.models.ngram.tables import Tables

Pointer, Integer = ctypes.c_void_p, ctypes.c_int64
QUERIES_PER_NGRAM = 1 / 8
"""Queries from which an index of the rows of each prefix pays: it reads all keys once, and takes 8 bytes an n-gram."""


class LevelFields(ctypes.Structure):
    """`Level` of queries.c."""

    _fields_ = (("key", Pointer), ("log_prob", Pointer), ("back_off", Pointer), ("first", Pointer), ("rows", Integer))


@functools.cache
def functions() -> Any:
    """The functions of queries.c; None where this machine cannot compile them."""
    library = native.library(Path(__file__).with_name("queries.c"))
    if library is not None:
        library.first_rows.argtypes = [Pointer, Integer, Integer, Integer, Pointer]
        library.score_text.argtypes = [Pointer, Integer, Integer, Pointer, Integer, Integer, Pointer, Pointer]
    return library


class NativeQueries:
    """The tables as C reads them; indexed once they have been asked often."""

    def __init__(self, tables: Tables):
        self.tables = tables
        self.left = QUERIES_PER_NGRAM * sum(len(level.key) for level in tables.levels)
        """Queries until the tables are indexed; below 0 they are."""
        self.kept: list[Any] = []
        """Arrays that C points to."""
        self.levels = (LevelFields * tables.order)()
        for fields, level in zip(self.levels, tables.levels, strict=True):
            fields.key, fields.rows = self._address(level.key, np.int64), len(level.key)
            fields.log_prob = self._address(level.log_prob, np.float32)
            fields.back_off = None if level.back_off is None else self._address(level.back_off, np.float32)

    def text_log_probs(self, ids: Ints) -> LogProbs:
        """log p of every id but the first of each row after those before it in the row: (B, T) -> (B, T - 1)."""
        rows, length = ids.shape
        values = np.empty((rows, length - 1), np.float32)
        if not values.size:
            return values
        if self.left >= 0:
            self._count(values.size)
        ids = np.ascontiguousarray(ids, np.int64)
        scratch = np.empty((2, length - 1), np.int64)
        addresses = (array.ctypes.data for array in (scratch, values))
        size = self.tables.order, self.tables.vocabulary
        functions().score_text(ctypes.addressof(self.levels), *size, ids.ctypes.data, rows, length - 1, *addresses)
        return values

    def _count(self, queries: int) -> None:
        """Indexes the tables when so many queries were asked that it pays."""
        self.left -= queries
        if self.left >= 0:
            return
        for fields, prefixes in zip(self.levels[1:], (len(level.key) for level in self.tables.levels), strict=False):
            first = np.empty(prefixes + 1, np.int64)
            functions().first_rows(fields.key, fields.rows, prefixes, self.tables.vocabulary, first.ctypes.data)
            fields.first = self._address(first, np.int64)

    def _address(self, array: Any, dtype: Any) -> int:
        self.kept.append(np.ascontiguousarray(array, dtype))
        address: int = self.kept[-1].ctypes.data
        return address
