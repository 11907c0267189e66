"""Records of runs and the page of results made from them: real runs are recorded, and verdicts need an interval."""

from __future__ import annotations

import json
import platform
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import seqwright
from seqwright.pipeline.facts import record_scores

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "benchmarks" / "record_result.py"
PAGE = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "results_page.py")))
RECORDING = runpy.run_path(str(RECORD))
RECIPE = "lecture-generation-ngram"
MEASURED = ("random_windows_nll", "neural_cache_perplexity")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a recipe on embedded text, evaluated on a file, too."""
    folder = tmp_path_factory.mktemp("results")
    text = folder / "test.txt"
    text.write_text("the value of the name is bound to the object\n\n" * 1000, encoding="utf-8")
    run = seqwright.train(RECIPE, run=folder / "run")
    record_scores(run.directory, [str(text)], run.evaluate([str(text)]).as_json())
    return folder / "run"


def record(*arguments: str | Path, into: Path) -> subprocess.CompletedProcess[str]:
    """record_result.py without the packages of this environment: a record needs the standard library only."""
    command = [sys.executable, "-S", "-E", str(RECORD), *map(str, arguments), "--into", str(into)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_run_is_recorded_by_the_standard_library(run: Path, tmp_path: Path) -> None:
    done = record(run, into=tmp_path)
    assert done.returncode == 0, done.stderr
    stored = json.loads((tmp_path / f"{RECIPE}.json").read_text(encoding="utf-8"))
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    assert (stored["recipe"], stored["changed"]) == (RECIPE, {})
    assert not PAGE.is_stale(stored)
    (seed,) = stored["runs"]
    assert seed["seconds"] == summary["seconds"]
    by_split = {evaluation["split"]: evaluation["scores"]["perplexity"] for evaluation in seed["evaluations"]}
    assert by_split["validation"] == summary["scores"]["perplexity"]
    assert by_split["test"]["value"] != by_split["validation"]["value"]
    ((score, valid),) = PAGE.results(stored, ("perplexity",))
    assert (score.split, valid.split) == ("test", "validation")
    shown = PAGE.row(stored, {"rivals": [{"name": "rival", "perplexity": 1e9}]}, score, valid, stale=False)
    assert f"| test, {score.unit} | perplexity | {score.mean:.2f} " in shown
    assert "rival 1000000000.0: better" in shown


def test_recording_again_replaces_a_seed_and_adds_another(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(run, other)
    text = (run / "recipe.toml").read_text(encoding="utf-8")
    (other / "recipe.toml").write_text(text.replace("\nseed = 1\nlog_every", "\nseed = 2\nlog_every"), encoding="utf-8")
    assert "1 seed" in record(run, into=tmp_path).stdout
    assert "2 seeds" in record(run, other, into=tmp_path).stdout
    stored = json.loads((tmp_path / f"{RECIPE}.json").read_text(encoding="utf-8"))
    assert [seed["seed"] for seed in stored["runs"]] == [1, 2]


def test_a_run_that_departs_from_its_recipe_needs_a_name(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(run, other)
    text = (run / "recipe.toml").read_text(encoding="utf-8")
    assert "\norder = 3\n" in text
    (other / "recipe.toml").write_text(text.replace("\norder = 3\n", "\norder = 4\n"), encoding="utf-8")
    refused = record(other, into=tmp_path)
    assert refused.returncode == 1
    assert "'model.order': 4" in refused.stderr
    assert "--name" in refused.stderr
    assert record(other, "--name", "fourgram", into=tmp_path).returncode == 0
    stored = json.loads((tmp_path / "fourgram.json").read_text(encoding="utf-8"))
    assert PAGE.label(stored, {}) == f"`{RECIPE}` ∘ `--set model.order=4`"


def test_an_unfinished_run_is_not_recorded(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "other", ignore=shutil.ignore_patterns("summary.json"))
    assert "seqwright train --run" in record(tmp_path / "other", into=tmp_path).stderr


def test_scores_that_the_log_leaves_out_come_from_an_evaluation(run: Path, tmp_path: Path) -> None:
    extra = {"on": ["corpus/test.txt"], "scores": {}, "random_windows_nll": 1.5, "random_windows": "2x3x4|seed:1"}
    extra |= {"neural_cache": {"perplexity": 9.0, "nll": 2.2, "signature": "cache"}}
    (tmp_path / "extra.json").write_text(json.dumps(extra), encoding="utf-8")
    assert record(run, "--evaluation", tmp_path / "extra.json", into=tmp_path).returncode == 0
    stored = json.loads((tmp_path / f"{RECIPE}.json").read_text(encoding="utf-8"))
    scores = {name: score for name in MEASURED for score, _ in PAGE.results(stored, (name,))}
    assert [scores[name].mean for name in MEASURED] == [1.5, 9.0]
    assert scores["neural_cache_perplexity"].verdict(10.0) == "no interval, no verdict"


@pytest.mark.parametrize(
    ("steps", "device", "machine"),
    [(5, "auto", "NVIDIA H200"), (5, "cpu", "EPYC, 2 of 16 cores"), (0, "auto", "EPYC, 2 of 16 cores")],
)
def test_the_machine_is_the_one_that_trained(steps: int, device: str, machine: str) -> None:
    environment = {"gpus": ["NVIDIA H200"], "cpu": "EPYC", "threads": 2, "cores": 16}
    assert RECORDING["machine"](environment, {"steps": steps}, {"training": {"device": device}}) == machine


def test_an_override_of_a_key_that_the_recipe_leaves_out_is_a_departure() -> None:
    shipped, resolved = {"model": {"kind": "lstm"}}, {"model": {"kind": "lstm", "width": 8}, "training": {"seed": 2}}
    command = "seqwright train x --set training.seed=2 --set=model.width=8 --minutes 3"
    assert RECORDING["departures"](shipped, resolved, command) == {"model.width": 8, "training.minutes": "3"}


def evaluation(value: float, low: float, high: float, count: int = 1000) -> dict[str, Any]:
    score = {"value": value, "low": low, "high": high, "signature": f"accuracy|examples:{count}|classes:2"}
    return {"split": "test", "on": ["test.tsv"], "scores": {"accuracy": score, "perplexity": score}}


@pytest.mark.parametrize(
    ("metric", "rival", "verdict"),
    [
        ("accuracy", 92.3, "tie"),
        ("accuracy", 91.75, "better"),
        ("accuracy", 93.2, "worse"),
        ("accuracy", 92.55, "equal"),
        ("perplexity", 91.75, "worse"),
        ("perplexity", 93.2, "better"),
    ],
)
def test_a_figure_within_the_interval_is_a_tie(metric: str, rival: float, verdict: str) -> None:
    assert PAGE.result(metric, [evaluation(92.5512, 92.2, 92.9)]).verdict(rival) == verdict


def test_the_interval_of_several_seeds_has_their_spread() -> None:
    score = PAGE.result("accuracy", [evaluation(80, 78, 82), evaluation(82, 80, 84), evaluation(81, 79, 83)])
    assert score.mean == 81
    half_width = (2**2 + (4.30 * 1 / 3**0.5) ** 2) ** 0.5  # standard deviation 1, t of 2 degrees of freedom
    assert (score.low, score.high) == pytest.approx((81 - half_width, 81 + half_width))


def test_a_perfect_score_has_the_interval_of_the_rule_of_three() -> None:
    score = PAGE.result("accuracy", [evaluation(100, 100, 100, count=300)])
    assert (score.low, score.high) == (99, 100)
    assert score.verdict(99.8) == "tie"


def test_the_number_of_examples_is_in_a_signature_of_the_evaluation() -> None:
    scores = {"bleu": {"value": 1.0, "signature": "bleu|nrefs:1|case:mixed"}}
    scores |= {"nll": {"value": 1.0, "signature": "nll|pairs:3920|tokens:119888"}}
    assert PAGE.result("bleu", [{"split": "test", "on": [], "scores": scores}]).unit == "3,920 pairs"


def test_seeds_that_did_not_read_the_test_data_leave_validation_scores() -> None:
    validation = evaluation(80, 78, 82) | {"split": "validation"}
    record = {"runs": [{"evaluations": [validation, evaluation(90, 88, 92)]}, {"evaluations": [validation]}]}
    ((score, beside),) = PAGE.results(record, ("accuracy",))
    assert (score.split, score.mean, beside) == ("validation", 80, None)


def test_entries_have_known_keys_and_every_record_names_its_commit_or_sources() -> None:
    entries = PAGE.tomllib.loads((PAGE.RESULTS / "recipes.toml").read_text(encoding="utf-8"))
    keys = {"on", "measures", "rivals", "settings", "remark", "adapts", "label"}
    assert {key for entry in entries.values() for key in entry} <= keys
    assert {entry.get("settings", "unknown") for entry in entries.values()} <= set(PAGE.CHOSEN)
    for path in PAGE.RECORDS.glob("*.json"):
        for seed in json.loads(path.read_text(encoding="utf-8"))["runs"]:
            assert seed["commit"] or seed["sources"], path
            assert seed["machine"], path


def test_figures_of_ours_come_from_records(run: Path, tmp_path: Path) -> None:
    record(run, into=tmp_path)
    stored = json.loads((tmp_path / f"{RECIPE}.json").read_text(encoding="utf-8"))
    mean = next(PAGE.results(stored, ("perplexity",)))[0].mean
    (tmp_path / "speed.json").write_text('{"peer": {"nll": 1.23456}}', encoding="utf-8")
    page = runpy.run_path(str(ROOT / "docs" / "results_page.py"))
    page["figure_of"].__globals__.update(RECORDS=tmp_path, RESULTS=tmp_path)
    assert page["figure_of"]({"perplexity": RECIPE}, "perplexity") == round(mean, 2)
    assert page["figure_of"]({"nll": "speed:peer.nll"}, "nll") == 1.2346
    assert page["figure_of"]({"nll": 1.5}, "nll") == 1.5


def test_embedded_data_are_shown_with_the_version_of_python(run: Path, tmp_path: Path) -> None:
    record(run, into=tmp_path)
    stored = json.loads((tmp_path / f"{RECIPE}.json").read_text(encoding="utf-8"))
    assert PAGE.python_of(stored) == f", Python {platform.python_version()}"
    assert PAGE.python_of(stored | {"recipe": "ptb-ngram"}) == ""
    assert PAGE.python_of(stored | {"runs": [{}]}) == ""


def test_every_recipe_with_data_has_a_record_or_is_listed_without_one() -> None:
    listed = {name for names in PAGE.without_record({RECIPE: {}}).values() for name in names}
    assert RECIPE not in listed
    assert {"ptb-rnn", "digits", "wikitext2-ngram"} <= listed
    assert "gpt2-124m" not in listed  # of the user's own text
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    recorded = {path.stem for path in PAGE.RECORDS.glob("*.json")}
    for name in listed | {RECIPE}:
        assert f"`{name}`" in page
        assert (name in recorded) == (f"| `{name}`" in page)


def test_the_best_of_a_text_is_static_and_has_rivals() -> None:
    def rung(name: str, on: str, value: float, **entry: Any) -> tuple[str, dict[str, Any], Any]:
        score = PAGE.Result("perplexity", "test", ("x",), (value,), None, None, "")
        return name, {"on": on, **entry}, score

    rungs = [
        rung("ngram", "News, order 5", 141.0),
        rung("lstm", "News, LSTM", 73.0),
        rung("cache", "News, adapting", 60.0, adapts=True),
        rung("alone", "Letters", 9.0),
    ]
    said = PAGE.best_of_each_text(rungs)
    assert said == "Best recorded static model of each text. News: lstm, 73.00 perplexity (test)."
