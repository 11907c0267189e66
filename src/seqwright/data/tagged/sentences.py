"""Tagged sentences as batches: words encoded to pieces, aligned with their tags, and as characters."""

from __future__ import annotations

import functools
import hashlib
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from seqwright.core.batch import IGNORE, Batch, Source
from seqwright.data.bucketing import ByLength, Ints
from seqwright.data.order import uniform
from seqwright.data.tagged.formats import Sentence
from seqwright.text.tokenizer import Tokenizer

MAX_CHARS = 32
"""Characters of a word; of longer words the first and the last half of them, where affixes are."""

WORD_DROPOUT = 8
"""Purpose of the random numbers of word dropout (`order.uniform`)."""


@dataclass(frozen=True, kw_only=True)
class EncodedSentences:
    """Concatenated rows of ids, and the words that start in them. A row is a sentence or a part of one."""

    ids: Ints
    """Ids of all rows, each with `<sos>` and `<eos>` where the vocabulary has them."""
    word: Ints
    """(ids,): index of the word that starts at each id, -1 where none does. Words are counted over all rows."""
    starts: Ints
    lengths: Ints
    first: Ints
    """(rows,): index of each row's first word."""
    words: Ints
    """(rows,): number of words of each row."""
    spelling: NDArray[np.int32]
    """(words, MAX_CHARS)"""
    tags: Ints
    """(words,): tag ids; IGNORE for sentences with an unknown tag."""
    origin: Ints
    """(rows,): index of the sentence of each row."""
    counts: Ints
    """(words,): frequency of each word in these sentences."""
    unk: int

    def __len__(self) -> int:
        return len(self.starts)

    @functools.cached_property
    def fingerprint(self) -> str:
        """sha256 of ids, words and tags: a resumed run must find the same sentences."""
        digest = hashlib.sha256(self.spelling.astype("<i4").tobytes())
        for array in (self.ids, self.lengths, self.word, self.tags):
            digest.update(array.astype("<i8").tobytes())
        return digest.hexdigest()

    def batch(self, rows: Ints, dropped: Callable[[Ints], NDArray[np.bool_]] | None = None) -> Batch:
        """The padded batch of these rows; `dropped` maps word indices (B, S) to those replaced by `<unk>`."""
        inside = np.arange(self.lengths[rows].max())
        mask = inside < self.lengths[rows, None]  # (B, S)
        at = np.where(mask, self.starts[rows, None] + inside, 0)
        word = np.where(mask, self.word[at], -1)
        ids = np.where(mask, self.ids[at], 0)
        if dropped is not None:
            ids = np.where((word >= 0) & dropped(word), self.unk, ids)
        spelling = self.spelling[word] * (word >= 0)[..., None]  # (B, S, MAX_CHARS)
        longest = int((spelling != 0).sum(-1).max(initial=1))
        positions = np.arange(self.words[rows].max(initial=0))
        real = positions < self.words[rows, None]  # (B, W)
        target = np.where(real, self.tags[np.where(real, self.first[rows, None] + positions, 0)], IGNORE)
        source = Source(
            mask=torch.from_numpy(mask),
            ids=torch.from_numpy(ids),
            word_starts=torch.from_numpy(word >= 0),
            spelling=torch.from_numpy(spelling[..., :longest].astype(np.int64)),
        )
        return Batch.of_source(source, torch.from_numpy(target))


def encode_sentences(
    sentences: Sequence[Sentence], tokenizer: Tokenizer, tags: Mapping[str, int], *, max_length: int | None = None
) -> EncodedSentences:
    """The encoded sentences, split into rows of at most `max_length` ids.

    Every word is encoded by itself, so that word and tag stay aligned under any tokenizer.
    """
    before, after = ([] if id is None else [id] for id in (tokenizer.sos, tokenizer.eos))
    room = None if max_length is None else max(1, max_length - len(before) - len(after))
    numbers, pieces = _pieces(sentences, tokenizer, room)
    ids: list[int] = []
    word: list[int] = []
    rows: list[tuple[int, int, int, int, int]] = []  # start, length, first word, words, sentence
    done = 0
    for n, types in enumerate(numbers):
        for part in _parts([pieces[number] for number in types], room):
            row = [*before, *(id for piece in part for id in piece), *after]
            starts = len(before) + np.cumsum([0, *map(len, part)])[:-1]
            marks = np.full(len(row), -1)
            marks[starts.astype(np.int64)] = done + np.arange(len(part))
            rows.append((len(ids), len(row), done, len(part), n))
            ids += row
            word += marks.tolist()
            done += len(part)
    starts, lengths, first, words, origin = np.array(rows, np.int64).reshape(-1, 5).T
    flat = np.array([number for types in numbers for number in types], np.int64)
    texts = [word for sentence in sentences for word in sentence.words]
    return EncodedSentences(
        ids=np.array(ids, np.int64),
        word=np.array(word, np.int64),
        starts=starts,
        lengths=lengths,
        first=first,
        words=words,
        spelling=char_codes(texts),
        tags=_tag_ids(sentences, tags),
        origin=origin,
        counts=np.bincount(flat, minlength=len(pieces))[flat],
        unk=0 if tokenizer.unk is None else tokenizer.unk,
    )


def _pieces(
    sentences: Sequence[Sentence], tokenizer: Tokenizer, room: int | None
) -> tuple[list[list[int]], list[list[int]]]:
    """The word types of each sentence by number, and the ids of each type, at least one.

    All words but the first are encoded with a space before them, as they occur in text: byte-level BPE and unigram
    tokenizers have other pieces for them.
    """
    known: dict[str, int] = {}
    numbers = [
        [known.setdefault(word if n == 0 else f" {word}", len(known)) for n, word in enumerate(sentence.words)]
        for sentence in sentences
    ]
    encoded = tokenizer.encode_batch(known)
    ends = np.cumsum(encoded.lengths)[:-1]
    empty = [0 if tokenizer.unk is None else tokenizer.unk]  # for a word that normalization removes entirely
    return numbers, [piece.tolist()[:room] or empty for piece in np.split(encoded.ids.astype(np.int64), ends)]


def _parts(pieces: Sequence[list[int]], room: int | None) -> Iterator[list[list[int]]]:
    """The words of a sentence in rows of at most `room` ids, filled greedily."""
    part: list[list[int]] = []
    length = 0
    for piece in pieces:
        if room is not None and length + len(piece) > room:
            yield part
            part, length = [], 0
        part.append(piece)
        length += len(piece)
    yield part


def _tag_ids(sentences: Sequence[Sentence], tags: Mapping[str, int]) -> Ints:
    """(words,) tag ids; IGNORE for all words of a sentence with an unknown tag, or without tags."""
    ids: list[int] = []
    for sentence in sentences:
        known = len(sentence.tags) > 0 and all(tag in tags for tag in sentence.tags)
        ids += [tags[tag] for tag in sentence.tags] if known else [IGNORE] * len(sentence.words)
    return np.array(ids, np.int64)


class SentenceFeed(ByLength):
    """A bucketed feed of sentences with word dropout: rarer words are replaced by `<unk>` more often."""

    def __init__(self, sentences: EncodedSentences, *, seed: int, batch: int, tokens: int | None, word_dropout: float):
        super().__init__(sentences, seed=seed, batch=batch, tokens=tokens)
        self.sentences = sentences
        # α / (α + count) of each word (Kiperwasser & Goldberg 2016).
        self.probabilities = word_dropout / (word_dropout + sentences.counts) if word_dropout else None

    def batch(self, step: int) -> Batch:
        probabilities = self.probabilities
        if probabilities is None:
            return super().batch(step)
        return self.sentences.batch(
            self.rows(step),
            lambda word: uniform(self.seed, step, WORD_DROPOUT, word.size).reshape(word.shape) < probabilities[word],
        )


def char_codes(words: Sequence[str]) -> NDArray[np.int32]:
    """(words, MAX_CHARS): code points + 1, zero-padded, of words in NFC, so that composed and decomposed accents are
    the same."""
    texts = [_shortened(word if word.isascii() else unicodedata.normalize("NFC", word)) for word in words]
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    codes = np.zeros((len(texts), MAX_CHARS), np.int32)
    codes[np.arange(MAX_CHARS) < lengths[:, None]] = np.frombuffer("".join(texts).encode("utf-32-le"), "<i4") + 1
    return codes


def _shortened(word: str) -> str:
    return word if len(word) <= MAX_CHARS else word[: MAX_CHARS // 2] + word[-MAX_CHARS // 2 :]
