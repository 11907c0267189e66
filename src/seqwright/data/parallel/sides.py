"""Detection of swapped sides: the most frequent words of sources and targets reveal files in the wrong order."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from seqwright.core.config import UserError

TOP_WORDS = 1000
"""Most frequent words kept of each side; also the number of texts that are checked."""
MIN_WORDS = 20
"""Words below which no check is made."""
MARGIN = 0.3
"""By how much the share of words known on the other side must exceed that on the own side."""


@dataclass(frozen=True, kw_only=True)
class Sides:
    """The most frequent words of the training sources and targets, lower-cased."""

    source: tuple[str, ...] = ()
    target: tuple[str, ...] = ()

    def swapped(self, sources: Iterable[str]) -> str | None:
        """Why these sources look like targets, if they do."""
        words = _words(itertools.islice(sources, TOP_WORDS))
        in_source, in_target = (_coverage(words, side) for side in (self.source, self.target))
        if len(words) < MIN_WORDS or in_target <= in_source + MARGIN:
            return None
        return (
            f"{in_target:.0%} of their words are frequent among the training targets, {in_source:.0%} among the sources"
        )

    def refuse_swapped(self, sources: Iterable[str], name: str) -> None:
        """Raises where the sources of `name` look like targets."""
        if why := self.swapped(sources):
            raise UserError(f"the sources of {name} look like targets: {why}. Give source and target in that order.")


def sides_of(pairs: Sequence[tuple[str, str]]) -> Sides:
    """The most frequent words of both sides."""
    source, target = (tuple(_frequent(texts)) for texts in zip(*pairs, strict=True)) if pairs else ((), ())
    return Sides(source=source, target=target)


def _frequent(texts: Iterable[str]) -> list[str]:
    return [word for word, _ in Counter(_words(texts)).most_common(TOP_WORDS)]


def _words(texts: Iterable[str]) -> list[str]:
    return [word for text in texts for word in text.lower().split()]


def _coverage(words: Sequence[str], side: Sequence[str]) -> float:
    vocabulary = set(side)
    return sum(word in vocabulary for word in words) / max(1, len(words))
