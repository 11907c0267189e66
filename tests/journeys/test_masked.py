"""From a text to filled blanks, through the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqwright.api import train
from seqwright.commands.fill import shown
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


def test_blanks_are_filled(seqwright: Command, filler: Path) -> None:
    found = seqwright("fill", filler, "the <mask> sat on the roof .", "--top-k", "3", "--json").json
    [animal] = found["blanks"]
    assert {guess["token"] for guess in animal} == {"cat", "dog", "hen"}
    assert found["text"] == f"the {animal[0]['token']} sat on the roof ."
    several = seqwright("fill", filler, "the <mask> sat on <mask> roof .", "--top-k", "2", "--json").json
    assert [len(blank) for blank in several["blanks"]] == [2, 2]
    assert several["blanks"][1][0]["token"] == "the"
    assert "roof" in seqwright("fill", filler, input=b"the cat sat on the <mask> .\n").out


def test_guesses_can_be_seen_whatever_they_are() -> None:
    assert [shown(token) for token in (" the", "the", "\n", " ", "\t", "a\u200b", "é")] == [
        *("the", "the", "\\n", "' '", "\\t", "a\\u200b", "é")
    ]


def test_what_cannot_be_filled_is_said(seqwright: Command, filler: Path) -> None:
    assert "write <mask> where a token is missing" in seqwright("fill", filler, "the cat").err
    assert "sees at most 16" in seqwright("fill", filler, "the <mask> " * 20).err
    assert seqwright("check", filler).status == 0
    said = seqwright("generate", filler, "the")
    assert said.status == 2
    assert "which fills blanks; try `seqwright fill`" in said.err


def test_scores_are_the_same_every_time(seqwright: Command, filler: Path, here: Path) -> None:
    (here / "cats.txt").write_text("".join(LINES))
    one, other = (seqwright("evaluate", filler, "--on", "cats.txt", "--json").json for _ in range(2))
    assert one == other
    assert {"nll", "perplexity", "accuracy"} <= one.keys()
    moved = seqwright("evaluate", filler, "--on", "cats.txt", "--json", "--set", "evaluation.seed=2").json
    assert moved["nll"] != one["nll"]


def test_it_goes_on_with_another_text(seqwright: Command, filler: Path, here: Path) -> None:
    (here / "more.txt").write_text("the hen sat on the roof .\n" * 40)
    said = seqwright("train", "--masked", "more.txt", "--from", filler, "--run", "more", "--set", "training.steps=5")
    assert said.status == 0, said.err
    assert seqwright("fill", "more", "the hen sat on the <mask> .", "--json").json["blanks"][0][0]["token"] in (
        "roof",
        "mat",
    )


def test_a_recurrent_network_fills_blanks_and_begins_a_classifier(seqwright: Command, here: Path) -> None:
    (here / "cats.txt").write_text("".join(LINES) * 20)
    small = (
        "tokenizer.kind=words",
        "training.steps=150",
        "training.learning_rate=0.01",
        "model.width=32",
        "model.dropout=0",
    )
    sets = [word for key in small for word in ("--set", key)]
    said = seqwright("train", "--masked", "cats.txt", "--model", "lstm", "--run", "lstm", *sets)
    assert said.status == 0, said.err
    [animal] = seqwright("fill", "lstm", "the <mask> sat on the roof .", "--top-k", "3", "--json").json["blanks"]
    assert {guess["token"] for guess in animal} == {"cat", "dog", "hen"}
    (here / "labels.tsv").write_text("".join(f"{line.split()[1]}\t{n} {line}" for n in range(4) for line in LINES))
    begun = ("train", "--labeled", "labels.tsv", "--from", "lstm", "--run", "begun", "--set", "training.epochs=2")
    said = seqwright(*begun)
    assert said.status == 0, said.err
    assert "begun with the weights of" in said.err
