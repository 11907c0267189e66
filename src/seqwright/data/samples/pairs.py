"""Pairs that need no files: dates in any two of Babel's languages, and Python's standard library about itself."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any

from seqwright.core.config import UserError, did_you_mean
from seqwright.data.order import permutation
from seqwright.data.parallel.formats import Pair
from seqwright.data.samples.python_pairs import expressions, signatures, summaries

DATES = re.compile(r"dates-([a-z]{2,3}(?:_[A-Za-z]+)?)-([a-z]{2,3}(?:_[A-Za-z]+)?)")
FORMATS = ("full", "long", "medium", "EEEE d MMMM", "MMMM y", "d MMMM y", "EEE, d MMM y")
FIRST, DAYS = datetime.date(1970, 1, 1), 40_000
MANY = 20_000

PAIRS: dict[str, Callable[[], list[Pair]]] = {
    "summaries": summaries,
    "expressions": expressions,
    "signatures": signatures,
}


def embedded_pairs(name: str) -> list[Pair]:
    """The pairs that `embedded:NAME` stands for; `dates-en-vi` and the like go between any two languages."""
    if found := DATES.fullmatch(name):
        return dates(found[1], found[2])
    if name not in PAIRS:
        raise UserError(f"no embedded pairs '{name}'.{did_you_mean(name, [*PAIRS, 'dates-en-vi'])}")
    return PAIRS[name]()


def dates(source: str, target: str) -> list[Pair]:
    """Some days of about a century, each in one of several styles, as CLDR writes them in both languages."""
    try:
        from babel import Locale, UnknownLocaleError
        from babel.dates import format_date
    except ImportError:
        raise UserError("dates in other languages come from Babel: pip install 'seqwright[samples]'.") from None
    try:
        languages: list[Any] = [Locale.parse(code) for code in (source, target)]
    except (UnknownLocaleError, ValueError) as error:
        raise UserError(f"Babel does not know both of '{source}' and '{target}': {error}.") from None
    pairs = {}
    for n, day in enumerate(permutation(0, 0, DAYS)[:MANY].tolist()):
        date, style = FIRST + datetime.timedelta(days=day), FORMATS[n % len(FORMATS)]
        written = [[format_date(date, other, locale=language) for other in FORMATS] for language in languages]
        given = written[0][FORMATS.index(style)]
        # "May 5, 2020" is both long and medium: what either becomes is right.
        said = dict.fromkeys(there for here, there in zip(*written, strict=True) if here == given)
        pairs[given] = Pair((given,), tuple(said))
    return list(pairs.values())
