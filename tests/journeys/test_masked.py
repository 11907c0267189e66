"""Masked language models through the command line: training and mask filling."""

from __future__ import annotations

from pathlib import Path

import pytest

import seqwright as sw
from seqwright.api import train
from seqwright.commands.fill import printable
from seqwright.core.config import UserError
from tests.journeys.conftest import Command

LINES = [f"the {a} sat on the {b} .\n" for a in ("cat", "dog", "hen") for b in ("mat", "roof")]
SET = (
    *("tokenizer.kind=words", "training.steps=400", "training.batch_size=16", "training.learning_rate=0.003"),
    *(
        "model.layers=1",
        "model.width=32",
        "model.heads=2",
        "model.context=16",
        "model.dropout=0",
        "model.positions=rope",
    ),
)


@pytest.fixture(scope="module")
def filler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("masked")
    (folder / "cats.txt").write_text("".join(LINES) * 20)
    return train(masked=str(folder / "cats.txt"), run=folder / "run", set=SET).path


def test_fill_predicts_masked_tokens(seqwright: Command, filler: Path) -> None:
    filled = seqwright("fill", filler, "the <mask> sat on the roof .", "--top-k", "3", "--json").json
    [animal] = filled["blanks"]
    assert {guess["token"] for guess in animal} == {"cat", "dog", "hen"}
    assert filled["text"] == f"the {animal[0]['token']} sat on the roof ."
    several = seqwright("fill", filler, "the <mask> sat on <mask> roof .", "--top-k", "2", "--json").json
    assert [len(blank) for blank in several["blanks"]] == [2, 2]
    assert several["blanks"][1][0]["token"] == "the"
    assert "roof" in seqwright("fill", filler, input=b"the cat sat on the <mask> .\n").out
    (filler.parent / "lines.txt").write_text("the cat sat on the <mask> .\nthe <mask> sat\n")
    assert len(seqwright("fill", filler, filler.parent / "lines.txt", "<mask>/or", "--json").lines) == 3


def test_printable_escapes_tokens() -> None:
    assert [printable(token) for token in (" the", "the", "\n", " ", "\t", "a\u200b", "é")] == [
        *("the", "the", "\\n", "' '", "\\t", "a\\u200b", "é")
    ]


def test_invalid_fill_requests_are_rejected(seqwright: Command, filler: Path) -> None:
    assert "write <mask> where a token is missing" in seqwright("fill", filler, "the cat").err
    assert "sees at most 16" in seqwright("fill", filler, "the <mask> " * 20).err
    assert seqwright("check", filler).status == 0
    result = seqwright("generate", filler, "the")
    assert result.status == 2
    assert "which fills masks; try `seqwright fill`" in result.err
    with pytest.raises(UserError, match="no precision 'bf61'"):
        sw.open(filler, precision="bf61")


def test_masked_evaluation_is_deterministic(seqwright: Command, filler: Path, workdir: Path) -> None:
    (workdir / "cats.txt").write_text("".join(LINES))
    one, other = (seqwright("evaluate", filler, "--on", "cats.txt", "--json").json for _ in range(2))
    assert one == other
    assert {"nll", "perplexity", "accuracy"} <= one.keys()
    moved = seqwright("evaluate", filler, "--on", "cats.txt", "--json", "--set", "evaluation.seed=2").json
    assert moved["nll"] != one["nll"]


def test_continued_pretraining_on_another_text(seqwright: Command, filler: Path, workdir: Path) -> None:
    (workdir / "more.txt").write_text("the hen sat on the roof .\n" * 40)
    result = seqwright("train", "--masked", "more.txt", "--from", filler, "--run", "more", "--set", "training.steps=5")
    assert result.status == 0, result.err
    assert "validation data: no masked tokens: no score" in result.err  # of its two held-out lines
    assert "perplexity" not in result.out
    (workdir / "tiny.txt").write_text("the\n")
    assert "error: no masked tokens: no score" in seqwright("evaluate", filler, "--on", "tiny.txt").err
    assert seqwright("fill", "more", "the hen sat on the <mask> .", "--json").json["blanks"][0][0]["token"] in (
        "roof",
        "mat",
    )


def test_masked_lstm_and_a_classifier_fine_tuned_from_it(seqwright: Command, workdir: Path) -> None:
    (workdir / "cats.txt").write_text("".join(LINES) * 20)
    small = (
        "tokenizer.kind=words",
        "training.steps=150",
        "training.learning_rate=0.01",
        "model.width=32",
        "model.dropout=0",
    )
    sets = [word for key in small for word in ("--set", key)]
    result = seqwright("train", "--masked", "cats.txt", "--model", "lstm", "--run", "lstm", *sets)
    assert result.status == 0, result.err
    [animal] = seqwright("fill", "lstm", "the <mask> sat on the roof .", "--top-k", "3", "--json").json["blanks"]
    assert {guess["token"] for guess in animal} == {"cat", "dog", "hen"}
    (workdir / "labels.tsv").write_text("".join(f"{line.split()[1]}\t{n} {line}" for n in range(4) for line in LINES))
    begun = ("train", "--labeled", "labels.tsv", "--from", "lstm", "--run", "begun", "--set", "training.epochs=2")
    result = seqwright(*begun)
    assert result.status == 0, result.err
    assert "begun with the weights of" in result.err
