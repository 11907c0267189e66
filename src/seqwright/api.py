"""The verbs of the command line as Python functions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqwright import recipe as recipes
from seqwright import session
from seqwright.config import UserError
from seqwright.recipe import Recipe
from seqwright.run import Run
from seqwright.suggest import text_recipe

RUNS = Path("runs")
"""Where runs go unless told otherwise."""


def load(recipe: str | Path, *, set: Sequence[str] = ()) -> Recipe:
    """A recipe by file or name, with `key=value` overrides."""
    return recipes.load(recipe, set)


def train(
    recipe: Recipe | str | Path | None = None,
    *,
    text: str | Sequence[str] | None = None,
    valid: str | Sequence[str] | None = None,
    model: str | None = None,
    set: Sequence[str] = (),
    run: str | Path | None = None,
    listener: session.Listener | None = None,
) -> Run:
    """Trains a recipe, or the recipe that suits a text, and opens the finished run."""
    wanted = (
        recipe if isinstance(recipe, Recipe) else wanted_recipe(recipe, text=text, valid=valid, model=model, set=set)
    )
    path = Path(run) if run is not None else RUNS / wanted.name
    session.train(wanted, path, listener)
    return Run(path)


def wanted_recipe(
    recipe: str | Path | None,
    *,
    text: str | Sequence[str] | None = None,
    valid: str | Sequence[str] | None = None,
    model: str | None = None,
    set: Sequence[str] = (),
) -> Recipe:
    """The recipe of a file or name, or the one that suits a text."""
    overrides = [*([f'model.kind="{model}"'] if model else []), *set]
    if text is None:
        if recipe is None:
            raise UserError("name a recipe, or give your own text with --text FILE.")
        return recipes.load(recipe, overrides)
    if recipe is not None:
        files = {"data.train": text, "data.valid": valid}
        own = [f"{key}={_toml(_several(value))}" for key, value in files.items() if value is not None]
        return recipes.load(recipe, [*own, *overrides])
    table = text_recipe(_several(text), None if valid is None else _several(valid), model)
    return recipes.make(table, overrides, origin="--text", base=Path())


def open(path: str | Path, *, device: str = "auto") -> Run:
    """A finished run, ready to use."""
    return Run(path, device=device)


def _several(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _toml(value: Any) -> str:
    import json

    return json.dumps(value)
