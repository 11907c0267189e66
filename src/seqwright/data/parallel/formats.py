"""One file that holds both sides: tab-separated, JSON lines, the files of SCAN and CMUdict, and plays."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from seqwright.core.config import UserError
from seqwright.data.records import object_of

_SCAN = re.compile(r"IN: (.*) OUT: (.*)")
_VARIANT = re.compile(r"\(\d+\)$")


@dataclass(frozen=True)
class Pair:
    """What is given, and what may be said of it."""

    sources: tuple[str, ...]
    """One text, or several to be read one after the other."""
    targets: tuple[str, ...]
    """One text, or several that are equally right."""
    tag: str | None = None
    """The reserved token that says what is wanted."""


def tsv(lines: Sequence[str], name: str, columns: tuple[int, int]) -> list[Pair]:
    """Two columns of each line."""
    pairs = []
    for number, line in enumerate(lines, 1):
        cells = line.split("\t")
        if len(cells) < max(columns):
            raise UserError(
                f"{name}, line {number:,}: {len(cells)} column(s) between tabs, but data.columns asks for column"
                f" {max(columns)}; the line begins {line[:60]!r}."
            )
        pairs.append(Pair((cells[columns[0] - 1],), (cells[columns[1] - 1],)))
    return pairs


def jsonl(lines: Sequence[str], name: str, columns: tuple[int, int]) -> list[Pair]:
    """An object a line: "source" and "target", each a text or a list of texts; "tag" if there is one."""
    pairs = []
    for number, line in enumerate(lines, 1):
        place = f"{name}, line {number:,}"
        record = object_of(line, place)
        sources, targets = (_texts(record.get(key), key, place) for key in ("source", "target"))
        pairs.append(Pair(sources, targets, record.get("tag")))
    return pairs


def scan(lines: Sequence[str], name: str, columns: tuple[int, int]) -> list[Pair]:
    """`IN: command OUT: actions` (Lake & Baroni 2018)."""
    pairs = []
    for number, line in enumerate(lines, 1):
        found = _SCAN.fullmatch(line)
        if not found:
            raise UserError(f"{name}, line {number:,}: expected `IN: … OUT: …`, not {line[:60]!r}.")
        pairs.append(Pair((found[1],), (found[2],)))
    return pairs


def cmudict(lines: Sequence[str], name: str, columns: tuple[int, int]) -> list[Pair]:
    """Words to phonemes without stress; further pronunciations, `word(2)`, are equally right."""
    said: dict[str, list[str]] = {}
    for number, line in enumerate(lines, 1):
        word, _, phonemes = line.partition(" #")[0].strip().partition(" ")
        if not phonemes:
            raise UserError(f"{name}, line {number:,}: expected a word and its phonemes, not {line[:60]!r}.")
        several = said.setdefault(_VARIANT.sub("", word), [])
        plain = re.sub(r"\d", "", phonemes)
        if plain not in several:  # pronunciations that differ in stress alone are one
            several.append(plain)
    return [Pair((word,), tuple(several)) for word, several in said.items()]


def speeches(lines: Sequence[str], name: str, columns: tuple[int, int]) -> list[Pair]:
    """A play, `SPEAKER:` above each speech and a blank line below: what is said → what is answered."""
    said = []
    for block in "\n".join(lines).split("\n\n"):
        speaker, _, speech = block.partition("\n")
        if speaker.endswith(":") and speech:
            said.append(" ".join(speech.split()))
    if len(said) < 2:
        raise UserError(f"{name} holds no play: each speech stands under a line `SPEAKER:`, a blank line after it.")
    return [Pair((one,), (answer,)) for one, answer in pairwise(said)]


FORMATS: dict[str, Callable[[Sequence[str], str, tuple[int, int]], list[Pair]]] = {
    "tsv": tsv,
    "jsonl": jsonl,
    "scan": scan,
    "cmudict": cmudict,
    "speeches": speeches,
}


def _texts(value: Any, key: str, place: str) -> tuple[str, ...]:
    several = [value] if isinstance(value, str) else value
    if not isinstance(several, list) or not several or not all(isinstance(text, str) for text in several):
        found = json.dumps(value, ensure_ascii=False)[:60]
        raise UserError(f"{place}: '{key}' should be a text or a list of texts, but is {found}.")
    return tuple(several)
