"""Noise: a text to a damaged text and what is to be said of it. Pure functions of ids and of numbers drawn before.

Infilling, deletion and permuted sentences are BART's (Lewis et al. 2020), spans with sentinels T5's (Raffel et al.
2020).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def poisson(uniform: Floats, mean: float) -> Ints:
    """Numbers in [0, 1) as Poisson ones: how many steps of the distribution function lie below each."""
    return np.searchsorted(_poisson_steps(mean), uniform, side="right").astype(np.int64)


@functools.lru_cache
def _poisson_steps(mean: float) -> Floats:
    most = math.ceil(mean + 10 * math.sqrt(mean) + 10)
    return np.cumsum([math.exp(-mean + n * math.log(mean) - math.lgamma(n + 1)) for n in range(most)])


def poisson_lengths(total: int, mean: float, uniform: Floats) -> Ints:
    """Lengths of spans that hold `total` tokens together, Poisson but for the last; some may hold none."""
    lengths = poisson(uniform, mean)
    ends = np.cumsum(lengths)
    count = int(np.searchsorted(ends, total)) + 1
    lengths = lengths[:count]
    lengths[-1] -= lengths.sum() - total
    return lengths


def even_lengths(total: int, mean: float, uniform: Floats) -> Ints:
    """Lengths, at least 1 each, of about total / mean spans: every way to part the tokens is as likely."""
    count = max(1, round(total / mean))
    cuts = np.sort(np.argsort(uniform[: total - 1], kind="stable")[: count - 1]) + 1
    return np.diff(np.concatenate([[0], cuts, [total]])).astype(np.int64)


class Parted(NamedTuple):
    """A text of which some spans are hidden; no two of them touch."""

    kept: Ints
    before: Ints
    """(spans,): how many kept ids stand before each."""
    hidden: Ints
    """The ids of all spans, one after the other."""
    lengths: Ints
    """(spans,)"""


def parted(ids: Ints, lengths: Ints, uniform: Floats) -> Parted:
    """Spans of these lengths anywhere in a text; those that find no place apart go on with the last that does."""
    room = len(ids) - int(lengths.sum()) + 1
    lengths = np.add.reduceat(lengths, np.arange(min(room, len(lengths))))
    before = np.sort(np.argsort(uniform[:room], kind="stable")[: len(lengths)])
    places = np.repeat(before, lengths) + np.arange(lengths.sum())  # of hidden ids, after those kept and hidden before
    kept = np.ones(len(ids), np.bool_)
    kept[places] = False
    return Parted(ids[kept], before, ids[places], lengths)


def infilled(text: Parted, mask: int) -> Ints:
    """One `<mask>` for every span, however long: how much is missing is to be found out, too."""
    return np.insert(text.kept, text.before, mask)


def marked(text: Parted, sentinels: Sequence[int]) -> tuple[Ints, Ints]:
    """(source, target): a sentinel of its own for every span, and the spans behind their sentinels."""
    marks = sentinels[: len(text.lengths)]
    starts = np.cumsum(text.lengths) - text.lengths
    return np.insert(text.kept, text.before, marks), np.insert(text.hidden, starts, marks)


def permuted(ids: Ints, ends: NDArray[np.bool_], uniform: Floats) -> Ints:
    """The sentences of a text in another order; `ends` says which ids end one."""
    sentences = np.split(ids, np.flatnonzero(ends[:-1]) + 1)
    return np.concatenate([sentences[n] for n in np.argsort(uniform[: len(sentences)], kind="stable")])
