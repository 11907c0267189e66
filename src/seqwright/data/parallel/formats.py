"""Parsers for files with both sides: JSON lines, SCAN, CMUdict, and plays; CSV and TSV are in `tables.py`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from seqwright.core.config import UserError
from seqwright.data.records import parse_object

_SCAN = re.compile(r"IN: (.*) OUT: (.*)")
_VARIANT = re.compile(r"\(\d+\)$")


@dataclass(frozen=True)
class Pair:
    """A source with its references."""

    sources: tuple[str, ...]
    """The source text, or several that are concatenated."""
    targets: tuple[str, ...]
    """The target text, or several equally valid references."""
    tag: str | None = None
    """Special token in front of the source, such as the target language."""


def jsonl(lines: Sequence[str], name: str) -> list[Pair]:
    """Pairs from one object per line: "source" and "target", each a string or a list of strings; "tag" optionally."""
    pairs = []
    for number, line in enumerate(lines, 1):
        place = f"{name}, line {number:,}"
        record = parse_object(line, place)
        sources, targets = (_texts(record.get(key), key, place) for key in ("source", "target"))
        pairs.append(Pair(sources, targets, record.get("tag")))
    return pairs


def scan(lines: Sequence[str], name: str) -> list[Pair]:
    """Pairs of SCAN, `IN: command OUT: actions` (Lake & Baroni 2018)."""
    pairs = []
    for number, line in enumerate(lines, 1):
        match = _SCAN.fullmatch(line)
        if not match:
            raise UserError(f"{name}, line {number:,}: expected `IN: … OUT: …`, not {line[:60]!r}.")
        pairs.append(Pair((match[1],), (match[2],)))
    return pairs


def cmudict(lines: Sequence[str], name: str) -> list[Pair]:
    """Pairs of a word and its phonemes without stress; further pronunciations, `word(2)`, are further references."""
    pronunciations: dict[str, list[str]] = {}
    for number, line in enumerate(lines, 1):
        word, _, phonemes = line.partition(" #")[0].strip().partition(" ")
        if not phonemes:
            raise UserError(f"{name}, line {number:,}: expected a word and its phonemes, not {line[:60]!r}.")
        variants = pronunciations.setdefault(_VARIANT.sub("", word), [])
        unstressed = re.sub(r"\d", "", phonemes)
        if unstressed not in variants:  # pronunciations that differ in stress only are one
            variants.append(unstressed)
    return [Pair((word,), tuple(variants)) for word, variants in pronunciations.items()]


def speeches(lines: Sequence[str], name: str) -> list[Pair]:
    """Pairs of consecutive speeches of a play: `SPEAKER:` above each speech and a blank line below it."""
    turns = []
    for block in "\n".join(lines).split("\n\n"):
        speaker, _, speech = block.partition("\n")
        if speaker.endswith(":") and speech:
            turns.append(" ".join(speech.split()))
    if len(turns) < 2:
        raise UserError(f"{name} is no play: write `SPEAKER:` on a line above each speech, and a blank line below it.")
    return [Pair((speech,), (reply,)) for speech, reply in pairwise(turns)]


FORMATS: dict[str, Callable[[Sequence[str], str], list[Pair]]] = {
    "jsonl": jsonl,
    "scan": scan,
    "cmudict": cmudict,
    "speeches": speeches,
}


def _texts(value: Any, key: str, place: str) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        dumped = json.dumps(value, ensure_ascii=False)[:60]
        raise UserError(f"{place}: '{key}' should be a string or a list of strings, but is {dumped}.")
    return tuple(texts)
