"""Embedded labeled texts: names with their language, from Babel's locale data (CLDR)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seqwright.core.config import UserError, did_you_mean
from seqwright.data.samples.text import PREFIX

LANGUAGES = ("cs", "de", "en", "es", "fi", "fr", "hu", "id", "it", "nl", "pl", "pt", "ro", "sv", "tr", "vi")
"""Sixteen languages in Latin script, so that the script alone does not give the label away."""


def embedded_labels(name: str) -> list[tuple[str, str]]:
    """(label, text) rows of the dataset `embedded:NAME`."""
    key = name.removeprefix(PREFIX)
    if key not in LABELED:
        raise UserError(f"no embedded labeled texts '{key}'.{did_you_mean(key, LABELED)}")
    return LABELED[key]()


def languages() -> list[tuple[str, str]]:
    """Names of languages, territories, currencies, months and days in sixteen languages, labeled by language; names
    that several languages share are dropped."""
    try:
        from babel import Locale
    except ImportError:
        raise UserError("names in other languages come from Babel: pip install 'seqwright[samples]'.") from None
    languages_of: dict[str, set[str]] = {}
    for code in LANGUAGES:
        locale: Any = Locale.parse(code)
        names = [*locale.languages.values(), *locale.territories.values(), *locale.currencies.values()]
        for calendar in (locale.months, locale.days):
            names += calendar["format"]["wide"].values()
        for text in names:
            languages_of.setdefault(text, set()).add(code)
    return sorted((min(codes), text) for text, codes in languages_of.items() if len(codes) == 1)


LABELED: dict[str, Callable[[], list[tuple[str, str]]]] = {"languages": languages}
