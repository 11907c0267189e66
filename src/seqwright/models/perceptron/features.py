"""Features of words in their sentences: the word, its affixes, its shape, and its neighbors (Ratnaparkhi 1996).

A feature is a 64-bit number, hashed from what it says, so that nothing has to be looked up while they are made: all of
them are computed at once, from the letters of the words, which are looked at as networks do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqwright.layers import affix_embedding as affixes
from seqwright.layers.unicode import CodePoints, character_classes, lowercase_offsets
from seqwright.text.hashing import GOLDEN, mixed

Keys = NDArray[np.uint64]
VERSION = 2
"""Of what features say: a perceptron that learned others would find none of its own among these."""
AFFIXES = (1, 2, 3, 4, 5)
"""Characters of the prefixes and suffixes that are looked at."""
OUTSIDE = np.uint64(1)
"""The neighbor of a word at the end of a sentence."""
NOTHING = np.uint64(2)
"""The affix of a word that is shorter."""


def features(spelling: CodePoints, counts: NDArray[np.int64]) -> Keys:
    """(words, K) of words one after the other, so many in each sentence."""
    _, first, which = np.unique(hashed(spelling), return_index=True, return_inverse=True)  # each is looked at once
    own = {name: value[which] for name, value in looks(spelling[first]).items()}
    sentence = np.repeat(np.arange(len(counts)), counts)

    def near(name: str, offset: int) -> Keys:
        """What the word so many places further on looks like."""
        there = np.arange(len(which)) + offset
        inside = (there >= 0) & (there < len(which))
        there = np.where(inside, there, 0)
        return np.where(inside & (sentence[there] == sentence), own[name][there], OUTSIDE)

    said = list(own.values())
    said += [near("word", offset) for offset in (-2, -1, 1, 2)]
    said += [near("suffix 3", offset) for offset in (-1, 1)]
    said += [near("shape", offset) for offset in (-1, 1)]
    said += [paired(near("lower", -1), own["lower"]), paired(own["lower"], near("lower", 1))]
    said += [paired(near("lower", -1), near("lower", 1))]
    # The same value says another thing in another place, so each place has keys of its own.
    return np.stack([paired(value, np.uint64(place + 1)) for place, value in enumerate(said)], 1)


def looks(letters: CodePoints) -> dict[str, Keys]:
    """What words look like by themselves: whole, lower-cased, their ends, which kinds of letters they have."""
    lengths = (letters > 0).sum(1)
    lower = letters + of(letters, lowercase_offsets())
    found = {"word": hashed(letters), "lower": hashed(lower)}
    places = np.arange(letters.shape[1])
    for size in AFFIXES:
        short = lengths < size
        found[f"prefix {size}"] = np.where(short, NOTHING, hashed(letters[:, :size]))
        ends = np.take_along_axis(lower, np.maximum(lengths[:, None] - size + places[:size], 0), 1)
        found[f"suffix {size}"] = np.where(short, NOTHING, hashed(ends))
    found["shape"] = shape(letters)
    return found


def shape(letters: CodePoints) -> Keys:
    """Which kinds of letters a word has; no key that OUTSIDE or NOTHING has."""
    seen = affixes.word_shape(torch.from_numpy(letters), torch.from_numpy(of(letters, character_classes())))
    return seen.numpy().astype(np.uint64) + np.uint64(4)


def of(letters: CodePoints, table: NDArray[Any]) -> NDArray[Any]:
    """What a table says of each letter; its last row is for those behind it."""
    return table[np.minimum(letters, len(table) - 1)]


def hashed(letters: CodePoints) -> Keys:
    """A number for each row of letters; letters behind a word change nothing."""
    return affixes.fnv1a(torch.from_numpy(letters).long()).numpy().view(np.uint64)


def paired(one: Keys, other: Keys | np.uint64) -> Keys:
    """One number for two, in this order."""
    return mixed(one * GOLDEN + other)
