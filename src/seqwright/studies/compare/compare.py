"""`compare`: runs scored on the same examples, with paired tests, Holm's correction and seeds as one system."""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from seqwright.core.config import UserError, did_you_mean
from seqwright.core.progress import SILENT, Progress
from seqwright.data.files import as_list
from seqwright.metrics import significance
from seqwright.metrics.counts import Counts
from seqwright.metrics.examples import Examples
from seqwright.metrics.score import MIN_UNITS, Floats
from seqwright.metrics.significance import TRIALS
from seqwright.reporting.run_facts import flatten
from seqwright.runs.facts import note_steps_not_taken
from seqwright.runs.overlap import TrainingDataWarning, trained_on, tuned_on
from seqwright.runs.run import Run
from seqwright.studies.compare.checks import Scored, check_examples
from seqwright.studies.compare.comparison import Comparison
from seqwright.studies.compare.results import ComparedExample, MeanScore, PairedTest, System, plural

OUTPUT_METRICS = ("bleu", "chrf", "rouge_l", "exact_match", "word_error_rate", "phoneme_error_rate", "bracket_f1")
IDENTITY = ("name", "training.seed")
"""Recipe keys in which runs of one system differ."""
BUDGETED = ("training.steps", "training.evaluate_every")
"""Recipe keys that follow from a time budget and the speed of the machine (`training.minutes`)."""
WITHOUT_TRAINING = ("ngram", "mixture")
"""Kinds of models whose [training] has no effect."""
METRICS: dict[str, tuple[str, ...]] = {
    "text": ("bits_per_byte", "perplexity"),
    "labeled": ("accuracy", "macro_f1", "micro_f1", "pearson", "spearman"),
    "tagged": ("f1", "accuracy"),
    "pairs": OUTPUT_METRICS,
    "captions": OUTPUT_METRICS,
    "images": ("accuracy", "psnr"),
}
"""Metrics that are tested by default, by kind of data: the first MAX_METRICS that all runs have."""
MAX_METRICS = 2
LIKELIHOOD = ("perplexity",)
"""The metric of other kinds of data."""
SHOWN = 3
"""Examples shown for and against the best system."""


def compare(
    runs: Iterable[Run],
    on: str | Sequence[str] | None = None,
    *,
    metrics: Sequence[str] = (),
    trials: int = TRIALS,
    seed: int = 1,
    progress: Progress = SILENT,
) -> Comparison:
    """Scores of runs that `check_runs` accepts, on files or on the validation data that they share, and a paired test
    of every pair."""
    scored: list[Scored] = []
    notes: list[str] = []
    for run in runs:
        progress.note(f"evaluating {run.path} …")
        scored.append(_scored(run, on, progress))
        check_examples(scored[0], scored[-1], on)
        _metrics(scored, metrics)  # refuses an unknown one before the other runs are evaluated
        notes += [f"{run.path} was trained on {file} (or a part of it)." for file in trained_on(run, on or ())]
        if tuned_on(run, on or ()):
            notes.append(f"the weights of {run.path} were tuned on this data, so that its score is optimistic here.")
        if longer := note_steps_not_taken(run.path, run.directory.recipe(), run.summary):
            notes.append(longer)
    names = _metrics(scored, metrics)
    groups = _best_first(group_by_recipe(scored), names[0])
    notes += [note for name, members in groups.items() for note in repetitions(name, members)]
    tests, resamples = [], {}
    for metric in names:
        systems = {name: [_comparable(one.examples, metric) for one in members] for name, members in groups.items()}
        _check_classes(metric, systems)
        draws = significance.resampled([*systems.values()], trials=trials, seed=seed)
        resamples[metric] = dict(zip(groups, draws, strict=True))
        tests += list(_tests(metric, systems, resamples[metric], trials, seed))
    corrected = significance.holm([test.difference.p for test in tests])
    tests = [
        replace(test, difference=replace(test.difference, p_holm=p)) for test, p in zip(tests, corrected, strict=True)
    ]
    first = scored[0].examples
    count = len(_comparable(first, names[0]).rows)
    if count < MIN_UNITS:
        notes.append(f"{count} {plural(first.unit, count)}: too few for an interval, so every pair is a tie.")
    return Comparison(
        split=_split(scored[0].settings.data, on),
        unit=first.unit,
        examples=count,
        metrics=names,
        systems=tuple(_system(name, members, names, resamples, seed) for name, members in groups.items()),
        tests=tuple(tests),
        different=tuple(_different(groups, names[0])),
        keys=differing_keys([members[0].recipe for members in groups.values()]),
        notes=tuple(notes),
    )


def _scored(run: Run, on: str | Sequence[str] | None, progress: Progress) -> Scored:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingDataWarning)  # the notes of a comparison say it
        scores = run.evaluate(as_list(on) or None, progress=progress)
    examples = scores.examples
    assert examples is not None, "an evaluation that is not quick has examples"
    if not all(np.isfinite(counts.rows).all() for counts in examples.counts):
        raise UserError(
            f"{run.path} gives probability zero to a part of the data, so its score is infinite; train it with"
            " --set model.unknown=true."
        )
    recipe = dict(flatten(run.directory.recipe()))
    files = [f"data.{key}" for key in run.settings.data.files]
    recipe |= {key: as_list(recipe[key]) for key in files if key in recipe}  # a list of one is its file
    if run.settings.kind in WITHOUT_TRAINING:
        recipe = {key: value for key, value in recipe.items() if not key.startswith("training.")}
    return Scored(
        path=run.path,
        settings=run.settings,
        recipe=recipe,
        summary=run.summary,
        examples=examples,
        scores=scores["scores"],
    )


def _metrics(scored: Sequence[Scored], wanted: Sequence[str]) -> tuple[str, ...]:
    """The metrics to test: those that are wanted, or the default ones that all runs have."""
    known = [counts.name for counts in scored[0].examples.counts]
    known = [name for name in known if all(one.examples.metric(name) for one in scored)]
    for name in wanted:
        if name not in known:
            raise UserError(f"these runs have no metric '{name}'.{did_you_mean(name, known)}")
    default = METRICS.get(scored[0].settings.data.kind, LIKELIHOOD)
    chosen = tuple(wanted) or tuple(name for name in default if name in known)[:MAX_METRICS] or tuple(known[:1])
    return tuple(dict.fromkeys(chosen))


def _comparable(examples: Examples, metric: str) -> Counts:
    """The counts of a metric, with a signature of the data alone: tokenizers and searches may differ."""
    counts = examples.metric(metric)
    assert counts is not None
    return replace(counts, signature=f"{metric}|examples:{len(counts.rows)}|data:{examples.fingerprint[:8]}")


def _check_classes(metric: str, systems: dict[str, list[Counts]]) -> None:
    if len({counts.rows.shape[1] for members in systems.values() for counts in members}) > 1:
        raise UserError(f"{metric} is over the classes of a run, which differ here; take --metric accuracy.")


def group_by_recipe(scored: Sequence[Scored]) -> dict[str, list[Scored]]:
    """Runs by system: those whose recipes differ in nothing but name and seed are one."""
    groups: dict[str, list[Scored]] = {}
    for one in scored:
        recipe = one.recipe
        own = IDENTITY if recipe.get("training.minutes") is None else (*IDENTITY, *BUDGETED)
        key = json.dumps({key: recipe[key] for key in sorted(recipe) if key not in own}, default=str)
        groups.setdefault(key, []).append(one)
    short = len({one.path.name for one in scored}) == len(scored)
    named: dict[str, list[Scored]] = {}
    for members in groups.values():
        names = [one.path.name if short else str(one.path) for one in members]
        name = names[0] if len(names) == 1 else _common_prefix(names) or names[0]
        named[name if name not in named else ", ".join(names)] = members
    return named


def repetitions(name: str, members: Sequence[Scored]) -> Iterator[str]:
    """Notes on the runs of a system: those of equal seeds, and steps that one time budget was turned into."""
    steps = {one.recipe["training.steps"] for one in members if "training.steps" in one.recipe}
    if len(members) > len({one.settings.training.seed for one in members}):
        which, what = ", ".join(str(one.path) for one in members), "the same training, repeated"
        yield f"{which} have one recipe and one seed: {what if len(steps) < 2 else 'they are no two seeds'}."
    if len(steps) > 1:
        minutes = members[0].recipe["training.minutes"]
        yield f"{name}: {minutes:g} minutes were {_listed(steps)} steps; runs of one time budget are one recipe."


def _listed(steps: Iterable[int]) -> str:
    """`300, 320 and 350`."""
    *others, last = (f"{count:,}" for count in sorted(steps))
    return f"{', '.join(others)} and {last}"


def _best_first(groups: Mapping[str, list[Scored]], metric: str) -> dict[str, list[Scored]]:
    def badness(name: str) -> float:
        counts = [_comparable(one.examples, metric) for one in groups[name]]
        return -counts[0].better * significance.mean_value(counts)

    return {name: groups[name] for name in sorted(groups, key=badness)}


def _common_prefix(names: Sequence[str]) -> str:
    """What the names of seeds begin with: "cnn" of cnn-seed1 and cnn-seed2."""
    same = itertools.takewhile(lambda letters: len({*letters}) == 1, zip(*names, strict=False))
    return "".join(letters[0] for letters in same).rstrip("-_./= ").removesuffix("seed").rstrip("-_./, ")


def _tests(
    metric: str, systems: dict[str, list[Counts]], resamples: dict[str, Floats], trials: int, seed: int
) -> Iterator[PairedTest]:
    for one, other in itertools.combinations(systems, 2):
        difference = significance.difference(
            systems[one], systems[other], resamples[one], resamples[other], trials=trials, seed=seed
        )
        yield PairedTest(one=one, other=other, metric=metric, difference=difference)


def _system(
    name: str, members: Sequence[Scored], metrics: Sequence[str], resamples: dict[str, dict[str, Floats]], seed: int
) -> System:
    scores = {}
    for metric in metrics:
        counts = [_comparable(one.examples, metric) for one in members]
        values = tuple(one.value for one in counts)
        if len(members) == 1 and metric in members[0].scores:  # one score has one interval: that of `evaluate`
            low, high = (members[0].scores[metric][end] for end in ("low", "high"))
        else:
            low, high = significance.interval([counts], resamples[metric][name], seed=seed)
        if low is not None and high is not None:
            low, high = significance.possible(metric, low, high)
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
        scores[metric] = MeanScore(value=float(np.mean(values)), low=low, high=high, deviation=deviation, values=values)
    summaries = [one.summary for one in members]
    seconds = [summary["seconds"] for summary in summaries if summary.get("seconds") is not None]
    return System(
        name=name,
        runs=tuple(str(one.path) for one in members),
        seeds=tuple(one.settings.training.seed for one in members),
        kind=members[0].settings.kind,
        parameters=summaries[0].get("parameters"),
        seconds=float(np.mean(seconds)) if seconds else None,
        scores=scores,
    )


def _different(groups: Mapping[str, Sequence[Scored]], metric: str) -> Iterator[ComparedExample]:
    """The examples that most favor the best system over each other one, and those that most favor the other."""
    best, *others = groups
    for other in others:
        one, two = (groups[name] for name in (best, other))
        first = one[0].examples
        if not first.inputs:
            continue
        counts = [[_comparable(member.examples, metric) for member in members] for members in (one, two)]
        influence = significance.influences(counts[0], counts[1])
        # Where one system is better throughout, an example on which it is less so narrows the difference: not favored.
        agree = influence * significance.own_differences(counts[0], counts[1]) > 0
        order = [n for n in np.argsort(-influence, kind="stable") if agree[n]]
        most = [*(n for n in order[:SHOWN] if influence[n] > 0), *(n for n in order[::-1][:SHOWN] if influence[n] < 0)]
        pairs = [
            (mine, theirs, significance.own_differences([first], [second]))
            for mine, first in zip(one, counts[0], strict=True)
            for theirs, second in zip(two, counts[1], strict=True)
        ]
        for n in most:
            # Runs that score alike on an example do not show why their systems' means differ.
            mine, theirs, _ = next((pair for pair in pairs if pair[2][n] * influence[n] > 0), pairs[0])
            yield ComparedExample(
                one=best,
                other=other,
                favors=best if influence[n] > 0 else other,
                influence=float(influence[n]),
                input=first.inputs[n],
                reference=first.references[n],
                outputs=(mine.examples.outputs[n], theirs.examples.outputs[n]),
                seeds=(mine.settings.training.seed, theirs.settings.training.seed),
            )


def differing_keys(recipes: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Any, ...]]:
    """Keys whose values differ between recipes, with the value of each; None where a recipe has no such key."""
    keys = dict.fromkeys(key for recipe in recipes for key in recipe if key not in IDENTITY)
    values = {key: tuple(recipe.get(key) for recipe in recipes) for key in keys}
    return {key: row for key, row in values.items() if any(value != row[0] for value in row)}


def _split(data: Any, on: str | Sequence[str] | None) -> str:
    """The data by name, for display."""
    if on:
        return " ".join(as_list(on))
    held_out = " ".join(as_list(data.valid)) or f"{data.split} of {' '.join(as_list(data.train))}"
    return f"the validation data ({held_out})"
