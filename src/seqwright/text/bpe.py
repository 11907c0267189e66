"""Exact byte pair encoding trainer: the most frequent pair is merged first, ties go to the lexicographically smallest.

Sennrich, Haddow & Birch (2016). A word is its characters and a separate end-of-word symbol. Pairs never cross words, so
distinct words with their counts are enough, and a merge recounts only the words that contain the pair.
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
    """One merge operation, with what it did to the training text."""

    pair: Pair
    count: int
    """Frequency of the pair in the text before the merge."""
    bytes_per_token: float
    """Compression after the merge; the end-of-word symbol counts as one byte of white space."""


def learn_merges(words: Mapping[Sequence[str], int], *, min_frequency: int = 2) -> Iterator[Merge]:
    """Lazily yields merges in order; `words` maps sequences of symbols to their frequencies."""
    return BPETrainer(words).run(min_frequency)


class BPETrainer:
    """Segmented words with the frequency of each adjacent pair, and an inverted index from pairs to words."""

    def __init__(self, words: Mapping[Sequence[str], int]):
        self.words = [list(word) for word in words]
        self.counts = list(words.values())
        self.pair_counts: Counter[Pair] = Counter()
        self.pair_words: defaultdict[Pair, set[int]] = defaultdict(set)
        for index, word in enumerate(self.words):
            for pair in pairwise(word):
                self.pair_counts[pair] += self.counts[index]
                self.pair_words[pair].add(index)
        self.text_bytes = sum(count * text_bytes(word) for word, count in zip(self.words, self.counts, strict=True))
        self.token_count = sum(count * len(word) for word, count in zip(self.words, self.counts, strict=True))

    @property
    def bytes_per_token(self) -> float:
        """Compression of the text under the merges so far."""
        return self.text_bytes / max(1, self.token_count)

    def run(self, min_frequency: int) -> Iterator[Merge]:
        # A heap with lazy deletion; (-count, pair) breaks ties by the smallest pair.
        queue = [(-count, pair) for pair, count in self.pair_counts.items()]
        heapq.heapify(queue)
        while queue:
            negative, pair = heapq.heappop(queue)
            count = self.pair_counts[pair]
            if count != -negative:  # stale entry: every change of a count pushed a new one
                continue
            if count < min_frequency:
                return
            for changed in self._merge(pair):
                heapq.heappush(queue, (-self.pair_counts[changed], changed))
            yield Merge(pair, count, self.bytes_per_token)

    def _merge(self, pair: Pair) -> set[Pair]:
        """Applies a merge to every word, left to right; the pairs whose counts changed and are not zero."""
        changed: set[Pair] = set()
        for index in self.pair_words.pop(pair):
            word, count = self.words[index], self.counts[index]
            merged = merge_pair(word, pair)
            if len(merged) == len(word):  # the index is stale: an earlier merge consumed the pair in this word
                continue
            for old in pairwise(word):
                self.pair_counts[old] -= count
                changed.add(old)
            for new in pairwise(merged):
                self.pair_counts[new] += count
                self.pair_words[new].add(index)
                changed.add(new)
            self.token_count -= count * (len(word) - len(merged))
            self.words[index] = merged
        return {other for other in changed if self.pair_counts[other] > 0}


def merge_pair(word: Sequence[str], pair: Pair) -> list[str]:
    """The word with every occurrence of the pair merged into one symbol, left to right."""
    merged: list[str] = []
    position = 0
    while position < len(word):
        is_pair = position + 1 < len(word) and word[position] == pair[0] and word[position + 1] == pair[1]
        merged.append(pair[0] + pair[1] if is_pair else word[position])
        position += 2 if is_pair else 1
    return merged


def text_bytes(word: Sequence[str]) -> int:
    """UTF-8 bytes of a word, plus one for the white space that its end-of-word symbol stands for."""
    return sum(len(symbol.encode()) for symbol in word[:-1]) + 1
