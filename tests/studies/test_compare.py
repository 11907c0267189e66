"""`compare`: runs of every task on shared data, seeds as one system, and refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import seqwright as sw
from seqwright.metrics.significance import Difference
from seqwright.runs.directory import RunDirectory
from seqwright.studies.compare.checks import check_runs
from seqwright.studies.compare.compare import group_by_recipe, repetitions
from seqwright.studies.compare.comparison import Comparison
from seqwright.studies.compare.results import PairedTest, Results, System

CONVERSATION = """{"messages": [{"role": "user", "content": "where is cat N?"},\
 {"role": "assistant", "content": "cat N sat on the mat by the sea, and there it sat for N long days"}]}
"""
SMALL = ["training.steps=2", "training.batch_size=4", "training.sample_every=0", "model.width=8"]
CHAT = ["tokenizer.kind=bytes", "model.layers=1", "model.heads=2", "model.context=32"]  # conversations are split


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of each task, trained for two steps: those of one task on the same data."""
    folder = tmp_path_factory.mktemp("compared")
    lines = ["the cat sat on the mat", "a dog ran by the sea", "the big cat saw a dog"]
    files = {
        "train.txt": "\n".join(lines * 40) + "\n",
        "test.txt": "\n".join(f"{line} and {lines[n % 3]}" for n in range(60) for line in lines),
        "source.txt": "\n".join(lines * 10) + "\n",
        "target.txt": "\n".join(line.replace("the", "die") for line in lines * 10) + "\n",
        "labels.tsv": "".join(f"good\tthe good cat {n}\nbad\tthe bad dog {n}\n" for n in range(20)),
        "chat.jsonl": "".join(CONVERSATION.replace("N", str(n)) for n in range(24)),
        "tags.tsv": "the\tD\ncat\tN\nsat\tV\n\nthe\tD\ndog\tN\nran\tV\n\n" * 20,
    }
    for name, content in files.items():
        (folder / name).write_text(content)
    text, source, target, labels, chat, tags = (str(folder / name) for name in files if name != "test.txt")
    split = ["data.split=tail 50%"]
    trainings: dict[str, dict[str, Any]] = {
        "ngram": {"text": text, "model": "ngram", "set": ["tokenizer.kind=characters"]},
        "bytes": {"text": text, "model": "ngram", "set": ["tokenizer.kind=bytes", "model.order=1"]},
        "words": {"text": text, "model": "ngram", "set": ["tokenizer.kind=words"]},
        "lstm-1": {"labeled": labels, "model": "lstm", "set": [*SMALL, *split, "training.seed=1"]},
        "lstm-2": {"labeled": labels, "model": "lstm", "set": [*SMALL, *split, "training.seed=2"]},
        "bag": {"labeled": labels, "model": "bag", "set": [*split]},
        "multi": {"labeled": labels, "model": "bag", "set": [*split, "data.labels=multi"]},
        "perceptron": {"tagged": tags, "model": "perceptron", "set": [*split]},
        "gru": {"tagged": tags, "model": "gru", "set": [*SMALL, *split]},
        "chat-1": {"chat": chat, "set": [*SMALL, *CHAT, "data.split=documents 50%"]},
        "chat-2": {"chat": chat, "set": [*SMALL, *CHAT, "data.split=documents 50%", "model.dropout=0.5"]},
        "mt-1": {"pairs": [source, target], "model": "lstm", "set": [*SMALL, *split, "decoding.max_tokens=5"]},
        "mt-2": {"pairs": [source, target], "model": "gru", "set": [*SMALL, *split, "decoding.max_tokens=5"]},
    }
    for name, options in trainings.items():
        sw.train(run=folder / name, **options)
    return folder


def compared(folder: Path, *names: str, **options: Any) -> Comparison:
    return sw.compare([folder / name for name in names], device="cpu", **options)


def test_language_models_of_different_tokenizers_compare_in_bits_per_byte(folder: Path) -> None:
    text = str(folder / "test.txt")
    comparison = compared(folder, "bytes", "ngram", on=text)
    best, other = comparison.systems
    assert (best.name, other.name) == ("ngram", "bytes")
    assert comparison.unit == "block of text"
    for system in comparison.systems:
        (run,) = system.runs
        assert system.scores["bits_per_byte"].value == pytest.approx(sw.open(run).evaluate(text)["bits_per_byte"])
    signatures = [sw.open(folder / name).evaluate(text)["scores"]["nll"]["signature"] for name in ("bytes", "ngram")]
    assert len({fact for signature in signatures for fact in signature.split("|") if fact.startswith("text:")}) == 1
    test = comparison.test("bytes", "ngram")
    assert (test.one, test.difference.verdict) == ("bytes", "worse")
    assert test.difference.value < 0  # more bits
    turned = comparison.test("ngram", "bytes").difference
    assert (turned.value, turned.low, turned.verdict) == (-test.difference.value, -test.difference.high, "better")
    assert comparison.verdict == "ngram is better than bytes in bits per byte."
    assert comparison.different[0].favors == "ngram"
    assert comparison.keys["tokenizer.kind"] == ("characters", "bytes")
    assert "tokenizer.kind" in comparison.shared_keys()


def test_a_score_has_the_interval_of_evaluate(folder: Path) -> None:
    for name, other, file, metric in (
        ("ngram", "bytes", "test.txt", "bits_per_byte"),
        ("bag", "lstm-1", None, "accuracy"),
    ):
        on = [str(folder / file)] if file else []
        comparison = sw.compare(folder / name, folder / other, on=on)  # one by one
        score = sw.open(folder / name).evaluate(on or None)["scores"][metric]
        (system,) = (system for system in comparison.systems if system.name == name)
        shown = system.scores[metric]
        assert (shown.value, shown.low, shown.high) == (score["value"], score["low"], score["high"])


def test_seeds_of_a_recipe_are_one_system(folder: Path) -> None:
    comparison = compared(folder, "lstm-1", "bag", "lstm-2", metrics=["accuracy"])
    lstm = next(system for system in comparison.systems if system.name == "lstm")
    assert lstm.seeds == (1, 2)
    page = comparison.html()
    for example in comparison.different:
        outputs = dict(comparison.shown_outputs(example))
        assert {*outputs} == {"bag", f"{lstm.name} (seed {example.seeds[1 if example.one == 'bag' else 0]})"}
        assert all(name in page for name in outputs)
        # The shown runs score the example as their systems do: the favored one is right, the other wrong.
        favored, other = sorted(outputs.items(), key=lambda item: not item[0].startswith(example.favors))
        assert favored[1].startswith(f"{example.reference} (")
        assert not other[1].startswith(f"{example.reference} (")
    accuracy = lstm.scores["accuracy"]
    assert accuracy.values == tuple(sw.open(run).evaluate()["accuracy"] for run in lstm.runs)
    assert accuracy.value == sum(accuracy.values) / 2
    assert accuracy.deviation is not None
    assert len(comparison.tests) == 1
    assert {example.reference for example in comparison.different} <= {"good", "bad"}
    assert "the validation data" in comparison.sample
    assert "training.seed" not in comparison.keys
    alone = compared(folder, "lstm-1", "lstm-2")
    assert "one recipe with 2 seeds" in alone.verdict


@pytest.mark.parametrize(
    ("one", "other", "metrics", "unit"),
    [
        ("perceptron", "gru", ("accuracy",), "sentence"),
        ("mt-1", "mt-2", ("bleu", "chrf"), "pair"),
        ("chat-1", "chat-2", ("perplexity",), "conversation"),
        ("bag", "lstm-1", ("accuracy", "macro_f1"), "text"),
    ],
)
def test_each_task_has_its_metrics(folder: Path, one: str, other: str, metrics: tuple[str, ...], unit: str) -> None:
    comparison = compared(folder, one, other)
    assert (comparison.metrics, comparison.unit) == (metrics, unit)
    for system in comparison.systems:
        scores = sw.open(system.runs[0], device="cpu").evaluate()
        assert {name: system.scores[name].value for name in metrics} == {name: scores[name] for name in metrics}
    assert all(example.input and example.reference for example in comparison.different)
    assert [test.difference.p_holm >= test.difference.p for test in comparison.tests] == [True] * len(metrics)
    assert json.loads(json.dumps(comparison.as_json()))["verdict"] == comparison.verdict
    assert comparison.html().startswith("<!doctype html>")
    assert comparison.verdict in comparison._repr_html_()


def test_what_cannot_be_compared_is_refused(folder: Path) -> None:
    test = str(folder / "test.txt")
    for names, options, message in (
        (("bag",), {}, "two runs or more"),
        (("bag", "bag"), {}, "named twice"),
        (("bag", "gru"), {}, "compare runs of one task"),
        (("bag", "multi"), {}, "compare runs of one type"),
        (("bag", "lstm-1"), {"metrics": ["accurcy"]}, "Did you mean 'accuracy'?"),
        (("ngram", "bytes"), {}, "with --on FILE"),
        (("ngram", "words"), {"on": test}, "Compare it with runs of the same tokenizer"),
    ):
        with pytest.raises(sw.UserError, match=message.replace("?", r"\?")):
            compared(folder, *names, **options)


def test_models_that_were_fitted_on_held_out_text_are_refused_before_any_is_opened(
    folder: Path, tmp_path: Path
) -> None:
    text = str(folder / "train.txt")
    common = ["tokenizer.kind=characters"]
    held_out = sw.train(text=text, model="ngram", set=[*common, "data.refit=false"], run=tmp_path / "held-out").path
    sw.train(text=text, model="lstm", set=[*SMALL, *common], run=tmp_path / "lstm")
    sw.mix([tmp_path / "lstm"], ngram=True, run=tmp_path / "mixed")
    with pytest.raises(sw.UserError, match=r"`seqwright train \S+/recipe\.toml --run \S+-2 --set data\.refit=false`"):
        check_runs([held_out, folder / "ngram"], on=None)
    with pytest.raises(sw.UserError, match=r"n-gram of the mixture .* --on FILE"):
        check_runs([held_out, tmp_path / "mixed"], on=None)
    found = sw.compare([held_out, tmp_path / "mixed"], on=str(folder / "test.txt"))
    assert found.notes == ()
    assert not any(key.startswith("training.") for key in found.keys)  # neither is trained by gradient steps


def test_a_file_and_a_list_of_it_are_the_same_data(folder: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    lines = (f'train = "{folder / "train.txt"}"', 'split = "tail 50%"', "[tokenizer]", 'kind = "characters"')
    recipe.write_text("\n".join(["[data]", *lines, "[model]", 'kind = "ngram"', "order = 2"]), encoding="utf-8")
    sw.train(recipe, run=tmp_path / "recipe")
    of_text = ["tokenizer.kind=characters", "data.refit=false", "data.split=tail 50%"]
    sw.train(text=str(folder / "train.txt"), model="ngram", set=of_text, run=tmp_path / "text")
    keys = sw.compare([tmp_path / "recipe", tmp_path / "text"]).keys
    assert "model.order" in keys
    assert "data.train" not in keys


def test_a_system_may_be_better_than_the_best_in_another_metric() -> None:
    def tested(metric: str, value: float) -> PairedTest:
        found = Difference(value=value, low=value - 0.5, high=value + 0.5, p=0.001, p_holm=0.001, signature="")
        return PairedTest(one="bag", other="lstm", metric=metric, difference=found)

    systems = tuple(
        System(name=name, runs=(name,), seeds=(1,), kind="bag", parameters=1, seconds=1, scores={})
        for name in ("bag", "lstm")
    )
    results = Results(
        split="",
        unit="text",
        examples=20,
        metrics=("accuracy", "macro_f1"),
        systems=systems,
        tests=(tested("accuracy", 2.0), tested("macro_f1", -2.0)),
        different=(),
        keys={},
    )
    assert results.standing(systems[1]) == "worse"
    assert results.standing(systems[1], "macro_f1") == "better"


def test_a_mixture_on_the_data_of_its_weights_has_a_warning(folder: Path, tmp_path: Path) -> None:
    sw.mix([folder / "lstm-1", folder / "bag"], run=tmp_path / "mixed")
    assert "mixed were tuned on this data" in sw.compare([tmp_path / "mixed", folder / "bag"]).notes[0]
    other = tmp_path / "other.tsv"
    other.write_text("".join(reversed((folder / "labels.tsv").read_text().splitlines(keepends=True))))
    assert sw.compare([tmp_path / "mixed", folder / "bag"], on=str(other)).notes == ()
    other.write_text((folder / "labels.tsv").read_text())
    notes = sw.compare([tmp_path / "mixed", folder / "bag"], on=str(other)).notes
    assert all(f"other.tsv, a copy of {folder / 'labels.tsv'}" in note for note in notes)
    assert len(notes) == 2


def test_a_longer_training_that_was_stopped_has_a_note(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "lstm-1", tmp_path / "longer")
    recipe = tmp_path / "longer" / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("\nsteps = 2\n", "\nsteps = 1200\n"))
    RunDirectory.accept(tmp_path / "longer")
    (note,) = sw.compare([tmp_path / "longer", folder / "bag"], trust=True).notes
    assert "longer are of 2 steps: the 1,200 of its recipe are not taken yet; `seqwright train --run " in note
    assert [row["state"] for row in sw.list_runs(tmp_path)] == ["2 of 1,200 steps"]


def test_runs_that_hold_out_nothing_name_the_split_of_the_others(folder: Path, tmp_path: Path) -> None:
    sw.train(labeled=str(folder / "labels.tsv"), model="bag", run=tmp_path / "all")
    with pytest.raises(sw.UserError, match=r'all holds out no data; .*--set data.split="tail 50%"'):
        sw.compare([folder / "bag", tmp_path / "all"])


def test_runs_that_read_other_examples_of_a_file_name_the_key(tmp_path: Path) -> None:
    rows = "".join(f"good\tthe good cat {n}\nbad\tthe bad dog {n}\n\tno label {n}\n" for n in range(20))
    (tmp_path / "rows.tsv").write_text(rows)
    file, set = str(tmp_path / "rows.tsv"), ["data.split=tail 50%"]
    sw.train(labeled=file, model="bag", set=set, run=tmp_path / "all")
    sw.train(labeled=file, model="bag", set=[*set, "data.bad_rows=skip"], run=tmp_path / "skip")
    runs = [tmp_path / "all", tmp_path / "skip"]
    with pytest.raises(sw.UserError, match=r"data.bad_rows is refuse and skip.*--set data.bad_rows=VALUE"):
        sw.compare(runs, on=file)
    assert sw.compare(runs, on=file, set=["data.bad_rows=skip"], metrics=["accuracy"]).examples == 40


def test_a_repeated_training_is_no_other_seed(folder: Path, tmp_path: Path) -> None:
    sw.train(labeled=str(folder / "labels.tsv"), model="bag", set=["data.split=tail 50%"], run=tmp_path / "bag-again")
    comparison = compared(folder, "bag", tmp_path / "bag-again")
    assert "one recipe with one seed" in comparison.verdict
    assert "the same training, repeated" in comparison.notes[0]


def test_seeds_of_one_time_budget_are_one_system() -> None:
    def scored(name: str, **keys: Any) -> Any:
        recipe = {key.replace("_", ".", 1): value for key, value in keys.items()}
        training = SimpleNamespace(seed=recipe["training.seed"])
        return SimpleNamespace(path=Path(name), recipe=recipe, settings=SimpleNamespace(training=training))

    of_budget = [
        scored(f"gpt-{seed}", training_minutes=2, training_seed=seed, training_steps=90 + seed) for seed in (1, 2)
    ]
    assert [*group_by_recipe(of_budget)] == ["gpt"]
    minutes = "gpt: 2 minutes were 91 and 92 steps; runs of one time budget are one recipe."
    assert [*repetitions("gpt", of_budget)] == [minutes]
    again = [scored(f"gpt-{n}", training_minutes=2, training_seed=1, training_steps=90 + n) for n in (1, 2)]
    assert [*repetitions("gpt", again)] == [
        "gpt-1, gpt-2 have one recipe and one seed: they are no two seeds.",
        minutes,
    ]
    of_steps = [scored(f"gpt-{seed}", training_seed=seed, training_steps=90 + seed) for seed in (1, 2)]
    assert [*group_by_recipe(of_steps)] == ["gpt-1", "gpt-2"]


def test_runs_that_hold_out_different_data_need_other_data(folder: Path, tmp_path: Path) -> None:
    labels = str(folder / "labels.tsv")
    sw.train(labeled=labels, model="bag", set=["data.split=tail 30%"], run=tmp_path / "other")
    with pytest.raises(sw.UserError, match=r"hold out different data \(.*tail 50%.*tail 30%\).*--set data.split"):
        sw.compare([folder / "bag", tmp_path / "other"])
    trained_on = sw.compare([folder / "bag", tmp_path / "other"], on=labels)
    assert len(trained_on.notes) == 2
    assert "was trained on" in trained_on.notes[0]


def test_chunks_of_a_conversation_are_one_unit(folder: Path) -> None:
    assert compared(folder, "chat-1", "chat-2").examples == 15  # of 24, by their hash; in 60 chunks or more
