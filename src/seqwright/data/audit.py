"""Data audit of a file before training: sizes, encoding, scripts, duplicates and leaks, with warnings to act on."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqwright.data.duplicates import Duplicate, find_duplicates
from seqwright.data.files import read_bytes
from seqwright.data.text.corpus import Document, documents_of
from seqwright.text.coverage import script

CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
QUANTILES = {"median": 0.5, "p90": 0.9, "p99": 0.99, "longest": 1.0}
SHOWN = 5
"""Entries reported of each list."""


def audit(path: Path, *, document: Document = "line") -> dict[str, Any]:
    """Sizes, encoding, line endings, control characters, scripts and duplicates of a file."""
    data = read_bytes(path)
    text = data.decode(errors="replace")
    lines = text.removesuffix("\n").split("\n")
    lengths = [len(line) for line in lines]
    words = Counter(text.split())
    scripts: Counter[str] = Counter()
    for word, count in words.items():
        scripts[script(word)] += count
    documents = documents_of(text, document)
    duplicates = find_duplicates(documents)
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
            f"U+{ord(character):04X}": n for character, n in Counter(CONTROL.findall(text)).most_common(SHOWN)
        },
        "lines_not_nfc": sum(not unicodedata.is_normalized("NFC", line) for line in lines),
        "scripts": dict(scripts.most_common(SHOWN)),
        "documents": len(documents),
        "words_of_documents": _length_quantiles(documents),
        **_duplicate_report(duplicates, documents),
    }


def leaks(train: Sequence[str], held_out: Sequence[str]) -> dict[str, Any]:
    """Held-out documents that duplicate a training document, exactly or nearly."""
    # Duplicates within the training part or within the held-out part are no leak.
    leaked = [
        duplicate
        for duplicate in find_duplicates([*train, *held_out])
        if duplicate.number >= len(train) > duplicate.earlier
    ]
    return {"held_out_documents": len(held_out), **_duplicate_report(leaked, [*train, *held_out])}


def warnings(report: dict[str, Any]) -> list[str]:
    """Warnings about an audit report, each with what to do."""
    messages = []
    if not report["words"]:
        messages.append("the file has no words.")
    if report["not_utf8"]:
        messages.append(
            f"{report['not_utf8']:,} byte sequences are not UTF-8, the first at byte {report['first_not_utf8']:,}:"
            " convert the file, or name its encoding with --set data.encoding=NAME."
        )
    if report["nul_bytes"]:
        messages.append(f"{report['nul_bytes']:,} NUL bytes: it may be UTF-16 or binary.")
    if sum(bool(count) for count in report["line_ends"].values()) > 1:
        endings = ", ".join(f"{count:,} {end}" for end, count in report["line_ends"].items() if count)
        lone = "; a lone CR does not end a line here" if report["line_ends"]["CR"] else ""
        messages.append(f"line endings are mixed ({endings}){lone}.")
    if report["longest_line"]["characters"] > 1_000_000:
        messages.append("a line is longer than a million characters: is it one document?")
    if report["lines_not_nfc"]:
        messages.append(
            f"{report['lines_not_nfc']:,} lines hold decomposed characters: tokenizer.unicode_normalization ="
            ' "nfc" composes them.'
        )
    if report["copies"]:
        messages.append(
            f"{report['copies']:,} documents are exact duplicates of an earlier one, {report['near_copies']:,}"
            " near-duplicates."
        )
    return messages


def _encoding(data: bytes) -> dict[str, Any]:
    escaped = data.decode(errors="surrogateescape")  # invalid bytes become U+DC80 … U+DCFF
    offsets = [match.start() for match in re.finditer("[\udc80-\udcff]+", escaped)]
    crlf = data.count(b"\r\n")
    return {
        "byte_order_mark": data.startswith(b"\xef\xbb\xbf"),
        "not_utf8": len(offsets),
        "first_not_utf8": len(escaped[: offsets[0]].encode(errors="surrogateescape")) if offsets else None,
        "nul_bytes": data.count(0),
        "line_ends": {"LF": data.count(b"\n") - crlf, "CRLF": crlf, "CR": data.count(b"\r") - crlf},
    }


def _length_quantiles(documents: Sequence[str]) -> dict[str, int]:
    lengths = np.array([len(document.split()) for document in documents])
    return {name: int(np.quantile(lengths, quantile, method="higher")) for name, quantile in QUANTILES.items()}


def _duplicate_report(duplicates: Sequence[Duplicate], documents: Sequence[str]) -> dict[str, Any]:
    near = [duplicate for duplicate in duplicates if duplicate.similarity < 1]
    examples = [
        {
            "document": d.number + 1,
            "of": d.earlier + 1,
            "similarity": round(d.similarity, 3),
            "text": documents[d.number][:80],
        }
        for d in [*near, *(duplicate for duplicate in duplicates if duplicate.similarity == 1)][:SHOWN]
    ]
    return {"copies": len(duplicates) - len(near), "near_copies": len(near), "examples_of_copies": examples}
