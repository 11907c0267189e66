"""Every key of a recipe: documented, and taken from a recipe and back with a value that is not its default."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seqwright.build import DERIVED, TASKS
from seqwright.commands.train import KINDS
from seqwright.core.config import UserError
from seqwright.pipeline import reference
from seqwright.pipeline.recipe import Recipe, make
from seqwright.pipeline.reference import Entry

PAGE = Path(__file__).parents[2] / "docs" / "reference.md"

VALUES = [
    *(True, False, 3, 4, 64, 192, 500, 1 << 30, 0.25, 0.5, 2.0, "<|other|>", "documents 5%", "tail 5%", "latin-1"),
    *(["<other>"], ["1", "2"], [5, 6], [0, 0, 1], [1.0, 2.0], [0.4, 0.9, 1.4], [[5, 0.5]], {"1": {"kind": "gpt"}}),
]
"""Tried one after the other, after the words that a key may be; reading is strict, so that a wrong type is refused."""

TOGETHER: dict[str, dict[str, Any]] = {
    "tokenizer.bytes_per_token": {"kind": "bpe"},
    "tokenizer.pretokenizer": {"kind": "words"},
    "tokenizer.sampling_alpha": {"kind": "unigram"},
    "tokenizer.source_file": {"joint": False},
    "tokenizer.source_kind": {"joint": False},
    "tokenizer.source_size": {"joint": False},
    "training.bptt_jitter": {"sequence_length": 35},
    "model.kv_heads": {"heads": 8},
    "model.latent_dropout": {"softmaxes": 3},
    "model.mogrifier_rank": {"mogrifier_rounds": 5},
    "model.readout": {"length": 9},
    "gpt.readout": {"tied": False},
    "model.length": {"readout": "flatten"},
    "cnn.length": {"kernels": [3], "pooling": "flatten"},
    "mlp.length": {},
    "model.weights": {"parts": {"1": {"kind": "ngram"}, "2": {"kind": "gpt"}}},
    "model.parts": {"weights": [0.25, 0.75]},
    "model.mean": {"weights": [0.5, 0.5], "parts": {"1": {"kind": "bag"}, "2": {"kind": "gpt"}}},
    "model.interpolation": {
        "weights": [0.5, 0.5],
        "mean": "geometric",
        "parts": {"1": {"kind": "ngram"}, "2": {"kind": "gpt"}},
    },
    "vit.decoder_width": {"decoder_layers": 2},
    "model.unknown": {"order": 4},
    "training.lora_rank": {"init_from": "runs/base"},
    "data.test": {"split": "documents 5%"},
    "decoding.mbr": {"n_best": 4},
    "decoding.beam_groups": {"beam_size": 6},
}
"""What else keys need, of a section or of one kind of model."""

KEYS = [
    entry
    for entry in reference.entries()
    if entry.section and f"{entry.section}.{entry.key}" != "data.kind" and not re.fullmatch(r'"[^"]+"', entry.type)
]
"""All but the two that every recipe of these tests has, its name and the kind of its data, and those with one value."""


def named(entry: Entry) -> str:
    return f"{entry.data[0]}-{entry.section}-{entry.kind or ''}-{entry.key}"


def values(entry: Entry) -> Iterator[Any]:
    """Values that a key does not have anyway, some of them fit for it."""
    default = tomllib.loads(f"x = {entry.default}")["x"] if entry.default else None
    words = [json.loads(word) for word in re.findall(r'"[^"]+"', entry.type)]
    for value in (*words, *([word] for word in words), *VALUES):
        if value != default or type(value) is not type(default):  # True is 1 to Python
            yield value


def recipe_with(entry: Entry, value: Any) -> dict[str, Any]:
    table: dict[str, Any] = {"data": {"kind": entry.data[0], "train": ["text.txt", "text.txt"]}}
    if entry.kind:
        table["model"] = {"kind": entry.kind}
    needed = TOGETHER.get(f"{entry.kind}.{entry.key}", TOGETHER.get(f"{entry.section}.{entry.key}", {}))
    section(table, entry.section).update({entry.key: value} | needed)
    return table


def section(table: dict[str, Any], name: str) -> dict[str, Any]:
    for part in name.split("."):
        table = table.setdefault(part, {})
    return table


def made_with(entry: Entry) -> tuple[Recipe, Any]:
    """The first recipe that can be made with another value of a key, and the value."""
    problems = ""
    for value in values(entry):
        try:
            return make(recipe_with(entry, value), settled=True), value
        except UserError as error:
            problems += f"\n{error}"
    pytest.fail(f"no value fits {named(entry)}: add one to VALUES, or what it needs to TOGETHER{problems}")


def test_the_reference_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference.markdown(), "run `seqwright recipes --markdown`"


@pytest.mark.parametrize("entry", KEYS, ids=named)
def test_every_key_has_a_help(entry: Entry) -> None:
    assert entry.help.endswith((".", ")")), f"a sentence under the field {entry.key}"


@pytest.mark.parametrize("entry", [entry for entry in KEYS if entry.type != "a section"], ids=named)
def test_every_key_round_trips(entry: Entry) -> None:
    made, value = made_with(entry)
    written = tomllib.loads(made.toml())
    assert section(written, entry.section)[entry.key] == value
    assert make(written, settled=True) == made


def test_the_help_of_train_names_every_kind_of_model() -> None:
    """The tables of build.py are too heavy for `--help`, so it has the names in words."""
    called = {"text": "", "pairs": "for pairs ", "labeled": "for labeled texts ", "tagged": "for tagged words "}
    called |= {"masked": "for masked text ", "images": "for images ", "captions": "for captions "}
    for (task, name), said in zip(called.items(), KINDS.split("; "), strict=True):
        assert set(re.split(", | or ", said.removeprefix(name))) == TASKS[task].models.keys() - DERIVED.keys(), task
