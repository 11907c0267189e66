"""Noising functions for denoising objectives, as pure functions of ids and of uniform random numbers.

Text infilling, token deletion and sentence permutation are BART's (Lewis et al. 2020), span corruption with sentinels
is T5's (Raffel et al. 2020).
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
    """Poisson samples from uniform numbers in [0, 1), by inverting the distribution function."""
    return np.searchsorted(_poisson_cdf(mean), uniform, side="right").astype(np.int64)


@functools.lru_cache
def _poisson_cdf(mean: float) -> Floats:
    # Ten standard deviations and more above the mean: what is left of the distribution is far below 2⁻⁵³.
    size = math.ceil(mean + 10 * math.sqrt(mean) + 10)
    return np.cumsum([math.exp(-mean + n * math.log(mean) - math.lgamma(n + 1)) for n in range(size)])


def poisson_lengths(total: int, mean: float, uniform: Floats) -> Ints:
    """Poisson span lengths that sum to `total`, the last one truncated; spans may be empty (BART inserts a mask)."""
    lengths = poisson(uniform, mean)
    ends = np.cumsum(lengths)
    count = int(np.searchsorted(ends, total)) + 1
    lengths = lengths[:count]
    lengths[-1] -= lengths.sum() - total
    return lengths


def random_partition(total: int, mean: float, uniform: Floats) -> Ints:
    """About total / mean span lengths of at least 1 that sum to `total`, uniform over all such partitions (T5)."""
    count = max(1, round(total / mean))
    cuts = np.sort(np.argsort(uniform[: total - 1], kind="stable")[: count - 1]) + 1
    return np.diff(np.concatenate([[0], cuts, [total]])).astype(np.int64)


class NoisedSpans(NamedTuple):
    """A text with noise spans removed; no two spans are adjacent."""

    kept: Ints
    before: Ints
    """(spans,): number of kept ids before each span."""
    removed: Ints
    """Ids of all spans, concatenated."""
    lengths: Ints
    """(spans,)"""


def remove_spans(ids: Ints, lengths: Ints, uniform: Floats) -> NoisedSpans:
    """The text without spans of these lengths at random positions; spans with no free position join the last one."""
    slots = len(ids) - int(lengths.sum()) + 1
    lengths = np.add.reduceat(lengths, np.arange(min(slots, len(lengths))))
    # Distinct slots between kept ids: at least one kept id lies between two spans.
    before = np.sort(np.argsort(uniform[:slots], kind="stable")[: len(lengths)])
    positions = np.repeat(before, lengths) + np.arange(lengths.sum())  # kept ids before, plus removed ids before
    kept = np.ones(len(ids), np.bool_)
    kept[positions] = False
    return NoisedSpans(ids[kept], before, ids[positions], lengths)


def text_infilling(text: NoisedSpans, mask: int) -> Ints:
    """The source with one `<mask>` per span, whatever its length: the model must also predict how many are missing."""
    return np.insert(text.kept, text.before, mask)


def span_corruption(text: NoisedSpans, sentinels: Sequence[int]) -> tuple[Ints, Ints]:
    """(source, target): one sentinel per span in the source; sentinels followed by their spans in the target."""
    marks = sentinels[: len(text.lengths)]
    starts = np.cumsum(text.lengths) - text.lengths
    return np.insert(text.kept, text.before, marks), np.insert(text.removed, starts, marks)


def permute_sentences(ids: Ints, ends: NDArray[np.bool_], uniform: Floats) -> Ints:
    """The sentences of a text in random order; `ends` (T,) marks the last id of each."""
    sentences = np.split(ids, np.flatnonzero(ends[:-1]) + 1)
    return np.concatenate([sentences[n] for n in np.argsort(uniform[: len(sentences)], kind="stable")])
