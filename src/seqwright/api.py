"""The verbs of the command line as Python functions; those that need a run are methods of what `open` returns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqwright import build
from seqwright.core.config import UserError, parse_override
from seqwright.data.files import as_list
from seqwright.pipeline import recipe as recipes
from seqwright.pipeline import training as session
from seqwright.pipeline.defaults import (
    chat_recipe,
    fine_tuned,
    kinds_of,
    labeled_recipe,
    masked_recipe,
    pairs_recipe,
    tagged_recipe,
    text_recipe,
)
from seqwright.pipeline.image_defaults import captions_recipe, images_recipe
from seqwright.pipeline.recipe import Recipe
from seqwright.pipeline.trust import refuse_untrusted, without_untrusted
from seqwright.runs.directory import RunDirectory, is_run
from seqwright.runs.listing import listing
from seqwright.runs.run import Run, refuse_unfinished
from seqwright.studies.check import LawResult
from seqwright.studies.check import check as prove
from seqwright.studies.demo import Rung
from seqwright.studies.demo import demo as train_ladder
from seqwright.studies.mix import mix as make_mixture
from seqwright.studies.probe import DEFAULT_PROBES, read_probes
from seqwright.studies.probe import probe as find_gaps
from seqwright.text.tokenizer import Tokenizer

RUNS = Path("runs")
"""Where runs go unless told otherwise."""
SUITED = {
    "text": text_recipe,
    "pairs": pairs_recipe,
    "chat": chat_recipe,
    "labeled": labeled_recipe,
    "masked": masked_recipe,
    "tagged": tagged_recipe,
    "images": images_recipe,
    "captions": captions_recipe,
}
"""What makes a recipe for a user's own data, by the kind of data; `train` takes its files under that name."""
Files = str | Sequence[str]

READING = ("data.columns", "data.separator", "data.format", "data.errors")
"""How files are read, which may be another for every file."""


def load(recipe: str | Path, *, set: Sequence[str] = ()) -> Recipe:
    """A recipe by file or name, with `key=value` overrides."""
    return recipes.load(recipe, set)


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
    set: Sequence[str] = (),
    run: str | Path | None = None,
    trust: bool = False,
    listener: session.Listener | None = None,
) -> Run:
    """Trains a recipe, or the one that suits a text, pairs (source and target files), conversations, labeled texts
    or pictures, or (`run` alone) a run begun before; the finished run, opened. `base` is a run to begin with. `trust`
    lets a run that comes from elsewhere name the files it is trained on."""
    files = {"text": text, "pairs": pairs, "chat": chat, "labeled": labeled, "masked": masked}
    files |= {"tagged": tagged, "images": images, "captions": captions}
    if isinstance(recipe, Recipe):
        beside = {"valid": valid, "model": model, "base": base, "set": set or None} | files
        if ignored := [name for name, value in beside.items() if value is not None]:
            raise UserError(
                f"a Recipe is complete; name {', '.join(ignored)} when you make it, or pass its file or name."
            )
        wanted = recipe
    else:
        wanted = wanted_recipe(recipe, valid=valid, model=model, base=base, set=set, run=run, trust=trust, **files)
    path = Path(run) if run is not None else RUNS / wanted.name
    session.train(wanted, path, listener)
    return open(path)


def wanted_recipe(
    recipe: str | Path | None,
    *,
    valid: Files | None = None,
    model: str | None = None,
    base: str | Path | None = None,
    set: Sequence[str] = (),
    run: str | Path | None = None,
    trust: bool = False,
    **files: Files | None,
) -> Recipe:
    """The recipe of a file or name, or the one that suits the user's own files (of one kind in SUITED), or the one that
    a run was begun with."""
    overrides = [*([f'model.kind="{model}"'] if model else []), *set]
    assert files.keys() <= SUITED.keys(), f"no kinds of data: {files.keys() - SUITED.keys()}"
    given = [kind for kind in SUITED if files.get(kind) is not None]
    if len(given) > 1:
        flags = " and ".join(f"--{kind}" for kind in given)
        raise UserError(f"{flags} are different kinds of data; give one of them.")
    [kind] = given or [""]
    own = as_list(files[kind]) if kind else []
    if recipe is not None:
        if own and Path(recipe).suffix != ".toml" and Path(recipe).is_file():
            several = " ".join(f"--{kind} {name}" for name in (*own, recipe))
            raise UserError(f"{recipe} is no recipe (.toml); several files are named one by one: {several}.")
        beginning = [f'model.from="{Path(base).resolve()}"'] if base else []
        return recipes.load(recipe, [*beginning, *overrides], train=own, valid=as_list(valid))
    if own:
        chosen = dict(map(parse_override, overrides))
        before = None if base is None else RunDirectory.open(base).recipe()
        kinds = {} if before is None else kinds_of(before, kind)
        asked = {"kind": chosen.get("model.kind"), "tokenizer": chosen.get("tokenizer.kind")}
        kinds |= {key: str(value) for key, value in asked.items() if value is not None}
        table = SUITED[kind](own, as_list(valid), **kinds)
        if before is not None:
            table = fine_tuned(table, before, Path(str(base)))
        return recipes.make(table, overrides, origin=f"--{kind}", base=Path())
    *some, last = (f"--{kind}" for kind in SUITED if kind not in ("text", "pairs"))
    yours = f"give your own data with --text FILE, --pairs SOURCE TARGET, {', '.join(some)} or {last} FILE"
    if run is None or valid is not None:
        raise UserError(f"name a recipe, or {yours}.")
    if not is_run(Path(run)):
        raise UserError(f"no run at {run} to go on with; name a recipe, or {yours}.")
    begun = RunDirectory.open(run)
    settings = recipes.make(begun.recipe(), overrides, origin=str(begun.recipe_path), settled=True)
    if not trust:
        refuse_untrusted(settings, begun, dict(map(parse_override, overrides)))
    return settings


def open(
    path: str | Path,
    *,
    device: str = "auto",
    precision: str = "fp32",
    set: Sequence[str] = (),
    trust: bool = False,
) -> Run:
    """A finished run, ready to use; its class is the one that fits its task. `set` says where files that it is given
    differ from those it was trained on: `data.columns=["1","3"]`. With `precision` bf16 or fp16, models that say
    something hold weights and states so; log-probabilities stay float32. `trust` lets a run that comes from elsewhere
    name the data it is evaluated on."""
    directory = RunDirectory.open(path)
    for override in set:
        if parse_override(override)[0] not in READING:
            raise UserError(f"--set {override}: of a run's data, only {', '.join(READING)} can be set.")
    settings = recipes.make(directory.recipe(), set, origin=str(directory.recipe_path), settled=True)
    if not trust:
        settings = without_untrusted(settings, directory)
    refuse_unfinished(directory)
    task = settings.data.kind
    kind = build.task_spec(task).run
    model = build.model(settings.model, kind.sizes(directory), task=task)
    return kind(directory, settings, model, device=device, precision=precision)


def demo(folder: str | Path = RUNS / "demo", listener: session.Listener | None = None) -> list[Rung]:
    """The ladder of language models on a text that every Python carries, trained or found finished."""
    return train_ladder(Path(folder), listener or session.Silence())[0]


def check(run: Run | str | Path) -> list[LawResult]:
    """The laws that every model keeps, asked of this one."""
    return prove(run if isinstance(run, Run) else open(run, device="cpu"))


def probe(run: Run | str | Path, templates: str | Path | None = None) -> list[dict[str, Any]]:
    """The gaps a run shows between sentences that differ in one respect; those that ship, or of a file of yours."""
    probes = read_probes(DEFAULT_PROBES if templates is None else Path(templates))
    return find_gaps(run if isinstance(run, Run) else open(run), probes)


def mix(runs: Sequence[str | Path], run: str | Path, *, on: str | Sequence[str] = (), geometric: bool = False) -> Run:
    """One run of several, with the weights that suit held-out text, as `seqwright mix` makes it."""
    make_mixture([open(path) for path in runs], on, Path(run), geometric=geometric)
    return open(run)


def tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer of a run or of a tokenizer.json."""
    return RunDirectory.open(path).tokenizer if Path(path).is_dir() else Tokenizer.open(path)


def list_recipes() -> dict[str, str]:
    """What ships with seqwright: the name of each recipe and what it shows."""
    return {name: recipes.about(path) for name, path in recipes.shipped().items()}


def list_runs(folder: str | Path = RUNS) -> list[dict[str, Any]]:
    """The runs in a folder and what they reached."""
    return listing(folder)
