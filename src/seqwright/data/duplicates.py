"""Documents that stand twice: word for word, or nearly by MinHash (Broder 1997) over stretches of five words."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from seqwright.text.hashing import mix64

STRETCH = 5
"""Words of a shingle."""
BANDS, DEPTH = 16, 4
"""A pair whose shingles agree by J is looked at with probability 1 − (1 − J⁴)¹⁶: 0.9998 for 0.8, 0.64 for 0.5."""


@dataclass(frozen=True)
class Copy:
    """A document that repeats an earlier one."""

    number: int
    earlier: int
    similarity: float
    """Five-word stretches that both have among all that either has, estimated from 64 hashes; 1 = the same."""


def copies(documents: Sequence[str], *, threshold: float = 0.8) -> list[Copy]:
    """Each document that an earlier one is the same as, but for white space and case, or nearly the same as."""
    words = [document.lower().split() for document in documents]
    full = [number for number, own in enumerate(words) if own]
    first: dict[tuple[str, ...], int] = {}
    found: dict[int, Copy] = {}
    for number in full:
        earlier = first.setdefault(tuple(words[number]), number)
        if earlier != number:
            found[number] = Copy(number, earlier, 1.0)
    # A near copy of a few words is no copy: "she said ." and "he said ." are two sentences.
    left = [number for number in first.values() if len(words[number]) >= 2 * STRETCH]
    for copy in _near([words[number] for number in left], threshold):
        number, earlier = left[copy.number], left[copy.earlier]
        found[number] = Copy(number, earlier, copy.similarity)
    return [found[number] for number in sorted(found)]


def _near(documents: Sequence[Sequence[str]], threshold: float) -> list[Copy]:
    if len(documents) < 2:
        return []
    signatures = minhash(documents)  # (documents, BANDS * DEPTH)
    best: dict[int, Copy] = {}
    for band in np.split(signatures, BANDS, axis=1):
        keys = np.ascontiguousarray(band).view([("", band.dtype)] * DEPTH).ravel()
        order = np.argsort(keys, kind="stable")
        same = keys[order][1:] == keys[order][:-1]
        # In a bucket each document is held against its neighbor and against the first: chains of copies are found too.
        starts = np.maximum.accumulate(np.where(np.r_[True, ~same], np.arange(len(order)), 0))
        for place in np.flatnonzero(same) + 1:
            number = int(order[place])
            for earlier in {int(order[place - 1]), int(order[starts[place]])}:
                similarity = float(np.mean(signatures[number] == signatures[earlier]))
                known = best.get(number)
                if similarity >= threshold and (known is None or similarity > known.similarity):
                    best[number] = Copy(number, earlier, similarity)
    return list(best.values())


def minhash(documents: Sequence[Sequence[str]]) -> NDArray[np.uint64]:
    """The least of each of 64 hashes over a document's stretches; two agree in as many as their stretches do."""
    lengths = np.array([len(words) for words in documents])
    hashes = np.fromiter(
        (zlib.crc32(word.encode()) for word in chain.from_iterable(documents)), np.uint64, int(lengths.sum())
    )
    ends = np.cumsum(lengths)
    shingles = np.zeros(len(hashes), np.uint64)
    for offset in range(STRETCH):
        shingles[: len(hashes) - offset] += hashes[offset:] * np.uint64(0x9E3779B97F4A7C15 * (2 * offset + 1) % 2**64)
    inside = np.ones(len(hashes), bool)  # stretches over the end of a document belong to none
    for offset in range(1, STRETCH):
        inside[ends - offset] = False
    starts = np.r_[0, np.cumsum(lengths - STRETCH + 1)[:-1]]
    shingles = shingles[inside]
    generator = np.random.PCG64(0)
    return np.stack(
        [
            np.minimum.reduceat(mix64(shingles ^ generator.random_raw(1)), starts) for _ in range(BANDS * DEPTH)
        ],
        axis=1,
    )  # fmt: skip
