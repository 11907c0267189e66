"""Checks of arguments before torch is imported, which takes seconds: runs, files, recipes and keys of [training]."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TypeVar

import click

from seqwright.core.config import ConfigLoader, UserError, parse_override
from seqwright.core.synonyms import KEYS_BY_SYNONYM

Paths = TypeVar("Paths", str, tuple[str, ...], None)


def existing_run(context: click.Context, parameter: click.Parameter, value: Paths) -> Paths:
    """click callback: the folder of a run, or several of them."""
    from seqwright.runs.finding import is_run, not_a_run

    for path in _each(value):
        if not is_run(Path(path)):
            if isinstance(value, str) and (given := [name for name in sys.argv[2:] if is_run(Path(name))]):
                command = f"seqwright {context.info_name} {shlex.quote(given[0])} {shlex.quote(value)}"
                raise UserError(f"no run at {path}, but {given[0]} is one: the run comes first, as in `{command}`.")
            raise UserError(not_a_run(Path(path)))
    return value


def existing_runs(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """click callback: folders of runs, without the files beside them that a pattern such as runs/sweep/* matches."""
    beside = {Path(path).parent for path in value if not Path(path).is_file()}
    runs = tuple(path for path in value if not (Path(path).is_file() and Path(path).parent in beside))
    return existing_run(context, parameter, runs)


def existing_files(context: click.Context, parameter: click.Parameter, value: Paths) -> Paths:
    """click callback: data files, folders or patterns, relative to the working directory or the data root; "-" of --on
    is standard input."""
    from seqwright.data.files import is_remote, resolve
    from seqwright.data.samples.text import is_embedded

    if parameter.name == "on" and isinstance(value, tuple):
        value = tuple("/dev/stdin" if name == "-" else name for name in value)
    for name in _each(value):
        if parameter.name != "on" and (name == "-" or Path(name).is_fifo()):
            raise UserError(f"--{parameter.name} {name}: training reads its data several times. Save it to a file.")
        if is_remote(name) and parameter.name in ("text", "valid"):
            from seqwright.data.text.streamed import remote_folder

            remote_folder(name)
        elif not is_embedded(name):
            resolve(name)
    return value


def training_files(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """click callback: `existing_files` of a training; the error names how to resume a run whose files were moved."""
    from seqwright.data.files import MissingFileError
    from seqwright.runs.finding import is_run

    try:
        return existing_files(context, parameter, value)
    except MissingFileError:
        run = context.params.get("run")
        if run is None or not is_run(Path(run)):
            raise
        from seqwright.pipeline.wanted import hinted_files

        with hinted_files(run, value):
            raise


def existing_inputs(context: click.Context, parameter: click.Parameter, value: Paths) -> Paths:
    """click callback: texts, or names of files that exist; or a folder, of images."""
    for text in _each(value):
        if not is_folder(text):  # whoever reads texts refuses it
            input_path(text)
        _refuse_own_input(text, context.params.get("out"))
    return value


def output_file(context: click.Context, parameter: click.Parameter, value: Path | None) -> Path | None:
    """click callback: a file to write, in a folder that exists; not the one that is read. "-" is standard output."""
    if value is None or str(value) == "-":
        return None
    _check_folder("--out", value)
    _refuse_own_input(context.params.get("text_or_file"), value)
    return value


def page_file(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """click callback: a page to write, in a folder that exists; an older page may be replaced, no other file."""
    if value is None:
        return None
    path = Path(value)
    _check_folder("--html", path)
    if path.is_file() and path.stat().st_size:
        with path.open("rb") as file:
            if not file.read(15).lower().startswith(b"<!doctype html"):
                raise UserError(f"--html {path} would replace a file that is no page; name another, such as page.html.")
    return value


def _check_folder(option: str, path: Path) -> None:
    if not path.parent.is_dir():
        made = f"mkdir -p {shlex.quote(str(path.parent))}"
        raise UserError(f"{option} {path}: there is no folder {path.parent}; correct its name, or make it: {made}.")


def _refuse_own_input(text_or_file: str | None, out: Path | None) -> None:
    """Raises where the output would replace its input. Options come in any order: both callbacks ask."""
    if out is None or not out.exists():
        return
    try:
        read = Path(str(text_or_file)).stat() if is_file(text_or_file) else os.fstat(0)  # of standard input
    except OSError:  # closed
        return
    if os.path.samestat(read, out.stat()) and out.is_file():
        other = out.with_name(f"{out.stem}-new{out.suffix}")
        raise UserError(f"--out {out} is the input, which would be lost; name another file: --out {other}.")


def is_file(text_or_file: str | None) -> bool:
    """Whether this is the name of an existing file."""
    try:
        return text_or_file is not None and Path(text_or_file).is_file()
    except OSError:  # a text that is too long for a file name
        return False


def is_folder(text_or_file: str) -> bool:
    """Whether this is the name of an existing folder."""
    try:
        return bool(text_or_file) and Path(text_or_file).is_dir()  # Path("") is this folder
    except OSError:  # a text that is too long for a file name
        return False


def input_path(text_or_file: str | None) -> Path | None:
    """The file of this name; None for standard input (no name, or "-") and for a text.

    A text without a space but with a directory or a suffix is taken for a misspelled file name, which is an error.
    """
    if text_or_file in (None, "-"):
        return None
    from seqwright.data.files import MissingFileError, resolve

    text = str(text_or_file)
    piped = "If it is a text, give it on standard input: echo TEXT | seqwright …"
    if is_folder(text):
        raise UserError(f"{text} is a folder; name a file. {piped}")
    named = " " not in text and ("/" in text or Path(text).suffix.strip("."))  # from Python 3.14 "Hello." has a suffix
    try:
        return resolve(text) if named or is_file(text) else None
    except MissingFileError as error:
        raise MissingFileError(f"{error} {piped}") from None


def check_overrides(overrides: Sequence[str]) -> None:
    """Raises for `--set` of an unknown key or another type in [training], and for its keys without the section."""
    from seqwright.training.config import TrainingConfig

    for override in overrides:
        key, value = parse_override(override)
        section, _, name = key.partition(".")
        loader = ConfigLoader("--set", {key: f"--set {override}"})
        if section == "training" and name:
            loader.values(TrainingConfig, {name: value}, section)
        elif not name and (meant := training_key(key)):
            loader.problem(key, f"a recipe has no section [{key}]. Did you mean {meant}?")
        loader.finish()


def training_key(name: str) -> str | None:
    """The dotted key of [training] that has this name, or of which it is a synonym: training.steps for steps."""
    from seqwright.training.config import TrainingConfig

    known = {field.name for field in fields(TrainingConfig)}
    return next((f"training.{key}" for key in (name, *KEYS_BY_SYNONYM.get(name, ())) if key in known), None)


def _each(value: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value or ()
