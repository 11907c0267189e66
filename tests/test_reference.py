"""Every key of a recipe: documented, and taken from a recipe and back with a value that is not its default."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from seqwright import reference
from seqwright.recipe import make
from seqwright.reference import Entry

PAGE = Path(__file__).parents[1] / "docs" / "reference.md"

BY_TYPE: dict[str, list[Any]] = {
    "true or false": [True, False],
    "a whole number": [3, 4, 2, 64],
    'a whole number or "auto"': ["auto"],
    "a number": [0.25, 0.5, 2.0],
    "a string": ["<|other|>"],
    "a list of a string": [["<other>"]],
    "a list of a string or a string": [["a.txt", "b.txt"], "c.txt"],
    "a list of a whole number": [[5, 6]],
    "a list of a number": [[1.0, 2.0]],
    "a list [a whole number, a whole number]": [[2, 3]],
    "a list of a list [a whole number, a number]": [[[5, 0.5]]],
}
"""Values to try for a key, the first that is not its default; keys of words are tried with their own words."""

TOGETHER: dict[str, dict[str, Any]] = {
    "data.split": {"split": "documents 5%"},
    "tokenizer.size": {"size": 500},
    "tokenizer.compression": {"kind": "bpe", "compression": 3.5},
    "tokenizer.split": {"kind": "words", "split": "basic-english"},
    "tokenizer.sampling": {"kind": "unigram", "sampling": 0.0},
    "tokenizer.source_kind": {"joint": False, "source_kind": "words"},
    "tokenizer.source_size": {"joint": False, "source_size": 500},
    "model.width": {"width": 192},
    "model.heads": {"heads": 8},
    "model.key_heads": {"key_heads": 2},
    "model.readout": {"readout": "flatten", "length": 9},
    "gpt.readout": {"readout": "flatten", "tied": False},
    "model.length": {"readout": "flatten", "length": 9},
    "model.cutoffs": {"cutoffs": [0, 0, 1]},
    "model.fallback": {"fallback": [0.4, 0.9, 1.4]},
    "model.memory": {"memory": 1 << 30},
    "model.weights": {"weights": [0.25, 0.75], "parts": {"1": {"kind": "ngram"}, "2": {"kind": "gpt"}}},
    "model.parts": {"weights": [0.25, 0.75], "parts": {"1": {"kind": "ngram"}, "2": {"kind": "gpt"}}},
    "model.unknown": {"order": 4, "unknown": False},
    "training.lora": {"lora": 8, "base": "runs/base"},
    "decoding.risk": {"risk": "chrf", "best": 4},
    "decoding.groups": {"width": 6, "groups": 3},
}
"""Keys, of a section or of one kind of model, that mean something only with others or with values of their own."""

KEYS = [entry for entry in reference.entries() if entry.section and f"{entry.section}.{entry.key}" != "data.kind"]
"""All but the two that every recipe of these tests has: its name and the kind of its data."""


def named(entry: Entry) -> str:
    return f"{entry.data[0]}-{entry.section}-{entry.kind or ''}-{entry.key}"


def words_of(type: str) -> list[Any]:
    """The words of a type like `"a" | "b"`, or lists of one of them."""
    several = type.startswith("a list of ")
    words = [json.loads(word) for word in type.removeprefix("a list of ").split(" | ")]
    return [[word] for word in words] if several else words


def values(entry: Entry) -> dict[str, Any]:
    """The keys of a section in which this one is not what it would be anyway."""
    for place in (entry.kind, entry.section):
        if (found := TOGETHER.get(f"{place}.{entry.key}")) is not None:
            return found
    default = tomllib.loads(f"x = {entry.default}")["x"] if entry.default else None
    tried = BY_TYPE.get(entry.type) or words_of(entry.type)
    return {entry.key: next(value for value in tried if value != default)}


def recipe_with(entry: Entry) -> dict[str, Any]:
    table: dict[str, Any] = {"data": {"kind": entry.data[0], "train": ["text.txt", "text.txt"]}}
    if entry.kind:
        table["model"] = {"kind": entry.kind}
    place = table
    for part in entry.section.split("."):
        place = place.setdefault(part, {})
    place |= values(entry)
    return table


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference.markdown(), "run `seqwright recipes --markdown`"


@pytest.mark.parametrize("entry", KEYS, ids=named)
def test_every_key_has_a_help(entry: Entry) -> None:
    assert entry.help.endswith((".", ")")), f"a sentence under the field {entry.key}"


@pytest.mark.parametrize("entry", [entry for entry in KEYS if entry.type != "a section"], ids=named)
def test_every_key_is_read_and_written_back(entry: Entry) -> None:
    made = make(recipe_with(entry), settled=True)
    written = tomllib.loads(made.toml())
    place = written
    for part in entry.section.split("."):
        place = place[part]
    assert place[entry.key] == values(entry)[entry.key]
    assert make(written, settled=True) == made
