"""What can be compared: runs of one task that are scored on the same examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqwright.core.config import UserError
from seqwright.data.files import as_list
from seqwright.metrics.examples import Examples
from seqwright.runs.directory import RunDirectory
from seqwright.runs.finding import training_with

READING = ("data.columns", "data.separator", "data.format", "data.bad_rows", "data.labels", "data.documents")
"""Keys by which two runs may read other examples from the same file."""


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A run without its model, and its examples."""

    path: Path
    settings: Any
    recipe: dict[str, Any]
    """Dotted keys and values."""
    summary: dict[str, Any]
    examples: Examples
    scores: Mapping[str, Any]
    """Values with intervals and signatures, by name, as `evaluate` gives them."""


def check_runs(paths: Sequence[Path], on: str | Sequence[str] | None) -> None:
    """Raises where the recipes of runs show that they cannot be compared, before any of them is opened."""
    for n, path in enumerate(paths):
        if path.resolve() in {other.resolve() for other in paths[:n]}:
            raise UserError(f"{path} is named twice; name each run once.")
    if len(paths) < 2:
        raise UserError("a comparison needs two runs or more; name another run.")
    recipes = [RunDirectory.open(path, contents=False).recipe() for path in paths]
    tables = [table.get("data", {}) for table in recipes]
    for path, data in zip(paths[1:], tables[1:], strict=True):
        if (kinds := (tables[0].get("kind", "text"), data.get("kind", "text")))[0] != kinds[1]:
            raise UserError(
                f"{paths[0]} was trained on data of the kind '{kinds[0]}' and {path} on '{kinds[1]}', so no score is"
                " of both; compare runs of one task."
            )
        labels = [table.get("labels", "single") for table in (tables[0], data)]
        if kinds[0] == "labeled" and labels[0] != labels[1]:
            raise UserError(
                f"{paths[0]} was trained on labels of the type '{labels[0]}' and {path} on '{labels[1]}' (data.labels),"
                " and scores of the same name are defined differently there; compare runs of one type."
            )
    if not on:
        _check_refitted(dict(zip(paths, recipes, strict=True)))
        _check_held_out(dict(zip(paths, tables, strict=True)))


def _check_refitted(recipes: Mapping[Path, Mapping[str, Any]]) -> None:
    """Raises where a language model, or a part of a mixture, was fitted on its held-out text in the end."""
    for path, table in recipes.items():
        if not (table.get("data", {}).get("refit") and table["data"].get("split")):
            continue
        if table.get("model", {}).get("kind") == "mixture":
            raise UserError(
                f"the n-gram of the mixture {path} was fitted on its held-out text, too (data.refit); name text that"
                " none of these runs was trained on with --on FILE."
            )
        raise UserError(
            f"{path} was fitted on its held-out text, too (data.refit); name text that none of these runs was trained"
            f" on with --on FILE, or train it without: `{training_with(path, {'data.refit': 'false'})}`."
        )


def _check_held_out(tables: Mapping[Path, Mapping[str, Any]]) -> None:
    """Raises where one run holds out nothing, or two hold out different shares."""
    splits = {
        path: " ".join(str(data.get("split") or "").split()) for path, data in tables.items() if not data.get("valid")
    }
    advice = "name data that none was trained on with --on FILE, or train them with the same"
    labeled = all(data.get("kind") == "labeled" for data in tables.values())
    split = max(splits.values(), key=len, default="") or ("stratified 10%" if labeled else "tail 10%")
    if nothing := [path for path, split in splits.items() if not split]:
        raise UserError(f'{nothing[0]} holds out no data; {advice} --set data.split="{split}".')
    if len({*splits.values()}) > 1:
        parts = " and ".join(f"{path} {split}" for path, split in splits.items())
        raise UserError(f'these runs hold out different data ({parts}); {advice} --set data.split="{split}".')


def check_examples(first: Scored, last: Scored, on: str | Sequence[str] | None) -> None:
    """Raises unless two runs were scored on the same examples."""
    if first.examples.fingerprint == last.examples.fingerprint:
        return
    for one in (last, first):
        if one.examples.lossy is not None:
            raise UserError(
                f"{one.path} has no bits per byte here: {one.examples.lossy}. Compare it with runs of the same"
                " tokenizer, or train runs with byte-bpe, which loses nothing."
            )
    if not on:
        raise UserError(
            f"{first.path} and {last.path} hold out different data, so their scores do not compare; name data that"
            " none was trained on with --on FILE."
        )
    files = " ".join(as_list(on))
    if keys := [key for key in READING if first.recipe.get(key) != last.recipe.get(key)]:
        values = "; ".join(f"{key} is {first.recipe.get(key)} and {last.recipe.get(key)}" for key in keys)
        raise UserError(
            f"{first.path} and {last.path} read other examples from {files}: {values}. Set it for both, as in"
            f" --set {keys[0]}=VALUE."
        )
    raise UserError(
        f"{first.path} and {last.path} read other examples from {files}; their tokenizers or documents differ. Train"
        " both with the same [data] and [tokenizer]."
    )
