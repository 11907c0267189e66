"""Serialization of n-gram tables to named tensors, in two formats: memory-mapped, or compact.

The mapped format is the arrays themselves. The compact one replaces the 8-byte keys by last ids and, for contexts, the
number of n-grams that continue them, in the narrowest unsigned integers; keys are rebuilt on loading. Probabilities are
stored unchanged, so both formats give the same scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqwright.models.ngram.tables import Level, Tables

NARROW = (np.uint8, np.uint16, np.uint32)


def to_tensors(tables: Tables, *, compact: bool) -> dict[str, Tensor]:
    """The tables as tensors named by order: `2.key` are the keys of bigrams, and so on."""
    arrays: dict[str, NDArray[Any]] = {}
    for n, level in enumerate(tables.levels, 1):
        arrays[f"{n}.log_prob"] = level.log_prob
        if level.back_off is not None:
            arrays[f"{n}.back_off"] = level.back_off
        if n > 1 and compact:
            prefix, last = np.divmod(level.key, tables.vocabulary)
            arrays[f"{n}.last"] = _narrow(last)
            arrays[f"{n}.continuations"] = _narrow(np.bincount(prefix, minlength=len(tables.levels[n - 2].key)))
        elif n > 1:
            arrays[f"{n}.key"] = level.key
        if level.count is not None and not compact:
            arrays[f"{n}.count"] = level.count
    return {name: torch.from_numpy(np.asarray(array)) for name, array in arrays.items()}


def from_tensors(tensors: Mapping[str, Tensor], order: int, vocabulary: int) -> Tables:
    """The tables that `to_tensors` wrote, in either format."""
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    levels: list[Level] = []
    for n in range(1, order + 1):
        if n == 1:
            key = np.arange(vocabulary)
        elif f"{n}.key" in arrays:
            key = arrays[f"{n}.key"]
        else:
            continuations = arrays[f"{n}.continuations"]
            key = np.repeat(np.arange(len(continuations)) * vocabulary, continuations) + arrays[f"{n}.last"]
        levels.append(Level(key, arrays[f"{n}.log_prob"], arrays.get(f"{n}.back_off"), arrays.get(f"{n}.count")))
    return Tables(levels, vocabulary)


def _narrow(values: NDArray[np.int64]) -> NDArray[Any]:
    """The values in the narrowest unsigned dtype that holds them all."""
    largest = values.max(initial=0)
    return values.astype(next(dtype for dtype in NARROW if largest <= np.iinfo(dtype).max))
