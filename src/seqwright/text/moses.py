"""Moses punctuation normalization and tokenization, for tokenized BLEU in English, German and French.

The rules of `normalize-punctuation.perl` and `tokenizer.perl` (Koehn et al. 2007), as sacremoses implements them
(decision 0050). Entities are not escaped: that renames tokens on both sides and changes no match.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from typing import Literal

Language = Literal["en", "de", "fr"]
Rules = Sequence[tuple[re.Pattern[str], str]]

LETTER = r"[^\W\d_]"
NON_LETTER = r"(?:[\W\d_])"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Moses' nonbreaking prefixes: abbreviations whose full stop is not split off. Single letters are in INITIALS.
_RANKS = """Adj Adm Adv Asst Bart Bldg Brig Bros Capt Cmdr Col Comdr Con Corp Cpl DR Dr Ens Gen Gov Hon Hosp Insp Lt
    MM MR MRS MS Maj Messrs Mlle Mme Mr Mrs Ms Msgr Op Ord Pfc Ph Prof Pvt Rep Reps Res Rev Rt Sen Sens Sfc Sgt Sr St
    Supt Surg"""
NONBREAKING_PREFIXES: dict[Language, frozenset[str]] = {
    "en": _words(f"{_RANKS} Drs Hr v vs rev Rs Nos Nr Jan Feb Mar Apr Jun Jul Aug Sep Oct Nov Dec"),
    "de": _words(
        f"""{_RANKS} Mio Mrd bzw v vs usw etc MwSt ggf vgl sogen ff Buchst sog Std evtl Zt Chr Ltd spp sen SA jun dgl
        dergl Co zzt usf Dkr bzgl BSE No Nos Art Nr pp ca Ca"""
    ),
    "fr": _words(
        """ann apr art auj lib av boul c.-à-d ca cf chap contr dir éd env etc al ex fasc fém fig fr hab ibid id inf M MM
        masc ms n/réf pl pp sec sect sing sq sqq SS suiv sup suppl tél v vb vol vs"""
    ),
}
INITIALS: dict[Language, frozenset[str]] = {
    "en": frozenset(string.ascii_uppercase),
    "de": frozenset(string.ascii_letters),
    "fr": frozenset(string.ascii_letters) - {"a"},  # "a" is a French word
}
NUMERIC_ONLY_PREFIXES: dict[Language, frozenset[str]] = {
    "en": _words("No Art pp"),
    "de": _words(""),
    "fr": _words(""),
}
"""Nonbreaking only before a number (#NUMERIC_ONLY# in Moses' prefix files)."""
ORDINAL = re.compile(r"[1-9]\d?|[IVX]+|[ivx]+")
"""German ordinals keep their full stop: "der 3.", "der III."."""


def _rules(*pairs: tuple[str, str]) -> Rules:
    return [(re.compile(pattern), replacement) for pattern, replacement in pairs]


_SPACES = (r" +", " ")
_PUNCTUATION = _rules(
    (r"\r", ""),
    (r"\(", " ("),
    (r"\)", ") "),
    _SPACES,
    (r"\) ([.!:?;,])", r")\1"),
    (r"\( ", "("),
    (r" \)", ")"),
    (r"(\d) %", r"\1%"),
    (r" ([:;])", r"\1"),
    (r"`", "'"),
    (r"''", ' " '),
    (r"[„“”]", '"'),
    (r"–", "-"),
    (r"—", " - "),
    _SPACES,
    (r"[´‘‚’]", "'"),
    (r"''", '"'),
    (r"…", "..."),
    (r"\u00a0?«\u00a0?|\u00a0?»\u00a0?", '"'),
    (r"\u00a0([%:?!;])", r"\1"),
    (r"(nº|,)\u00a0|\u00a0(?=ºC|cm)", r"\1 "),
    _SPACES,
)
_QUOTES: dict[Language, Rules] = {
    "en": _rules((r'"([,.]+)', r'\1"'), ("(\\d)\u00a0(\\d)", r"\1.\2")),
    "de": _rules((r',"', '",'), (r'(\.+)"(\s*[^<])', r'"\1\2'), ("(\\d)\u00a0(\\d)", r"\1,\2")),
}
_QUOTES["fr"] = _QUOTES["de"]

_SPECIAL = re.compile(r"([^\w\s.'`,\-]|_)")
_COMMAS = _rules((r"([^\d]),", r"\1 , "), (r",([^\d])", r" , \1"), (r"(\d),$", r"\1 , "))
_APOSTROPHES: dict[Language, Rules] = {
    "en": _rules(
        (rf"({NON_LETTER})'({NON_LETTER})", r"\1 ' \2"),
        (rf"([\W_])'({LETTER})", r"\1 ' \2"),
        (rf"({LETTER})'({NON_LETTER})", r"\1 ' \2"),
        (rf"({LETTER})'({LETTER})", r"\1 '\2"),
        (r"(\d)'(s)", r"\1 '\2"),
    ),
    "de": _rules((r"'", " ' ")),
    "fr": _rules(
        (rf"({NON_LETTER})'({NON_LETTER})", r"\1 ' \2"),
        (rf"({NON_LETTER})'({LETTER})", r"\1 ' \2"),
        (rf"({LETTER})'({NON_LETTER})", r"\1 ' \2"),
        (rf"({LETTER})'({LETTER})", r"\1' \2"),
    ),
}
_DOTS = re.compile(r"\.{2,}")
_DOTMULTI = re.compile(r"DOTS(\d+)SEEN")


def normalize_punctuation(text: str, language: Language) -> str:
    """Text with typographic quotes, dashes and spaces replaced by ASCII ones."""
    for pattern, replacement in (*_PUNCTUATION, *_QUOTES[language]):
        text = pattern.sub(replacement, text)
    return text.strip()


def tokenize(text: str, language: Language) -> list[str]:
    """Moses tokens: punctuation split off words, contractions and elisions split by language."""
    text = re.sub(r"[\0-\x1f]", "", re.sub(r"\s+", " ", text)).strip()
    text = _SPECIAL.sub(r" \1 ", text)
    text = _DOTS.sub(
        lambda dots: f" DOTS{len(dots[0])}SEEN ", text
    )  # runs of full stops stay one token, as DOTMULTI in Moses
    for pattern, replacement in (*_COMMAS, *_APOSTROPHES[language]):
        text = pattern.sub(replacement, text)
    joined = " ".join(_split_full_stops(text.split(), language))
    joined = re.sub(r"\.' ?$", " . ' ", joined)
    return _DOTMULTI.sub(lambda mark: "." * int(mark[1]), joined).split()


def _split_full_stops(words: list[str], language: Language) -> list[str]:
    """Splits the full stop off words, except after nonbreaking prefixes and before a lower-case word."""
    tokens = []
    for position, word in enumerate(words):
        prefix = word[:-1]
        following = words[position + 1] if position + 1 < len(words) else ""
        nonbreaking = (
            not prefix
            or not word.endswith(".")
            or ("." in prefix and any(character.isalpha() for character in prefix))
            or prefix in NONBREAKING_PREFIXES[language]
            or prefix in INITIALS[language]
            or (language == "de" and ORDINAL.fullmatch(prefix) is not None)
            or following[:1].islower()
            or (prefix in NUMERIC_ONLY_PREFIXES[language] and following[:1].isdigit())
        )
        tokens += [word] if nonbreaking else [prefix, "."]
    return tokens


def lower_tokens(text: str, language: Language) -> str:
    """Lower-cased, punctuation-normalized and tokenized text, joined by spaces: the usual input of BLEU on Multi30k."""
    return " ".join(tokenize(normalize_punctuation(text.lower(), language), language))
