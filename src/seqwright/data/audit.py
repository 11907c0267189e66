"""What a user's own file holds, before anything is learned from it: what could break, and what could mislead."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqwright.data.duplicates import Copy, copies
from seqwright.data.files import read_bytes
from seqwright.data.text.corpus import Document, documents_of
from seqwright.text.coverage import script

CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
QUANTILES = {"median": 0.5, "p90": 0.9, "p99": 0.99, "longest": 1.0}
SHOWN = 5


def audit(path: Path, *, document: Document = "line") -> dict[str, Any]:
    """Sizes, encoding, line ends, odd characters, scripts and copies of one file."""
    data = read_bytes(path)
    text = data.decode(errors="replace")
    lines = text.removesuffix("\n").split("\n")
    lengths = [len(line) for line in lines]
    words = Counter(text.split())
    scripts: Counter[str] = Counter()
    for word, count in words.items():
        scripts[script(word)] += count
    documents = documents_of(text, document)
    found = copies(documents)
    return {
        "file": str(path),
        "bytes": len(data),
        "characters": len(text),
        "words": words.total(),
        "word_types": len(words),
        "lines": len(lines),
        "empty_lines": sum(not line.strip() for line in lines),
        "longest_line": {"line": int(np.argmax(lengths)) + 1, "characters": max(lengths)},
        **_encoding(data),
        "control_characters": {
            f"U+{ord(sign):04X}": n for sign, n in Counter(CONTROL.findall(text)).most_common(SHOWN)
        },
        "lines_not_nfc": sum(not unicodedata.is_normalized("NFC", line) for line in lines),
        "scripts": dict(scripts.most_common(SHOWN)),
        "documents": len(documents),
        "words_of_documents": _lengths(documents),
        **_copies(found, documents),
    }


def leaks(train: Sequence[str], held_out: Sequence[str]) -> dict[str, Any]:
    """Held-out documents that the training documents hold too, word for word or nearly."""
    found = [copy for copy in copies([*train, *held_out]) if copy.number >= len(train) > copy.earlier]
    return {"held_out_documents": len(held_out), **_copies(found, [*train, *held_out])}


def warnings(found: dict[str, Any]) -> list[str]:
    """What of an audit a person should act on, and how."""
    said = []
    if not found["words"]:
        said.append("there is not a word in it.")
    if found["not_utf8"]:
        said.append(
            f"{found['not_utf8']:,} places are not UTF-8, the first at byte {found['first_not_utf8']:,}: convert it."
        )
    if found["nul_bytes"]:
        said.append(f"{found['nul_bytes']:,} NUL bytes: it may be UTF-16 or binary.")
    if sum(bool(count) for count in found["line_ends"].values()) > 1:
        ends = ", ".join(f"{count:,} {end}" for end, count in found["line_ends"].items() if count)
        said.append(f"line ends are mixed ({ends}): a lone CR ends no line here.")
    if found["longest_line"]["characters"] > 1_000_000:
        said.append("a line is longer than a million characters: is it one document?")
    if found["lines_not_nfc"]:
        said.append(
            f'{found["lines_not_nfc"]:,} lines hold decomposed characters: tokenizer.unicode_normalization = "nfc" joins them.'
        )
    if found["copies"]:
        said.append(
            f"{found['copies']:,} documents repeat an earlier one word for word, {found['near_copies']:,} nearly."
        )
    return said


def _encoding(data: bytes) -> dict[str, Any]:
    broken = data.decode(errors="surrogateescape")
    places = [match.start() for match in re.finditer("[\udc80-\udcff]+", broken)]
    crlf = data.count(b"\r\n")
    return {
        "byte_order_mark": data.startswith(b"\xef\xbb\xbf"),
        "not_utf8": len(places),
        "first_not_utf8": len(broken[: places[0]].encode(errors="surrogateescape")) if places else None,
        "nul_bytes": data.count(0),
        "line_ends": {"LF": data.count(b"\n") - crlf, "CRLF": crlf, "CR": data.count(b"\r") - crlf},
    }


def _lengths(documents: Sequence[str]) -> dict[str, int]:
    lengths = np.array([len(document.split()) for document in documents])
    return {name: int(np.quantile(lengths, share, method="higher")) for name, share in QUANTILES.items()}


def _copies(found: Sequence[Copy], documents: Sequence[str]) -> dict[str, Any]:
    near = [copy for copy in found if copy.similarity < 1]
    shown = [
        {
            "document": c.number + 1,
            "of": c.earlier + 1,
            "similarity": round(c.similarity, 3),
            "text": documents[c.number][:80],
        }
        for c in [*near, *(copy for copy in found if copy.similarity == 1)][:SHOWN]
    ]
    return {"copies": len(found) - len(near), "near_copies": len(near), "examples_of_copies": shown}
