"""Tagged sentences as batches: words aligned with the ids they are cut into, and spelled out."""

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

SPELT = 32
"""Characters of a word that are read; of longer words the first and the last of them, where affixes are."""

UNREAD = 8
"""The purpose of the numbers that decide which words are read as <unk>."""


@dataclass(frozen=True, kw_only=True)
class EncodedSentences:
    """Rows of ids, one after the other, and the words that begin in them. A row is a sentence or a part of one."""

    ids: Ints
    """Of all rows, each framed by <sos> and <eos> where the vocabulary has them."""
    word: Ints
    """The number of the word that begins at each id; -1 where none does. Words are counted through all rows."""
    starts: Ints
    lengths: Ints
    first: Ints
    """The number of each row's first word."""
    words: Ints
    """How many words each row has."""
    spelling: NDArray[np.int32]
    """(words, SPELT)"""
    tags: Ints
    """(words,): IGNORE in rows that have a tag that is not known."""
    origin: Ints
    """Which sentence each row is of."""
    counts: Ints
    """(words,): how often each word is among these."""
    unk: int

    def __len__(self) -> int:
        return len(self.starts)

    @functools.cached_property
    def fingerprint(self) -> str:
        """sha256 of ids, words and tags: a resumed run must find the sentences it left."""
        whole = hashlib.sha256(self.spelling.astype("<i4").tobytes())
        for part in (self.ids, self.lengths, self.word, self.tags):
            whole.update(part.astype("<i8").tobytes())
        return whole.hexdigest()

    def batch(self, rows: Ints, unread: Callable[[Ints], NDArray[np.bool_]] | None = None) -> Batch:
        """These rows, padded; `unread` says which of these words (B, S) are read as <unk>."""
        inside = np.arange(self.lengths[rows].max())
        mask = inside < self.lengths[rows, None]  # (B, S)
        at = np.where(mask, self.starts[rows, None] + inside, 0)
        word = np.where(mask, self.word[at], -1)
        ids = np.where(mask, self.ids[at], 0)
        if unread is not None:
            ids = np.where((word >= 0) & unread(word), self.unk, ids)
        spelling = self.spelling[word] * (word >= 0)[..., None]  # (B, S, SPELT)
        longest = int((spelling != 0).sum(-1).max(initial=1))
        places = np.arange(self.words[rows].max(initial=0))
        real = places < self.words[rows, None]  # (B, W)
        target = np.where(real, self.tags[np.where(real, self.first[rows, None] + places, 0)], IGNORE)
        source = Source(
            mask=torch.from_numpy(mask),
            ids=torch.from_numpy(ids),
            word_starts=torch.from_numpy(word >= 0),
            spelling=torch.from_numpy(spelling[..., :longest].astype(np.int64)),
        )
        return Batch.of_source(source, torch.from_numpy(target))


def encode_sentences(
    sentences: Sequence[Sentence], tokenizer: Tokenizer, tags: Mapping[str, int], *, longest: int | None = None
) -> EncodedSentences:
    """Every word cut by itself, so that it keeps its tag whatever the tokenizer; `longest` is what a row may hold."""
    before, after = ([] if id is None else [id] for id in (tokenizer.sos, tokenizer.eos))
    room = None if longest is None else max(1, longest - len(before) - len(after))
    numbers, pieces = _pieces(sentences, tokenizer, room)
    ids: list[int] = []
    word: list[int] = []
    rows: list[tuple[int, int, int, int, int]] = []  # start, length, first word, words, sentence
    done = 0
    for n, own in enumerate(numbers):
        for part in _parts([pieces[number] for number in own], room):
            row = [*before, *(id for piece in part for id in piece), *after]
            starts = len(before) + np.cumsum([0, *map(len, part)])[:-1]
            marks = np.full(len(row), -1)
            marks[starts.astype(np.int64)] = done + np.arange(len(part))
            rows.append((len(ids), len(row), done, len(part), n))
            ids += row
            word += marks.tolist()
            done += len(part)
    starts, lengths, first, words, origin = np.array(rows, np.int64).reshape(-1, 5).T
    flat = np.array([number for own in numbers for number in own], np.int64)
    written = [word for sentence in sentences for word in sentence.words]
    return EncodedSentences(
        ids=np.array(ids, np.int64),
        word=np.array(word, np.int64),
        starts=starts,
        lengths=lengths,
        first=first,
        words=words,
        spelling=spell(written),
        tags=_answers(sentences, tags),
        origin=origin,
        counts=np.bincount(flat, minlength=len(pieces))[flat],
        unk=0 if tokenizer.unk is None else tokenizer.unk,
    )


def _pieces(
    sentences: Sequence[Sentence], tokenizer: Tokenizer, room: int | None
) -> tuple[list[list[int]], list[list[int]]]:
    """For each sentence the numbers of its words, and for each number the ids of that word: at least one.

    Words but the first are cut with a space before them, as they stand in a text: tokenizers that care learned them so.
    """
    known: dict[str, int] = {}
    numbers = [
        [known.setdefault(word if n == 0 else f" {word}", len(known)) for n, word in enumerate(sentence.words)]
        for sentence in sentences
    ]
    encoded = tokenizer.encode_batch(known)
    ends = np.cumsum(encoded.lengths)[:-1]
    nothing = [0 if tokenizer.unk is None else tokenizer.unk]  # a word of which normalizing leaves nothing
    return numbers, [piece.tolist()[:room] or nothing for piece in np.split(encoded.ids.astype(np.int64), ends)]


def _parts(pieces: Sequence[list[int]], room: int | None) -> Iterator[list[list[int]]]:
    """Words in rows that fit: all of them, or as many at a time as there is room for."""
    part: list[list[int]] = []
    taken = 0
    for piece in pieces:
        if room is not None and taken + len(piece) > room:
            yield part
            part, taken = [], 0
        part.append(piece)
        taken += len(piece)
    yield part


def _answers(sentences: Sequence[Sentence], tags: Mapping[str, int]) -> Ints:
    """The number of each word's tag; IGNORE all over a sentence with a tag that is not known, or without any."""
    answers: list[int] = []
    for sentence in sentences:
        known = len(sentence.tags) > 0 and all(tag in tags for tag in sentence.tags)
        answers += [tags[tag] for tag in sentence.tags] if known else [IGNORE] * len(sentence.words)
    return np.array(answers, np.int64)


class SentenceFeed(ByLength):
    """Rows of like length together; in training, words may be read as <unk>, the rarer the more often."""

    def __init__(self, sentences: EncodedSentences, *, seed: int, batch: int, tokens: int | None, word_dropout: float):
        super().__init__(sentences, seed=seed, batch=batch, tokens=tokens)
        self.sentences = sentences
        self.chances = word_dropout / (word_dropout + sentences.counts) if word_dropout else None

    def batch(self, step: int) -> Batch:
        chances = self.chances
        if chances is None:
            return super().batch(step)
        return self.sentences.batch(
            self.rows(step),
            lambda word: uniform(self.seed, step, UNREAD, word.size).reshape(word.shape) < chances[word],
        )


def spell(words: Sequence[str]) -> NDArray[np.int32]:
    """(words, SPELT): accents in one with their letters where that can be, so that both ways to write them are one."""
    cut = [_cut(word if word.isascii() else unicodedata.normalize("NFC", word)) for word in words]
    lengths = np.fromiter(map(len, cut), np.int64, len(cut))
    spelled = np.zeros((len(cut), SPELT), np.int32)
    spelled[np.arange(SPELT) < lengths[:, None]] = np.frombuffer("".join(cut).encode("utf-32-le"), "<i4") + 1
    return spelled


def _cut(word: str) -> str:
    return word if len(word) <= SPELT else word[: SPELT // 2] + word[-SPELT // 2 :]
