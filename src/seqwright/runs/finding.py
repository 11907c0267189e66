"""Finding runs: which folders are runs, and which run a mistyped path means."""

from __future__ import annotations

import difflib
import itertools
import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

RUNS = Path("runs")
"""The default folder of runs."""
MAX_DEPTH = 4
"""Levels of subfolders in which runs are searched."""
HINT_DEPTH = 2
"""Levels that are searched for a message about a mistyped path, which may lead to a large folder."""
NEAREST = 3
"""Runs that a message names where none is there."""


def is_run(path: Path) -> bool:
    """Whether a folder holds a run, damaged or not; the environment alone is what a killed `create` leaves."""
    return (path / "environment.json").is_file() and len(list(path.glob("[!.]*"))) > 1


def find_runs(folder: Path, *, depth: int = 1) -> list[Path]:
    """The runs inside a folder and, with a larger depth, its subfolders, by name; runs hold no runs."""
    if not folder.is_dir() or depth < 1:
        return []
    runs: list[Path] = []
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        with suppress(OSError):  # an unreadable subfolder does not hide the runs beside it
            if not entry.name.startswith(".") and entry.is_dir():
                path = folder / entry.name
                runs += [path] if is_run(path) else find_runs(path, depth=depth - 1) if not entry.is_symlink() else []
    return runs


def free_folder(path: Path) -> Path:
    """A folder beside a run that is not there yet: runs/a-2."""
    return next(free for n in itertools.count(2) if not (free := path.with_name(f"{path.name}-{n}")).exists())


def training_with(run: Path, keys: Mapping[str, str]) -> str:
    """The command that trains the recipe of a run with other values of some keys in a folder of its own."""
    values = "".join(f" --set {shlex.quote(f'{key}={value}')}" for key, value in keys.items())
    return f"seqwright train {shlex.quote(str(run / 'recipe.toml'))} --run {shlex.quote(str(free_folder(run)))}{values}"


def not_a_run(path: Path) -> str:
    """Why there is no run at a path, and what to do: the nearest runs, or how to train one."""
    if path.is_file():
        return f"{path} is a file. Name the folder of a run" + (f": {path.parent}." if is_run(path.parent) else ".")
    if inside := find_runs(path, depth=HINT_DEPTH):
        return f"{path} holds runs but is none itself. Name one of them, as in {inside[0]}."
    if path.is_dir():
        missing = "all but environment.json is" if (path / "environment.json").is_file() else "environment.json is"
        return (
            f"{path} is not a run: {missing} missing. Restore it from a copy, or train a new run "
            f"with `seqwright train --run {path}`."
        )
    if nearest := nearest_runs(path):
        return f"no run at {path}. Did you mean {' or '.join(map(str, nearest))}? `seqwright runs` lists all."
    return (
        f"no run at {path}. Train one: `seqwright train --text FILE --run {path}`, or with --labeled, --tagged,"
        " --pairs, or a recipe."
    )


def nearest_runs(path: Path) -> list[Path]:
    """Runs beside a path that is none, or in the default folder, whose names are most like its own."""
    beside = find_runs(path.parent) if path.parent != Path() else []
    runs = list(dict.fromkeys([*beside, *find_runs(RUNS, depth=HINT_DEPTH)])) or find_runs(Path())
    if same := [run for run in runs if run.name == path.name]:
        return same[:NEAREST]
    close = difflib.get_close_matches(path.name, dict.fromkeys(run.name for run in runs), n=NEAREST, cutoff=0.6)
    return [run for name in close for run in runs if run.name == name][:NEAREST]
