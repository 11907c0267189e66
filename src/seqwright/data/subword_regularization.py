"""Training texts cut otherwise each epoch, by BPE dropout or subword sampling, as a function of (seed, epoch).

Words are cut, not texts: of every distinct word so many cuts are drawn as it occurs, at most `CUTS`, and its
occurrences take them in turn. An epoch is then re-encoded by looking cuts up, without a loop over words; a word that
occurs no more often than that has cuts of its own everywhere, and every epoch draws anew.
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
from seqwright.data.order import bits
from seqwright.data.parallel.buckets import EncodedPairs, Side
from seqwright.data.parallel.formats import Pair
from seqwright.data.text.stream import Stream
from seqwright.text.backend import Kind
from seqwright.text.bpe_dropout import BPEDropout
from seqwright.text.ragged import Ints, Ragged
from seqwright.text.subword_sampling import Lattice
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig

CUT_OTHERWISE = {"dropout": ("bpe", "byte-bpe"), "sampling_alpha": ("unigram",)}
"""The keys that ask for other cuts of the training text, and the kinds that have them."""
CUTS = 64
"""The most cuts that a word has in one epoch."""
LONGEST = 64
"""Ids of the longest word that is cut as one: what is longer, a run without white space, is several."""
STREAM, SOURCE, TARGET = 2, 3, 4
"""Purposes of the bits that are drawn (`order.bits`)."""


@dataclass(frozen=True, kw_only=True)
class RegularizedTokenizerConfig(TokenizerConfig):
    dropout: float = 0.0
    """How probably bpe and byte-bpe overlook a merge in training texts, which are cut anew each epoch (Provilkov et al.
    2020, who take 0.1). What is measured and prompted is cut plainly."""
    sampling_alpha: float | None = None
    """unigram draws the cuts of training texts anew each epoch, by their probability to this power (Kudo 2018; 0.1 to
    0.5); 0 draws all alike. Left out: the best one always."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.dropout <= 1:
            raise UserError(f"dropout is a probability, from 0 to 1, not {self.dropout}.")
        if self.sampling_alpha is not None and self.sampling_alpha < 0:
            raise UserError(f"sampling_alpha is a power of 0 or more, not {self.sampling_alpha}.")
        if self.file is None:
            for kind in self.varied_kinds:
                self.check_cuts(kind)

    @property
    def varies(self) -> list[str]:
        """The keys that cut training texts otherwise than others."""
        return ["dropout"] * bool(self.dropout) + ["sampling_alpha"] * (self.sampling_alpha is not None)

    @property
    def varied_kinds(self) -> tuple[Kind, ...]:
        """The kinds of the tokenizers that cut otherwise in training."""
        return (self.kind,)

    def check_cuts(self, kind: Kind) -> None:
        """Refuses other cuts that a kind does not have."""
        for key in self.varies:
            if kind not in CUT_OTHERWISE[key]:
                raise UserError(f"{key} is for {' and '.join(CUT_OTHERWISE[key])}; this tokenizer is of kind {kind}.")


class Varied:
    """A feed whose texts are cut anew each epoch.

    The feed of an epoch may come out a few steps longer or shorter than the first one, which says how long all are:
    then a few of its batches are left out, or come twice.
    """

    def __init__(self, feed: Callable[[int], Feed]):
        self.feed = functools.lru_cache(maxsize=1)(feed)
        first = self.feed(0)
        self.steps_per_epoch, self.carried = first.steps_per_epoch, first.carried

    def batch(self, step: int) -> Batch:
        epoch, number = divmod(step, self.steps_per_epoch)
        feed = self.feed(epoch)
        return feed.batch(epoch * feed.steps_per_epoch + number % feed.steps_per_epoch)


class Recut:
    """Ids with other cuts of the same words."""

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
        """Of ids as they are framed, and the texts that they were encoded from."""
        config.check_cuts(tokenizer.kind)
        self.seed, self.purpose = seed, purpose
        begins = _word_begins(ids, tokenizer.word_starts(texts), tokenizer)
        self.first = np.flatnonzero(begins)  # (words,) in the plain ids
        words, self.word = _distinct(Ragged(ids, np.diff(self.first, append=len(ids))))
        counts = np.bincount(self.word)
        times = np.minimum(counts, CUTS)
        if config.sampling_alpha is None:
            self.draw = BPEDropout(words, times, tokenizer, config.dropout).draw
        else:
            self.draw = Lattice(words, times, tokenizer, config.sampling_alpha).draw
        order = np.argsort(self.word, kind="stable")
        turn = np.empty_like(self.word)  # 0, 1, 2, … among the occurrences of the same word
        turn[order] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        self.row = (np.cumsum(times) - times)[self.word] + turn % times[self.word]

    def epoch(self, epoch: int) -> Ragged:
        """The cut of every word, in order."""
        return self.draw(bits(self.seed, epoch, self.purpose)).take(self.row)

    def moved(self, places: Ints, cut: Ragged) -> Ints:
        """Where words that began at these places begin now; the end of the ids is one too."""
        ends = np.concatenate([[0], np.cumsum(cut.lengths)])
        return ends[np.searchsorted(self.first, places)]


def varied_stream(
    stream: Stream, texts: Sequence[str], tokenizer: Tokenizer, config: RegularizedTokenizerConfig, *, seed: int
) -> Callable[[int], Stream]:
    """The stream of each epoch."""
    recut = Recut(stream.ids.astype(np.int64), texts, tokenizer, config, seed=seed, purpose=STREAM)
    # Sizes are for measuring, which is done on plain cuts; where ends are lacking is not followed.
    return lambda epoch: replace(stream, ids=recut.epoch(epoch).ids.astype(stream.ids.dtype), unended={})


def varied_pairs(
    pairs: EncodedPairs, given: Sequence[Pair], config: RegularizedTokenizerConfig, *, sides: Sequence[str], seed: int
) -> Callable[[int], EncodedPairs]:
    """The pairs of each epoch; a side that is not named stays as it is."""

    def side(name: str, purpose: int, texts: Sequence[str]) -> Callable[[int], Side]:
        plain: Side = getattr(pairs, name)
        if name not in sides:
            return lambda epoch: plain
        tokenizer = getattr(pairs.tokenizers, name)
        recut = Recut(plain.ids, texts, tokenizer, config, seed=seed, purpose=purpose)
        return lambda epoch: _recut(plain, recut, epoch)

    source = side("source", SOURCE, [text for pair in given for text in pair.sources])
    target = side("target", TARGET, [text for pair in given for text in pair.targets])
    return lambda epoch: replace(pairs, source=source(epoch), target=target(epoch))


def _recut(side: Side, recut: Recut, epoch: int) -> Side:
    cut = recut.epoch(epoch)
    starts, ends = (recut.moved(places, cut) for places in (side.starts, side.starts + side.lengths))
    return replace(side, ids=cut.ids, starts=starts, lengths=ends - starts)


def _word_begins(ids: Ints, starts: NDArray[np.bool_], tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """Where words begin in framed ids; what cannot be cut is a word of its own."""
    framing = [
        id for id in tokenizer.special_tokens.values() if id != tokenizer.unk
    ]  # no text is encoded as one of them
    begins = np.ones(len(ids), np.bool_)
    begins[~np.isin(ids, framing)] = starts
    whole = np.isin(ids, list(tokenizer.atomic_ids))
    begins |= whole
    begins[1:] |= whole[:-1]
    since = np.arange(len(ids)) - np.maximum.accumulate(np.where(begins, np.arange(len(ids)), 0))
    return begins | (since % LONGEST == 0)


def _distinct(words: Ragged) -> tuple[Ragged, Ints]:
    """Every distinct word once, and which of them each word is."""
    number = np.empty(len(words.lengths), np.int64)
    ids, lengths, known = [], [], 0
    starts = words.starts
    for length in np.unique(words.lengths):  # words of one length are a matrix
        rows = np.flatnonzero(words.lengths == length)
        found, which = np.unique(words.ids[starts[rows, None] + np.arange(length)], axis=0, return_inverse=True)
        number[rows] = known + which.reshape(-1)
        known += len(found)
        ids.append(found.reshape(-1))
        lengths.append(np.full(len(found), length))
    return Ragged(np.concatenate(ids), np.concatenate(lengths)), number
