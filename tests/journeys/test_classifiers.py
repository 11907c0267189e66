"""Classifiers end to end: bag of n-grams, calibration, ensembles, label errors, bias probes."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

import seqwright as sw
from seqwright.core.config import UserError
from seqwright.data.labeled.row import Row
from seqwright.tasks.classification.out_of_fold import FOLDS, stratified_folds
from tests.journeys.conftest import Command

GOOD, BAD = ("good", "fine", "lovely", "great"), ("bad", "dull", "awful", "poor")
REST = ("film", "plot", "cast", "story", "scene", "the", "a", "and", "was", "very")


def labeled_lines(count: int, seed: int, noise: float = 0.0) -> list[str]:
    rng = random.Random(seed)
    lines = []
    for n in range(count):
        words = [rng.choice(GOOD if n % 2 else BAD), *rng.choices(REST, k=rng.randint(3, 9))]
        rng.shuffle(words)
        label = n % 2 if rng.random() >= noise else 1 - n % 2
        lines.append(f"{('neg', 'pos')[label]}\t{' '.join(words)}")
    return lines


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Labeled files, and two runs with different tokenizers."""
    path = tmp_path_factory.mktemp("classifiers")
    wrong = "pos\tan awful dull poor film and a bad plot"
    (path / "train.tsv").write_text("\n".join([*labeled_lines(300, 1, 0.1), wrong]) + "\n", encoding="utf-8")
    (path / "valid.tsv").write_text("\n".join(labeled_lines(120, 2, 0.1)) + "\n", encoding="utf-8")
    for name, kind in (("words", "words"), ("pieces", "characters")):
        sw.train(
            labeled=str(path / "train.tsv"),
            valid=str(path / "valid.tsv"),
            model="bag",
            set=[f'tokenizer.kind="{kind}"', "model.order=2", "evaluation.resamples=20"],
            run=path / name,
        )
    return path


def test_bag_of_ngrams_scores_calibration_and_report(folder: Path) -> None:
    summary = json.loads((folder / "words" / "summary.json").read_text(encoding="utf-8"))
    assert summary["accuracy"] > 80
    assert {"f1", "macro_f1", "matthews", "nll", "brier", "calibration_error"} <= summary["scores"].keys()
    assert 0.05 < summary["temperature"] < 20
    assert sum(map(sum, summary["details"]["confusion"])) == 120
    page = (folder / "words" / "report.html").read_text(encoding="utf-8")
    assert "confusion matrix" in page
    assert "Most confident errors" in page
    assert "Reliability" in page


def test_classify_applies_the_fitted_temperature(folder: Path) -> None:
    run = sw.open(folder / "words")
    (plain,) = run.classify(["a good film"], temperature=1.0)
    (fitted,) = run.classify(["a good film"])
    power = 1 / json.loads((folder / "words" / "summary.json").read_text(encoding="utf-8"))["temperature"]
    shares = {name: share**power for name, share in plain.probabilities.items()}
    assert fitted.probabilities["pos"] == pytest.approx(shares["pos"] / sum(shares.values()))
    assert plain.label == fitted.label == "pos"


def test_classifiers_with_different_tokenizers_are_ensembled(folder: Path, tmp_path: Path, seqwright: Command) -> None:
    result = seqwright("mix", folder / "words", folder / "pieces", "--run", tmp_path / "mixed", "--json")
    summary = result.json["summary"]
    assert summary["tuned"]["nll"] <= min(part["nll"] for part in summary["parts"]) + 1e-9
    scores = sw.open(tmp_path / "mixed").evaluate(str(folder / "valid.tsv"), resamples=0)
    assert scores["nll"] == pytest.approx(summary["tuned"]["nll"])
    assert scores["accuracy"] == pytest.approx(summary["tuned"]["accuracy"])
    assert not any("training texts" in warning for warning in summary["warnings"])
    (listed,) = seqwright("runs", tmp_path, "--json").lines
    assert listed["accuracy"] == summary["tuned"]["accuracy"]
    assert listed["state"] == "finished, as tuned"
    assert f"mixture accuracy {summary['tuned']['accuracy']:.2f} %" in (tmp_path / "mixed" / "report.html").read_text()
    again = sw.mix([folder / "words", folder / "pieces"], tmp_path / "again")
    assert again.settings.model.config.weights == sw.open(tmp_path / "mixed").settings.model.config.weights


def test_mixture_weights_tuned_on_training_texts_give_a_warning(
    folder: Path, tmp_path: Path, seqwright: Command
) -> None:
    lines = (folder / "train.tsv").read_text(encoding="utf-8").splitlines()[:40] + labeled_lines(20, 7)
    (tmp_path / "mixed.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    runs = (folder / "words", folder / "pieces")
    result = seqwright("mix", *runs, "--on", tmp_path / "mixed.tsv", "--run", tmp_path / "mixed")
    assert result.err.count("of the 60 texts that tune the weights are training texts of") == 2
    assert "training texts of" in (tmp_path / "mixed" / "report.html").read_text(encoding="utf-8")


def test_classifiers_with_different_labels_are_not_mixed(folder: Path, tmp_path: Path, seqwright: Command) -> None:
    other = tmp_path / "other.tsv"
    other.write_text("\n".join(line.replace("pos", "") for line in labeled_lines(60, 3)) + "\n", encoding="utf-8")
    stranger = sw.train(labeled=str(other), model="bag", run=tmp_path / "stranger")
    refused = seqwright("mix", folder / "words", stranger.path, "--on", folder / "valid.tsv", "--run", tmp_path / "no")
    assert refused.status == 2
    assert f"{stranger.path} '', neg: only the same classes can be averaged" in refused.err
    assert not (tmp_path / "no").exists()


def test_label_errors_lists_doubted_labels_only(folder: Path, tmp_path: Path, seqwright: Command) -> None:
    lines = labeled_lines(60, 9)
    label, text = lines[0].split("\t")
    wrong = "\t".join(["neg" if label == "pos" else "pos", text])
    (tmp_path / "clean.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "wrong.tsv").write_text("\n".join([*lines, wrong]) + "\n", encoding="utf-8")
    evaluate = ("evaluate", folder / "words", "--label-errors", "5", "--on")
    before = seqwright(*evaluate, tmp_path / "clean.tsv", "--json").json
    result = seqwright(*evaluate, tmp_path / "wrong.tsv", "--json").json
    assert result["doubted"] == before["doubted"] + 1
    assert text in [row["text"] for row in result["label_errors"]]
    assert all(row["answered"] != row["label"] for row in result["label_errors"])
    shown = seqwright(*evaluate, tmp_path / "wrong.tsv")
    assert "classified otherwise, the " in shown.out
    assert "line 61" in shown.out
    (tmp_path / "one.tsv").write_text(f"{lines[0]}\n", encoding="utf-8")
    assert "no label is doubted" in seqwright(*evaluate, tmp_path / "one.tsv").out
    assert "has learned its labels" in seqwright(*evaluate, folder / "train.tsv").err


def test_label_errors_of_training_texts_are_judged_out_of_fold(tmp_path: Path, seqwright: Command) -> None:
    """Planted errors are found, by models that have not seen the text: those of a file are judged by the run itself."""
    lines = labeled_lines(200, 4)
    wrong = {5, 60, 111}
    for n in wrong:
        label, text = lines[n].split("\t")
        lines[n] = "\t".join(["neg" if label == "pos" else "pos", text])
    alone = "odd\tthe only text of its label"
    (tmp_path / "train.tsv").write_text("\n".join([*lines, lines[5], alone, "pos\t "]) + "\n", encoding="utf-8")
    run = sw.train(labeled=str(tmp_path / "train.tsv"), run=tmp_path / "run")
    result = seqwright("evaluate", run.path, "--label-errors", "9", "--json").json
    assert result["on"] == "training"
    assert {int(row["place"].rpartition(" ")[2]) - 1 for row in result["label_errors"][:4]} == wrong | {200}
    shown = seqwright("evaluate", run.path, "--label-errors", "2")
    assert "was judged by a model fitted without it and its copies" in shown.out
    assert "Not judged: 2, empty or the only texts of their label." in shown.out
    assert run.label_errors(limit=4) == run.label_errors(limit=9)[:4]
    (tmp_path / "two.tsv").write_text("a\tgood film\nb\tbad film\n", encoding="utf-8")
    two = sw.train(labeled=str(tmp_path / "two.tsv"), run=tmp_path / "two")
    assert "no training text can be judged" in seqwright("evaluate", two.path, "--label-errors", "2").err
    learned = seqwright("evaluate", run.path, "--label-errors", "2", "--on", tmp_path / "train.tsv")
    assert "without --on, each text is judged by a model that was not" in learned.err


def test_folds_are_stratified_and_keep_copies_together() -> None:
    rows = [Row("ab"[n % 3 == 0], (f"text {n // 2}",), "") for n in range(300)]
    rows += [Row("a", (f"  TEXT   {n // 2}",), "") for n in range(300)]
    folds = stratified_folds(rows)
    assert all(len({*folds[[2 * n, 2 * n + 1, 300 + 2 * n, 301 + 2 * n]]}) == 1 for n in range(150))
    assert {np.bincount(folds, minlength=FOLDS).tolist()[n] for n in range(FOLDS)} == {120}
    assert stratified_folds(rows[::-1]).tolist() == folds[::-1].tolist()
    with pytest.raises(UserError, match="two different texts"):
        stratified_folds(rows[:2])


def test_missing_data_of_a_bag_name_the_whole_command(tmp_path: Path, seqwright: Command) -> None:
    (tmp_path / "train.tsv").write_text("\n".join(labeled_lines(60, 4)) + "\n", encoding="utf-8")
    small = sw.train(labeled=str(tmp_path / "train.tsv"), run=tmp_path / "small").path
    split = sw.train(labeled=str(tmp_path / "train.tsv"), set="data.split=stratified 20%", run=tmp_path / "split").path
    (tmp_path / "train.tsv").rename(tmp_path / "moved.tsv")
    again = f"`seqwright train --run {split} --set data.train=NEW/train.tsv`"
    for command in (("evaluate", split), ("evaluate", split, "--json"), ("evaluate", split, "--label-errors", "3")):
        assert again in seqwright(*command).err
    with pytest.raises(UserError, match="name others with --on FILE") as raised:
        sw.open(split).evaluate()
    assert again in str(raised.value)
    assert f"`seqwright train --run {small} --set" in seqwright("evaluate", small, "--label-errors", "3").err
    error = seqwright("evaluate", small).err
    assert "its scores are of the held-out texts of 5-fold cross-validation" in error
    assert "--on FILE" in error


def test_columns_that_were_found_may_be_named(tmp_path: Path, seqwright: Command) -> None:
    rows = [line.split("\t") for line in labeled_lines(60, 4)]
    lines = ["text,label,other,topic"]
    lines += [f"{text},{label},{label} {text} {n},{'xyz'[n % 3]}" for n, (label, text) in enumerate(rows)]
    (tmp_path / "train.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    train = ("train", "--labeled", tmp_path / "train.csv", "--run", tmp_path / "run")
    assert seqwright(*train).status == 0
    for columns in ("text=text,label=label", "text=1,label=2", ""):
        result = seqwright(*train, *(["--columns", columns] if columns else []), "--json")
        assert result.status == 0, result.err
        assert result.json["already"]
    result = seqwright(*train, "--columns", "text=other,label=label")
    assert result.status == 2
    assert "data.columns was [], now ['label', 'other']" in result.err
    result = seqwright(*train, "--columns", "text=text,label=topic")  # of unknown labels
    assert "data.columns was [], now ['topic', 'text']" in result.err
    assert "another folder" in result.err
    assert seqwright("evaluate", tmp_path / "run", "--on", tmp_path / "train.csv").status == 0


def test_label_errors_needs_a_classifier(tmp_path: Path, seqwright: Command) -> None:
    (tmp_path / "text.txt").write_text("a b c\n" * 50, encoding="utf-8")
    run = sw.train(text=str(tmp_path / "text.txt"), model="ngram", run=tmp_path / "lm")
    with pytest.raises(UserError, match="try"):
        run.label_errors(None, 3)
    error = seqwright("evaluate", run.path, "--label-errors", "3").err
    assert "only text classifiers list label errors" in error


def test_bias_probe_of_a_classifier(folder: Path, seqwright: Command) -> None:
    report = seqwright("probe", folder / "words", "--json").json
    assert {one["answer"] for one in report["probes"]} == {"pos"}
    assert all(one["low"] <= one["value"] <= one["high"] for one in report["probes"])
    assert sw.probe(folder / "words") == report["probes"]


def test_python_takes_columns_by_role_and_one_override_as_a_string(tmp_path: Path) -> None:
    rows = [line.split("\t") for line in labeled_lines(60, 3, 0.0)]
    (tmp_path / "rows.csv").write_text("id,stars,body\n" + "".join(f"{n},{a},{b}\n" for n, (a, b) in enumerate(rows)))
    file, columns = str(tmp_path / "rows.csv"), {"text": "body", "label": "stars"}
    run = sw.train(labeled=file, model="bag", columns=columns, set="data.split=tail 50%", run=tmp_path / "run")
    assert run.settings.data.columns == ("stars", "body")
    assert run.settings.data.split == "tail 50%"
    with pytest.raises(sw.UserError, match="no role 'body'"):
        sw.open(tmp_path / "run", columns="body=text")
    with pytest.raises(sw.UserError, match="for your own files"):
        sw.train("shakespeare-cpu", columns=columns, run=tmp_path / "other")
    assert sw.open(tmp_path / "run", columns="text=id,label=stars").settings.data.columns == ("stars", "id")


def test_python_results_are_lists_of_lists_and_print_themselves(folder: Path) -> None:
    run = sw.open(folder / "words")
    texts = ["a good film", "a bad film"]
    assert run.classify(texts) == [run.classify(text) for text in texts] == list(run.classify(iter(texts)))
    scores = run.evaluate()
    assert str(scores).split()[:3] == ["score", "value", "95"]
    assert f"accuracy={scores['accuracy']:.2f}"[:12] in repr(scores)
    assert all(row["answered"] != row["label"] for row in run.label_errors())
