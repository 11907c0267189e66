"""A ladder: one tokenizer and split for all rungs, a shared budget, and the cheapest rung that reaches the best."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import seqwright as sw
from seqwright.core.config import UserError
from seqwright.reporting.run_facts import RunFacts
from seqwright.studies.ladder import RUNGS, Ladder, Rung, ladder_recipes, still_improving, sufficient

LOGGED = ("train", "evaluation")


def rung(name: str, value: float, spread: float = 0.1, *, parameters: int = 1000, seconds: float = 1.0) -> Rung:
    score = {"value": value, "low": value - spread, "high": value + spread}
    scores = {"bits_per_byte": score, "accuracy": score}
    summary: dict[str, Any] = {"seconds": seconds, "parameters": parameters, "scores": scores}
    return Rung(name=name, path=Path(name), summary=summary, sample="")


def test_the_cheapest_rung_whose_interval_reaches_the_best_score_is_enough() -> None:
    rungs = [rung("ngram", 2.5), rung("lstm", 2.05), rung("gpt", 2.0, parameters=3000)]
    assert sufficient(rungs, "bits_per_byte") == (
        rungs[1],
        "it ties with the best bits per byte, 2 of gpt by their intervals, and it has 1.00 k parameters instead of"
        " 3.00 k",
    )
    assert sufficient(rungs, "accuracy")[0].name == "ngram"  # where higher is better
    apart = [rung("ngram", 2.5), rung("gpt", 2.0)]
    assert sufficient(apart, "bits_per_byte") == (
        apart[1],
        "it has the best bits per byte, 2, which no other reaches within the intervals",
    )


def test_a_rung_within_the_interval_of_the_best_ties_with_it() -> None:
    narrow, wide = rung("ngram", 2.5, 0.01), rung("gpt", 2.0, 0.6)
    assert sufficient([narrow, wide], "bits_per_byte")[0] is narrow
    assert sufficient([narrow, rung("gpt", 2.0, 0.4)], "bits_per_byte")[0].name == "gpt"


def test_a_tie_of_rungs_is_decided_by_cost_and_not_by_the_clock() -> None:
    tied = [
        rung("bag", 68.0, 6, parameters=9000, seconds=15),
        rung("mlp", 67.0, 6, parameters=7000, seconds=1),
        rung("cnn", 69.0, 6, parameters=500, seconds=10),
    ]
    assert sufficient(tied, "accuracy") == (
        tied[0],
        "it ties with the best accuracy, 69 of cnn by their intervals, and it is counted, without gradient steps",
    )
    assert sufficient(tied[1:], "accuracy") == (
        tied[2],
        "it has the best accuracy, 69, a tie with mlp by their intervals, and it has 500 parameters instead of 7.00 k",
    )


def test_rungs_without_intervals_are_not_decided() -> None:
    def small(name: str, value: float) -> Rung:
        scores = {"bits_per_byte": {"value": value, "low": None, "high": None}}
        return Rung(name=name, path=Path("runs") / name, summary={"scores": scores}, sample="")

    rungs = [small("ngram", 1.868), small("rnn", 1.865)]
    enough, why = sufficient(rungs, "bits_per_byte")
    assert why == "it has the best bits per byte, 1.865, but what is held out is too little for intervals"
    ladder = Ladder(rungs=rungs, score="bits_per_byte", page=Path(), enough=enough.name, why=why, improving=())
    assert ladder.verdict == f"rnn leads so far: {why}."


def test_a_network_whose_validation_loss_falls_to_the_last_step_is_still_improving() -> None:
    def run(*losses: float, accuracy: tuple[float, ...] = ()) -> RunFacts:
        log: list[dict[str, Any]] = []
        for n, nll in enumerate(losses, 1):
            scores = {"nll": nll} | ({"accuracy": accuracy[n - 1]} if accuracy else {})
            log += [{"kind": kind, "step": n} | scores for kind in LOGGED]
        return RunFacts(name="x", recipe={}, environment={}, log=log, summary={})

    assert still_improving(run(3.0, 2.5, 2.0))
    assert still_improving(run(3.0))  # one evaluation says nothing
    assert not still_improving(run(3.0, 2.0, 2.5))
    assert not still_improving(run(3.0, 2.0, 2.5, accuracy=(50, 60, 70)))  # its best weights lie behind it
    assert not still_improving(run(3.0, 2.001, 2.0))
    assert not still_improving(run())  # a counted model


def test_a_rung_that_still_improves_leads_but_is_not_called_enough() -> None:
    def verdict(*improving: str) -> str:
        rungs = [rung("ngram", 2.5)]
        ladder = Ladder(rungs=rungs, score="accuracy", page=Path(), enough="ngram", why="why", improving=improving)
        return ladder.verdict

    assert verdict() == "ngram is enough: why."
    assert verdict("gpt").startswith("ngram is enough: why. Still improving at their last step: gpt;")
    assert verdict("ngram").startswith("ngram leads so far: why. Still improving")


@pytest.mark.parametrize("data", ["text", "labeled", "tagged", "pairs"])
def test_rungs_share_budget_split_and_tokenizer(data: str, tmp_path: Path) -> None:
    texts = {
        "text": "one two three\n" * 50,
        "labeled": "".join(f"{n % 2}\tone two {n}\n" for n in range(60)),
        "tagged": "one\tN\ntwo\tV\n\n" * 30,
        "pairs": "one two\tun deux\n" * 40,
    }
    file = tmp_path / "data.tsv"
    file.write_text(texts[data], encoding="utf-8")
    recipes = ladder_recipes(data, [str(file)], minutes=6)
    assert tuple(recipes) == RUNGS[data]
    budgets = {settings.training.minutes for settings in recipes.values()} - {None}
    networks = len([kind for kind in RUNGS[data] if kind not in ("ngram", "bag", "perceptron")])
    assert budgets == {6 / networks}
    assert len({str(settings.data.split) for settings in recipes.values()}) == 1
    if data == "text":
        assert len({str(settings.tokenizer) for settings in recipes.values()}) == 1


def test_a_ladder_of_two_rungs_is_trained_compared_and_reused(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("the cat sat on the mat and the dog sat on the log\n" * 60, encoding="utf-8")
    options: dict[str, Any] = {"text": str(file), "models": ["ngram", "neural-bigram"], "minutes": 0.02}
    found = sw.ladder(tmp_path / "rungs", **options)
    assert [one.name for one in found.rungs] == ["ngram", "neural-bigram"]
    assert found.enough in ("ngram", "neural-bigram")
    page = found.page.read_text(encoding="utf-8")
    assert "neural-bigram" in page
    assert found.verdict in page
    assert sw.compare([one.path for one in found.rungs]).metrics == ("bits_per_byte",)  # held out of all rungs
    again = sw.ladder(tmp_path / "rungs", **options)
    assert [one.summary for one in again.rungs] == [one.summary for one in found.rungs]


def test_unknown_rungs_name_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="gpt"):
        ladder_recipes("text", ["embedded:topics"], minutes=1, kinds=["gtp"])
    with pytest.raises(UserError, match="one kind of data"):
        sw.ladder(tmp_path)


def test_a_refused_ladder_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("blank.txt").write_text("\n\n")
    with pytest.raises(UserError, match="has only blank lines"):
        sw.ladder("runs/ladder-blank", text="blank.txt", models=["ngram"], minutes=0.1)
    assert [path.name for path in tmp_path.iterdir()] == ["blank.txt"]


def test_a_ladder_that_is_given_no_folder_has_that_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("the cat sat on the mat\n" * 40)
    trained = sw.ladder(text="notes.txt", models=["ngram"])
    assert [rung.path for rung in trained.rungs] == [Path("runs/ladder-notes/ngram")]
