"""Text classification through the command line: labeled files to predictions."""

from __future__ import annotations

import json
import math
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

import seqwright as sw
from seqwright.core.config import UserError
from seqwright.pipeline import recipe
from tests.journeys.commands import records, start, wait_until
from tests.journeys.conftest import Command

WORDS = ("good", "fine", "lovely", "bright"), ("bad", "dull", "poor", "gray")
TINY = [
    *("--set", "model.width=16", "--set", "model.embedding=16", "--set", "training.epochs=4"),
    *("--set", "training.learning_rate=0.02", "--set", "model.dropout=0.0", "--set", "model.head_dropout=0.0"),
]


def labeled_lines(count: int, first: int = 0) -> str:
    """Labeled lines of two classes that are separable by one word."""
    lines = []
    for n in range(first, first + count):
        kind, word = ("up", WORDS[0][n // 2 % 4]) if n % 2 else ("down", WORDS[1][n // 2 % 4])
        lines.append(f"{kind}\tthe {n % 17} th film was {word} indeed {'so ' * (n % 5)}\n")
    return "".join(lines)


@pytest.fixture
def classifier(seqwright: Command, workdir: Path) -> Path:
    (workdir / "train.tsv").write_text(labeled_lines(200))
    (workdir / "test.tsv").write_text(labeled_lines(40, 200))
    result = seqwright("train", "--labeled", "train.tsv", "--run", "run", "--model", "lstm", *TINY)
    assert result.status == 0, result.err
    assert "accuracy" in result.out
    return workdir / "run"


def test_classifier_trains_predicts_and_obeys_the_laws(seqwright: Command, classifier: Path, workdir: Path) -> None:
    assert records(classifier, "evaluation")[-1]["train_accuracy"] == 100.0
    assert "Accuracy over steps" in (classifier / "report.html").read_text(encoding="utf-8")
    scores = seqwright("evaluate", classifier, "--on", "test.tsv", "--json").json
    assert scores["accuracy"] == 100.0
    assert scores["scores"]["accuracy"]["signature"].startswith("accuracy|examples:40|classes:2|")
    (workdir / "lines.txt").write_text("the film was good\n\nthe film was dull\n")
    rows = seqwright("classify", classifier, "lines.txt", "--json").lines
    assert [row["text"] for row in rows] == ["the film was good", "", "the film was dull"]
    assert [row["label"] for row in rows] == ["up", None, "down"]
    assert all(abs(sum(row["probabilities"].values()) - 1) < 1e-9 for row in (rows[0], rows[2]))
    plain = seqwright("classify", classifier, "lines.txt")
    assert plain.out.split("\n")[1] == ""
    assert plain.err == "empty texts, which get no label: 1.\n"
    (workdir / "cells.csv").write_text("id,text\n1,the film was good\n2, \n")
    assert seqwright("classify", classifier, "cells.csv").out.splitlines()[2] == "2, ,,"
    too_long_for_a_file_name = "the film was good " * 20
    assert seqwright("classify", classifier, too_long_for_a_file_name).out.startswith("up (")
    alone = seqwright("classify", classifier, "the film was good", "--json").json
    assert alone["probabilities"]["up"] == pytest.approx(rows[0]["probabilities"]["up"], abs=1e-5)
    assert seqwright("classify", classifier, input=b"a bad one\n").out.startswith("down (")
    assert seqwright("check", classifier, "--json").json["holds"]


def test_a_threshold_without_multiple_labels_is_refused(seqwright: Command, classifier: Path) -> None:
    result = seqwright("classify", classifier, "the film was good", "--set", "decoding.threshold=0.9")
    assert result.status == 2
    assert "threshold is for multi-label data" in result.err


def test_labels_unseen_in_training_count_as_wrong(seqwright: Command, classifier: Path, workdir: Path) -> None:
    (workdir / "other.tsv").write_text("up\tthe film was good\nsideways\tthe film was gray\n")
    result = seqwright("evaluate", classifier, "--on", "other.tsv", "--set", "evaluation.unknown=refuse")
    assert result.status == 2
    assert "line 2: the label 'sideways' was not in training. Known: down, up" in result.err
    assert "--columns label=NAME,text=NAME, or count" in result.err
    assert "--set evaluation.unknown=wrong." in result.err
    scores = seqwright("evaluate", classifier, "--on", "other.tsv", "--json").json
    assert scores["accuracy"] == 50.0
    assert scores["unlearned_labels"] == {"sideways": 1}
    assert (
        "not seen in training, counted as wrong: sideways (1)"
        in seqwright("evaluate", classifier, "--on", "other.tsv").out
    )


def test_classify_ignores_the_labels_of_a_labeled_file(seqwright: Command, classifier: Path, workdir: Path) -> None:
    (workdir / "other.csv").write_text('label,text\nup,"the film was good"\n')
    row = seqwright("classify", classifier, "other.csv", "--json").json
    assert (row["text"], row["label"], row["predicted_label"]) == ("the film was good", "up", "up")


def test_tables_come_back_with_all_columns(seqwright: Command, classifier: Path, workdir: Path) -> None:
    (workdir / "in.csv").write_bytes('\ufeffid;Inhalt;n\r\n1;"the film; ""good""";x\r\n2;dull 😀;y\r\n'.encode())
    refused = seqwright("classify", classifier, "in.csv")
    assert refused.status == 2
    assert (
        "in.csv has 3 columns ('id', 'Inhalt', 'n'); name the one of the text with --columns text=NAME" in refused.err
    )
    result = seqwright("classify", classifier, "in.csv", "--columns", "text=Inhalt", "--out", "out.csv")
    assert result.out == ""
    assert "in.csv: reads column 'Inhalt'; adds label, probability." in result.err
    raw = (workdir / "out.csv").read_bytes().decode()  # with the byte order mark and line ends of the input
    header, first, second = raw.removesuffix("\r\n").split("\r\n")
    assert header == "\ufeffid;Inhalt;n;label;probability"
    assert first.startswith('1;"the film; ""good""";x;up;0.')
    assert second.startswith("2;dull 😀;y;down;0.")
    piped = seqwright(
        "classify", classifier, "--format", "csv", "--columns", "Inhalt", input=(workdir / "in.csv").read_bytes()
    )
    assert piped.out == raw.removeprefix("\ufeff").replace("\r\n", "\n")
    assert "say what it is: --format csv" in seqwright("classify", classifier, "--columns", "text=a", input=b"a\n").err
    rows = b"".join(b"the film %d,up\n" % n for n in range(9))  # values would tell, had all of them arrived
    assert "--columns text=NAME" in seqwright("classify", classifier, "--format", "csv", input=rows).err
    numbered = seqwright("classify", classifier, "--format", "csv", "--columns", "1", input=rows)
    assert numbered.out.startswith("the film 0,up,")
    (workdir / "latin.csv").write_bytes("text\ncafé\n".encode("latin-1"))
    assert "latin.csv, line 2: not UTF-8 at byte 4 of the line (0xe9, which is 'é' in Latin-1)" in (
        seqwright("classify", classifier, "latin.csv").err
    )


def test_out_is_replaced_only_when_it_is_complete(seqwright: Command, classifier: Path, workdir: Path) -> None:
    (workdir / "out.jsonl").write_text("old\n")
    (workdir / "bad.csv").write_text("text,n\ngood,1\nbad\n")
    result = seqwright("classify", classifier, "bad.csv", "--out", "out.jsonl")
    assert "bad.csv, line 3 has 1 comma-separated column" in result.err
    process = start("classify", classifier, "--out", "out.jsonl", stdin=subprocess.PIPE, cwd=workdir)
    wait_until(lambda: any(workdir.glob(".tmp-*")), process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (workdir / "out.jsonl").read_text() == "old\n"
    assert seqwright("classify", classifier, "good", "--out", "out.jsonl").status == 0
    assert '"label": "up"' in (workdir / "out.jsonl").read_text()
    assert not any(workdir.glob(".tmp-*"))


def test_resume_keeps_the_label_set(seqwright: Command, classifier: Path, workdir: Path) -> None:
    labels = (classifier / "labels.json").read_text()
    (workdir / "train.tsv").write_text("aside\tthe film was odd\n" + labeled_lines(200))
    result = seqwright("train", "--run", classifier, "--set", "training.epochs=6")
    assert result.status == 2
    assert f"train.tsv, line 1: the label 'aside' was not in training when {classifier} was begun" in result.err
    assert "train in another folder with --run" in result.err
    assert (classifier / "labels.json").read_text() == labels


def test_unsupported_commands_name_the_supported_one(seqwright: Command, classifier: Path) -> None:
    result = seqwright("generate", classifier, "the")
    assert result.status == 2
    assert "classifies texts; try `seqwright classify`" in result.err
    assert seqwright("classify", classifier, "nowhere.txt").status == 2
    assert seqwright("classify", classifier, "nowhere").status == 0  # a text of one word
    result = seqwright("tag", classifier, input=b"the\tfilm\n")
    assert result.status == 2
    assert "try `seqwright classify`" in result.err


def test_text_pairs_regression_and_multi_label(seqwright: Command, workdir: Path) -> None:
    (workdir / "pairs.tsv").write_text(
        "".join(f"{n % 2}\tone {n}\t{'one' if n % 2 else 'two'} {n}\n" for n in range(60))
    )
    columns = ("--columns", "label=1,text=2,text2=3")
    result = seqwright("train", "--labeled", "pairs.tsv", "--run", "pairs", "--model", "gru", *columns, *TINY)
    assert result.status == 0, result.err
    assert (
        seqwright(
            "classify",
            "pairs",
            input=b"one 3\tone 3\n",
        ).status
        == 0
    )
    assert "a row has 2 texts, not 1" in seqwright("classify", "pairs", input=b"one 3\n").err
    (workdir / "values.tsv").write_text("".join(f"{n % 7}\t{'so ' * (n % 7)}good\n" for n in range(80)))
    for name, label in (("values", "regression"), ("lists", "multi")):
        (workdir / "lists.tsv").write_text((workdir / "values.tsv").read_text().replace("6\t", "6,3\t"))
        kind = ("--set", f"data.labels={label}")
        result = seqwright("train", "--labeled", f"{name}.tsv", "--run", name, "--model", "lstm", *kind, *TINY)
        assert result.status == 0, result.err
        answer = seqwright("classify", name, "so so good", "--json").json
        assert isinstance(answer["label"], float if label == "regression" else list)
    (workdir / "unseen.tsv").write_text("99\tso good\n98,99\tgood\n")
    scored = seqwright("evaluate", "lists", "--on", "unseen.tsv", "--set", "evaluation.unknown=wrong")
    assert "not seen in training, counted as wrong: 98 (1), 99 (2)" in scored.out
    scores = seqwright("evaluate", "lists", "--on", "unseen.tsv", "--set", "evaluation.unknown=wrong", "--json").json
    assert [scores[name] for name in ("accuracy", "micro_f1", "macro_f1", "weighted_f1")] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tone\na\ttwo\n", "every row has the label 'a'"),
        ("0\t3\ttext\n1\t4\tother\n", "--columns label=NAME,text=NAME"),
        ("", "is empty"),
    ],
)
def test_invalid_labeled_files_are_rejected(seqwright: Command, workdir: Path, text: str, message: str) -> None:
    (workdir / "bad.tsv").write_text(text)
    result = seqwright("train", "--labeled", "bad.tsv", "--run", "bad")
    assert result.status == 2
    assert message in result.err
    assert not (workdir / "bad").exists()


def test_truncated_texts_are_counted(seqwright: Command, classifier: Path, workdir: Path) -> None:
    result = seqwright(
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
    assert "exceed 6 tokens and are cut (" in result.err
    assert 'data.truncation = "head+tail"' in result.err
    assert '40 of 40 texts (100.0%) were truncated; data.truncation = "head+tail".' in (
        seqwright("evaluate", "cut", "--on", "test.tsv").out
    )


def test_default_classifier_of_a_labeled_file(seqwright: Command, workdir: Path) -> None:
    """A bag of character and word n-grams, fitted on all rows, saved, checked and used."""
    (workdir / "own.csv").write_text(
        "text,label\n" + "".join(f"{'good' if n % 2 else 'bad'} {n},{n % 2}\n" for n in range(60))
    )
    result = seqwright("train", "--labeled", "own.csv", "--run", "own")
    assert "selected on " in result.err
    assert seqwright("check", "own", "--json").json["holds"]
    assert seqwright("evaluate", "own", "--on", "own.csv", "--json").json["accuracy"] == 100.0
    assert seqwright("classify", "own", "goood 7", "--json").json["label"] == "1"
    explained = seqwright("classify", "own", "good 7", "--explain", "--json").json
    explanation, probabilities = explained["explanation"], explained["probabilities"]
    assert (explanation["label"], explanation["against"]) == ("1", "0")
    terms = [explanation["bias"], explanation["others"], *(one["contribution"] for one in explanation["ngrams"])]
    assert sum(terms) == pytest.approx(explanation["score"])
    assert explanation["score"] == pytest.approx(math.log(probabilities["1"] / probabilities["0"]), abs=1e-4)
    texts = [one["text"] for one in explanation["ngrams"]]
    assert texts[0] == "good"  # with its n-grams of characters
    assert len({*texts}) == len(texts)
    assert "1 rather than 0: +" in seqwright("classify", "own", "good 7", "--explain").out
    errors = "text,label\n" + "".join(f"{'good' if n % 2 else 'bad'} {n},{(n // 2) % 2}\n" for n in range(60))
    (workdir / "errors.csv").write_text(errors)
    mistakes = seqwright("evaluate", "own", "--on", "errors.csv", "--json").json["details"]["mistakes"]
    assert all(error["explanation"]["label"] == error["answered"] for error in mistakes)
    assert mistakes


def test_every_predicted_label_is_explained(seqwright: Command, workdir: Path) -> None:
    labels = ("red", "big", "red,big", "")
    rows = [f'"{label}",{label.replace(",", " ")} thing {n}' for n in range(30) for label in labels]
    (workdir / "multi.csv").write_text("\n".join(["label,text", *rows]) + "\n")
    trained = seqwright("train", "--labeled", "multi.csv", "--set", "data.labels=multi", "--run", "multi")
    assert trained.status == 0, trained.err
    explained = seqwright("classify", "multi", "red big thing", "--explain", "--json").json
    assert explained["label"] == ["big", "red"]
    assert {one["label"]: one["ngrams"][0]["text"] for one in explained["explanations"]} == {"big": "big", "red": "red"}
    assert explained["explanation"] == explained["explanations"][0]  # of the most probable label
    for one in explained["explanations"]:
        probability = explained["probabilities"][one["label"]]
        assert one["score"] == pytest.approx(math.log(probability / (1 - probability)), abs=1e-3)
    out = seqwright("classify", "multi", "red big thing", "--explain").out
    assert {line.split(":")[0] for line in out.splitlines() if "= bias" in line} == {"red", "big"}
    none = seqwright("classify", "multi", "a thing", "--explain", "--json").json
    assert none["label"] == []
    assert "explanations" not in none
    (workdir / "new.csv").write_text("text\nred big thing\n")
    assert " | " in seqwright("classify", "multi", "new.csv", "--explain").out


def test_unused_training_keys_of_count_models_are_reported(seqwright: Command, workdir: Path) -> None:
    (workdir / "train.tsv").write_text(labeled_lines(40))
    keys = ("--set", "training.epochs=4", "--set", "training.learning_rate=0.1", "--set", "training.seed=2")
    result = seqwright("train", "--labeled", "train.tsv", "--run", "bag", *keys)
    assert (
        "bag takes no gradient steps; without effect: training.learning_rate, training.epochs."
        in result.err + result.out
    )
    timed = seqwright("train", "--labeled", "train.tsv", "--run", "timed", "--minutes", "2")
    assert "without effect: --minutes (training.minutes)." in timed.err + timed.out


def test_recipe_object_takes_no_further_arguments(workdir: Path) -> None:
    (workdir / "train.tsv").write_text(labeled_lines(40))
    table = {"data": {"kind": "labeled", "train": "train.tsv"}, "model": {"kind": "bag"}}
    with pytest.raises(UserError, match=r"a Recipe is complete; name model, labeled when you make it"):
        sw.train(recipe.make(table), labeled="train.tsv", model="lstm")


def test_a_small_file_is_scored_by_cross_validation(seqwright: Command, workdir: Path) -> None:
    (workdir / "small.tsv").write_text(labeled_lines(40))
    result = seqwright("train", "--labeled", "small.tsv", "--run", "run")
    sentence = "Scored on the held-out texts of 5-fold cross-validation"
    assert sentence in result.out
    assert sentence in (workdir / "run" / "report.html").read_text()
    summary = seqwright("train", "--labeled", "small.tsv", "--run", "run", "--json").json["summary"]
    assert summary["accuracy"] == 100.0
    assert summary["scores"]["accuracy"]["signature"].endswith("|split:5-fold")
    assert sum(map(sum, summary["details"]["confusion"])) == 40
    assert summary["refitted"]
    (workdir / "tiny.tsv").write_text(labeled_lines(8))
    result = seqwright("train", "--labeled", "tiny.tsv", "--run", "tiny")
    assert "the run has no score of its own" in result.err
    assert "Scored on" not in result.out


def test_texts_that_cross_validation_cannot_score_are_named(seqwright: Command, workdir: Path) -> None:
    (workdir / "rare.tsv").write_text(labeled_lines(40) + "once\ta single text\ngood\t\n")
    result = seqwright("train", "--labeled", "rare.tsv", "--run", "run")
    assert "not in the held-out scores: 1 empty text; 1 text of the class 'once', held out together" in result.err
    assert "|split:5-fold" in result.out


def test_out_replaces_no_input_and_makes_no_folder(seqwright: Command, workdir: Path, classifier: Path) -> None:
    (workdir / "in.csv").write_text("text\ngood\n")
    for arguments in (["in.csv", "--out", "./in.csv"], ["--out", "in.csv", str(workdir / "in.csv")]):
        result = seqwright("classify", classifier, *arguments)
        assert result.status == 2
        assert "is the input, which would be lost; name another file: --out in-new.csv" in result.err
    result = seqwright("classify", classifier, "in.csv", "--out", "mistyped/out.csv")
    assert result.status == 2
    assert "there is no folder mistyped; correct its name, or make it: mkdir -p mistyped." in result.err
    assert (workdir / "in.csv").read_text() == "text\ngood\n"
    assert not (workdir / "mistyped").exists()


def test_inputs_are_read_as_the_training_files_were(seqwright: Command, workdir: Path) -> None:
    rows = [
        (f"the café {n} was {word}", label) for n, (label, word) in enumerate([("up", "été"), ("down", "gray")] * 20)
    ]
    table = "id;body;queue\r\n" + "".join(f'{n};"{text}; so";{label}\r\n' for n, (text, label) in enumerate(rows))
    (workdir / "latin.csv").write_bytes(table.encode("latin-1"))
    named = ("--columns", "text=body,label=queue", "--set", "data.encoding=latin-1")
    assert seqwright("train", "--labeled", "latin.csv", *named, "--run", "run").status == 0
    labeled = seqwright("classify", "run", "latin.csv", "--out", "out.csv")
    assert labeled.status == 0, labeled.err
    assert "latin.csv is read as latin-1; the output is UTF-8" in labeled.err
    written = (workdir / "out.csv").read_bytes().decode()
    assert written.startswith('\ufeffid;body;queue;label;probability\r\n0;"the café 0 was été; so";up;up;')
    for encoding in ("latin-1", "utf-8"):
        piped = seqwright("classify", "run", "--json", input=table.encode(encoding)).lines
        assert piped[0]["body"] == "the café 0 was été; so"
    assert seqwright("evaluate", "run", "--on", "out.csv", "--json").json["accuracy"] == 100.0
    (workdir / "plain.csv").write_text(table)
    again = seqwright("classify", "run", "plain.csv", "--set", "data.encoding=UTF8", "--out", "plain-out.csv")
    assert again.status == 0, again.err
    assert "the output is UTF-8" not in again.err
    assert (workdir / "plain-out.csv").read_bytes().startswith(b"id;")


def test_malformed_rows_are_left_out_where_that_is_asked_for(seqwright: Command, workdir: Path) -> None:
    table = "text;label\nbroken;row;here\n" + "".join(f"{WORDS[n % 2][n % 4]} {n};{n % 2}\n" for n in range(40))
    (workdir / "bad.csv").write_text(table)
    assert seqwright("train", "--labeled", "bad.csv", "--skip-bad-rows", "--run", "run").status == 0
    (workdir / "new.csv").write_text(table)
    for command in (["classify", "run", "new.csv"], ["evaluate", "run", "--on", "new.csv"]):
        skipped = seqwright(*command)
        assert skipped.status == 0, skipped.err
        assert "malformed rows, skipped: 1" in skipped.err
        refused = seqwright(*command, "--set", "data.bad_rows=refuse")
        assert refused.status == 2
        assert "line 2 has 3 semicolon-separated columns" in refused.err
        assert "--skip-bad-rows" in refused.err
        assert seqwright(*command, "--set", "data.bad_rows=refuse", "--skip-bad-rows").status == 0
    objects = [{"text": "good"}, {"id": 2, "text": None}, {"id": 3}, {"text": 4}, {"text": "bad"}]
    (workdir / "new.jsonl").write_text("no object\n" + "".join(json.dumps(one) + "\n" for one in objects))
    kept = seqwright("classify", "run", "new.jsonl")
    assert [row["label"] is None for row in kept.lines] == [False, True, True, False]
    assert "malformed rows, skipped: 2 (lines 1, 5). new.jsonl, line 1" in kept.err
    assert 'The run has data.bad_rows = "skip"; --set data.bad_rows=refuse makes them errors.' in kept.err
    assert "The run has" not in seqwright("classify", "run", "new.jsonl", "--skip-bad-rows").err


def test_a_label_column_that_the_input_lacks_is_refused(seqwright: Command, classifier: Path, workdir: Path) -> None:
    (workdir / "new.csv").write_text("body,queue\ngood,1\n")
    refused = seqwright("classify", classifier, "new.csv", "--columns", "text=body,label=foo")
    assert refused.status == 2
    assert "new.csv has no column 'foo'; it has 'body', 'queue'." in refused.err
    assert seqwright("classify", classifier, "new.csv", "--columns", "text=body,label=queue").status == 0


@pytest.mark.parametrize(
    ("labels", "values", "move"),
    [("regression", ("1", "2.5"), "sort by their difference"), ("multi", ("up", "up,down"), "look where they differ")],
)
def test_label_errors_are_those_of_single_labels(
    seqwright: Command, workdir: Path, labels: str, values: tuple[str, str], move: str
) -> None:
    (workdir / "train.tsv").write_text("".join(f"{values[n % 2]}\t{WORDS[n % 2][n % 4]} {n}\n" for n in range(20)))
    trained = seqwright("train", "--labeled", "train.tsv", "--set", f"data.labels={labels}", "--run", "run")
    assert trained.status == 0, trained.err
    refused = seqwright("evaluate", "run", "--label-errors", "3")
    assert refused.status == 2
    assert "`seqwright classify run FILE --out predictions.csv`" in refused.err
    assert move in refused.err


def test_rows_without_a_header_on_standard_input_are_pointed_out(seqwright: Command, classifier: Path) -> None:
    piped = seqwright("classify", classifier, input=b'1,"good, fine",x\n2,dull,y\n')
    assert len(piped.out.splitlines()) == 2
    assert "is taken as a text; --format csv reads the columns of a table" in piped.err
    assert not seqwright("classify", classifier, input=b"good, fine\ndull, poor\n").err


@pytest.mark.parametrize("columns", ["text=body,label=queue", "text=4,label=5"])
def test_every_command_has_the_same_header(seqwright: Command, workdir: Path, columns: str) -> None:
    """Two columns have one name, and are not selected."""
    rows = [line.split("\t") for line in labeled_lines(80).splitlines()]
    lines = [f'{n},,,"{text},\n indeed",{label}\n' for n, (label, text) in enumerate(rows)]
    (workdir / "a.csv").write_text("".join(["id,note,note,body,queue\n", *lines]))
    read = ("--columns", columns)
    assert seqwright("train", "--labeled", "a.csv", *read, "--run", "bag").status == 0
    assert sw.open("bag").labels.names == ("down", "up")
    scores = seqwright("evaluate", "bag", "--on", "a.csv", *read, "--json").json
    assert scores["scores"]["accuracy"]["signature"].startswith("accuracy|examples:80|")
    predicted = seqwright("classify", "bag", "a.csv", *read, "--json").lines
    assert [row["queue"] for row in predicted] == [label for label, _ in rows]
    texts = np.array([text for _, text in rows[:3]])
    assert sw.open("bag").classify(texts) == sw.open("bag").classify(texts.tolist())
