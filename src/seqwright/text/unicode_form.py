"""Unicode forms: composed text (NFC) and decomposed text (NFD, as macOS names files), for a model of the other."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Literal

from seqwright.text.tokenizer import Tokenizer

MAX_CHECKED = 2000
"""Characters of a text that are compared."""
FEWER = 0.75
"""Share of the tokens of composed text that decomposed text has at most where the model has learned that: a chance
piece of a word can be longer without its accent."""


FORMS = {
    "NFC": "the text has decomposed letters (Unicode NFD), and the model was trained on composed ones (NFC): normalize"
    " the text to NFC, or results are worse than they could be.",
    "NFD": "the text has composed letters (Unicode NFC), and the model was trained on decomposed ones (NFD): normalize"
    ' the text to NFD, or train on text in NFC (tokenizer.unicode_normalization = "nfc").',
}
"""Warnings by the Unicode form in which a text would be read better."""
DOCUMENTS = 20
"""Documents of a validation text that are looked at."""


def form_notes(documents: Sequence[str], tokenizer: Tokenizer) -> Iterator[str]:
    """A note where the first validation documents would be read better in another Unicode form."""
    forms = (better_form(text, tokenizer) for text in documents[:DOCUMENTS])
    if form := next(filter(None, forms), None):
        yield f"validation: {FORMS[form]}"


def better_form(text: str, tokenizer: Tokenizer, *, of_composed: bool = True) -> Literal["NFC", "NFD"] | None:
    """The Unicode form in which a text would be encoded better: with fewer unknown tokens or fewer tokens; or None.

    Both forms look the same, but have other code points: "é" is U+00E9, or "e" and U+0301. Byte and character
    tokenizers always need fewer tokens for NFC, so there only unknown tokens or merged bytes count. Composed text,
    which is usual, is passed over unless `of_composed`: it would be encoded twice.
    """
    text = text[:MAX_CHECKED]
    if text.isascii():
        return None
    composed = unicodedata.is_normalized("NFC", text)
    if composed and not of_composed:
        return None
    form: Literal["NFC", "NFD"] = "NFD" if composed else "NFC"
    given, other = (tokenizer.encode(either) for either in (text, unicodedata.normalize(form, text)))
    if given == other:  # the tokenizer normalizes
        return None
    unknown = [0 if tokenizer.unk is None else ids.count(tokenizer.unk) for ids in (given, other)]
    if unknown[0] != unknown[1] or tokenizer.kind in ("characters", "bytes"):
        return form if unknown[0] > unknown[1] else None
    return form if len(other) < len(given) * (FEWER if composed else 1) else None
