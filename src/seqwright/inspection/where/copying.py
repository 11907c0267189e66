"""Copied text: matches of texts in a training text, and how much of them lies in matches of what length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from seqwright.core.config import UserError
from seqwright.core.notebook import NotebookTable
from seqwright.data.text.origins import Origin, Unit
from seqwright.data.text.suffix_index import NEVER, LineCounter, Match, SuffixIndex
from seqwright.text.tokenizer import Tokenizer

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class CopiedText(NotebookTable):
    """A part of a text that occurs in the training text."""

    text: str
    tokens: int
    """Length in tokens."""
    start: int
    """Its first token, from 0."""
    file: str
    number: int
    """Line of one of its occurrences, from 1; where `unit` is not "line", the number of its record or document."""
    unit: Unit
    occurrences: int
    """Number of its occurrences in the training text; of a mixture, in that of the part that has most."""

    @property
    def place(self) -> str:
        """File and line: `notes.txt, line 12`."""
        return f"{self.file}, {self.unit} {self.number:,}"


@dataclass(frozen=True)
class SearchedText:
    """A text with its matches in the training text."""

    text: str
    tokens: tuple[str, ...]
    matches: tuple[CopiedText, ...]
    """Those of at least `min_tokens` tokens, in order; none lies within another."""
    lengths: Ids = field(repr=False)
    """(tokens,): length of the longest match that each token is part of; 0 for tokens that do not occur."""
    marked: str = ""
    """The text with its matches in ⟦brackets⟧; those that overlap are one."""


@dataclass(frozen=True)
class CopyingStatistics(NotebookTable):
    """How much of some texts occurs in the training text."""

    texts: int
    tokens: int
    longest: int
    """Tokens of the longest match."""
    shares: dict[int, float]
    """Share of the tokens that are part of a match of at least n tokens, for n = 1, 2, 4, …."""

    def share(self, n: int) -> float:
        """Share of the tokens in matches of at least n tokens, for an n of `shares`; 0 beyond the longest."""
        return self.shares.get(n, 0.0)


def copying_statistics(lengths: Sequence[Ids], also: int) -> CopyingStatistics:
    """Of texts with these match lengths of their tokens; `also` is a further n of `shares`."""
    joined = np.concatenate([np.zeros(0, np.int64), *lengths])
    longest = int(joined.max(initial=0))
    powers = {1 << n for n in range(max(1, longest).bit_length())}
    shares = {n: float((joined >= n).mean()) if len(joined) else 0.0 for n in sorted(powers | {also})}
    return CopyingStatistics(len(lengths), len(joined), longest, shares)


@dataclass(frozen=True)
class IndexedMatch(Match):
    """A match in one of several indexes."""

    index: int


class Searcher:
    """Searches texts in the index of a training text, or in those of a mixture's parts.

    Special tokens match nothing.
    """

    def __init__(self, indexes: Sequence[SuffixIndex], tokenizer: Tokenizer):
        if any(int(index.ids.max()) >= tokenizer.size for index in indexes):
            raise UserError("the index of the training text has ids beyond the vocabulary; delete the run's where/.")
        self.indexes, self.tokenizer = indexes, tokenizer
        line_ends = np.array([piece.count(b"\n") for piece in tokenizer.token_bytes], np.int64)
        self._lines = [LineCounter(index.ids, line_ends) for index in indexes]

    def search(self, texts: Sequence[Ids], min_tokens: int) -> list[SearchedText]:
        """The matches of each text."""
        return [self._searched(ids, part, min_tokens) for ids, part in zip(texts, self._matches(texts), strict=True)]

    def _searched(self, ids: Ids, matches: Sequence[IndexedMatch], min_tokens: int) -> SearchedText:
        listed = [match for match in matches if match.length >= min_tokens]
        return SearchedText(
            self.tokenizer.decode(ids.tolist()),
            tuple(self.tokenizer.tokens(ids.tolist())),
            tuple(self._copied(match, ids) for match in listed),
            match_lengths(matches, len(ids)),
            self._marked(ids, match_lengths(listed, len(ids)) > 0),
        )

    def _marked(self, ids: Ids, copied: NDArray[np.bool_]) -> str:
        """The text with brackets around the tokens that are copied."""
        edges = np.diff(copied.astype(np.int8), prepend=0, append=0)
        parts = []
        for edge, id in zip(edges.tolist(), [*ids.tolist(), None], strict=True):
            parts.append({1: "⟦", -1: "⟧", 0: ""}[edge].encode())
            parts.append(b"" if id is None else self._surface(id))
        return b"".join(parts).decode(errors="replace").replace("⟦ ", " ⟦").strip()

    def _surface(self, id: int) -> bytes:
        """The bytes of a token; an unknown word, which has none, is named."""
        return b" <unk>" if id == self.tokenizer.unk else self.tokenizer.token_bytes[id]

    def lengths(self, texts: Sequence[Ids]) -> list[Ids]:
        """(tokens,) of each text: length of the longest match that each token is part of; special tokens are left out,
        but for unknown words, which match nothing."""
        counted = self.tokenizer.is_text.copy()
        if self.tokenizer.unk is not None:
            counted[self.tokenizer.unk] = True
        return [
            match_lengths(matches, len(ids))[counted[ids]]
            for ids, matches in zip(texts, self._matches(texts), strict=True)
        ]

    def _matches(self, texts: Sequence[Ids]) -> list[list[IndexedMatch]]:
        """Maximal matches of each text, in one search: texts are separated by an id that never occurs."""
        is_text = self.tokenizer.is_text
        parts = [part for ids in texts for part in (np.where(is_text[ids], ids, NEVER), [NEVER])]
        query = np.concatenate([np.zeros(0, np.int64), *parts])
        firsts = np.cumsum([0, *(len(ids) + 1 for ids in texts)])
        matches: list[list[IndexedMatch]] = [[] for _ in texts]
        for match in maximal([index.matches(query) for index in self.indexes]):
            text = int(np.searchsorted(firsts, match.start, side="right")) - 1
            matches[text].append(replace(match, start=match.start - int(firsts[text])))
        return matches

    def _copied(self, match: IndexedMatch, ids: Ids) -> CopiedText:
        pieces = [self.tokenizer.token_bytes[id] for id in ids[match.start : match.end]]
        blank = next((n for n, piece in enumerate(pieces) if piece.strip()), 0)  # the line is that of the first letter
        origin: Origin = self.indexes[match.index].origin(match.position + blank, self._lines[match.index])
        copied = ids[match.start : match.end]
        # Parts of a mixture may share text: the largest count, not the sum.
        occurrences = max(index.count(copied) for index in self.indexes)
        text = self.tokenizer.decode(copied.tolist())
        return CopiedText(text, match.length, match.start, origin.file, origin.number, origin.unit, occurrences)


def maximal(matches: Sequence[Sequence[Match]]) -> list[IndexedMatch]:
    """The matches of all indexes in order, without those that lie within another."""
    indexed = [IndexedMatch(one.start, one.length, one.position, n) for n, part in enumerate(matches) for one in part]
    kept: list[IndexedMatch] = []
    for match in sorted(indexed, key=lambda match: (match.start, -match.end, match.index)):
        if not kept or match.end > kept[-1].end:
            kept.append(match)
    return kept


def match_lengths(matches: Sequence[Match], tokens: int) -> Ids:
    """(tokens,): length of the longest of the matches that each token is part of."""
    lengths = np.zeros(tokens, np.int64)
    for match in matches:
        part = lengths[match.start : match.end]
        np.maximum(part, match.length, out=part)
    return lengths
