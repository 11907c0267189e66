"""Duplicate documents: exact ones by their words, near-duplicates by MinHash (Broder 1997) over five-word shingles."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from seqwright.text.hashing import mix64

SHINGLE = 5
"""Words per shingle."""
BANDS, BAND_ROWS = 16, 4
"""Locality-sensitive hashing: a pair of Jaccard similarity J becomes a candidate with probability 1 − (1 − J⁴)¹⁶:
0.9998 for 0.8, 0.64 for 0.5."""


@dataclass(frozen=True)
class Duplicate:
    """A document that duplicates an earlier one; both are numbered from 0."""

    number: int
    earlier: int
    similarity: float
    """Jaccard similarity of the shingles, estimated from 64 hashes; 1 for an exact duplicate."""


def find_duplicates(documents: Sequence[str], *, threshold: float = 0.8) -> list[Duplicate]:
    """Documents that duplicate an earlier one: exactly, up to white space and case, or by Jaccard similarity."""
    words = [document.lower().split() for document in documents]
    nonempty = [number for number, tokens in enumerate(words) if tokens]
    first: dict[tuple[str, ...], int] = {}
    duplicates: dict[int, Duplicate] = {}
    for number in nonempty:
        earlier = first.setdefault(tuple(words[number]), number)
        if earlier != number:
            duplicates[number] = Duplicate(number, earlier, 1.0)
    # Short documents have too few shingles for a near match to mean anything: "she said ." and "he said ." are two
    # sentences.
    candidates = [number for number in first.values() if len(words[number]) >= 2 * SHINGLE]
    for near in _near_duplicates([words[number] for number in candidates], threshold):
        number, earlier = candidates[near.number], candidates[near.earlier]
        duplicates[number] = Duplicate(number, earlier, near.similarity)
    return [duplicates[number] for number in sorted(duplicates)]


def _near_duplicates(documents: Sequence[Sequence[str]], threshold: float) -> list[Duplicate]:
    if len(documents) < 2:
        return []
    signatures = minhash(documents)  # (documents, BANDS * BAND_ROWS)
    best: dict[int, Duplicate] = {}
    for band in np.split(signatures, BANDS, axis=1):
        keys = np.ascontiguousarray(band).view([("", band.dtype)] * BAND_ROWS).ravel()
        order = np.argsort(keys, kind="stable")
        same = keys[order][1:] == keys[order][:-1]
        # Each document of a bucket is compared with its neighbor and with the bucket's first, not with all: linear in
        # the size of the bucket, and chains of duplicates are still found.
        starts = np.maximum.accumulate(np.where(np.r_[True, ~same], np.arange(len(order)), 0))
        for position in np.flatnonzero(same) + 1:
            number = int(order[position])
            for earlier in {int(order[position - 1]), int(order[starts[position]])}:
                similarity = float(np.mean(signatures[number] == signatures[earlier]))
                previous = best.get(number)
                if similarity >= threshold and (previous is None or similarity > previous.similarity):
                    best[number] = Duplicate(number, earlier, similarity)
    return list(best.values())


def minhash(documents: Sequence[Sequence[str]]) -> NDArray[np.uint64]:
    """(documents, 64) MinHash signatures: the minimum of each hash over a document's shingles.

    The share of equal entries of two signatures estimates the Jaccard similarity of their shingles without bias.
    """
    lengths = np.array([len(words) for words in documents])
    hashes = np.fromiter(
        (zlib.crc32(word.encode()) for word in chain.from_iterable(documents)), np.uint64, int(lengths.sum())
    )
    ends = np.cumsum(lengths)
    shingles = np.zeros(len(hashes), np.uint64)
    for offset in range(SHINGLE):
        # Odd multiples of 2⁶⁴ / φ (Fibonacci hashing), another one per offset, so that word order counts.
        shingles[: len(hashes) - offset] += hashes[offset:] * np.uint64(0x9E3779B97F4A7C15 * (2 * offset + 1) % 2**64)
    inside = np.ones(len(hashes), bool)  # shingles across a document boundary are dropped
    for offset in range(1, SHINGLE):
        inside[ends - offset] = False
    starts = np.r_[0, np.cumsum(lengths - SHINGLE + 1)[:-1]]
    shingles = shingles[inside]
    generator = np.random.PCG64(0)
    return np.stack(
        [
            np.minimum.reduceat(mix64(shingles ^ generator.random_raw(1)), starts) for _ in range(BANDS * BAND_ROWS)
        ],
        axis=1,
    )  # fmt: skip
