"""Moses: the punctuation and word boundaries by which tokenized BLEU is counted, for English, German and French.

The rules are those of Koehn et al.'s (2007) `normalize-punctuation.perl` and `tokenizer.perl`, as sacremoses reads
them. Entities are not escaped: that changes how tokens are written, never how many match.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from typing import Literal

Language = Literal["en", "de", "fr"]
Rules = Sequence[tuple[re.Pattern[str], str]]

LETTER = r"[^\W\d_]"
NO_LETTER = r"(?:[\W\d_])"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Abbreviations after which a full stop ends no sentence, beside single letters.
_RANKS = """Adj Adm Adv Asst Bart Bldg Brig Bros Capt Cmdr Col Comdr Con Corp Cpl DR Dr Ens Gen Gov Hon Hosp Insp Lt
    MM MR MRS MS Maj Messrs Mlle Mme Mr Mrs Ms Msgr Op Ord Pfc Ph Prof Pvt Rep Reps Res Rev Rt Sen Sens Sfc Sgt Sr St
    Supt Surg"""
PREFIXES: dict[Language, frozenset[str]] = {
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
    "fr": frozenset(string.ascii_letters) - {"a"},  # a word
}
BEFORE_NUMBERS: dict[Language, frozenset[str]] = {
    "en": _words("No Art pp"),
    "de": _words(""),
    "fr": _words(""),
}
"""Those that end no sentence where a number follows."""
ORDINAL = re.compile(r"[1-9]\d?|[IVX]+|[ivx]+")
"""German writes "der 3." and "der III."."""


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
        (rf"({NO_LETTER})'({NO_LETTER})", r"\1 ' \2"),
        (rf"([\W_])'({LETTER})", r"\1 ' \2"),
        (rf"({LETTER})'({NO_LETTER})", r"\1 ' \2"),
        (rf"({LETTER})'({LETTER})", r"\1 '\2"),
        (r"(\d)'(s)", r"\1 '\2"),
    ),
    "de": _rules((r"'", " ' ")),
    "fr": _rules(
        (rf"({NO_LETTER})'({NO_LETTER})", r"\1 ' \2"),
        (rf"({NO_LETTER})'({LETTER})", r"\1 ' \2"),
        (rf"({LETTER})'({NO_LETTER})", r"\1 ' \2"),
        (rf"({LETTER})'({LETTER})", r"\1' \2"),
    ),
}
_DOTS = re.compile(r"\.{2,}")
_MARK = re.compile(r"DOTS(\d+)SEEN")


def normalize_punctuation(text: str, language: Language) -> str:
    """Typographic quotes, dashes and spaces as plain ones."""
    for pattern, replacement in (*_PUNCTUATION, *_QUOTES[language]):
        text = pattern.sub(replacement, text)
    return text.strip()


def tokenize(text: str, language: Language) -> list[str]:
    """Words and punctuation apart."""
    text = re.sub(r"[\0-\x1f]", "", re.sub(r"\s+", " ", text)).strip()
    text = _SPECIAL.sub(r" \1 ", text)
    text = _DOTS.sub(lambda dots: f" DOTS{len(dots[0])}SEEN ", text)  # several stay together
    for pattern, replacement in (*_COMMAS, *_APOSTROPHES[language]):
        text = pattern.sub(replacement, text)
    joined = " ".join(_stops(text.split(), language))
    joined = re.sub(r"\.' ?$", " . ' ", joined)
    return _MARK.sub(lambda mark: "." * int(mark[1]), joined).split()


def _stops(words: list[str], language: Language) -> list[str]:
    """A full stop is a token of its own where it ends a sentence rather than an abbreviation."""
    parted = []
    for place, word in enumerate(words):
        prefix = word[:-1]
        following = words[place + 1] if place + 1 < len(words) else ""
        kept = (
            not prefix
            or not word.endswith(".")
            or ("." in prefix and any(character.isalpha() for character in prefix))
            or prefix in PREFIXES[language]
            or prefix in INITIALS[language]
            or (language == "de" and ORDINAL.fullmatch(prefix) is not None)
            or following[:1].islower()
            or (prefix in BEFORE_NUMBERS[language] and following[:1].isdigit())
        )
        parted += [word] if kept else [prefix, "."]
    return parted


def lower_tokens(text: str, language: Language) -> str:
    """Lower-cased, normalized and tokenized: what Multi30k's scores are counted on."""
    return " ".join(tokenize(normalize_punctuation(text.lower(), language), language))
