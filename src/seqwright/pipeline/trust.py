"""Files that a received run names: read only where the user trusts the run, or names them again.

A run that was created in this very folder is the user's own: its environment.json has the inode of the folder, which
nobody can know in advance. Any other may name files below the data root, the current folder and the run itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from seqwright.core.config import UserError
from seqwright.data.files import DATA_ROOT, UNDER_ROOT, UNTRUSTED, as_list, is_remote
from seqwright.data.samples.text import is_embedded
from seqwright.pipeline.recipe import Recipe
from seqwright.runs.directory import RunDirectory


def refuse_untrusted(settings: Recipe, directory: RunDirectory, overrides: dict[str, Any]) -> None:
    """Raises where a received run would have training read files that its user has not named."""
    named = [(f"{section}.{key}", name) for section, key, name in _untrusted(settings, directory)]
    if refused := [(key, name) for key, name in named if key not in overrides]:
        key, name = refused[0]
        raise UserError(
            f"{directory.path} comes from elsewhere and names {key} = {name!r}, outside of the data root and this"
            f" folder. Name your own file with --set {key}=FILE, or add --trust to read the files it names."
        )


def without_untrusted(settings: Recipe, directory: RunDirectory) -> Recipe:
    """The settings of an opened run, with the files that it must not read marked: `resolve` refuses them."""
    marked: dict[str, Any] = {}
    for section, key, name in _untrusted(settings, directory):
        if section == "data":
            names = as_list(marked.get(key, getattr(settings.data, key)))
            marked[key] = tuple(UNTRUSTED + one if one == name else one for one in names)
    return replace(settings, data=replace(settings.data, **marked)) if marked else settings


def _untrusted(settings: Recipe, directory: RunDirectory) -> Iterator[tuple[str, str, str]]:
    """(section, key, name) of the files outside of trusted folders that a received run names."""
    if directory.native:
        return
    root = os.environ.get(DATA_ROOT)
    folders = [folder.resolve() for folder in (Path(), directory.path, *([Path(root)] if root else []))]
    if settings.training.init_from is not None:
        yield from _outside("training", "init_from", [settings.training.init_from], folders)
    for section in ("data", "tokenizer"):
        config = getattr(settings, section)
        for key in config.files:
            yield from _outside(section, key, as_list(getattr(config, key)), folders)


def _outside(section: str, key: str, names: list[str], folders: list[Path]) -> Iterator[tuple[str, str, str]]:
    root = Path(os.environ.get(DATA_ROOT, ""))
    for name in names:
        if is_remote(name):  # requests that the user did not make
            yield section, key, name
            continue
        path = root / name.removeprefix(UNDER_ROOT) if name.startswith(UNDER_ROOT) else Path(name).expanduser()
        if not is_embedded(name) and not any(path.resolve().is_relative_to(folder) for folder in folders):
            yield section, key, name
