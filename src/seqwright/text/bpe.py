"""Byte pair encoding learned exactly: the most frequent pair is merged first, ties go to the smallest pair.

Sennrich, Haddow & Birch (2016). A word is its characters and an end-of-word mark of its own; pairs never cross words,
so counting distinct words is enough, and after a merge only the words that held the pair are counted again.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Pair = tuple[str, str]


@dataclass(frozen=True)
class Merge:
    """One step of the algorithm, as a person follows it."""

    pair: Pair
    count: int
    """How often the pair stood in the text."""
    compression: float
    """Bytes per token after the merge; the mark stands for the one byte of white space that ended the word."""


def merges(words: Mapping[Sequence[str], int], *, minimum_count: int = 2) -> Iterator[Merge]:
    """Merges in order, as many as are asked for; words are symbols with their counts."""
    return Merger(words).run(minimum_count)


class Merger:
    """Words as symbols, and where each pair of neighbors stands."""

    def __init__(self, words: Mapping[Sequence[str], int]):
        self.words = [list(word) for word in words]
        self.counts = list(words.values())
        self.pairs: Counter[Pair] = Counter()
        self.holders: defaultdict[Pair, set[int]] = defaultdict(set)
        for number, word in enumerate(self.words):
            for pair in pairwise(word):
                self.pairs[pair] += self.counts[number]
                self.holders[pair].add(number)
        self.bytes = sum(count * text_bytes(word) for word, count in zip(self.words, self.counts, strict=True))
        self.tokens = sum(count * len(word) for word, count in zip(self.words, self.counts, strict=True))

    @property
    def compression(self) -> float:
        """Bytes per token."""
        return self.bytes / max(1, self.tokens)

    def run(self, minimum_count: int) -> Iterator[Merge]:
        queue = [(-count, pair) for pair, count in self.pairs.items()]
        heapq.heapify(queue)
        while queue:
            negative, pair = heapq.heappop(queue)
            count = self.pairs[pair]
            if count != -negative:  # it has changed since; what it became was pushed too
                continue
            if count < minimum_count:
                return
            for changed in self._merge(pair):
                heapq.heappush(queue, (-self.pairs[changed], changed))
            yield Merge(pair, count, self.compression)

    def _merge(self, pair: Pair) -> set[Pair]:
        """Merges a pair wherever it stands, from left to right; the pairs whose counts changed."""
        changed: set[Pair] = set()
        for number in self.holders.pop(pair):
            word, count = self.words[number], self.counts[number]
            merged = join(word, pair)
            if len(merged) == len(word):  # an earlier merge took the pair apart here
                continue
            for old in pairwise(word):
                self.pairs[old] -= count
                changed.add(old)
            for new in pairwise(merged):
                self.pairs[new] += count
                self.holders[new].add(number)
                changed.add(new)
            self.tokens -= count * (len(word) - len(merged))
            self.words[number] = merged
        return {other for other in changed if self.pairs[other] > 0}


def join(word: Sequence[str], pair: Pair) -> list[str]:
    """The word with the pair as one symbol wherever it stands."""
    merged: list[str] = []
    place = 0
    while place < len(word):
        both = place + 1 < len(word) and word[place] == pair[0] and word[place + 1] == pair[1]
        merged.append(pair[0] + pair[1] if both else word[place])
        place += 2 if both else 1
    return merged


def text_bytes(word: Sequence[str]) -> int:
    """Of the characters, and one for the white space that the mark stands for."""
    return sum(len(symbol.encode()) for symbol in word[:-1]) + 1
