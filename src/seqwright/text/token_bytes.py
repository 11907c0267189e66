"""What each id stands for, in bytes: decoding is joining them, whatever the kind and whoever made the file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from seqwright.core.config import UserError
from seqwright.text.backend import CONTINUES, MARK, Facts, byte_names, parts, unescape

BYTE = re.compile(r"<0x([0-9A-F]{2})>")
"""The name of a byte that stands for part of a character without a piece, as SentencePiece writes it."""


@dataclass(frozen=True, kw_only=True)
class Surfaces:
    """Pieces of text by id, and what stands before the first or after the last of them by construction only."""

    pieces: list[bytes]
    """Nothing for special_tokens."""
    lead: str
    trail: str


CharCNN = tuple[Callable[[str], bytes], str, str]
"""The bytes of a name, and what joining them puts too much at the beginning and at the end."""


def surfaces(table: Mapping[str, Any], facts: Facts, vocabulary: Mapping[str, int]) -> Surfaces:
    """The surfaces of a tokenizer.json; its decoder says how names are spelled."""
    pieces = [b""] * (max(vocabulary.values(), default=-1) + 1)
    spell, lead, trail = _spelling(table, facts)
    for name, id in vocabulary.items():
        if name not in facts.special_tokens:
            pieces[id] = spell(name)
    return Surfaces(pieces=pieces, lead=lead, trail=trail)


def _spelling(table: Mapping[str, Any], facts: Facts) -> CharCNN:
    steps = {step["type"]: step for step in parts(table["decoder"], "decoders")}
    if facts.kind == "words":
        return lambda name: b" " + unescape(name, facts.special_tokens).encode(), " ", ""
    if facts.kind == "characters":
        return str.encode, "", ""
    if "ByteLevel" in steps:
        byte_of = {name: byte for byte, name in enumerate(byte_names())}
        return lambda name: bytes(byte_of[character] for character in name), "", ""
    if "WordPiece" in steps:
        prefix = steps["WordPiece"].get("prefix", CONTINUES)
        return lambda name: (name[len(prefix) :] if name.startswith(prefix) else " " + name).encode(), " ", ""
    if "BPEDecoder" in steps:
        suffix = steps["BPEDecoder"]["suffix"]
        return lambda name: (name.removesuffix(suffix) + " " if name.endswith(suffix) else name).encode(), "", " "
    spell = _spelled_with_bytes if "ByteFallback" in steps else _spelled
    if facts.kind == "bpe" and not facts.imported:
        return spell, "", " "
    if "Metaspace" in steps:
        return spell, "" if steps["Metaspace"].get("prepend_scheme") == "never" else " ", ""
    if steps.get("Replace", {}).get("pattern") == {"String": MARK}:
        return spell, " " * steps.get("Strip", {}).get("start", 0), ""
    raise UserError(f"its decoder ({', '.join(steps) or 'none'}) is not known, so ids could not be read back as text.")


def _spelled(name: str) -> bytes:
    return name.replace(MARK, " ").encode()


def _spelled_with_bytes(name: str) -> bytes:
    """SentencePiece's spelling: `<0xE1>` is a byte of a character that has no piece."""
    byte = BYTE.fullmatch(name)
    return bytes([int(byte[1], 16)]) if byte else _spelled(name)
