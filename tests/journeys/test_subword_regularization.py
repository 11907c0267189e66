"""Subword regularization: another segmentation each epoch, bitwise resume, deterministic evaluation."""

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


def tokenizer_options(**options: object) -> list[str]:
    return [part for key, value in options.items() for part in ("--set", f"tokenizer.{key}={value}")]


@pytest.fixture
def data_options(workdir: Path) -> dict[str, list[str]]:
    """Command-line options for a text and for pairs, a few dozen short lines each."""
    lines = (workdir / "text.txt").read_text().split("\n")[:40]
    (workdir / "a.src").write_text("".join(f"{line}\n" for line in lines if line))
    (workdir / "a.tgt").write_text("".join(f"{line.upper()}\n" for line in lines if line))
    return {"text": ["--text", "text.txt", *TINY], "pairs": ["--pairs", "a.src", "a.tgt", *TINY, *PAIRS]}


@pytest.mark.parametrize(
    ("data", "options"),
    [
        ("text", {"kind": "byte-bpe", "size": 300, "dropout": 0.2}),
        ("text", {"kind": "unigram", "size": 60, "sampling_alpha": 0.3}),
        ("pairs", {"kind": "bpe", "size": 60, "dropout": 0.2}),
    ],
)
def test_subword_regularization_resumes_bitwise(
    seqwright: Command, data_options: dict[str, list[str]], data: str, options: dict[str, object]
) -> None:
    arguments = [
        *data_options[data],
        *tokenizer_options(**options),
        "--set",
        "model.context=96",
        "--set",
        "training.batch_size=8",
    ]
    interrupted = seqwright("train", *arguments, "--set", "training.steps=7", "--run", "run", "--json")
    assert interrupted.status == 0, interrupted.err
    assert interrupted.json["summary"]["steps_per_epoch"] < 7
    # Unigram training of the library is not deterministic: the second run uses the tokenizer of the first.
    same_tokenizer = [*data_options[data], *tokenizer_options(**options, file="run/tokenizer.json"), *arguments[-4:]]
    uninterrupted = seqwright(
        "train", *same_tokenizer, "--set", "training.steps=12", "--run", "uninterrupted", "--json"
    )
    assert uninterrupted.status == 0, uninterrupted.err
    assert seqwright("train", "--run", "run", "--set", "training.steps=12").status == 0
    weights = [load_tensors(Path(name) / "model.safetensors")[0] for name in ("run", "uninterrupted")]
    torch.testing.assert_close(*weights, rtol=0, atol=0)


def test_subword_regularization_does_not_affect_evaluation(
    seqwright: Command, data_options: dict[str, list[str]]
) -> None:
    arguments = [*data_options["text"], *tokenizer_options(kind="byte-bpe", size=300, dropout=0.9)]
    result = seqwright("train", *arguments, "--run", "run", "--json")
    assert result.status == 0, result.err
    assert any(
        note["text"].startswith("tokenizer.dropout: the first epoch is") for note in records(Path("run"), "note")
    )
    plain = seqwright(
        "train", *data_options["text"], *tokenizer_options(kind="byte-bpe", size=300), "--run", "plain", "--json"
    )
    assert result.json["summary"]["tokens"] == plain.json["summary"]["tokens"]
    assert result.json["summary"]["trained_tokens"] != plain.json["summary"]["trained_tokens"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (tokenizer_options(kind="words", dropout=0.1), "dropout is for bpe and byte-bpe"),
        (
            ["--set", "model.kind=ngram", *tokenizer_options(kind="bpe", dropout=0.1)],
            "counted models read every text once",
        ),
        ([*tokenizer_options(kind="bpe", dropout=0.1), "--set", "data.weights=[1.0, 2.0]"], "needs one training text"),
    ],
)
def test_subword_regularization_is_rejected_where_unsupported(
    seqwright: Command, workdir: Path, options: list[str], message: str
) -> None:
    data = (
        ["--text", "text.txt", "--text", "text.txt"] if "data.weights=[1.0, 2.0]" in options else ["--text", "text.txt"]
    )
    small = [] if "model.kind=ngram" in options else TINY
    result = seqwright("train", *data, *small, *options, "--run", "run")
    assert result.status == 2
    assert message in result.err
