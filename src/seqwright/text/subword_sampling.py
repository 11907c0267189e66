"""Subword regularization: segmentations sampled from the unigram language model (Kudo 2018).

A segmentation is drawn with probability p(segmentation) ** alpha, normalized over all segmentations of the word, by
forward filtering and backward sampling. alpha = 0 is uniform; a large alpha approaches the Viterbi segmentation.
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
    """Segmentation lattice of all words; `repeats[n]` independent draws of word n.

    Nodes are the boundaries between characters, numbered over all words. The incoming edges of node n have their
    cumulative probabilities in `cumulative`, shifted to between n and n + 1: the array is sorted as a whole, and one
    `searchsorted` samples an edge for any number of nodes at once.
    """

    def __init__(self, words: Ragged, repeats: Ints, tokenizer: Tokenizer, alpha: float):
        vocabulary, atomic = json.loads(tokenizer.json)["model"]["vocab"], tokenizer.atomic_ids
        names = [name for name, _ in vocabulary]
        # Scaling each log-probability by alpha raises the product over a segmentation to the power alpha.
        self.pieces = {name: (id, alpha * score) for id, (name, score) in enumerate(vocabulary) if id not in atomic}
        self.max_piece_length = max(map(len, self.pieces), default=1)
        self.cumulative: list[float] = []
        self.edge_piece: list[int] = []
        self.edge_previous: list[int] = []
        first: list[int] = []
        last: list[int] = []
        for ids in np.split(words.ids, np.cumsum(words.lengths)[:-1]):
            first.append(last[-1] + 1 if last else 0)
            if int(ids[0]) in atomic:  # a single edge: the id itself
                self._add_edges(first[-1] + 1, [(0.0, int(ids[0]), first[-1])])
                last.append(first[-1] + 1)
            else:
                last.append(self._add_word("".join(names[id] for id in ids), first[-1]))
        self.first, self.last = (np.repeat(np.array(nodes, np.int64), repeats) for nodes in (first, last))

    def _add_word(self, text: str, first: int) -> int:
        """Forward pass over a word: adds its nodes and edges; the number of its last node."""
        forward = [0.0] + [-math.inf] * len(text)
        for end in range(1, len(text) + 1):
            edges = []
            for start in range(max(0, end - self.max_piece_length), end):
                id, score = self.pieces.get(text[start:end], (0, -math.inf))
                if (log_weight := forward[start] + score) > -math.inf:
                    edges.append((log_weight, id, first + start))
            if edges:
                forward[end] = self._add_edges(first + end, edges)
        return first + len(text)

    def _add_edges(self, node: int, edges: list[tuple[float, int, int]]) -> float:
        """Adds the incoming edges of a node, (log weight, piece id, previous node); their log-sum-exp."""
        # log-sum-exp with the maximum taken out, so that long words do not underflow.
        greatest = max(weight for weight, _, _ in edges)
        cumulative = list(accumulate(math.exp(weight - greatest) for weight, _, _ in edges))
        self.cumulative += [node + total / cumulative[-1] for total in cumulative]
        self.edge_piece += [id for _, id, _ in edges]
        self.edge_previous += [previous for _, _, previous in edges]
        return greatest + math.log(cumulative[-1])

    def draw(self, bits: PCG64) -> Ragged:
        """One segmentation per draw, the draws of a word next to each other."""
        cumulative, pieces, previous = (
            np.array(self.cumulative),
            np.array(self.edge_piece),
            np.array(self.edge_previous),
        )
        rows, node, sampled = np.arange(len(self.last)), self.last, []
        while len(rows):
            # 24 random bits: node + chance stays below node + 1 in float64 for up to 2²⁹ nodes.
            chance = (bits.random_raw(len(rows)) >> np.uint64(40)) * 2.0**-24
            edge = np.searchsorted(cumulative, node + chance, side="right")
            sampled.append((rows, pieces[edge]))
            unfinished = previous[edge] != self.first[rows]
            rows, node = rows[unfinished], previous[edge][unfinished]
        lengths = np.zeros(len(self.last), np.int64)
        for rows, _ in sampled:
            lengths[rows] += 1
        segmentations = Ragged(np.zeros(lengths.sum(), np.int64), lengths)
        ends = np.cumsum(lengths)
        for step, (rows, ids) in enumerate(sampled, 1):
            segmentations.ids[ends[rows] - step] = ids
        return segmentations
