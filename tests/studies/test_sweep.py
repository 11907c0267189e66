"""`sweep`: grid, random search and successive halving; resumed sweeps; choice on validation, test read once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import seqwright as sw
from seqwright.pipeline import training
from seqwright.reporting.numbers import interval
from seqwright.studies.sweep.results import SweepResults, Trial, effects_of, in_order
from seqwright.studies.sweep.settings import Range, grid, parse_space, random_settings, split_values
from seqwright.studies.sweep.shown import Sweep
from seqwright.studies.sweep.sweep import run_name


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("the cat sat on the mat\na dog ran by the sea\nthe big cat saw a dog\n" * 30)
    return str(path)


LSTM = ["tokenizer.kind=characters", "training.sample_every=0", "training.sequence_length=8", "model.width=4"]
LSTM += ["evaluation.baseline=false", "evaluation.resamples=0"]


def test_values_in_brackets_and_quotes_stay_together() -> None:
    assert split_values("64, 128") == ["64", "128"]
    assert split_values('[3,4],[5], "a,b"') == ["[3,4]", "[5]", '"a,b"']
    fixed, space = parse_space(["model.width=64,128", "training.steps=5", "training.learning_rate=1e-4..1e-2"])
    assert fixed == ["training.steps=5"]
    assert space == {"model.width": ["64", "128"], "training.learning_rate": Range(low=1e-4, high=1e-2, integer=False)}


def test_grid_and_random_settings() -> None:
    space = {"a": ["1", "2"], "b": ["x", "y", "z"]}
    assert len(grid(space)) == 6
    assert grid(space)[:2] == [{"a": "1", "b": "x"}, {"a": "1", "b": "y"}]
    drawn = random_settings(space, 4, seed=1)
    assert len({tuple(setting.items()) for setting in drawn}) == 4
    assert drawn == random_settings(space, 4, seed=1)
    assert len(random_settings(space, 50, seed=1)) == 6
    low, high = 1e-4, 1e-2
    rates = [
        float(setting["r"]) for setting in random_settings({"r": Range(low=low, high=high, integer=False)}, 200, seed=2)
    ]
    assert all(low <= rate <= high for rate in rates)
    assert 0.4 < sum(rate < 1e-3 for rate in rates) / 200 < 0.6  # log-uniform


def test_run_names_are_folders() -> None:
    assert run_name({"training.learning_rate": "1e-3", "model.width": "64"}) == "learning_rate=1e-3,width=64"
    assert run_name({"model.kind": "gpt", "tokenizer.kind": "bytes"}) == "model.kind=gpt,tokenizer.kind=bytes"
    names = {run_name({"data.train": value}) for value in ("a/b", "a_b", "x" * 300, "x" * 301)}
    assert len(names) == 4
    assert not any("/" in name or len(name) > 120 for name in names)


def trial(
    setting: str,
    *values: float,
    budget: float | None = None,
    diverged: int = 0,
    spread: float | None = None,
    parameters: int = 9,
) -> Trial:
    bounds = tuple(None if spread is None else (value - spread, value + spread) for value in values)
    return Trial(
        setting={"k": setting},
        metric="accuracy",
        runs=(f"runs/{setting}",),
        values=values,
        bounds=bounds,
        parameters=parameters,
        diverged=diverged,
        budget=budget,
        seconds=0,
    )


def results(*trials: Trial) -> SweepResults:
    return SweepResults(
        folder="runs",
        metric="accuracy",
        higher=True,
        keys=("k",),
        trials=in_order(trials, higher=True),
        effects=(),
        scored_on="",
    )


def test_a_setting_within_the_interval_of_the_best_ties_with_it() -> None:
    assert [one.setting["k"] for one in results(trial("a", 70.0, spread=1), trial("b", 75.0, spread=6)).tied] == ["a"]
    lower = (trial("a", 3.0, spread=0.1), trial("b", 2.5, spread=0.6))
    assert lower[0].ties_with(lower[1], higher=False)
    assert not lower[0].ties_with(trial("b", 2.5, spread=0.3), higher=False)


def test_a_setting_whose_interval_reaches_the_best_mean_ties_with_it() -> None:
    apart = results(trial("a", 70.0, spread=2), trial("b", 75.0, spread=2))
    assert apart.tied == ()
    assert apart.verdict == "chosen of 2 settings on validation: k=b (runs/b)."
    close = results(trial("a", 74.0, spread=2, parameters=4), trial("b", 75.0, spread=2), trial("c", 60.0, spread=2))
    assert [one.setting["k"] for one in close.tied] == ["a"]
    assert close.verdict == (
        "tie of 2 of 3 settings on validation: intervals do not tell k=a from the best accuracy, 75.00. Chosen as the"
        " best mean, not as better: k=b (runs/b). Fewest parameters of them: k=a, 4 instead of 9."
    )
    assert close.as_json()["tied"][0]["interval"] == (72, 76)


def test_a_setting_that_was_dropped_ties_with_the_chosen_one_at_its_own_budget() -> None:
    first = [trial("a", 74.0, spread=2, budget=1), trial("b", 75.0, spread=2, budget=1)]
    first += [trial("c", 70.0, spread=2, budget=1)]
    halved = results(*first, trial("b", 90.0, spread=2, budget=3))
    assert [(one.setting["k"], one.budget) for one in halved.tied] == [("a", 1)]
    assert "from the accuracy of the chosen one at the budget where they were dropped" in halved.verdict
    assert results(first[0], trial("b", 70.0, spread=2, budget=3)).tied == ()  # nothing to compare with


def test_a_choice_by_scores_without_intervals_says_that_ties_are_not_known() -> None:
    assert "so that ties are not known" in results(trial("a", 60.0), trial("b", 70.0)).verdict
    assert "ties are" not in results(trial("a", 60.0, spread=1.0), trial("b", 70.0, spread=1.0)).verdict


def test_of_equal_means_the_smallest_is_chosen_then_the_first() -> None:
    equal = results(trial("a", 75.0), trial("b", 75.0, parameters=4), trial("c", 75.0, parameters=4), trial("d", 74.9))
    assert equal.chosen.setting == {"k": "b"}
    assert [one.setting["k"] for one in equal.tied] == ["c", "a"]  # without an interval nothing is known of d
    assert "smallest, then the first, of equal means" in equal.verdict


def test_seeds_that_vary_tie() -> None:
    assert results(trial("a", 70.0, 70.1, 70.2), trial("b", 75.0, 75.1, 75.2)).tied == ()
    assert results(trial("a", 70.0, 75.0, 71.0), trial("b", 75.0, 75.1, 75.2)).tied != ()
    assert results(trial("a", 70.0, 90.0, diverged=1), trial("b", 75.0, 75.1, 75.2)).tied == ()


def test_trials_are_ranked_by_budget_then_mean_and_diverged_ones_are_last() -> None:
    trials = [trial("a", 3.0, 1.0), trial("b", 1.9), trial("c", 0.1, diverged=1), trial("d", 0.5, budget=0.0)]
    assert [one.setting["k"] for one in in_order(trials, higher=False)] == ["d", "b", "a", "c"]
    assert [one.setting["k"] for one in in_order(trials, higher=True)] == ["a", "b", "d", "c"]
    assert in_order([trial("a", 0.0, budget=9), trial("b", 1.0, budget=3)], higher=True)[0].budget == 9
    assert trials[0].deviation == pytest.approx(2**0.5)
    effects = effects_of([trial("10", 4.0), trial("9", 1.0), trial("10", 2.0)], ["k"])
    assert [(e.value, e.mean, e.low, e.high, e.settings) for e in effects] == [("9", 1, 1, 1, 1), ("10", 3, 2, 4, 2)]


def test_a_sweep_chooses_on_validation_reads_test_once_and_goes_on(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = tmp_path / "test.txt"
    test.write_text(Path(text).read_text() * 4)  # long enough for intervals

    def swept(*values: str) -> Sweep:
        settings = [f"model.order={','.join(values)}", "tokenizer.kind=characters"]
        return sw.sweep(text=text, model="ngram", set=settings, run=tmp_path / "sweep", on=str(test))

    results = swept("1", "2").results
    assert (results.metric, results.higher, results.chosen.setting) == ("bits_per_byte", False, {"model.order": "2"})
    best = sw.open(results.chosen.runs[0])
    assert results.chosen.mean == best.summary["scores"]["bits_per_byte"]["value"]
    assert results.test is not None
    score = best.evaluate(test)["scores"]["bits_per_byte"]
    assert results.test["scores"]["bits_per_byte"] == score["value"]
    assert results.test["intervals"]["bits_per_byte"] == pytest.approx([score["low"], score["high"]])
    shown = swept("1", "2")
    assert f"({interval(score['low'], score['high'])})" in str(shown)
    assert interval(score["low"], score["high"]) in shown.html()
    assert [run["run"] for run in sw.list_runs(tmp_path)] == [str(tmp_path / "sweep" / f"order={n}") for n in (1, 2)]
    monkeypatch.setattr(training.TrainingSession, "_count", lambda session: pytest.fail("trained again"))
    again = swept("1", "2")
    assert json.loads(json.dumps(again.as_json()))["chosen"]["setting"] == {"model.order": "2"}
    assert again.results.trials == results.trials
    assert again.results.notes == ()
    assert again.html().startswith("<!doctype html>")
    monkeypatch.undo()
    wider = swept("2", "3").results
    assert wider.chosen.setting == {"model.order": "3"}
    assert "read before" in wider.notes[0]
    assert ", read once, of" in str(again)
    assert "test data read 2 times in this sweep" in str(swept("2", "3"))  # still, when nothing is read


def test_successive_halving_trains_fewer_settings_longer(text: str, tmp_path: Path) -> None:
    settings = [*LSTM, "training.steps=4", "training.learning_rate=1e-6,1e-2,1e-5"]
    results = sw.sweep(text=text, model="lstm", set=settings, halving=True, run=tmp_path / "sweep").results
    assert [trial.budget for trial in results.trials] == [4, 1, 1, 1]
    first_rung = [trial for trial in results.trials if trial.budget == 1]
    assert results.chosen.setting == first_rung[0].setting
    assert sw.open(results.chosen.runs[0]).summary["steps"] == 4


def test_seeds_are_repetitions(text: str, tmp_path: Path) -> None:
    settings = ["tokenizer.kind=characters", "model.width=4,8", "training.steps=2", "training.sample_every=0"]
    results = sw.sweep(text=text, model="rnn", set=settings, seeds=2, run=tmp_path / "sweep").results
    assert all(len(trial.values) == 2 and trial.deviation for trial in results.trials)
    assert [sw.open(run).settings.training.seed for run in results.chosen.runs] == [1, 2]


def test_test_scores_of_other_seeds_are_not_those_of_the_setting(text: str, tmp_path: Path) -> None:
    settings = ["tokenizer.kind=characters", "model.width=4,8", "training.steps=2", "training.sample_every=0"]
    one, two = (
        sw.sweep(text=text, model="rnn", set=settings, seeds=seeds, run=tmp_path / "sweep", on=text).results
        for seeds in (1, 2)
    )
    assert one.test is not None
    assert two.test is not None
    assert two.chosen.setting == one.chosen.setting
    assert (len(one.test["runs"]), len(two.test["runs"])) == (1, 2)
    assert "read before" in two.notes[0]


def test_models_that_no_seed_changes_are_trained_once(text: str, tmp_path: Path) -> None:
    settings = ["tokenizer.kind=characters", "model.order=1,2"]
    results = sw.sweep(text=text, model="ngram", set=settings, seeds=2, run=tmp_path / "sweep").results
    assert [(len(trial.values), trial.deviation) for trial in results.trials] == [(1, None), (1, None)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"set": ["model.order=3"]}, "two settings or more"),
        ({"set": ["training.seed=1,2"]}, "--seeds N"),
        ({"set": ["model.order=1..4"]}, "--random N"),
        ({"set": ["model.order=4..1"], "random": 3}, "comes first"),
        ({"set": ["model.ordr=1,2"]}, "Did you mean 'order'"),
        ({"set": ["model.order=1,2"], "halving": True}, "training.steps=N"),
        ({"set": ["model.order=1,2", "training.steps=9"], "halving": True}, "three values or more"),
        ({"set": ["data.split=tail 5%,tail 10%"]}, "settings would not compare"),
        ({"set": ["model.order=1,2"], "txt": "x"}, "Did you mean 'text'"),
    ],
)
def test_what_cannot_be_swept_is_refused(text: str, tmp_path: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(sw.UserError, match=message):
        sw.sweep(text=text, model="ngram", run=tmp_path / "sweep", **options)
    assert not (tmp_path / "sweep").exists()
