"""Which recipe a user wants: a file or name, the default for users' files, or that of a run to resume."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from seqwright.core.config import UserError, parse_override
from seqwright.data.column_roles import Columns, columns_override
from seqwright.data.files import MissingFileError, as_list
from seqwright.pipeline import recipe as recipes
from seqwright.pipeline.defaults import DEFAULT_MINUTES, DEFAULT_RECIPES, default_recipe, fine_tuned, kinds_of
from seqwright.pipeline.recipe import Recipe
from seqwright.pipeline.trust import refuse_untrusted
from seqwright.runs.directory import RunDirectory
from seqwright.runs.facts import moved_files_of
from seqwright.runs.finding import RUNS, is_run

Files = str | Sequence[str]
"""One file name, or several."""

LENGTH = {"training.steps", "training.epochs", "training.minutes"}
"""Keys that set the length of a training."""


def wanted_recipe(
    recipe: str | Path | None,
    *,
    valid: Files | None = None,
    model: str | None = None,
    base: str | Path | None = None,
    columns: Columns = (),
    set: Sequence[str] = (),
    minutes: float | None = None,
    run: str | Path | None = None,
    trust: bool = False,
    **files: Files | None,
) -> Recipe:
    """The recipe of a file or name, the default one for users' files (of one kind in DEFAULT_RECIPES), or that of an
    existing run."""
    overrides = [*([f'model.kind="{model}"'] if model else []), *set]
    if minutes is not None:
        if both := LENGTH & {parse_override(override)[0] for override in set}:
            raise UserError(f"--minutes and {min(both)} both set the length of the training; give one of them.")
        overrides.append(f"training.minutes={minutes}")
    assert files.keys() <= DEFAULT_RECIPES.keys(), f"no kinds of data: {files.keys() - DEFAULT_RECIPES.keys()}"
    kinds_of_data = [kind for kind in DEFAULT_RECIPES if files.get(kind) is not None]
    if len(kinds_of_data) > 1:
        flags = " and ".join(f"--{kind}" for kind in kinds_of_data)
        raise UserError(f"{flags} are different kinds of data; give one of them.")
    [kind] = kinds_of_data or [""]
    if columns and not kind:
        raise UserError("--columns is for your own files; in a recipe, set data.columns.")
    overrides += columns_override(columns, kind)
    names = as_list(files[kind]) if kind else []
    if recipe is not None:
        if names and Path(recipe).suffix != ".toml" and Path(recipe).is_file():
            several = " ".join(f"--{kind} {name}" for name in (*names, recipe))
            raise UserError(f"{recipe} is no recipe (.toml); several files are named one by one: {several}.")
        initial = [f'model.from="{Path(base).resolve()}"'] if base else []
        return recipes.load(recipe, [*initial, *overrides], train=names, valid=as_list(valid))
    if names:
        with hinted_files(run, [*names, *as_list(valid)]):
            keys = dict(map(parse_override, overrides))
            before = None if base is None else RunDirectory.open(base).recipe()
            kinds = {} if before is None else kinds_of(before, kind)
            overridden = {"kind": keys.get("model.kind"), "tokenizer": keys.get("tokenizer.kind")}
            kinds |= {key: str(value) for key, value in overridden.items() if value is not None}
            budget = keys.get("training.minutes", None if LENGTH & keys.keys() else DEFAULT_MINUTES)
            table = default_recipe(kind, names, as_list(valid), minutes=budget, **kinds)
            path = Path(run) if run is not None else RUNS / table["name"]
            table |= _chosen_before(table, path, kind, default_budget="training.minutes" not in keys)
            if before is not None:
                table = fine_tuned(table, before, Path(str(base)))
            return recipes.make(table, overrides, origin=f"--{kind}", base=Path())
    *some, last = (f"--{kind}" for kind in DEFAULT_RECIPES if kind not in ("text", "pairs"))
    yours = f"give your own data with --text FILE, --pairs SOURCE TARGET, {', '.join(some)} or {last} FILE"
    if run is None or valid is not None:
        raise UserError(f"name a recipe, or {yours}.")
    if not is_run(Path(run)):
        raise UserError(f"no run at {run} to go on with; name a recipe, or {yours}.")
    existing = RunDirectory.open(run)
    settings = recipes.make(existing.recipe(), overrides, origin=str(existing.recipe_path), settled=True)
    if not trust:
        refuse_untrusted(settings, existing, dict(map(parse_override, overrides)))
    return settings


@contextmanager
def hinted_files(run: str | Path | None, names: Sequence[str]) -> Iterator[None]:
    """Context manager that adds to the error of a missing file how to go on, where the run was begun with it."""
    try:
        yield
    except MissingFileError as error:
        hint = ""
        with suppress(UserError):  # a damaged run
            if run is not None and is_run(Path(run)):
                existing = RunDirectory.open(run)
                settings = recipes.make(existing.recipe(), origin=str(existing.recipe_path), settled=True)
                hint = moved_files_of(existing.path, settings.data, names)
        if not hint:
            raise
        raise MissingFileError(f"{error} {hint}") from error


def _chosen_before(table: dict[str, Any], path: Path, task: str, *, default_budget: bool) -> dict[str, Any]:
    """The sections of an existing run whose sizes followed from a time budget: a run that is resumed with the command
    that started it keeps them, however fast the machine is now; and its budget where no other one was asked for."""
    if not is_run(path):
        return {}
    before = RunDirectory.open(path).recipe()
    other = before["data"].get("kind", task) != task or before["model"]["kind"] != table["model"]["kind"]
    if other or before.get("training", {}).get("minutes") is None:
        return {}
    training = {key: value for key, value in before["training"].items() if key not in ("steps", "epochs", "minutes")}
    budget = {key: value for key, value in table.get("training", {}).items() if key in ("minutes", "epochs")}
    if default_budget and "minutes" in budget:
        budget["minutes"] = before["training"]["minutes"]
    tokens = {key: value for key, value in before["data"].items() if key == "batch_tokens" and key in table["data"]}
    sections = {"tokenizer": before["tokenizer"], "model": before["model"], "data": table["data"] | tokens}
    return sections | {"training": training | budget}
