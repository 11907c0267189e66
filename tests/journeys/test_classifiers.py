"""Classifiers as a user meets them: counted, calibrated, mixed, doubted, probed."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import seqwright as sw
from seqwright.core.config import UserError
from tests.journeys.conftest import Command

GOOD, BAD = ("good", "fine", "lovely", "great"), ("bad", "dull", "awful", "poor")
REST = ("film", "plot", "cast", "story", "scene", "the", "a", "and", "was", "very")


def rows(many: int, seed: int, noise: float = 0.0) -> list[str]:
    chosen = random.Random(seed)
    made = []
    for n in range(many):
        words = [chosen.choice(GOOD if n % 2 else BAD), *chosen.choices(REST, k=chosen.randint(3, 9))]
        chosen.shuffle(words)
        label = n % 2 if chosen.random() >= noise else 1 - n % 2
        made.append(f"{('neg', 'pos')[label]}\t{' '.join(words)}")
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Labeled files, and two runs that cut text differently."""
    path = tmp_path_factory.mktemp("classifiers")
    wrong = "pos\tan awful dull poor film and a bad plot"
    (path / "train.tsv").write_text("\n".join([*rows(300, 1, 0.1), wrong]) + "\n", encoding="utf-8")
    (path / "valid.tsv").write_text("\n".join(rows(120, 2, 0.1)) + "\n", encoding="utf-8")
    for name, kind in (("words", "words"), ("pieces", "characters")):
        sw.train(
            labeled=str(path / "train.tsv"),
            valid=str(path / "valid.tsv"),
            model="bag",
            set=[f'tokenizer.kind="{kind}"', "model.order=2", "evaluation.resamples=20"],
            run=path / name,
        )
    return path


def test_a_bag_is_scored_calibrated_and_drawn(folder: Path) -> None:
    summary = json.loads((folder / "words" / "summary.json").read_text(encoding="utf-8"))
    assert summary["accuracy"] > 80
    assert {"f1", "macro_f1", "matthews", "nll", "brier", "calibration_error"} <= summary["scores"].keys()
    assert 0.05 < summary["temperature"] < 20
    assert sum(map(sum, summary["details"]["confusion"])) == 120
    page = (folder / "words" / "report.html").read_text(encoding="utf-8")
    assert "confusion matrix" in page
    assert "Most confidently wrong" in page
    assert "Reliability" in page


def test_answers_take_the_temperature_that_was_fitted(folder: Path) -> None:
    run = sw.open(folder / "words")
    (plain,) = run.classify(["a good film"], temperature=1.0)
    (fitted,) = run.classify(["a good film"])
    power = 1 / json.loads((folder / "words" / "summary.json").read_text(encoding="utf-8"))["temperature"]
    shares = {name: share**power for name, share in plain.probabilities.items()}
    assert fitted.probabilities["pos"] == pytest.approx(shares["pos"] / sum(shares.values()))
    assert plain.label == fitted.label == "pos"


def test_runs_that_cut_text_differently_are_mixed(folder: Path, tmp_path: Path, seqwright: Command) -> None:
    made = seqwright("mix", folder / "words", folder / "pieces", "--run", tmp_path / "mixed", "--json")
    summary = made.json["summary"]
    assert summary["tuned"]["nll"] <= min(part["nll"] for part in summary["parts"]) + 1e-9
    scores = sw.open(tmp_path / "mixed").evaluate(str(folder / "valid.tsv"), resamples=0)
    assert scores["nll"] == pytest.approx(summary["tuned"]["nll"])
    assert scores["accuracy"] == pytest.approx(summary["tuned"]["accuracy"])
    assert not summary["warnings"]
    (listed,) = seqwright("runs", tmp_path, "--json").lines
    assert listed["accuracy"] == summary["tuned"]["accuracy"]
    assert listed["state"] == "finished, as tuned"
    assert f"mixture accuracy {summary['tuned']['accuracy']:.2f} %" in (tmp_path / "mixed" / "report.html").read_text()
    again = sw.mix([folder / "words", folder / "pieces"], tmp_path / "again")
    assert again.settings.model.weights == sw.open(tmp_path / "mixed").settings.model.weights


def test_weights_of_learned_texts_are_warned_of(folder: Path, tmp_path: Path, seqwright: Command) -> None:
    some = (folder / "train.tsv").read_text(encoding="utf-8").splitlines()[:40] + rows(20, 7)
    (tmp_path / "some.tsv").write_text("\n".join(some) + "\n", encoding="utf-8")
    runs = (folder / "words", folder / "pieces")
    made = seqwright("mix", *runs, "--on", tmp_path / "some.tsv", "--run", tmp_path / "mixed")
    assert made.err.count("of the 60 texts that tune the weights are training texts of") == 2
    assert "training texts of" in (tmp_path / "mixed" / "report.html").read_text(encoding="utf-8")


def test_only_answers_to_one_question_are_mixed(folder: Path, tmp_path: Path, seqwright: Command) -> None:
    other = tmp_path / "other.tsv"
    other.write_text("\n".join(line.replace("pos", "yes") for line in rows(60, 3)) + "\n", encoding="utf-8")
    stranger = sw.train(labeled=str(other), model="bag", run=tmp_path / "stranger")
    refused = seqwright("mix", folder / "words", stranger.path, "--on", folder / "valid.tsv", "--run", tmp_path / "no")
    assert refused.status == 2
    assert "only the same classes can be averaged" in refused.err
    assert not (tmp_path / "no").exists()


def test_a_wrong_label_is_doubted_most(folder: Path, seqwright: Command) -> None:
    shown = seqwright("evaluate", folder / "words", "--on", folder / "train.tsv", "--label-errors", "5", "--json")
    found = shown.json["label_errors"]
    assert len(found) == 5
    assert "an awful dull poor film and a bad plot" in [row["text"] for row in found]
    assert found[0]["of_label"] <= found[-1]["of_label"]
    assert "line" in found[0]["place"]


def test_a_language_model_doubts_no_label(tmp_path: Path, seqwright: Command) -> None:
    (tmp_path / "text.txt").write_text("a b c\n" * 50, encoding="utf-8")
    run = sw.train(text=str(tmp_path / "text.txt"), model="ngram", run=tmp_path / "lm")
    with pytest.raises(UserError, match="try"):
        run.label_errors(None, 3)
    told = seqwright("evaluate", run.path, "--label-errors", "3").err
    assert "only classifiers of texts list labels they doubt" in told


def test_probes_of_a_classifier(folder: Path, seqwright: Command) -> None:
    shown = seqwright("probe", folder / "words", "--json").json
    assert {one["answer"] for one in shown["probes"]} == {"pos"}
    assert all(one["low"] <= one["value"] <= one["high"] for one in shown["probes"])
    assert sw.probe(folder / "words") == shown["probes"]
