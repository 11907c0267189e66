"""Which side a text is of: the commonest words of sources and targets, so that files in the wrong order are noticed."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from seqwright.core.config import UserError

MANY = 1000
"""Words of a side that tell it from the other."""
ENOUGH = 20
"""Words below which nothing is said."""
MARGIN = 0.3
"""By how much more of the words must be known on the wrong side than on the right one."""


@dataclass(frozen=True, kw_only=True)
class Sides:
    """The commonest words of the sources and targets of a training, lower-cased."""

    source: tuple[str, ...] = ()
    target: tuple[str, ...] = ()

    def mixed_up(self, sources: Iterable[str]) -> str | None:
        """Why these texts look like targets rather than sources, if they do."""
        words = _words(itertools.islice(sources, MANY))
        own, other = (_known(words, side) for side in (self.source, self.target))
        if len(words) < ENOUGH or other <= own + MARGIN:
            return None
        return f"{other:.0%} of their words are common among the targets of training, {own:.0%} among its sources"

    def refuse_mixed_up(self, sources: Iterable[str], what: str) -> None:
        if why := self.mixed_up(sources):
            raise UserError(f"the sources of {what} look like targets: {why}. Give source and target in that order.")


def sides_of(pairs: Sequence[tuple[str, str]]) -> Sides:
    """The commonest words of both sides."""
    source, target = (tuple(_common(texts)) for texts in zip(*pairs, strict=True)) if pairs else ((), ())
    return Sides(source=source, target=target)


def _common(texts: Iterable[str]) -> list[str]:
    return [word for word, _ in Counter(_words(texts)).most_common(MANY)]


def _words(texts: Iterable[str]) -> list[str]:
    return [word for text in texts for word in text.lower().split()]


def _known(words: Sequence[str], side: Sequence[str]) -> float:
    common = set(side)
    return sum(word in common for word in words) / max(1, len(words))
