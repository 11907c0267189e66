"""Subword regularization: words cut in proportion to the probability of each cut under the unigram model (Kudo 2018).

A cut is drawn with p(cut) ** power, normalized over all cuts of the word: forward probabilities once, then from the
word's end backwards. A power of 0 makes all cuts alike; the greater it is, the more often the best one comes.
"""

from __future__ import annotations

import json
import math
from itertools import accumulate

import numpy as np
from numpy.random import PCG64

from seqwright.text.ragged import Ints, Ragged
from seqwright.text.tokenizer import Tokenizer


class Lattice:
    """Other cuts of some words, each drawn several times.

    Nodes are places between the characters of all words; node n has its ways back, with cumulative probabilities, in
    `ways` between n and n + 1, so that one sorted array answers for every node.
    """

    def __init__(self, words: Ragged, times: Ints, tokenizer: Tokenizer, power: float):
        vocabulary, whole = json.loads(tokenizer.json)["model"]["vocab"], tokenizer.whole
        names = [name for name, _ in vocabulary]
        self.pieces = {name: (id, power * score) for id, (name, score) in enumerate(vocabulary) if id not in whole}
        self.longest = max(map(len, self.pieces), default=1)
        self.ways: list[float] = []
        self.piece: list[int] = []
        self.back: list[int] = []
        first: list[int] = []
        last: list[int] = []
        for ids in np.split(words.ids, np.cumsum(words.lengths)[:-1]):
            first.append(last[-1] + 1 if last else 0)
            if int(ids[0]) in whole:
                self._add(first[-1] + 1, [(0.0, int(ids[0]), first[-1])])
                last.append(first[-1] + 1)
            else:
                last.append(self._spread("".join(names[id] for id in ids), first[-1]))
        self.first, self.last = (np.repeat(np.array(ends, np.int64), times) for ends in (first, last))

    def _spread(self, text: str, first: int) -> int:
        """Adds the nodes of a word; the last of them."""
        forward = [0.0] + [-math.inf] * len(text)
        for end in range(1, len(text) + 1):
            found = []
            for begin in range(max(0, end - self.longest), end):
                id, score = self.pieces.get(text[begin:end], (0, -math.inf))
                if (reached := forward[begin] + score) > -math.inf:
                    found.append((reached, id, first + begin))
            if found:
                forward[end] = self._add(first + end, found)
        return first + len(text)

    def _add(self, node: int, found: list[tuple[float, int, int]]) -> float:
        """Adds the ways back from a node: log weight, piece, node before. The log of their sum."""
        greatest = max(weight for weight, _, _ in found)
        cumulative = list(accumulate(math.exp(weight - greatest) for weight, _, _ in found))
        self.ways += [node + sum / cumulative[-1] for sum in cumulative]
        self.piece += [id for _, id, _ in found]
        self.back += [before for _, _, before in found]
        return greatest + math.log(cumulative[-1])

    def draw(self, bits: PCG64) -> Ragged:
        """The words of each time, the times of a word side by side."""
        ways, piece, back = np.array(self.ways), np.array(self.piece), np.array(self.back)
        rows, node, taken = np.arange(len(self.last)), self.last, []
        while len(rows):
            # 24 bits, so that the sum stays below node + 1 for as many nodes as there can be.
            chance = (bits.random_raw(len(rows)) >> np.uint64(40)) * 2.0**-24
            way = np.searchsorted(ways, node + chance, side="right")
            taken.append((rows, piece[way]))
            going = back[way] != self.first[rows]
            rows, node = rows[going], back[way][going]
        lengths = np.zeros(len(self.last), np.int64)
        for rows, _ in taken:
            lengths[rows] += 1
        cut = Ragged(np.zeros(lengths.sum(), np.int64), lengths)
        ends = np.cumsum(lengths)
        for place, (rows, ids) in enumerate(taken, 1):
            cut.ids[ends[rows] - place] = ids
        return cut
