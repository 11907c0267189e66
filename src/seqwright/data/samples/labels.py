"""Labeled texts that need no files: which language a name is in, as Babel's locale data write it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seqwright.core.config import UserError, did_you_mean
from seqwright.data.samples.text import PREFIX

LANGUAGES = ("cs", "de", "en", "es", "fi", "fr", "hu", "id", "it", "nl", "pl", "pt", "ro", "sv", "tr", "vi")
"""Sixteen that share a script, so that letters alone do not decide."""


def embedded_labels(name: str) -> list[tuple[str, str]]:
    """(label, text) of what `embedded:NAME` stands for."""
    key = name.removeprefix(PREFIX)
    if key not in LABELED:
        raise UserError(f"no embedded labeled texts '{key}'.{did_you_mean(key, LABELED)}")
    return LABELED[key]()


def languages() -> list[tuple[str, str]]:
    """Languages, territories, currencies, months and days by their names in sixteen languages; a name that several
    languages share belongs to none of them."""
    try:
        from babel import Locale
    except ImportError:
        raise UserError("names in other languages come from Babel: pip install 'seqwright[samples]'.") from None
    spoken: dict[str, set[str]] = {}
    for code in LANGUAGES:
        locale: Any = Locale.parse(code)
        names = [*locale.languages.values(), *locale.territories.values(), *locale.currencies.values()]
        for calendar in (locale.months, locale.days):
            names += calendar["format"]["wide"].values()
        for text in names:
            spoken.setdefault(text, set()).add(code)
    return sorted((min(codes), text) for text, codes in spoken.items() if len(codes) == 1)


LABELED: dict[str, Callable[[], list[tuple[str, str]]]] = {"languages": languages}
