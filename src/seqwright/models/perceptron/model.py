"""The averaged perceptron: tags by features of words and their neighbors, and by the tag before (Collins 2002).

No gradients and no probabilities: whenever the best path is wrong, what speaks for the right tags is raised by one and
what spoke for the wrong ones lowered; the mean of all weights on the way is kept. A strong and cheap rival of networks,
the more so if some features are hidden while it learns and several are averaged.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqwright.core.batch import Batch, EncoderSizes, Source
from seqwright.core.config import UserError, check_shares, check_sizes
from seqwright.core.protocols import Doing, unheard
from seqwright.layers.unicode import CodePoints
from seqwright.models.perceptron.features import VERSION, features

BARRED = -1e9
"""The weight of a transition that cannot be."""

MOST_WEIGHTS, MOST_TAGS = 400_000_000, 1000
"""Of more weights, the rarest features are left out: each is held three times while it is learned, in five gigabytes."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class PerceptronConfig:
    epochs: int = 8
    """Passes over the sentences, each in another order."""
    averaged_models: int = 1
    """Trainings, each with orders of its own, whose weights are averaged (McDonald et al. 2010)."""
    feature_dropout: float = 0.0
    """Share of the features that are hidden while a sentence is learned from, others each time, so that no few of them
    decide alone (Søgaard & Johannsen 2012)."""
    min_count: int = 1
    """Features seen less often are left out."""
    seed: int = 1
    """Fixes the order of sentences, and what is hidden."""

    def __post_init__(self) -> None:
        check_sizes(self, "epochs", "averaged_models", "min_count")
        check_shares(self, "feature_dropout")


class Words(Protocol):
    """What a perceptron counts: words as they are spelled, row by row, and their tags."""

    spelling: CodePoints  # (words, C)
    tags: Ints  # (words,)
    first: Ints  # (rows,): the number of each row's first word
    words: Ints  # (rows,): how many each has


class Perceptron:
    """Scores of tags: the weights of a word's features, and of the tag before."""

    context = None
    notes: tuple[str, ...] = ()

    def __init__(self, config: PerceptronConfig, tags: int, impossible: Sequence[tuple[int, int]] = ()):
        self.config, self.tags, self.impossible = config, tags, impossible
        self.keys = np.zeros(0, np.uint64)
        """Known features, sorted."""
        self.weights = np.zeros((1, tags), np.float32)
        """(features + 1, C); the last row is for those that are not known."""
        self.transitions = np.zeros((tags + 1, tags), np.float32)
        """From a tag (row) to the next; the last row is where a sentence begins."""

    def fit(self, corpus: Words, doing: Doing = unheard) -> None:
        """Learns from every row, in another order each time."""
        found = features(corpus.spelling, corpus.words)
        keys, counts = np.unique(found, return_counts=True)
        self.keys = keys[counts >= self._minimum(counts)]
        places = self._places(found)
        trained = [self._trained(places, corpus, time, doing) for time in range(self.config.averaged_models)]
        self.weights, self.transitions = (np.mean(tables, 0) for tables in zip(*trained, strict=True))
        # Where training rows begin spans with I-, as in IOB1, others may, after whatever tag.
        begun = {tag for _, tag in self._seen(corpus) & set(self.impossible)}
        for before, tag in self.impossible:
            if tag not in begun:
                self.transitions[before, tag] = BARRED

    def _minimum(self, counts: Ints) -> int:
        """How often features must be seen: as the recipe says, or more where there would be too many weights."""
        if self.tags > MOST_TAGS:
            raise UserError(
                f"{self.tags:,} tags are too many for a perceptron, which looks at all pairs of them; take a network"
                " with --model lstm, or fewer tags."
            )
        least = self.config.min_count
        minimum = next(own for own in itertools.count(least) if (counts >= own).sum() * self.tags <= MOST_WEIGHTS)
        if minimum > least:
            self.notes = (f"features seen less than {minimum} times are left out: there were too many for memory.",)
        return minimum

    def _seen(self, corpus: Words) -> set[tuple[int, int]]:
        """The transitions of the training rows."""
        before = np.concatenate([[self.tags], corpus.tags[:-1]])
        before[corpus.first] = self.tags
        return set(zip(before.tolist(), corpus.tags.tolist(), strict=True))

    def _trained(self, places: Ints, corpus: Words, time: int, doing: Doing) -> list[Floats]:
        """Weights and transitions of one training."""
        hidden, nothing = self.config.feature_dropout, len(self.keys)
        learning = Learning(nothing + 1, self.tags)
        for epoch in range(self.config.epochs):
            doing(f"perceptron {time + 1} of {self.config.averaged_models}, pass {epoch + 1} of {self.config.epochs}")
            draws = np.random.default_rng([self.config.seed + time, epoch])
            for row in draws.permutation(len(corpus.words)):
                words = slice(corpus.first[row], corpus.first[row] + corpus.words[row])
                seen = places[words]
                if hidden:
                    seen = np.where(draws.random(seen.shape) < hidden, nothing, seen)
                learning.see(seen, corpus.tags[words])
        return learning.means()

    def __call__(self, batch: Batch) -> Tensor:
        """(B, W, C): what each word's own features say; zeros behind a row's words."""
        scores, counts = self._scores(batch.source)
        out = torch.zeros(len(counts), int(counts.max(initial=0)), self.tags)
        out[torch.arange(out.size(1)) < torch.from_numpy(counts).unsqueeze(1)] = torch.from_numpy(scores)
        return out

    def answer(self, source: Source) -> tuple[Tensor, None]:
        """(B, W): the best path of each row, 0 behind it. A perceptron has no probabilities."""
        scores, counts = self._scores(source)
        tags = torch.zeros(len(counts), int(counts.max(initial=0)), dtype=torch.long)
        start = 0
        for row, count in enumerate(counts.tolist()):
            tags[row, :count] = torch.from_numpy(best_path(scores[start : start + count], self.transitions))
            start += count
        return tags, None

    def state_dict(self) -> dict[str, Tensor]:
        return {
            "keys": torch.from_numpy(self.keys.view(np.int64)),
            "weights": torch.from_numpy(self.weights),
            "transitions": torch.from_numpy(self.transitions),
            "version": torch.tensor(VERSION),
        }

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        if (version := int(tensors.get("version", 1))) != VERSION:
            raise UserError(
                f"this perceptron knows features of words of version {version}, and they are of version {VERSION} now;"
                " train it again."
            )
        self.keys = tensors["keys"].numpy().view(np.uint64)
        self.weights, self.transitions = (tensors[name].numpy() for name in ("weights", "transitions"))

    def _scores(self, source: Source) -> tuple[Floats, Ints]:
        """(words, C) of all rows one after the other, and how many words each has."""
        assert source.word_starts is not None
        assert source.spelling is not None
        spelling = source.spelling[source.word_starts].numpy().astype(np.int32)
        counts = source.word_starts.sum(1).numpy()
        places = self._places(features(spelling, counts))
        return self.weights[places].sum(1), counts

    def _places(self, found: NDArray[np.uint64]) -> Ints:
        """The rows of `weights` that belong to these features."""
        places = np.searchsorted(self.keys, found)
        known = self.keys[np.minimum(places, len(self.keys) - 1)] == found if len(self.keys) else False
        return np.where(known, places, len(self.keys))


class Learning:
    """Weights on their way, and what their mean needs: every change times the sentences seen before it.

    The last row belongs to features that are not known or hidden; it stays at zero.
    """

    def __init__(self, rows: int, tags: int):
        self.tables = [np.zeros((rows, tags), np.float32), np.zeros((tags + 1, tags), np.float32)]
        self.changes = [np.zeros(table.shape, np.float64) for table in self.tables]
        self.seen = 0

    def see(self, places: Ints, right: Ints) -> None:
        """One sentence, its features (words, F) and tags (words,): nothing changes where its best path is right."""
        said = best_path(self.tables[0][places].sum(1), self.tables[1])
        wrong = said != right
        if wrong.any():
            start = len(self.tables[1]) - 1
            for path, by in ((right, 1), (said, -1)):
                self._add(0, places[wrong], path[wrong, None], by)
                self._add(1, np.concatenate([[start], path[:-1]]), path, by)
            self.tables[0][-1] = self.changes[0][-1] = 0
        self.seen += 1

    def _add(self, table: int, rows: Ints, columns: Ints, by: int) -> None:
        where = np.broadcast_arrays(rows, columns)
        np.add.at(self.tables[table], tuple(where), by)
        np.add.at(self.changes[table], tuple(where), by * self.seen)

    def means(self) -> list[Floats]:
        """Of the weights after each sentence."""
        pairs = zip(self.tables, self.changes, strict=True)
        return [(table - change / max(1, self.seen)).astype(np.float32) for table, change in pairs]


def best_path(scores: Floats, transitions: Floats) -> Ints:
    """(words,): the tags whose own scores and transitions add up to the most (Viterbi 1967)."""
    path = np.zeros(len(scores), np.int64)
    if not len(scores):
        return path
    best = scores[0] + transitions[-1]
    between = transitions[:-1]
    back = np.zeros(scores.shape, np.int64)
    columns = np.arange(scores.shape[1])
    for t in range(1, len(scores)):
        further = best[:, None] + between
        back[t] = further.argmax(0)
        best = further[back[t], columns] + scores[t]
    path[-1] = best.argmax()
    for t in range(len(scores) - 1, 0, -1):
        path[t - 1] = back[t, path[t]]
    return path


def perceptron(config: PerceptronConfig, sizes: EncoderSizes) -> Any:
    """An averaged perceptron that has seen nothing yet."""
    return Perceptron(config, sizes.answers.count, sizes.answers.impossible)
