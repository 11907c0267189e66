"""The bytes of each token: decoding concatenates them, for every kind and for imported files (decision 0035)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from seqwright.core.config import UserError
from seqwright.text.backend import CONTINUATION, METASPACE, TokenizerSpec, bytes_to_unicode, pipeline_steps, unescape

BYTE = re.compile(r"<0x([0-9A-F]{2})>")
"""A byte-fallback token of SentencePiece: one UTF-8 byte of a character without a piece."""


@dataclass(frozen=True, kw_only=True)
class TokenBytes:
    """Bytes of every id, and the spaces that concatenation leaves at either end of a text."""

    pieces: list[bytes]
    """(V,) UTF-8 bytes, maybe part of a character; empty for special tokens."""
    prefix: str
    """Stripped from the start of a decoded text."""
    suffix: str
    """Stripped from the end of a decoded text."""


TokenDecoder = tuple[Callable[[str], bytes], str, str]
"""Vocabulary entry to bytes, and the prefix and suffix to strip from a decoded text."""


def token_bytes(table: Mapping[str, Any], spec: TokenizerSpec, vocabulary: Mapping[str, int]) -> TokenBytes:
    """Token bytes of a tokenizer.json, by the rules of its decoder."""
    pieces = [b""] * (max(vocabulary.values(), default=-1) + 1)
    to_bytes, prefix, suffix = _token_decoder(table, spec)
    for name, id in vocabulary.items():
        if name not in spec.special_tokens:
            pieces[id] = to_bytes(name)
    return TokenBytes(pieces=pieces, prefix=prefix, suffix=suffix)


def _token_decoder(table: Mapping[str, Any], spec: TokenizerSpec) -> TokenDecoder:
    steps = {step["type"]: step for step in pipeline_steps(table["decoder"], "decoders")}
    # Words carry the space before them, end-of-word marks the space after: one is left over at either end of a text.
    if spec.kind == "words":
        return lambda name: b" " + unescape(name, spec.special_tokens).encode(), " ", ""
    if spec.kind == "characters":
        return str.encode, "", ""
    if "ByteLevel" in steps:
        byte_of = {name: byte for byte, name in enumerate(bytes_to_unicode())}
        return lambda name: bytes(byte_of[character] for character in name), "", ""
    if "WordPiece" in steps:
        prefix = steps["WordPiece"].get("prefix", CONTINUATION)
        return lambda name: (name[len(prefix) :] if name.startswith(prefix) else " " + name).encode(), " ", ""
    if "BPEDecoder" in steps:
        suffix = steps["BPEDecoder"]["suffix"]
        return lambda name: (name.removesuffix(suffix) + " " if name.endswith(suffix) else name).encode(), "", " "
    to_bytes = _byte_fallback_bytes if "ByteFallback" in steps else _metaspace_bytes
    if spec.kind == "bpe" and not spec.imported:
        return to_bytes, "", " "
    if "Metaspace" in steps:
        return to_bytes, "" if steps["Metaspace"].get("prepend_scheme") == "never" else " ", ""
    if steps.get("Replace", {}).get("pattern") == {"String": METASPACE}:
        return to_bytes, " " * steps.get("Strip", {}).get("start", 0), ""
    raise UserError(
        f"its decoder ({', '.join(steps) or 'none'}) is not supported, so ids could not be decoded to text; use a file"
        " with a ByteLevel, WordPiece, BPEDecoder or Metaspace decoder."
    )


def _metaspace_bytes(name: str) -> bytes:
    """A piece with ▁ as a space."""
    return name.replace(METASPACE, " ").encode()


def _byte_fallback_bytes(name: str) -> bytes:
    """As `_metaspace_bytes`, with byte fallback: `<0xE1>` is that byte."""
    byte = BYTE.fullmatch(name)
    return bytes([int(byte[1], 16)]) if byte else _metaspace_bytes(name)
