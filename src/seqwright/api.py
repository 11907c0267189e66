"""The commands as Python functions; those that need a run are methods of what `open` returns."""

from __future__ import annotations

import functools
import inspect as introspection
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqwright import build
from seqwright.core.config import UserError, did_you_mean, parse_override
from seqwright.core.notebook import ResultList
from seqwright.core.progress import SILENT, Progress
from seqwright.data.column_roles import Columns, columns_override
from seqwright.data.files import as_list
from seqwright.pipeline import recipe as recipes
from seqwright.pipeline import training as session
from seqwright.pipeline.hinted import hinted
from seqwright.pipeline.recipe import Overrides, Recipe, override_list
from seqwright.pipeline.shipped import about, shipped
from seqwright.pipeline.trust import without_untrusted
from seqwright.pipeline.wanted import Files, wanted_recipe
from seqwright.runs.calls import UnknownOptionError
from seqwright.runs.directory import RunDirectory
from seqwright.runs.finding import RUNS, is_run
from seqwright.runs.listing import SortKey, listing
from seqwright.runs.manifest import settled
from seqwright.runs.run import Run, weights_path
from seqwright.text.tokenizer import Tokenizer
from seqwright.training.model_size import refuse_larger

if TYPE_CHECKING:  # studies know every task: each verb imports its own
    from seqwright.inspection.inspection import Inspection
    from seqwright.inspection.where.report import Where
    from seqwright.studies.check import LawResult
    from seqwright.studies.compare.comparison import Comparison
    from seqwright.studies.explain.explanation import Explanation
    from seqwright.studies.ladder import Ladder
    from seqwright.studies.plan_result import Plan
    from seqwright.studies.sweep.shown import Sweep


@hinted
def load(recipe: str | Path, *, set: Overrides = ()) -> Recipe:
    """A recipe by file or name, with `key=value` overrides; its data need not be there. It prints as TOML."""
    return recipes.load(recipe, override_list(set), need_files=False)


@hinted
def train(
    recipe: Recipe | str | Path | None = None,
    *,
    text: Files | None = None,
    pairs: Sequence[str] | None = None,
    chat: Files | None = None,
    labeled: Files | None = None,
    masked: Files | None = None,
    tagged: Files | None = None,
    images: Files | None = None,
    captions: Files | None = None,
    valid: Files | None = None,
    model: str | None = None,
    base: str | Path | None = None,
    columns: Columns = (),
    set: Overrides = (),
    minutes: float | None = None,
    run: str | Path | None = None,
    trust: bool = False,
    progress: Progress = SILENT,
) -> Run:
    """Trains a recipe, or the default one for users' files (text, pairs of source and target files, conversations,
    labeled texts, …), or resumes a run (`run` alone); returns the finished run. `base` is a run to fine-tune.
    `columns` names the columns of the files by role: {"text": "body", "label": "stars"}. `minutes` is a time budget
    instead of steps (`training.minutes`); `progress=True` prints how long it takes and how it goes. `trust` lets a
    run that was made elsewhere name the files it is trained on."""
    files = {"text": text, "pairs": pairs, "chat": chat, "labeled": labeled, "masked": masked}
    files |= {"tagged": tagged, "images": images, "captions": captions}
    if isinstance(recipe, Recipe):
        beside: dict[str, Any] = {"valid": valid, "model": model, "base": base, "minutes": minutes} | files
        beside |= {"columns": columns or None, "set": set or None}
        if ignored := [name for name, value in beside.items() if value is not None]:
            raise UserError(
                f"a Recipe is complete; name {', '.join(ignored)} when you make it, or pass its file or name."
            )
        wanted = recipe
    else:
        wanted = wanted_recipe(
            recipe,
            valid=valid,
            model=model,
            base=base,
            columns=columns,
            set=override_list(set),
            minutes=minutes,
            run=run,
            trust=trust,
            **files,
        )
    path = Path(run) if run is not None else RUNS / wanted.name
    session.train(wanted, path, progress)
    return open(path)


@hinted
def open(
    path: str | Path,
    *,
    device: str = "auto",
    precision: str = "fp32",
    columns: Columns = (),
    set: Overrides = (),
    trust: bool = False,
) -> Run:
    """A run, opened for inference, of the class of its task; of an unfinished one its newest checkpoint, with a
    SeqwrightWarning. `columns` and `set` override how files are parsed where they differ from the training files:
    {"text": "body", "label": "stars"}, `data.encoding=latin-1`. `precision` bf16 or fp16 is the dtype of weights and KV
    cache of generative models, int8 that of the weights of their linear layers on a CPU; log-probabilities stay
    float32. `trust` lets a run that was made elsewhere name the data it is evaluated on."""
    _folder(path)
    reading = override_list(set)
    if columns:
        kind = RunDirectory.open(path, contents=False).recipe().get("data", {}).get("kind", recipes.DEFAULT_TASK)
        reading = [*columns_override(columns, str(kind)), *reading]
    for override in reading:
        if parse_override(override)[0] not in recipes.READING:
            raise UserError(f"--set {override}: of a run's data, only {', '.join(recipes.READING)} can be set.")

    def opened() -> Run:
        directory = RunDirectory.open(path)
        settings = recipes.make(directory.recipe(), reading, origin=str(directory.recipe_path), settled=True)
        if not trust:
            settings = without_untrusted(settings, directory)
        task = settings.data.kind
        run_class = build.task_spec(task).run
        codec = run_class.codec_class.open(directory)

        def new_model() -> Any:
            return build.model(settings.model, codec.sizes, task=task)

        if settings.kind not in build.REGISTERED:  # the user's own code, which need not work on the meta device
            refuse_larger(new_model, weights_path(directory))
        run = run_class(directory, settings, new_model(), codec, device=device, precision=precision)
        run.inspector, run.finder, run.new_model = inspect, where, new_model
        return run

    return settled(Path(path), opened, beside_writer=True)


def _folder(run: Any) -> Path:
    """The folder of a run that is given opened, or by its path."""
    if not isinstance(run, str | os.PathLike | Run):
        raise UserError(f'a run is opened by the path of its folder, not {type(run).__name__}: open("runs/x").')
    return run.path if isinstance(run, Run) else Path(run)


register_encoder = build.register_encoder


@hinted
def demo(folder: str | Path = RUNS / "demo", *, minutes: float | None = None, progress: Progress = SILENT) -> Ladder:
    """Trains a ladder of language models on a text that ships with Python; finished ones are reused. `minutes` is a
    time budget for all of them together."""
    from seqwright.studies.demo import demo as train_ladder

    return train_ladder(Path(folder), progress, minutes=minutes)


@hinted
def ladder(
    run: str | Path | None = None,
    *,
    text: Files | None = None,
    labeled: Files | None = None,
    tagged: Files | None = None,
    pairs: Files | None = None,
    valid: Files | None = None,
    minutes: float = 10.0,
    models: Sequence[str] = (),
    base: str | Path | None = None,
    columns: Columns = (),
    set: Overrides = (),
    progress: Progress = SILENT,
) -> Ladder:
    """Trains models from simple to large on one kind of data under one time budget, each in a run of its own below
    the folder `run` (default: runs/ladder-NAME), and says which of them is enough, as `seqwright ladder` does. `models`
    are the kinds to train, by default all; `base` is a run to fine-tune as one more; `columns` are those of `train`."""
    from seqwright.studies.ladder import climb, folder_of, ladder_recipes

    files = {"text": text, "labeled": labeled, "tagged": tagged, "pairs": pairs}
    kinds = [kind for kind, names in files.items() if names is not None]
    if len(kinds) != 1:
        raise UserError("give one kind of data: text, labeled, tagged or pairs.")
    recipes = ladder_recipes(
        kinds[0],
        as_list(files[kinds[0]]),
        as_list(valid),
        minutes=minutes,
        kinds=as_list(models),
        base=None if base is None else Path(base),
        overrides=[*override_list(set), *columns_override(columns, kinds[0])],
    )
    folder = folder_of(as_list(files[kinds[0]])) if run is None else Path(run)
    return climb(recipes, folder, progress, name=f"Ladder: {folder.name}")


def _several(runs: Any) -> list[Any]:
    """Runs as a list, of one or of several, which may be an iterator."""
    return list(runs) if isinstance(runs, Iterable) and not isinstance(runs, Run | str) else [runs]


@hinted
def compare(
    runs: Run | str | Path | Sequence[Run | str | Path],
    *more: Run | str | Path,
    on: Files = (),
    metrics: Sequence[str] = (),
    columns: Columns = (),
    set: Overrides = (),
    device: str = "auto",
    trust: bool = False,
    progress: Progress = SILENT,
) -> Comparison:
    """Scores of runs on the same data (files, or the validation data that they share) with paired significance tests,
    as `seqwright compare` prints them. Runs whose recipes differ in the seed alone are one system. `columns` and
    `set` are those of `open`."""
    from seqwright.studies.compare.checks import check_runs
    from seqwright.studies.compare.compare import compare as compare_runs

    runs = [*_several(runs), *more]
    check_runs([_folder(run) for run in runs], on)
    opened = (
        run if isinstance(run, Run) else open(run, device=device, columns=columns, set=set, trust=trust) for run in runs
    )
    return compare_runs(opened, on, metrics=as_list(metrics), progress=progress)


def sweep(
    recipe: str | Path | None = None,
    *,
    set: Overrides,
    seeds: int = 1,
    random: int | None = None,
    halving: bool = False,
    on: Files = (),
    run: str | Path | None = None,
    progress: Progress = SILENT,
    **options: Any,
) -> Sweep:
    """Trains every combination of the values in `set=["model.width=64,128"]` (or `random` draws) with each of `seeds`
    seeds, in runs below the folder `run`, and chooses by validation score. `halving` is successive halving; `on` is
    test data, read once, by the chosen setting. Options are those of `train`: data, `valid`, `model`, `base`."""
    from seqwright.studies.sweep.sweep import sweep as run_sweep

    of_train = introspection.signature(train).parameters
    for name in options.keys() - of_train.keys():
        known = {*of_train, *introspection.signature(sweep).parameters} - {"options"}
        raise UnknownOptionError(f"sweep has no option '{name}'.{did_you_mean(name, sorted(known))}")

    make = functools.partial(wanted_recipe, recipe, **options)
    values = override_list(set)
    return run_sweep(make, open, values, run, seeds=seeds, random=random, halving=halving, on=on, progress=progress)


@hinted
def check(run: Run | str | Path) -> list[LawResult]:
    """The results of the laws that every model obeys, for this run."""
    from seqwright.studies.check import check as prove

    return ResultList(prove(run if isinstance(run, Run) else open(run, device="cpu")))


@hinted
def explain(topic: str, *, on: str | None = None, run: Run | str | Path | None = None, set: Files = ()) -> Explanation:
    """A topic of the lectures, computed step by step, as `seqwright explain` prints it: on its example, where numbers
    are changed with `set` (`["W_Q[0,1]=2"]`), on a text or with a run. Notebooks display it."""
    from seqwright.studies.explain.catalog import explain as compute
    from seqwright.studies.explain.catalog import find

    find(topic)
    opened = run if run is None or isinstance(run, Run) else open(run, device="cpu")
    return compute(topic, on=on, run=opened, overrides=override_list(set))


def inspect(
    run: Run | str | Path, text: str | None = None, *, against: Run | str | Path | None = None, **options: Any
) -> Inspection:
    """What a run computes on a text (by default a sample of its validation data), as `seqwright inspect` prints it:
    `inspect(run, "a text").attention[layer, head]`. `against` is a language model to compare with; options are `views`,
    `target` (of a translator), `layer`, `head`, `span` (tokens), `top`, `beside` (a second text), `on` (a file for the
    statistics of heads) and `image` (of a file of several). Notebooks display it."""
    from seqwright.inspection.inspection import inspect as look

    other = against if against is None or isinstance(against, Run) else open(against, device="cpu")
    opened = run if isinstance(run, Run) else open(run, device="cpu")
    return hinted(look)(opened, text, against=other, **options)


def where(run: Run | str | Path, text: Files | None = None, **options: Any) -> Where:
    """Where texts occur in the training text of a run, with file and line, as `seqwright where` prints it. Without a
    text, samples of the run are searched; options are `on` (files), `samples`, `min_tokens` and those of [decoding]."""
    from seqwright.inspection.where.where import where as search

    return search(run if isinstance(run, Run) else open(run), text, open_run=open, **options)


@hinted
def plan(
    recipe: str | Path,
    *,
    set: Overrides = (),
    vocabulary: int | None = None,
    labels: int | None = None,
    length: int | None = None,
    gpus: int | None = None,
    gpu: str = "H100",
    measured: bool = False,
    progress: Progress = SILENT,
) -> Plan:
    """Layers, parameters, multiply-adds, memory, training cost and time of a recipe, as `seqwright plan` prints them.
    `vocabulary` and `labels` are sizes that only the data have, or the run whose folder is given; `measured` reads the
    data and times a few steps; `gpus` forecasts memory, communication and time on so many GPUs of a kind."""
    from seqwright.studies.plan import plan as make_plan

    return make_plan(
        recipe,
        override_list(set),
        vocabulary=vocabulary,
        labels=labels,
        length=length,
        gpus=gpus,
        gpu=gpu,
        measured=measured,
        progress=progress,
    )


@hinted
def probe(run: Run | str | Path, templates: str | Path | None = None) -> list[dict[str, Any]]:
    """Gaps between sentences that differ in one respect, of the probes that ship or of a file."""
    from seqwright.studies.probe import DEFAULT_PROBES, read_probes
    from seqwright.studies.probe import probe as find_gaps

    probes = read_probes(DEFAULT_PROBES if templates is None else Path(templates))
    return ResultList(find_gaps(run if isinstance(run, Run) else open(run), probes))


@hinted
def mix(
    runs: str | Path | Sequence[str | Path],
    *more: str | Path,
    run: str | Path | None = None,
    on: str | Sequence[str] = (),
    geometric: bool = False,
    ngram: bool = False,
) -> Run:
    """A mixture of runs with weights tuned on held-out data, as `seqwright mix` writes it, in the folder `run` or the
    last one named; `ngram` adds an n-gram of the first run's training text."""
    from seqwright.studies.mix import mix as make_mixture
    from seqwright.studies.mix_ngram import mix_with_ngram

    folders = [*_several(runs), *more]
    if run is None:
        run = folders.pop()
        if len(folders) == 1 and not ngram and is_run(Path(run)):
            raise UserError(f'{run} is a run already, and the last one named is where the mixture goes; add run="NEW".')
    parts = [open(path) for path in folders]
    if ngram:
        mix_with_ngram(parts, on, Path(run), open_run=open, geometric=geometric)
    else:
        make_mixture(parts, on, Path(run), geometric=geometric)
    return open(run)


@hinted
def tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer of a run or of a tokenizer.json."""
    return Tokenizer.open(path) if Path(path).is_file() else RunDirectory.open(path).tokenizer


def list_recipes() -> dict[str, str]:
    """The recipes that ship with seqwright, with their descriptions."""
    return {name: about(path) for name, path in shipped().items()}


@hinted
def list_runs(folder: str | Path = RUNS, *, sort: SortKey = "name") -> list[dict[str, Any]]:
    """The runs in a folder and its subfolders, with data, tokenizer and scores."""
    return ResultList(listing(folder, sort=sort))
