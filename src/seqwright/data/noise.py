"""Noise: a text to a damaged text and what is to be said of it. Pure functions of ids and of numbers drawn before.

Infilling, deletion and permuted sentences are BART's (Lewis et al. 2020), spans with sentinels T5's (Raffel et al.
2020).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def poisson(uniform: Floats, mean: float) -> Ints:
    """Numbers in [0, 1) as Poisson ones: how many steps of the distribution function lie below each."""
    most = math.ceil(mean + 10 * math.sqrt(mean) + 10)
    chances = np.cumsum([math.exp(-mean + n * math.log(mean) - math.lgamma(n + 1)) for n in range(most)])
    return np.searchsorted(chances, uniform, side="right").astype(np.int64)


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


def parted(ids: Ints, lengths: Ints, uniform: Floats) -> tuple[list[Ints], list[Ints]]:
    """(kept, hidden): spans of these lengths anywhere in a text, and what stands before, between and after them; no two
    spans touch."""
    room = len(ids) - int(lengths.sum()) + 1
    lengths = lengths[:room]
    before = np.sort(np.argsort(uniform[:room], kind="stable")[: len(lengths)])  # kept tokens before each span
    starts = before + np.cumsum(lengths) - lengths
    borders = np.stack([starts, starts + lengths], 1).ravel()
    pieces = np.split(ids, borders)
    return pieces[::2], pieces[1::2]


def infilled(kept: Sequence[Ints], mask: int) -> Ints:
    """One `<mask>` for every span, however long: how much is missing is to be found out, too."""
    return np.concatenate([kept[0], *(np.concatenate([[mask], piece]) for piece in kept[1:])])


def marked(kept: Sequence[Ints], hidden: Sequence[Ints], sentinels: Sequence[int]) -> tuple[Ints, Ints]:
    """(source, target): a sentinel of its own for every span, and the spans behind their sentinels."""
    marks = [np.array([mark]) for mark in sentinels[: len(hidden)]]
    source = [kept[0], *(part for mark, piece in zip(marks, kept[1:], strict=True) for part in (mark, piece))]
    target = [part for mark, piece in zip(marks, hidden, strict=True) for part in (mark, piece)]
    return np.concatenate(source), np.concatenate(target)


def permuted(ids: Ints, ends: NDArray[np.bool_], uniform: Floats) -> Ints:
    """The sentences of a text in another order; `ends` says which ids end one."""
    sentences = np.split(ids, np.flatnonzero(ends[:-1]) + 1)
    return np.concatenate([sentences[n] for n in np.argsort(uniform[: len(sentences)], kind="stable")])
