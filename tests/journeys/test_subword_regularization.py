"""Training texts cut otherwise each epoch: gone on with to the same bits, and measured plainly."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from seqwright.core.storage import load_tensors
from tests.journeys.commands import TINY_GPT, records
from tests.journeys.conftest import Command

TINY = [
    *TINY_GPT,
    "--set",
    "training.schedule=constant",
    "--set",
    "training.warmup_steps=0",
    "--set",
    "data.split=tail 10%",
]
TINY += ["--set", "training.evaluate_every=0", "--set", "evaluation.resamples=0"]
PAIRS = ["--set", "data.batch_tokens=400", "--set", "data.split=tail 10%"]


def cut(**options: object) -> list[str]:
    return [part for key, value in options.items() for part in ("--set", f"tokenizer.{key}={value}")]


@pytest.fixture
def own(here: Path) -> dict[str, list[str]]:
    """Ways to name a text or pairs, a few dozen short lines long."""
    lines = (here / "text.txt").read_text().split("\n")[:40]
    (here / "a.src").write_text("".join(f"{line}\n" for line in lines if line))
    (here / "a.tgt").write_text("".join(f"{line.upper()}\n" for line in lines if line))
    return {"text": ["--text", "text.txt", *TINY], "pairs": ["--pairs", "a.src", "a.tgt", *TINY, *PAIRS]}


@pytest.mark.parametrize(
    ("data", "options"),
    [
        ("text", {"kind": "byte-bpe", "size": 300, "dropout": 0.2}),
        ("text", {"kind": "unigram", "size": 60, "sampling_alpha": 0.3}),
        ("pairs", {"kind": "bpe", "size": 60, "dropout": 0.2}),
    ],
)
def test_gone_on_with_over_epochs_it_is_the_same_to_the_bit(
    seqwright: Command, own: dict[str, list[str]], data: str, options: dict[str, object]
) -> None:
    given = [*own[data], *cut(**options), "--set", "model.context=96", "--set", "training.batch_size=8"]
    begun = seqwright("train", *given, "--set", "training.steps=7", "--run", "run", "--json")
    assert begun.status == 0, begun.err
    assert begun.json["summary"]["steps_per_epoch"] < 7
    # The library learns unigram vocabularies that are not the same twice: the second run takes that of the first.
    taken = [*own[data], *cut(**options, file="run/tokenizer.json"), *given[-4:]]
    whole = seqwright("train", *taken, "--set", "training.steps=12", "--run", "whole", "--json")
    assert whole.status == 0, whole.err
    assert seqwright("train", "--run", "run", "--set", "training.steps=12").status == 0
    weights = [load_tensors(Path(name) / "model.safetensors")[0] for name in ("run", "whole")]
    torch.testing.assert_close(*weights, rtol=0, atol=0)


def test_scores_are_of_the_plain_cut(seqwright: Command, own: dict[str, list[str]]) -> None:
    given = [*own["text"], *cut(kind="byte-bpe", size=300, dropout=0.9)]
    said = seqwright("train", *given, "--run", "run", "--json")
    assert said.status == 0, said.err
    assert any(
        note["text"].startswith("tokenizer.dropout: the first epoch is") for note in records(Path("run"), "note")
    )
    plain = seqwright("train", *own["text"], *cut(kind="byte-bpe", size=300), "--run", "plain", "--json")
    assert said.json["summary"]["tokens"] == plain.json["summary"]["tokens"]
    assert said.json["summary"]["trained_tokens"] != plain.json["summary"]["trained_tokens"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (cut(kind="words", dropout=0.1), "dropout is for bpe and byte-bpe"),
        (["--set", "model.kind=ngram", *cut(kind="bpe", dropout=0.1)], "counted models read every text once"),
        ([*cut(kind="bpe", dropout=0.1), "--set", "data.weights=[1.0, 2.0]"], "needs one training text"),
    ],
)
def test_where_there_are_no_other_cuts_they_are_refused(
    seqwright: Command, here: Path, options: list[str], said: str
) -> None:
    data = (
        ["--text", "text.txt", "--text", "text.txt"] if "data.weights=[1.0, 2.0]" in options else ["--text", "text.txt"]
    )
    small = [] if "model.kind=ngram" in options else TINY
    found = seqwright("train", *data, *small, *options, "--run", "run")
    assert found.status == 2
    assert said in found.err
