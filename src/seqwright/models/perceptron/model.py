"""Averaged structured perceptron for sequence tagging: word features and tag bigrams (Collins 2002).

No gradients and no probabilities: where the Viterbi path of a sentence is wrong, the weights of the gold path go up by
one and those of the predicted path down; the weights after each sentence are averaged. A strong and cheap baseline of
neural taggers, the more so with feature dropout and several averaged models (docs/decisions/0085, 0131).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqwright.core.batch import Batch, EncoderSizes, Source
from seqwright.core.config import UserError, check_shares, check_sizes
from seqwright.core.progress import SILENT, Progress
from seqwright.core.protocols import CountedModel
from seqwright.layers.unicode import CodePoints
from seqwright.models.perceptron.features import VERSION, feature_names, features

FORBIDDEN = -1e9
"""Weight of a forbidden transition."""

MAX_WEIGHTS, MAX_TAGS = 400_000_000, 1000
"""Above MAX_WEIGHTS the rarest features are dropped: training holds 16 bytes per weight (the weight, its timed updates
in float64, the sum of the models), about six gigabytes."""

SENTENCES = 32
"""Sentences between reports of progress."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class PerceptronConfig:
    epochs: int = 8
    """Passes over the training sentences, reshuffled each time."""
    averaged_models: int = 1
    """Number of models, trained with different shuffles, whose weights are averaged (McDonald et al. 2010)."""
    feature_dropout: float = 0.0
    """Probability that a feature is dropped from a training sentence, so that the model does not rely on few of them
    (Søgaard & Johannsen 2012)."""
    min_count: int = 1
    """Minimum count: features seen less often in training are dropped."""
    seed: int = 1
    """Seed of shuffling and feature dropout."""

    def __post_init__(self) -> None:
        check_sizes(self, "epochs", "averaged_models", "min_count")
        check_shares(self, "feature_dropout")

    def no_longer_than(self, other: PerceptronConfig) -> PerceptronConfig:
        """These options with a fit of at most the length of another."""
        models = min(self.averaged_models, other.averaged_models)
        return replace(self, epochs=min(self.epochs, other.epochs), averaged_models=models)


class TaggedCorpus(Protocol):
    """Training data of a perceptron: the characters of all words, concatenated by sentence, and their tags."""

    spelling: CodePoints  # (words, C)
    tags: Ints  # (words,)
    first: Ints  # (rows,): index of each sentence's first word
    words: Ints  # (rows,): sentence lengths


class Perceptron(CountedModel):
    """A linear-chain tagger: emission scores of word features, and transition scores of tag bigrams."""

    def __init__(self, config: PerceptronConfig, tags: int, impossible: Sequence[tuple[int, int]] = ()):
        self.config, self.tags, self.impossible = config, tags, impossible
        self.keys = np.zeros(0, np.uint64)
        """Feature vocabulary: sorted hashes."""
        self.weights = np.zeros((1, tags), np.float32)
        """(features + 1, C); the last row is for unknown features and stays zero."""
        self.transitions = np.zeros((tags + 1, tags), np.float32)
        """(C + 1, C): from the previous tag (row) to the next; the last row is the start of a sentence."""

    def fit(self, corpus: TaggedCorpus, progress: Progress = SILENT) -> None:
        """Trains the models and averages their weights."""
        fitting = self.fitting(corpus)
        while fitting.step < fitting.steps:
            fitting.advance(SENTENCES)
            progress.step(fitting.step, fitting.steps, None, fitting.words_per_second)
        self.adopt(fitting)

    def fitting(self, corpus: TaggedCorpus) -> PerceptronFitting:
        """A fit on this corpus before its first sentence; the feature vocabulary is that of the corpus."""
        hashes = features(corpus.spelling, corpus.words)
        keys, counts = np.unique(hashes, return_counts=True)
        self.keys = keys[counts >= self._min_count(counts)]
        return PerceptronFitting(self.config, corpus, self._feature_rows(hashes), len(self.keys), self.tags)

    def adopt(self, fitting: PerceptronFitting) -> None:
        """Takes the averaged weights of a fit, finished or not."""
        self.weights, self.transitions = fitting.averaged()
        # A tag that starts spans anywhere in training, as I- does in IOB1, may follow any tag; forbidding transitions
        # that training merely did not show would cost accuracy (docs/decisions/0131).
        starts_spans = {tag for _, tag in self._observed_transitions(fitting.corpus) & set(self.impossible)}
        for before, tag in self.impossible:
            if tag not in starts_spans:
                self.transitions[before, tag] = FORBIDDEN

    def _min_count(self, counts: Ints) -> int:
        """The configured minimum count, raised where there would be too many weights."""
        if self.tags > MAX_TAGS:
            raise UserError(
                f"{self.tags:,} tags are too many for a perceptron, whose Viterbi search scores all pairs; use a neural"
                " tagger with --model lstm, or fewer tags."
            )
        least = self.config.min_count
        minimum = next(n for n in itertools.count(least) if (counts >= n).sum() * self.tags <= MAX_WEIGHTS)
        if minimum > least:
            self.notes = (f"features seen less than {minimum} times are dropped: too many weights for memory.",)
        return minimum

    def _observed_transitions(self, corpus: TaggedCorpus) -> set[tuple[int, int]]:
        """Pairs of successive tags in training, the start of a sentence included."""
        before = np.concatenate([[self.tags], corpus.tags[:-1]])
        before[corpus.first] = self.tags
        return set(zip(before.tolist(), corpus.tags.tolist(), strict=True))

    def __call__(self, batch: Batch) -> Tensor:
        """Emission scores (B, W, C), zero-padded."""
        scores, counts = self._scores(batch.source)
        out = torch.zeros(len(counts), int(counts.max(initial=0)), self.tags)
        out[torch.arange(out.size(1)) < torch.from_numpy(counts).unsqueeze(1)] = torch.from_numpy(scores)
        return out

    def tag(self, source: Source) -> tuple[Tensor, None]:
        """Viterbi paths (B, W), zero-padded, and None: a perceptron has no probabilities."""
        scores, counts = self._scores(source)
        tags = torch.zeros(len(counts), int(counts.max(initial=0)), dtype=torch.long)
        start = 0
        for row, count in enumerate(counts.tolist()):
            tags[row, :count] = torch.from_numpy(viterbi(scores[start : start + count], self.transitions))
            start += count
        return tags, None

    def feature_weights(self, source: Source) -> Floats:
        """(words, K, C): weight of every feature of the words of all rows for each tag; their sum over K is the
        emission score."""
        rows, _ = self._source_rows(source)
        return self.weights[rows]

    def feature_names(self, words: Sequence[str]) -> list[tuple[str, ...]]:
        """(words, K): readable features of the words of a sentence."""
        return feature_names(words)

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
                f"this perceptron was trained with feature templates of version {version}, but the current version is"
                f" {VERSION}; train it again."
            )
        self.keys = tensors["keys"].numpy().view(np.uint64)
        self.weights, self.transitions = (tensors[name].numpy() for name in ("weights", "transitions"))
        shapes = [(len(self.keys) + 1, self.tags), (self.tags + 1, self.tags)]
        if [self.weights.shape, self.transitions.shape] != shapes:
            raise ValueError(f"weights of {self.weights.shape[-1:]} tags, not {self.tags}")

    def _scores(self, source: Source) -> tuple[Floats, Ints]:
        """Emission scores (words, C) of all rows, concatenated, and the number of words in each."""
        rows, counts = self._source_rows(source)
        return self.weights[rows].sum(1), counts

    def _source_rows(self, source: Source) -> tuple[Ints, Ints]:
        """Rows of `weights` (words, K) of the words of all rows, and the number of words in each."""
        assert source.word_starts is not None
        assert source.spelling is not None
        spelling = source.spelling[source.word_starts].numpy().astype(np.int32)
        counts = source.word_starts.sum(1).numpy()
        return self._feature_rows(features(spelling, counts)), counts

    def _feature_rows(self, hashes: NDArray[np.uint64]) -> Ints:
        """The rows of `weights` for these feature hashes; unknown ones get the last row."""
        rows = np.searchsorted(self.keys, hashes)
        known = self.keys[np.minimum(rows, len(self.keys) - 1)] == hashes if len(self.keys) else False
        return np.where(known, rows, len(self.keys))


class PerceptronTrainer:
    """Current weights, and the sum of updates times their sentence number, from which the average follows.

    The average of w over T sentences is w - (sum of update · sentences before it) / T, so that no pass over all weights
    is needed after each sentence. The last row belongs to unknown and dropped features and stays zero.
    """

    def __init__(self, rows: int, tags: int):
        self.tables = [np.zeros((rows, tags), np.float32), np.zeros((tags + 1, tags), np.float32)]
        self.timed_updates = [np.zeros(table.shape, np.float64) for table in self.tables]
        self.sentences = 0

    def update(self, feature_rows: Ints, gold: Ints) -> None:
        """One perceptron update on a sentence, given its feature rows (words, F) and tags (words,)."""
        predicted = viterbi(self.tables[0][feature_rows].sum(1), self.tables[1])
        wrong = predicted != gold
        if wrong.any():
            start = len(self.tables[1]) - 1
            for path, by in ((gold, 1), (predicted, -1)):
                self._add(0, feature_rows[wrong], path[wrong, None], by)
                self._add(1, np.concatenate([[start], path[:-1]]), path, by)
            self.tables[0][-1] = self.timed_updates[0][-1] = 0
        self.sentences += 1

    def _add(self, table: int, rows: Ints, columns: Ints, by: int) -> None:
        index = np.broadcast_arrays(rows, columns)
        np.add.at(self.tables[table], tuple(index), by)
        np.add.at(self.timed_updates[table], tuple(index), by * self.sentences)

    def averaged(self) -> list[Floats]:
        """Means of the weights after each sentence (Collins 2002)."""
        pairs = zip(self.tables, self.timed_updates, strict=True)
        return [(table - timed / max(1, self.sentences)).astype(np.float32) for table, timed in pairs]


class PerceptronFitting:
    """The training of all models of a perceptron, `epochs` passes each; a step is a sentence.

    Order and dropped features are functions of the seed and the step, so that a fit resumes at any step exactly.
    """

    def __init__(self, config: PerceptronConfig, corpus: TaggedCorpus, rows: Ints, unknown: int, tags: int):
        self.config, self.corpus, self.rows, self.unknown = config, corpus, rows, unknown
        self.step, self.steps = 0, config.averaged_models * config.epochs * len(corpus.words)
        self.words_per_second = 0.0
        self.order: Ints | None = None
        """Sentences in the order of the current pass."""
        self.trainer = PerceptronTrainer(unknown + 1, tags)
        self.sums = [np.zeros_like(table) for table in self.trainer.tables]
        """Sums of the averaged weights of finished models."""

    def advance(self, steps: int) -> None:
        """Trains on the next sentences, at most those that are left of a pass."""
        start, sentences = time.perf_counter(), len(self.corpus.words)
        passes, done = divmod(self.step, sentences)
        if not done or self.order is None:
            self.order = self._start_pass(passes, done)
        chosen = self.order[done : done + steps]
        for sentence in chosen:
            words = slice(self.corpus.first[sentence], self.corpus.first[sentence] + self.corpus.words[sentence])
            active = self.rows[words]
            if dropout := self.config.feature_dropout:
                active = np.where(self.generator.random(active.shape) < dropout, self.unknown, active)
            self.trainer.update(active, self.corpus.tags[words])
        self.step += len(chosen)
        self.words_per_second = self.corpus.words[chosen].sum() / max(time.perf_counter() - start, 1e-9)
        if self.step % (self.config.epochs * sentences) == 0:
            self.sums = [total + table for total, table in zip(self.sums, self.trainer.averaged(), strict=True)]
            self.trainer = PerceptronTrainer(*self.trainer.tables[0].shape)

    def _start_pass(self, passes: int, done: int) -> Ints:
        """The order of the sentences; the random numbers of those that are done are skipped."""
        model, epoch = divmod(passes, self.config.epochs)
        self.generator = np.random.default_rng([self.config.seed + model, epoch])
        order = self.generator.permutation(len(self.corpus.words))
        if done:  # `random` draws one number for each feature of each word
            drawn = int(self.corpus.words[order[:done]].sum()) * self.rows.shape[1]
            self.generator.bit_generator.advance(drawn)  # type: ignore[attr-defined]
        return order

    def averaged(self) -> list[Floats]:
        """Means over the models so far, the unfinished one included, of their averaged weights."""
        models = self.step // (self.config.epochs * len(self.corpus.words))
        if not self.trainer.sentences:
            return [total / np.float32(max(1, models)) for total in self.sums]
        parts = zip(self.sums, self.trainer.averaged(), strict=True)
        return [(total + table) / np.float32(models + 1) for total, table in parts]

    def state_dict(self) -> dict[str, Tensor]:
        """All that the steps so far have changed."""
        groups: Mapping[str, Sequence[NDArray[Any]]] = {
            "weights": self.trainer.tables,
            "timed": self.trainer.timed_updates,
            "sums": self.sums,
        }
        return {f"{name}.{n}": torch.from_numpy(table) for name, pair in groups.items() for n, table in enumerate(pair)}

    def load_state_dict(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        """Becomes the fit that `state_dict` was called on, after so many steps."""
        weights, timed, sums = (
            [tensors[f"{name}.{n}"].numpy() for n in (0, 1)] for name in ("weights", "timed", "sums")
        )
        self.trainer.tables, self.trainer.timed_updates, self.sums = weights, timed, sums
        self.order, self.step, self.trainer.sentences = None, step, step % (self.config.epochs * len(self.corpus.words))

    def shortened(self, steps: int) -> PerceptronConfig:
        """The options of a fit of at most so many steps, or of one pass: fewer models first, then fewer passes."""
        passes = max(1, steps // len(self.corpus.words))
        models = min(self.config.averaged_models, max(1, passes // self.config.epochs))
        return replace(self.config, averaged_models=models, epochs=min(self.config.epochs, max(1, passes // models)))


def viterbi(scores: Floats, transitions: Floats) -> Ints:
    """The tag sequence (words,) with the highest sum of emission and transition scores (Viterbi 1967)."""
    path = np.zeros(len(scores), np.int64)
    if not len(scores):
        return path
    best = scores[0] + transitions[-1]
    between = transitions[:-1]
    back_pointers = np.zeros(scores.shape, np.int64)
    columns = np.arange(scores.shape[1])
    for t in range(1, len(scores)):
        extended = best[:, None] + between
        back_pointers[t] = extended.argmax(0)
        best = extended[back_pointers[t], columns] + scores[t]
    path[-1] = best.argmax()
    for t in range(len(scores) - 1, 0, -1):
        path[t - 1] = back_pointers[t, path[t]]
    return path


def perceptron(config: PerceptronConfig, sizes: EncoderSizes) -> Any:
    """An untrained averaged perceptron."""
    return Perceptron(config, sizes.answers.count, sizes.answers.impossible)
