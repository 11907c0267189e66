"""Tagging features of words in context: word form, affixes, shape and neighboring words (Ratnaparkhi 1996).

A feature is a 64-bit hash of its template and value, so that extraction needs no string table: all features of a batch
are computed at once from the characters of the words, by the same code as the affix embeddings of neural taggers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqwright.layers import affix_embedding as affixes
from seqwright.layers.unicode import CodePoints, character_classes, lowercase_offsets
from seqwright.text.hashing import GOLDEN, mix64

Keys = NDArray[np.uint64]
VERSION = 2
"""Version of the feature templates; weights of another version match none of the hashes."""
AFFIXES = (1, 2, 3, 4, 5)
"""Lengths of prefixes and suffixes, in characters."""
BOUNDARY = np.uint64(1)
"""Feature value of a neighbor beyond the sentence boundary."""
NO_AFFIX = np.uint64(2)
"""Feature value of an affix longer than the word."""


def features(spelling: CodePoints, counts: NDArray[np.int64]) -> Keys:
    """Feature hashes (words, K) of the words of concatenated sentences; `counts` are the sentence lengths."""
    # Each distinct word is analyzed once.
    _, first, inverse = np.unique(hash_letters(spelling), return_index=True, return_inverse=True)
    word = {name: value[inverse] for name, value in word_features(spelling[first]).items()}
    sentence = np.repeat(np.arange(len(counts)), counts)

    def neighbor(name: str, offset: int) -> Keys:
        """A feature of the word `offset` positions to the right, BOUNDARY outside the sentence."""
        position = np.arange(len(inverse)) + offset
        inside = (position >= 0) & (position < len(inverse))
        position = np.where(inside, position, 0)
        return np.where(inside & (sentence[position] == sentence), word[name][position], BOUNDARY)

    values = list(word.values())
    values += [neighbor("word", offset) for offset in (-2, -1, 1, 2)]
    values += [neighbor("suffix 3", offset) for offset in (-1, 1)]
    values += [neighbor("shape", offset) for offset in (-1, 1)]
    values += [combine(neighbor("lower", -1), word["lower"]), combine(word["lower"], neighbor("lower", 1))]
    values += [combine(neighbor("lower", -1), neighbor("lower", 1))]
    # The template number is part of the hash: the same value in another template is another feature.
    return np.stack([combine(value, np.uint64(template + 1)) for template, value in enumerate(values)], 1)


def feature_names(words: Sequence[str]) -> list[tuple[str, ...]]:
    """Readable features of the words of a sentence, in the order of the columns of `features`."""

    def form(n: int) -> str:
        return words[n] if 0 <= n < len(words) else "(boundary)"

    def lower(n: int) -> str:
        return form(n).lower()

    def affix(n: int, part: slice) -> str:
        size = abs(part.start or part.stop)
        inside = 0 <= n < len(words)
        return form(n) if not inside else "(shorter)" if len(words[n]) < size else words[n][part]

    def names(n: int) -> Iterator[str]:
        yield f"word = {form(n)}"
        yield f"lower = {lower(n)}"
        for size in AFFIXES:
            yield f"prefix {size} = {affix(n, slice(None, size))}"
            yield f"suffix {size} = {affix(n, slice(-size, None)).lower()}"
        yield f"shape of {form(n)}"
        for offset in (-2, -1, 1, 2):
            yield f"word {offset:+} = {form(n + offset)}"
        for offset in (-1, 1):
            yield f"suffix 3 of word {offset:+} = {affix(n + offset, slice(-3, None)).lower()}"
        for offset in (-1, 1):
            yield f"shape of word {offset:+}, {form(n + offset)}"
        for first, second in ((-1, 0), (0, 1), (-1, 1)):
            yield f"lower {first:+} {second:+} = {lower(n + first)} {lower(n + second)}"

    return [tuple(names(n)) for n in range(len(words))]


def word_features(letters: CodePoints) -> dict[str, Keys]:
    """Context-free features of words: form, lower-cased form, prefixes, lower-cased suffixes, shape."""
    lengths = (letters > 0).sum(1)
    lower = letters + lookup(letters, lowercase_offsets())
    values = {"word": hash_letters(letters), "lower": hash_letters(lower)}
    positions = np.arange(letters.shape[1])
    for size in AFFIXES:
        too_short = lengths < size
        values[f"prefix {size}"] = np.where(too_short, NO_AFFIX, hash_letters(letters[:, :size]))
        suffix = np.take_along_axis(lower, np.maximum(lengths[:, None] - size + positions[:size], 0), 1)
        values[f"suffix {size}"] = np.where(too_short, NO_AFFIX, hash_letters(suffix))
    values["shape"] = shape(letters)
    return values


def shape(letters: CodePoints) -> Keys:
    """Word shape as a bit set of character classes, offset so that it never equals BOUNDARY or NO_AFFIX."""
    bits = affixes.word_shape(torch.from_numpy(letters), torch.from_numpy(lookup(letters, character_classes())))
    return bits.numpy().astype(np.uint64) + np.uint64(4)


def lookup(letters: CodePoints, table: NDArray[Any]) -> NDArray[Any]:
    """Table entries of characters; code points beyond the table share its last row."""
    return table[np.minimum(letters, len(table) - 1)]


def hash_letters(letters: CodePoints) -> Keys:
    """FNV hash of each row of characters; padding does not change it."""
    return affixes.fnv1a(torch.from_numpy(letters).long()).numpy().view(np.uint64)


def combine(one: Keys, other: Keys | np.uint64) -> Keys:
    """Hash of an ordered pair of hashes."""
    return mix64(one * GOLDEN + other)
