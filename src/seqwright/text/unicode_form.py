"""Unicode forms: decomposed text (NFD, as macOS names files) for a model trained on composed text (NFC)."""

from __future__ import annotations

import unicodedata

from seqwright.text.tokenizer import Tokenizer

MAX_CHECKED = 2000
"""Characters of a text that are compared."""


def is_misread(text: str, tokenizer: Tokenizer) -> bool:
    """Whether a text that is not in NFC would be encoded better in NFC: with fewer unknown tokens or fewer tokens.

    Both forms look the same, but have other code points: "é" is U+00E9, or "e" and U+0301. Byte and character
    tokenizers always need fewer tokens for NFC, so there only unknown tokens or merged bytes count.
    """
    text = text[:MAX_CHECKED]
    if text.isascii() or unicodedata.is_normalized("NFC", text):
        return False
    given, composed = (tokenizer.encode(form) for form in (text, unicodedata.normalize("NFC", text)))
    if given == composed:  # the tokenizer normalizes
        return False
    unknown = [0 if tokenizer.unk is None else ids.count(tokenizer.unk) for ids in (given, composed)]
    if unknown[0] != unknown[1] or tokenizer.kind in ("characters", "bytes"):
        return unknown[0] > unknown[1]
    return len(given) > len(composed)
