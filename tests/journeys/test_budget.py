"""Time budgets, announced lengths, and the counted baseline beside language models."""

from __future__ import annotations

import tomllib
import warnings
from pathlib import Path
from typing import Any

import pytest

import seqwright as sw
from seqwright.pipeline import budget
from seqwright.pipeline.budget import Forecast, Speed
from seqwright.runs.overlap import trained_on
from seqwright.training.config import TrainingConfig
from tests.journeys.commands import records
from tests.journeys.conftest import Command

MODEL = [
    *("--set", "tokenizer.kind=characters", "--set", "training.batch_size=4", "--set", "training.sample_every=0"),
    *("--set", "model.layers=1", "--set", "model.width=16", "--set", "model.heads=2", "--set", "model.context=16"),
]


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MEASURED_SECONDS", 0.01)


def training(run: Path) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((run / "recipe.toml").read_text(encoding="utf-8"))["training"]
    return table


def test_a_budget_is_turned_into_steps_once_and_more_minutes_mean_more_steps(workdir: Path, seqwright: Command) -> None:
    command = ["train", "--text", "text.txt", *MODEL, "--run", "run"]
    first = seqwright(*command, "--minutes", "0.01")
    assert first.status == 0, first.err
    assert "steps a second on this machine" in first.err
    decided = training(workdir / "run")
    assert decided["minutes"] == 0.01
    assert decided["steps"] > 0
    again = seqwright(*command, "--minutes", "0.01")
    assert "was already finished" in again.out
    assert training(workdir / "run") == decided
    without = seqwright(*command)  # the budget of the run, not the default one
    assert "was already finished" in without.out
    longer = seqwright("train", "--run", "run", "--minutes", "0.02")
    assert longer.status == 0, longer.err
    assert training(workdir / "run")["steps"] == 2 * decided["steps"]


def test_a_budget_trains_what_its_steps_train(workdir: Path, seqwright: Command) -> None:
    seqwright("train", "--text", "text.txt", *MODEL, "--run", "timed", "--minutes", "0.01")
    found = training(workdir / "timed")
    # A budget is spent in bf16 where the machine multiplies it, and decides how often the text is read.
    dropout = tomllib.loads((workdir / "timed" / "recipe.toml").read_text(encoding="utf-8"))["model"]["dropout"]
    same = ("--set", f"training.steps={found['steps']}", "--set", f"training.precision={found['precision']}")
    same += ("--set", f"model.dropout={dropout}")
    seqwright("train", "--text", "text.txt", *MODEL, "--run", "counted", *same)
    timed, counted = ([r["loss"] for r in records(workdir / run, "train")] for run in ("timed", "counted"))
    assert timed == counted
    assert len(timed) > 0


def test_steps_win_over_a_budget(workdir: Path, seqwright: Command) -> None:
    steps = ["--set", "training.minutes=5", "--set", "training.steps=2"]
    assert seqwright("train", "--text", "text.txt", *MODEL, *steps, "--run", "run").status == 0
    assert training(workdir / "run").get("minutes") is None
    assert seqwright("train", "--text", "text.txt", "--minutes", "0").status == 2


@pytest.mark.parametrize(("minutes", "steps"), [(10, 20), (0.001, 10)])
def test_epochs_are_cut_to_a_budget(minutes: float, steps: int, workdir: Path, seqwright: Command) -> None:
    """A classifier of words trains its epochs, or as many as fit; its recipe has them as steps."""
    (workdir / "rows.tsv").write_text("".join(f"{n % 2}\ttext {n % 2} of {n}\n" for n in range(320)))
    table = f'[data]\nkind = "labeled"\ntrain = "rows.tsv"\n[training]\nminutes = {minutes}\nepochs = 2\n'
    (workdir / "both.toml").write_text(f'{table}[tokenizer]\nkind = "words"\n[model]\nkind = "mlp"\n')
    trained = seqwright("train", "both.toml", "--run", "run")
    assert trained.status == 0, trained.err
    decided = training(workdir / "run")
    assert (decided["steps"], decided["minutes"]) == (steps, minutes)
    assert "epochs" not in decided
    assert ("% of 2 epochs, which would take about" in trained.err) == (minutes < 1)
    assert "was already finished" in seqwright("train", "both.toml", "--run", "run").out


def test_a_network_is_compared_with_the_ngram_of_the_same_tokens(workdir: Path, seqwright: Command) -> None:
    steps = ["--set", "training.steps=3"]
    trained = seqwright("train", "--text", "text.txt", *MODEL, *steps, "--run", "gpt")
    assert "ngram baseline" in trained.out
    (record,) = records(workdir / "gpt", "baseline")
    assert "n-gram baseline" in (workdir / "gpt" / "report.html").read_text(encoding="utf-8")
    assert "bits/byte, and the n-gram has" in trained.out
    assert "seqwright mix gpt --ngram --run gpt-mixed" in trained.out
    mixed = seqwright("mix", "gpt", "--ngram", "--run", "gpt-mixed", "--json").json["summary"]
    alone, counted = (part["perplexity"] for part in mixed["parts"])
    assert counted == pytest.approx(record["perplexity"])
    tokens = ["--set", "tokenizer.file=gpt/tokenizer.json"]
    ngram = seqwright("train", "--text", "text.txt", "--model", "ngram", *tokens, "--run", "ngram", "--json").json
    assert ngram["summary"]["perplexity"] == pytest.approx(record["perplexity"])
    assert "\norder = 5\n" in (workdir / "ngram" / "recipe.toml").read_text(encoding="utf-8")
    assert mixed["tuned"]["perplexity"] <= min(alone, counted) * (1 + 1e-6)  # EM stops near the optimum
    assert mixed["tuned"]["bits_per_byte"] <= record["bits_per_byte"] * (1 + 1e-6)
    assert "data.refit" in seqwright("evaluate", "gpt-mixed").err  # its n-gram has seen the held-out text
    without = ["--set", "evaluation.baseline=false"]
    seqwright("train", "--text", "text.txt", *MODEL, *steps, *without, "--run", "alone")
    assert records(workdir / "alone", "baseline") == []


def test_speed_divides_a_budget_between_steps_and_evaluations() -> None:
    assert Speed(step=0.1, evaluation=1.0).steps(1) == 500
    assert Speed(step=0.1, evaluation=4.0).steps(1) == 480  # 3 evaluations: at most a fifth of the budget
    assert Speed(step=0.1, evaluation=100.0).steps(1) == 300  # half of it for steps in any case
    assert Speed(step=1000.0, evaluation=0.0).steps(1) == 10
    assert Speed(step=0.0123, evaluation=0.0).steps(1) == 4800  # two digits


def test_short_budgets_have_fewer_evaluations() -> None:
    slow = Speed(step=0.1, evaluation=4.0)
    assert [slow.evaluations(minutes) for minutes in (0.1, 1, 10)] == [1, 3, 10]
    short = slow.budgeted(TrainingConfig(minutes=1), 1, max_steps=10_000)
    assert (short.steps, short.evaluate_every) == (480, 160)
    assert slow.budgeted(TrainingConfig(minutes=10), 10, max_steps=10_000).evaluate_every is None
    chosen = TrainingConfig(minutes=1, evaluate_every=50)
    assert slow.budgeted(chosen, 1, max_steps=10_000).evaluate_every == 50


def test_long_trainings_are_announced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(budget.time, "perf_counter", lambda: float(next(clock)))
    announcements = list(filter(None, map(Forecast(), range(1, 20), [1000] * 19)))
    assert announcements == ["about 16 m 36 s on this machine; Ctrl-C is safe; --minutes N for another budget."]
    assert not any(map(Forecast(), range(1, 20), [20] * 19))


def test_minutes_and_steps_exclude_each_other_on_the_command_line(workdir: Path, seqwright: Command) -> None:
    both = ["--minutes", "1", "--set", "training.steps=7"]
    assert "--minutes and training.steps both set the length" in seqwright("train", "--text", "text.txt", *both).err


def test_mixtures_are_not_tuned_on_text_that_a_run_has_learned(workdir: Path, seqwright: Command) -> None:
    seqwright("train", "--text", "text.txt", *MODEL, "--set", "training.steps=2", "--run", "gpt")
    tokenizer = ["--set", "tokenizer.kind=characters"]
    seqwright("train", "--text", "text.txt", "--model", "ngram", *tokenizer, "--run", "refitted")
    kept = ["--set", f"tokenizer.file={workdir / 'refitted' / 'tokenizer.json'}", "--set", "data.refit=false"]
    seqwright("train", "--text", "text.txt", "--model", "ngram", *kept, "--run", "held-out")
    refused = seqwright("mix", "held-out", "refitted", "--run", "mixed").err
    assert "was fitted on its held-out text, too (data.refit)" in refused
    for runs in (("gpt", "refitted"), ("refitted", "gpt")):
        assert "`seqwright mix gpt --ngram --run NEW`" in seqwright("mix", *runs, "--run", "mixed").err
    (workdir / "other.txt").write_text((workdir / "text.txt").read_text()[:1000])
    seqwright("train", "--text", "other.txt", "--model", "ngram", *kept, "--run", "elsewhere")
    assert "hold out different texts" in seqwright("mix", "held-out", "elsewhere", "--run", "mixed").err
    (workdir / "copy.txt").write_bytes((workdir / "text.txt").read_bytes())
    seqwright("train", "--text", "copy.txt", "--model", "ngram", *kept, "--run", "copy")
    assert seqwright("mix", "held-out", "copy", "--run", "mixed").status == 0


def test_refused_data_leaves_the_log_as_it_was(workdir: Path, seqwright: Command) -> None:
    seqwright("train", "--text", "text.txt", *MODEL, "--set", "training.steps=2", "--run", "gpt")
    (workdir / "other.txt").write_text("another text of other words\n" * 200)
    before = (workdir / "gpt" / "log.jsonl").read_bytes()
    moved = ["--set", "data.train=other.txt", "--set", "training.steps=4"]
    assert seqwright("train", "--run", "gpt", *moved).status == 2
    assert (workdir / "gpt" / "log.jsonl").read_bytes() == before


def test_a_text_is_no_recipe_and_the_error_names_the_option(workdir: Path, seqwright: Command) -> None:
    assert "`seqwright train --text text.txt`" in seqwright("train", "text.txt").err


def test_evaluating_on_training_files_is_noted(workdir: Path, seqwright: Command) -> None:
    seqwright("train", "--text", "text.txt", *MODEL, "--set", "training.steps=2", "--run", "gpt")
    assert "gpt was trained on" in seqwright("evaluate", "gpt", "--on", "text.txt").err
    (workdir / "other.txt").write_text("the cat sat on a mat\n" * 9)
    assert "was trained on" not in seqwright("evaluate", "gpt", "--on", "other.txt").err
    (workdir / "copy.txt").write_bytes((workdir / "text.txt").read_bytes())
    copied = seqwright("evaluate", "gpt", "--on", "copy.txt")
    assert copied.err.count("was trained on") == 1
    assert "copy.txt, a copy of " in copied.err
    lines = (workdir / "text.txt").read_text().splitlines(keepends=True)
    (workdir / "part.txt").write_text(
        "".join(lines[:20]) + "a line of another text, as long as those of the others\n" * 9
    )
    assert "part.txt, most of whose lines are in " in seqwright("evaluate", "gpt", "--on", "part.txt").err
    (workdir / "binary.bin").write_bytes(bytes(range(256)) * 40)  # as images are
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert trained_on(sw.open(workdir / "gpt"), str(workdir / "binary.bin")) == []
    assert "copy.txt (training data)" in (workdir / "gpt" / "report.html").read_text()
    with pytest.warns(sw.SeqwrightWarning, match="no score of unseen data"):
        sw.open(workdir / "gpt").evaluate("copy.txt")
