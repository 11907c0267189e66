"""`sweep`: ordinary runs of many settings and seeds, chosen by validation score; test data are read once."""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from seqwright.core.config import UserError
from seqwright.core.progress import SILENT, Progress
from seqwright.core.storage import read_json, write_json
from seqwright.data.files import as_list
from seqwright.pipeline.recipe import Recipe
from seqwright.pipeline.training import train
from seqwright.runs.directory import RunDirectory
from seqwright.runs.finding import RUNS
from seqwright.runs.run import Run
from seqwright.studies.compare.compare import METRICS
from seqwright.studies.sweep.results import SweepResults, Trial, bounds_of, effects_of, in_order, mean_interval
from seqwright.studies.sweep.settings import SEED, Range, Setting, grid, overrides_of, parse_space, random_settings
from seqwright.studies.sweep.shown import Sweep
from seqwright.training.divergence import DivergenceError

ETA = 3
"""Successive halving keeps a third of the settings and triples their budget (Jamieson & Talwalkar 2016)."""
PER_TOKEN = ("perplexity", "nll")
ERRORS = (*PER_TOKEN, "bits_per_byte", "word_error_rate", "phoneme_error_rate", "squared_error")
"""Metrics that are better when lower."""
UNSEEDED = {"bag", "ngram"}
"""Kinds of models that are the same with every seed."""
MAX_NAME = 100
"""Characters of a run's folder; longer ones end in a hash."""


class MakeRecipe(Protocol):
    """The recipe with overrides, of a run that may be in its folder."""

    def __call__(self, *, set: Sequence[str], run: Path | None = None) -> Recipe: ...


class SweepStopped(KeyboardInterrupt):
    """A signal stopped a training; what is finished stays."""


@dataclass
class _Runner:
    """Trains settings; the first score decides on the metric."""

    folder: Path
    fixed: Sequence[str]
    seeds: int
    make: MakeRecipe
    progress: Progress
    total: int
    done: int = 0
    metric: str = ""
    scored_on: str = ""
    seeded: bool = False

    @property
    def higher(self) -> bool:
        """Whether higher values of the metric are better."""
        return self.metric not in ERRORS

    def trial(self, setting: Setting, budget: tuple[str, float] | None = None) -> Trial:
        """A setting trained with every seed; finished runs are not trained again."""
        values, bounds, runs, seconds, diverged, parameters = [], [], [], 0.0, 0, None
        for seed in range(1, self.seeds + 1):
            limits = {} if budget is None else {budget[0]: f"{budget[1]:g}"}
            overrides = [*self.fixed, *overrides_of(setting | limits), *([f"{SEED}={seed}"] if self.seeds > 1 else [])]
            path = self.folder / run_name(setting | limits | ({SEED: str(seed)} if self.seeds > 1 else {}))
            self.done += 1
            self.progress.note(f"— {self.done} of {self.total}: {path.name}")
            try:
                outcome = train(self.make(set=overrides, run=path), path, self.progress)
            except DivergenceError as error:
                self.progress.note(str(error))
                diverged += 1
                continue
            if outcome.summary is None:
                raise SweepStopped
            score = self._score(path, outcome.summary)
            values.append(float(score["value"]))
            bounds.append(bounds_of(score))
            parameters = outcome.summary.get("parameters")
            self.seeded |= bool(outcome.summary.get("steps"))
            runs.append(str(path))
            seconds += outcome.summary.get("seconds") or 0.0
        return Trial(
            setting=setting,
            metric=self.metric,
            runs=tuple(runs),
            values=tuple(values),
            bounds=tuple(bounds),
            parameters=parameters,
            diverged=diverged,
            budget=None if budget is None else budget[1],
            seconds=seconds,
        )

    def _score(self, path: Path, summary: Mapping[str, Any]) -> Mapping[str, Any]:
        """The validation score with its interval: the first metric of the task that `compare` would test."""
        scores: dict[str, Mapping[str, Any]] = {name: one for name, one in summary.get("scores", {}).items() if one}
        kind = RunDirectory.open(path, contents=False).recipe()["data"]["kind"]
        metric = self.metric or next((name for name in (*METRICS.get(kind, ()), *scores) if name in scores), "")
        if metric not in scores:
            raise UserError(f"{path} has no validation score to choose by; give --valid FILE, or set data.split.")
        self.metric, self.scored_on = metric, str(summary.get("scored_on") or "the validation data")
        return scores[metric]


def sweep(
    make: MakeRecipe,
    open_run: Callable[[Path], Run],
    overrides: Sequence[str],
    folder: str | Path | None = None,
    *,
    seeds: int = 1,
    random: int | None = None,
    halving: bool = False,
    on: str | Sequence[str] = (),
    progress: Progress = SILENT,
) -> Sweep:
    """Trains every setting of `overrides`, or by successive halving ever fewer of them ever longer, and ranks them."""
    fixed, space = parse_space(overrides)
    for key in (key for key, values in space.items() if isinstance(values, Range) and values.low <= 0):
        progress.note(f"{key} is drawn uniformly, because its range reaches 0; ranges above 0 are drawn log-uniformly.")
    settings = grid(space) if random is None else random_settings(space, random, seed=1)
    if len(settings) < 2:
        raise UserError("a sweep needs two settings or more: list values of a key, as in --set model.width=64,128.")
    recipes = [make(set=[*fixed, *overrides_of(setting)]) for setting in settings]  # or an error
    _check_same_validation(recipes[0], settings[0])
    if seeds > 1 and (kinds := {one.kind for one in recipes}) <= UNSEEDED:
        progress.note(f"{' and '.join(sorted(kinds))}: the same with every seed, so each setting is trained once.")
        seeds = 1
    folder = RUNS / f"{recipes[0].name}-sweep" if folder is None else Path(folder)
    rungs = _rungs(recipes[0], len(settings)) if halving else [None]
    sizes = [max(1, math.floor(len(settings) / ETA**n)) for n in range(len(rungs))]
    runner = _Runner(folder, fixed, seeds, make, progress, total=seeds * sum(sizes))
    progress.note(f"{len(settings)} settings, {seeds} seed(s): {runner.total} runs in {folder}.")
    alive, trials, first = list(settings), list[Trial](), list[Trial]()
    for budget, size in zip(rungs, sizes, strict=True):
        rung = [runner.trial(setting, budget) for setting in alive[:size]]
        first = first or rung
        trials += rung
        alive = [trial.setting for trial in in_order(rung, higher=runner.higher)]
    if not runner.metric:
        raise UserError("every run diverged; sweep lower values of training.learning_rate.")
    keys = tuple(settings[0])
    if runner.metric in PER_TOKEN and any(key.startswith("tokenizer.") for key in keys):
        raise UserError(
            f"{runner.metric} of different tokenizers does not compare, and these lose text, so that there are no bits"
            " per byte; sweep lossless ones, such as byte-bpe."
        )
    ranked = in_order(trials, higher=runner.higher)
    scores, notes = _test_scores(ranked[0], folder, as_list(on), open_run) if on else (None, [])
    results = SweepResults(
        folder=str(folder),
        metric=runner.metric,
        higher=runner.higher,
        keys=keys,
        trials=ranked,
        effects=effects_of(first, keys),
        scored_on=runner.scored_on,
        seeded=runner.seeded,
        test=scores,
        notes=tuple(notes),
    )
    return Sweep(results)


def _check_same_validation(recipe: Recipe, keys: Iterable[str]) -> None:
    """Raises where a swept key would change the data or the measure of the score that settings are ranked by."""
    split = {"data.valid", "data.split"} | ({"data.train"} if recipe.data.valid is None else set())
    for key in keys:
        if key in split or key.startswith("evaluation."):
            raise UserError(
                f"{key} changes what the score is of, so settings would not compare; sweep keys of [model], [training]"
                " or [tokenizer], and give --valid FILE to sweep training files."
            )


def run_name(setting: Mapping[str, str]) -> str:
    """The folder of a run: `learning_rate=0.001,width=64`."""
    short = [key.rpartition(".")[2] for key in setting]
    keys = short if len({*short}) == len(short) else list(setting)
    name = ",".join(f"{key}={value}" for key, value in zip(keys, setting.values(), strict=True))
    safe = "".join(c if c.isalnum() or c in "=,.-_+[]" else "_" for c in name)
    if safe == name and len(name) <= MAX_NAME:
        return name
    return f"{safe[:MAX_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _rungs(recipe: Recipe, settings: int) -> list[tuple[str, float]]:
    """Key and budget of each rung: the last has that of the recipe."""
    training = recipe.training
    if training.steps is None and training.epochs is None:
        raise UserError("--halving divides the steps of a training; give them: --set training.steps=N.")
    if settings < ETA:
        raise UserError(
            f"--halving keeps the best third, so that {settings} settings would all be trained to the end; leave it"
            " out, or list three values or more."
        )
    last = math.floor(math.log(settings, ETA) + 1e-9)
    if training.steps is not None:
        return [("training.steps", max(1, round(training.steps / ETA ** (last - n)))) for n in range(last + 1)]
    assert training.epochs is not None
    return [("training.epochs", float(f"{training.epochs / ETA ** (last - n):.4g}")) for n in range(last + 1)]


def _test_scores(
    chosen: Trial, folder: Path, files: list[str], open_run: Callable[[Path], Run]
) -> tuple[dict[str, Any], list[str]]:
    """Test scores of the chosen setting, read once: what was read before is kept in test.json."""
    path, notes, reads = folder / "test.json", [], 1
    if path.is_file():
        before = read_json(path)
        same_seeds = [Path(run).name for run in before.get("runs", ())] == [Path(run).name for run in chosen.runs]
        if before.get("setting") == chosen.setting and before.get("on") == files and same_seeds:
            return before, []
        reads += before.get("reads", 1)
        notes.append(f"test data was read before in this sweep ({path}): the more often, the less it says.")
    scores = [open_run(Path(run)).evaluate(files)["scores"] for run in chosen.runs]
    values = {name: [one[name]["value"] for one in scores] for name in scores[0] if scores[0][name]}
    intervals = {name: mean_interval(name, values[name], [bounds_of(one[name]) for one in scores]) for name in values}
    means = {name: statistics.fmean(of_seeds) for name, of_seeds in values.items()}
    facts = {"on": files, "reads": reads, "setting": chosen.setting, "runs": list(chosen.runs)}
    table = facts | {"scores": means, "intervals": {name: ends and [*ends] for name, ends in intervals.items()}}
    write_json(path, table)
    return table, notes
