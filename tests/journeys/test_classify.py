"""From labeled files to labels, through the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

import seqwright as sw
from seqwright.core.config import UserError
from seqwright.pipeline import recipe
from tests.journeys.conftest import Command

KINDS = ("good", "fine", "lovely", "bright"), ("bad", "dull", "poor", "gray")
TINY = [
    *("--set", "model.width=16", "--set", "model.embedding=16", "--set", "training.epochs=4"),
    *("--set", "training.learning_rate=0.02", "--set", "model.dropout=0.0", "--set", "model.head_dropout=0.0"),
]


def rows(count: int, first: int = 0) -> str:
    """Two classes that one word of each text tells apart."""
    lines = []
    for n in range(first, first + count):
        kind, word = ("up", KINDS[0][n // 2 % 4]) if n % 2 else ("down", KINDS[1][n // 2 % 4])
        lines.append(f"{kind}\tthe {n % 17} th film was {word} indeed {'so ' * (n % 5)}\n")
    return "".join(lines)


@pytest.fixture
def classifier(seqwright: Command, here: Path) -> Path:
    (here / "train.tsv").write_text(rows(200))
    (here / "test.tsv").write_text(rows(40, 200))
    said = seqwright("train", "--labeled", "train.tsv", "--run", "run", "--model", "lstm", *TINY)
    assert said.status == 0, said.err
    assert "accuracy" in said.out
    return here / "run"


def test_a_classifier_learns_answers_and_keeps_its_laws(seqwright: Command, classifier: Path, here: Path) -> None:
    scores = seqwright("evaluate", classifier, "--on", "test.tsv", "--json").json
    assert scores["accuracy"] == 100.0
    assert scores["scores"]["accuracy"]["signature"].startswith("accuracy|examples:40|classes:2|")
    (here / "lines.txt").write_text("the film was good\n\nthe film was dull\n")
    said = seqwright("classify", classifier, "lines.txt", "--json").lines
    assert [row["text"] for row in said] == ["the film was good", "", "the film was dull"]
    assert (said[0]["label"], said[2]["label"]) == ("up", "down")
    assert all(abs(sum(row["probabilities"].values()) - 1) < 1e-9 for row in said)
    assert seqwright("classify", classifier, "the film was good " * 20).out.startswith("up (")  # too long for a name
    alone = seqwright("classify", classifier, "the film was good", "--json").json
    assert alone["probabilities"]["up"] == pytest.approx(said[0]["probabilities"]["up"], abs=1e-5)
    assert seqwright("classify", classifier, input=b"a bad one\n").out.startswith("down (")
    assert seqwright("check", classifier, "--json").json["holds"]


def test_labels_that_were_not_learned(seqwright: Command, classifier: Path, here: Path) -> None:
    (here / "other.tsv").write_text("up\tthe film was good\nsideways\tthe film was gray\n")
    said = seqwright("evaluate", classifier, "--on", "other.tsv", "--set", "evaluation.unknown=refuse")
    assert said.status == 2
    assert "line 2: the label 'sideways' was not in training. Known: down, up" in said.err
    scores = seqwright("evaluate", classifier, "--on", "other.tsv", "--json").json
    assert scores["accuracy"] == 50.0
    assert scores["unlearned_labels"] == {"sideways": 1}
    assert "not learned, counted as wrong: sideways (1)" in seqwright("evaluate", classifier, "--on", "other.tsv").out


def test_a_labeled_file_is_classified_by_its_texts(seqwright: Command, classifier: Path, here: Path) -> None:
    (here / "other.csv").write_text('label,text\nup,"the film was good"\n')
    assert seqwright("classify", classifier, "other.csv", "--json").json["text"] == "the film was good"


def test_a_run_goes_on_with_the_labels_it_began_with(seqwright: Command, classifier: Path, here: Path) -> None:
    labels = (classifier / "labels.json").read_text()
    (here / "train.tsv").write_text("aside\tthe film was odd\n" + rows(200))
    said = seqwright("train", "--run", classifier, "--set", "training.epochs=6")
    assert said.status == 2
    assert "train.tsv, line 1: the label 'aside' was not in training" in said.err
    assert (classifier / "labels.json").read_text() == labels


def test_what_a_run_cannot_do_and_what_it_can(seqwright: Command, classifier: Path) -> None:
    said = seqwright("generate", classifier, "the")
    assert said.status == 2
    assert "answers with labels of whole texts; try `seqwright classify`" in said.err
    assert seqwright("classify", classifier, "nowhere.txt").status == 2
    assert seqwright("classify", classifier, "nowhere").status == 0  # a text of one word
    said = seqwright("tag", classifier, input=b"the\tfilm\n")
    assert said.status == 2
    assert "try `seqwright classify`" in said.err


def test_pairs_of_texts_values_and_several_labels(seqwright: Command, here: Path) -> None:
    (here / "pairs.tsv").write_text("".join(f"{n % 2}\tone {n}\t{'one' if n % 2 else 'two'} {n}\n" for n in range(60)))
    columns = ("--set", "data.columns=[1,2,3]")
    said = seqwright("train", "--labeled", "pairs.tsv", "--run", "pairs", "--model", "gru", *columns, *TINY)
    assert said.status == 0, said.err
    assert (
        seqwright(
            "classify",
            "pairs",
            input=b"one 3\tone 3\n",
        ).status
        == 0
    )
    assert "2 text(s) are read at a time, not 1" in seqwright("classify", "pairs", input=b"one 3\n").err
    (here / "values.tsv").write_text("".join(f"{n % 7}\t{'so ' * (n % 7)}good\n" for n in range(80)))
    for name, label in (("values", "regression"), ("lists", "multi")):
        (here / "lists.tsv").write_text((here / "values.tsv").read_text().replace("6\t", "6,3\t"))
        kind = ("--set", f"data.labels={label}")
        said = seqwright("train", "--labeled", f"{name}.tsv", "--run", name, "--model", "lstm", *kind, *TINY)
        assert said.status == 0, said.err
        answer = seqwright("classify", name, "so so good", "--json").json
        assert isinstance(answer["label"], float if label == "regression" else list)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a\tone\na\ttwo\n", "every row has the label 'a'"),
        ("0\t3\ttext\n1\t4\tother\n", "data.columns"),
        ("", "is empty"),
    ],
)
def test_bad_files_are_named(seqwright: Command, here: Path, text: str, told: str) -> None:
    (here / "bad.tsv").write_text(text)
    said = seqwright("train", "--labeled", "bad.tsv", "--run", "bad")
    assert said.status == 2
    assert told in said.err
    assert not (here / "bad").exists()


def test_texts_that_are_too_long_are_counted(seqwright: Command, classifier: Path, here: Path) -> None:
    said = seqwright(
        *(
            "train",
            "--labeled",
            "train.tsv",
            "--run",
            "cut",
            "--set",
            "data.max_length=6",
            "--set",
            "data.truncation=head+tail",
        ),
        *("--model", "lstm", *TINY),
    )
    assert "do not fit 6 tokens and are cut (" in said.err
    assert 'data.truncation = "head+tail"' in said.err
    assert '40 of 40 texts (100.0%) did not fit and were cut; data.truncation = "head+tail".' in (
        seqwright("evaluate", "cut", "--on", "test.tsv").out
    )


def test_a_file_alone_is_enough(seqwright: Command, here: Path) -> None:
    """Letters and words in one bag, learned from all rows, kept, checked and asked."""
    (here / "own.csv").write_text(
        "text,label\n" + "".join(f"{'good' if n % 2 else 'bad'} {n},{n % 2}\n" for n in range(60))
    )
    said = seqwright("train", "--labeled", "own.csv", "--run", "own")
    assert "held-out texts best" in said.err
    assert seqwright("check", "own", "--json").json["holds"]
    assert seqwright("evaluate", "own", "--on", "own.csv", "--json").json["accuracy"] == 100.0
    assert seqwright("classify", "own", "goood 7", "--json").json["label"] == "1"


def test_what_counting_has_no_use_for_is_said(seqwright: Command, here: Path) -> None:
    (here / "train.tsv").write_text(rows(40))
    keys = ("--set", "training.epochs=4", "--set", "training.learning_rate=0.1", "--set", "training.seed=2")
    said = seqwright("train", "--labeled", "train.tsv", "--run", "bag", *keys)
    assert (
        "bag counts and takes no steps: training.learning_rate, training.epochs change nothing." in said.err + said.out
    )


def test_a_recipe_in_python_is_complete(here: Path) -> None:
    (here / "train.tsv").write_text(rows(40))
    table = {"data": {"kind": "labeled", "train": "train.tsv"}, "model": {"kind": "bag"}}
    with pytest.raises(UserError, match=r"a Recipe is complete; name model, labeled when you make it"):
        sw.train(recipe.make(table), labeled="train.tsv", model="lstm")
