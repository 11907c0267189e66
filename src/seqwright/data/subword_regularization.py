"""Subword regularization: training texts re-segmented every epoch by BPE dropout or unigram sampling.

A pure function of (seed, epoch). Words are segmented, not texts: for every distinct word as many segmentations are
sampled as it has occurrences, at most `MAX_SEGMENTATIONS`, and its occurrences take them in turn. An epoch is then
re-encoded by gathers, without a loop over words; words up to that frequency get a sample of their own at every
occurrence, and every epoch samples anew (decision 60).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from seqwright.core.batch import Batch
from seqwright.core.config import UserError
from seqwright.core.protocols import Feed
from seqwright.data.order import bit_generator
from seqwright.data.parallel.buckets import EncodedPairs, Side
from seqwright.data.parallel.formats import Pair
from seqwright.data.text.stream import Stream
from seqwright.text.backend import Kind
from seqwright.text.bpe_dropout import BPEDropout
from seqwright.text.ragged import Ints, Ragged
from seqwright.text.subword_sampling import Lattice
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig

KINDS_OF_KEY = {"dropout": ("bpe", "byte-bpe"), "sampling_alpha": ("unigram",)}
"""Tokenizer kinds that support each regularization key."""
MAX_SEGMENTATIONS = 64
"""Segmentations sampled of a word in one epoch, at most."""
MAX_WORD = 64
"""Ids of a word that are segmented together; a longer run without white space is split."""
STREAM, SOURCE, TARGET = 2, 3, 4
"""Purposes of the random bits (`order.bit_generator`)."""


@dataclass(frozen=True, kw_only=True)
class RegularizedTokenizerConfig(TokenizerConfig):
    dropout: float = 0.0
    """BPE dropout: probability of skipping a merge (bpe, byte-bpe), sampled anew each epoch (Provilkov et al. 2020, who
    use 0.1). Training texts only; validation, prompts and sources are encoded without it."""
    sampling_alpha: float | None = None
    """Unigram sampling: training segmentations are sampled each epoch with probability ∝ p ** sampling_alpha (Kudo
    2018; 0.1 to 0.5); 0 is uniform. Default: the most probable segmentation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.dropout <= 1:
            raise UserError(f"dropout is a probability, from 0 to 1, not {self.dropout}.")
        if self.sampling_alpha is not None and self.sampling_alpha < 0:
            raise UserError(f"sampling_alpha is an exponent of 0 or more, not {self.sampling_alpha}.")
        if self.file is None:
            for kind in self.regularized_kinds:
                self.check_kind(kind)

    @property
    def regularization(self) -> list[str]:
        """The keys that turn subword regularization on; empty without it."""
        return ["dropout"] * bool(self.dropout) + ["sampling_alpha"] * (self.sampling_alpha is not None)

    @property
    def regularized_kinds(self) -> tuple[Kind, ...]:
        """The kinds of the regularized tokenizers."""
        return (self.kind,)

    def check_kind(self, kind: Kind) -> None:
        """Refuses keys that a tokenizer kind does not support."""
        for key in self.regularization:
            if kind not in KINDS_OF_KEY[key]:
                raise UserError(f"{key} is for {' and '.join(KINDS_OF_KEY[key])}; this tokenizer is of kind {kind}.")


class RegularizedFeed:
    """A feed that is rebuilt from re-segmented texts each epoch.

    The feed of a later epoch may be a few steps longer or shorter than that of the first, which sets steps_per_epoch
    for all of them: a few of its batches are then dropped or repeated (decision 60).
    """

    def __init__(self, feed: Callable[[int], Feed]):
        self.feed = functools.lru_cache(maxsize=1)(feed)
        first = self.feed(0)
        self.steps_per_epoch, self.carried = first.steps_per_epoch, first.carried

    def batch(self, step: int) -> Batch:
        epoch, number = divmod(step, self.steps_per_epoch)
        feed = self.feed(epoch)
        return feed.batch(epoch * feed.steps_per_epoch + number % feed.steps_per_epoch)


class Resegmenter:
    """Samples segmentations of the words of encoded texts."""

    def __init__(
        self,
        ids: Ints,
        texts: Sequence[str],
        tokenizer: Tokenizer,
        config: RegularizedTokenizerConfig,
        *,
        seed: int,
        purpose: int,
    ):
        """`ids` are those of `texts`, with special tokens."""
        config.check_kind(tokenizer.kind)
        self.seed, self.purpose = seed, purpose
        starts = _word_starts(ids, tokenizer.word_starts(texts), tokenizer)
        self.first = np.flatnonzero(starts)  # (words,) offsets in the plain ids
        words, self.word = _distinct(Ragged(ids, np.diff(self.first, append=len(ids))))
        counts = np.bincount(self.word)
        samples = np.minimum(counts, MAX_SEGMENTATIONS)
        if config.sampling_alpha is None:
            self.draw = BPEDropout(words, samples, tokenizer, config.dropout).draw
        else:
            self.draw = Lattice(words, samples, tokenizer, config.sampling_alpha).draw
        order = np.argsort(self.word, kind="stable")
        occurrence = np.empty_like(self.word)  # 0, 1, 2, … among the occurrences of the same word
        occurrence[order] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        self.row = (np.cumsum(samples) - samples)[self.word] + occurrence % samples[self.word]

    def epoch(self, epoch: int) -> Ragged:
        """The segmentation of every word in this epoch, in text order."""
        return self.draw(bit_generator(self.seed, epoch, self.purpose)).take(self.row)

    def moved(self, offsets: Ints, segmented: Ragged) -> Ints:
        """New offsets of words that began at these in the plain ids; the end of the ids is a valid offset."""
        ends = np.concatenate([[0], np.cumsum(segmented.lengths)])
        return ends[np.searchsorted(self.first, offsets)]


def regularized_stream(
    stream: Stream, texts: Sequence[str], tokenizer: Tokenizer, config: RegularizedTokenizerConfig, *, seed: int
) -> Callable[[int], Stream]:
    """A function from the epoch to its re-segmented stream."""
    segmenter = Resegmenter(stream.ids.astype(np.int64), texts, tokenizer, config, seed=seed, purpose=STREAM)
    # Bits per byte are measured on the plain encoding only, so `unended`, which they need, is not carried over.
    return lambda epoch: replace(stream, ids=segmenter.epoch(epoch).ids.astype(stream.ids.dtype), unended={})


def regularized_pairs(
    encoded: EncodedPairs, pairs: Sequence[Pair], config: RegularizedTokenizerConfig, *, sides: Sequence[str], seed: int
) -> Callable[[int], EncodedPairs]:
    """A function from the epoch to its re-segmented pairs; only the named sides change."""

    def side(name: str, purpose: int, texts: Sequence[str]) -> Callable[[int], Side]:
        plain: Side = getattr(encoded, name)
        if name not in sides:
            return lambda epoch: plain
        tokenizer = getattr(encoded.tokenizers, name)
        segmenter = Resegmenter(plain.ids, texts, tokenizer, config, seed=seed, purpose=purpose)
        return lambda epoch: _resegmented(plain, segmenter, epoch)

    source = side("source", SOURCE, [text for pair in pairs for text in pair.sources])
    target = side("target", TARGET, [text for pair in pairs for text in pair.targets])
    return lambda epoch: replace(encoded, source=source(epoch), target=target(epoch))


def _resegmented(side: Side, segmenter: Resegmenter, epoch: int) -> Side:
    segmented = segmenter.epoch(epoch)
    starts, ends = (segmenter.moved(offsets, segmented) for offsets in (side.starts, side.starts + side.lengths))
    return replace(side, ids=segmented.ids, starts=starts, lengths=ends - starts)


def _word_starts(ids: Ints, starts: NDArray[np.bool_], tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """Where words start among ids with special tokens; ids that cannot be segmented are words of their own."""
    special = [
        id for id in tokenizer.special_tokens.values() if id != tokenizer.unk
    ]  # text never encodes to one of these
    begins = np.ones(len(ids), np.bool_)
    begins[~np.isin(ids, special)] = starts
    atomic = np.isin(ids, list(tokenizer.atomic_ids))
    begins |= atomic
    begins[1:] |= atomic[:-1]
    offset = np.arange(len(ids)) - np.maximum.accumulate(np.where(begins, np.arange(len(ids)), 0))  # inside the word
    return begins | (offset % MAX_WORD == 0)


def _distinct(words: Ragged) -> tuple[Ragged, Ints]:
    """The distinct words, and the index among them of each word."""
    index = np.empty(len(words.lengths), np.int64)
    ids, lengths, total = [], [], 0
    starts = words.starts
    for length in np.unique(words.lengths):  # words of one length form a matrix, so np.unique finds distinct rows
        rows = np.flatnonzero(words.lengths == length)
        distinct, inverse = np.unique(words.ids[starts[rows, None] + np.arange(length)], axis=0, return_inverse=True)
        index[rows] = total + inverse.reshape(-1)
        total += len(distinct)
        ids.append(distinct.reshape(-1))
        lengths.append(np.full(len(distinct), length))
    return Ragged(np.concatenate(ids), np.concatenate(lengths)), index
