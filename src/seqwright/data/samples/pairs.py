"""Embedded pairs: dates in any two of Babel's languages, and code of Python's standard library."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable

from seqwright.core.config import UserError, did_you_mean
from seqwright.data.order import permutation
from seqwright.data.parallel.formats import Pair
from seqwright.data.samples.python_pairs import expressions, signatures, summaries

DATES = re.compile(r"dates-([a-z]{2,3}(?:_[A-Za-z]+)?)-([a-z]{2,3}(?:_[A-Za-z]+)?)")
FORMATS = ("full", "long", "medium", "EEEE d MMMM", "MMMM y", "d MMMM y", "EEE, d MMM y")
FIRST, DAYS = datetime.date(1970, 1, 1), 40_000
MAX_DATES = 20_000

PAIRS: dict[str, Callable[[], list[Pair]]] = {
    "summaries": summaries,
    "expressions": expressions,
    "signatures": signatures,
}


def embedded_pairs(name: str) -> list[Pair]:
    """The pairs of the dataset `embedded:NAME`; `dates-en-vi` and the like exist for any two languages."""
    if match := DATES.fullmatch(name):
        return dates(match[1], match[2])
    if name not in PAIRS:
        raise UserError(f"no embedded pairs '{name}'.{did_you_mean(name, [*PAIRS, 'dates-en-vi'])}")
    return PAIRS[name]()


def dates(source: str, target: str) -> list[Pair]:
    """Pairs of random dates within about a century, each in one of seven CLDR formats, in both languages."""
    try:
        from babel import Locale, UnknownLocaleError
        from babel.dates import format_date
    except ImportError:
        raise UserError("dates in other languages come from Babel: pip install 'seqwright[samples]'.") from None
    try:
        here, there = (Locale.parse(code) for code in (source, target))
    except (UnknownLocaleError, ValueError) as error:
        raise UserError(f"Babel does not know both of '{source}' and '{target}': {error}.") from None
    pairs = {}
    for n, day in enumerate(permutation(0, 0, DAYS)[:MAX_DATES].tolist()):
        date = FIRST + datetime.timedelta(days=day)
        formatted = {style: format_date(date, style, locale=here) for style in FORMATS}
        text = formatted[FORMATS[n % len(FORMATS)]]
        # "May 5, 2020" is both long and medium: the translations of both are valid references.
        same = (style for style, other in formatted.items() if other == text)
        pairs[text] = Pair((text,), tuple(dict.fromkeys(format_date(date, style, locale=there) for style in same)))
    return list(pairs.values())
