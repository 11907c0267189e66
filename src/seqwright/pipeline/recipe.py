"""Recipes: a TOML file and `--set` overrides to one validated, complete description of a run."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from seqwright import build
from seqwright.core.config import (
    ConfigError,
    ConfigLoader,
    UserError,
    did_you_mean,
    parse_override,
    set_dotted,
    to_table,
    write_toml,
)
from seqwright.core.notebook import html_text
from seqwright.core.printable import quantity
from seqwright.core.synonyms import KEYS_BY_SYNONYM
from seqwright.data.catalog import DATASETS
from seqwright.data.files import DATA_ROOT, UNDER_ROOT, MissingFileError, as_list, is_remote, resolve
from seqwright.data.records import holds_records
from seqwright.data.samples.text import is_embedded
from seqwright.pipeline.finetuning import fine_tuning
from seqwright.pipeline.shipped import SHIPPED, find
from seqwright.runs.finding import free_folder, training_with
from seqwright.training.config import TrainingConfig

DEFAULT_TASK = "text"

Overrides = str | Sequence[str] | Mapping[str, Any]
"""`key=value`, one or several, or in Python a table of keys and values."""

EXCLUSIVE = (("training.steps", "training.epochs", "training.minutes"), ("data.valid", "data.split"))
"""Keys of which an override replaces the others."""

MAY_CHANGE = {
    "name",
    *(f"training.{key}" for key in ("steps", "epochs", "minutes", "log_every", "evaluate_every", "sample_every")),
    *(f"training.{key}" for key in ("checkpoint_every", "keep_last", "keep_best", "patience", "writers")),
    *(f"training.{key}" for key in ("device", "compile", "activation_checkpointing", "parallel", "threads")),
    *("training.cpu_offload", "training.tensor_parallel", "training.reshard_after_forward"),
    "training.stream_checkpoints",
}
"""Keys that may change when a run is resumed, beside [evaluation] and [decoding]: they do not change what is learned,
device, compile, parallel, … up to the rounding of sums (and the dropout masks of ranks)."""

READING = ("data.columns", "data.separator", "data.format", "data.bad_rows", "data.errors", "data.encoding")
"""Keys of [data] that say how files are parsed; they may differ from those of training, which read the same data."""

MAX_SET = 3
"""Differing keys that a message gives as a command."""
MAX_CHANGES = 8
"""Keys that are named where a run would be resumed under another recipe."""


class OtherDataError(UserError):
    """A run would be resumed on other data than it was begun with."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A complete description of a run; `data.kind` decides what the other sections are."""

    name: str
    data: Any
    tokenizer: Any
    model: build.ModelConfig
    training: TrainingConfig
    decoding: Any
    evaluation: Any
    unresolved: Path | None = field(default=None, compare=False, repr=False)
    """The file whose names of data files are not resolved yet, as some were missing (`with_files`)."""

    @property
    def kind(self) -> str:
        """The model's kind."""
        return self.model.kind

    def table(self) -> dict[str, Any]:
        """The recipe as plain tables, defaults included."""
        table = {key: to_table(getattr(self, key)) for key in SECTIONS if key != "model"}
        return {"name": self.name} | {key: table.get(key, self.model.to_table()) for key in SECTIONS}

    def toml(self) -> str:
        return write_toml(self.table())

    def __str__(self) -> str:
        return self.toml()

    def _repr_html_(self) -> str:
        return html_text(self.toml())

    def remade(self, name: str, model: Mapping[str, Any]) -> Recipe:
        """The recipe of a model derived from others: the same [data], [tokenizer], [decoding] and [evaluation]."""
        table = self.table()
        kept = {key: table[key] for key in ("data", "tokenizer", "decoding", "evaluation")}
        return make({"name": name, "model": model} | kept, origin="mix", settled=True)


SEARCHED = ("training", "model", "decoding", "tokenizer", "data", "evaluation")
"""Sections in the order in which a key without one is most likely meant."""
SECTIONS = ("data", "tokenizer", "model", "training", "decoding", "evaluation")


def sections(task: str) -> dict[str, type | None]:
    """The configuration class of each section of a recipe; None for [model], whose kind picks it."""
    task_spec = build.task_spec(task)
    return {
        "data": task_spec.data,
        "tokenizer": task_spec.tokenizer,
        "model": None,
        "training": TrainingConfig,
        "decoding": task_spec.decoding,
        "evaluation": task_spec.evaluation,
    }


def keys_named(name: str) -> list[str]:
    """Dotted keys of recipes that have this name, or of which it is a synonym: training.steps for steps."""
    names = {name, *KEYS_BY_SYNONYM.get(name, ())}
    keys: dict[str, None] = {}
    for task in build.TASKS:
        for section, cls in sections(task).items():
            if cls is None:
                kinds = build.task_spec(task).models
                known = {key.name for kind in kinds for key in build.model_keys(kind, task=task)} | {"kind"}
            else:
                known = {field.name for field in fields(cls)}
            keys |= dict.fromkeys(f"{section}.{key}" for key in sorted(known & names))
    return sorted(keys, key=lambda key: (not key.endswith(f".{name}"), SEARCHED.index(key.split(".")[0])))[:3]


def override_list(overrides: Overrides) -> list[str]:
    """Overrides as `--set` has them, from one, several, or a table in Python: {"training.seed": 3}."""
    if isinstance(overrides, Mapping):
        values = ((key, str(value) if isinstance(value, Path) else value) for key, value in overrides.items())
        return [f"{key}={_toml(key, value)}" for key, value in values]
    several = [overrides] if isinstance(overrides, str) else overrides
    if not isinstance(several, Iterable) or not all(isinstance(one, str) for one in several):
        raise UserError(
            f'set={overrides!r:.60} is no override; write set=["training.steps=100"] or set={{"training.steps": 100}}.'
        )
    return list(several)


def _toml(key: str, value: Any) -> str:
    """A value as TOML, which numbers, strings and lists share with JSON."""
    try:
        if value is not None:
            return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
    except (TypeError, ValueError):
        pass
    raise UserError(f"set: {key} cannot be {value!r:.60}; give a number, a string, true or false, or a list of these.")


def load(
    recipe: str | Path,
    overrides: Sequence[str] = (),
    *,
    train: Sequence[str] = (),
    valid: Sequence[str] = (),
    need_files: bool = True,
) -> Recipe:
    """The recipe of a file, or of a name that ships with seqwright, with `key=value` overrides.

    `train` and `valid` are users' files that replace those of the recipe; they resolve against the working directory.
    Without `need_files` those of the recipe may be missing; training then resolves them (`with_files`).
    """
    path = find(recipe)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}.") from error
    except (ValueError, RecursionError) as error:  # TOML errors, numbers of thousands of digits, deep nesting
        if path.suffix != ".toml":
            raise UserError(f"{path} is no recipe (.toml); {_training_of(path)}") from error
        raise UserError(f"{path} is no valid TOML: {error}.") from error
    table.setdefault("name", path.stem)
    data = table.setdefault("data", {})
    if isinstance(data, dict):  # otherwise `make` reports it
        table["data"] = _with_files(data, train, valid)
    named = train or any(parse_override(override)[0] == "data.train" for override in overrides)
    try:
        with _hinted(path, None if named else table["data"]):
            return make(table, overrides, origin=str(path), base=_base(path))
    except UserError:
        if need_files:
            raise
    return replace(make(table, overrides, origin=str(path), settled=True), unresolved=path.resolve())


def _training_of(path: Path) -> str:
    """How to train on a file that was given in place of a recipe."""
    text = f"`seqwright train --text {path}` trains a language model on a text"
    labeled = f"`seqwright train --labeled {path}` trains a classifier on a table of texts and labels"
    first = f"{labeled}, {text}" if holds_records(path) else text
    return f"{first}, and `seqwright train --help` lists other kinds of data."


def with_files(recipe: Recipe) -> Recipe:
    """The recipe with all names of files resolved, which `load` may have left as they are; raises where one is
    missing."""
    if (path := recipe.unresolved) is None:
        return recipe
    first = as_list(recipe.data.train)[0]
    named = is_embedded(first) or Path(first).is_absolute() or first.startswith(UNDER_ROOT)  # by an override
    with _hinted(path, None if named else recipe.table()["data"]):
        data, tokenizer = (settle(part, _base(path), part.files) for part in (recipe.data, recipe.tokenizer))
    return replace(recipe, data=data, tokenizer=tokenizer, unresolved=None)


def _base(path: Path) -> Path:
    """The folder that the files of a recipe are relative to; of a shipped one, the working directory."""
    return Path() if SHIPPED in path.parents else path.parent


@contextmanager
def _hinted(path: Path, data: Mapping[str, Any] | None) -> Iterator[None]:
    """Context manager that adds to the error of a missing file of a shipped recipe where its dataset belongs; None
    where the user named other files."""
    try:
        yield
    except MissingFileError as error:
        if SHIPPED not in path.parents or data is None or not data.get("train"):
            raise
        raise MissingFileError(f"{error} {_data_hint(path.stem, data)}") from error


def _data_hint(name: str, data: Mapping[str, Any]) -> str:
    """Which dataset a shipped recipe is for, where it belongs, and how to train the recipe on other files."""
    folder = as_list(data.get("train"))[0].partition("/")[0]
    dataset = DATASETS.get(folder)
    what = f"{dataset.title} ({dataset.terms})" if dataset else f"the files of {folder}"
    flag = "--pairs SOURCE TARGET" if data.get("kind") == "pairs" else f"--{data.get('kind', DEFAULT_TASK)} FILE"
    return (
        f"The recipe is for {what}, which does not come with seqwright: put it into a folder '{folder}', export"
        f" {DATA_ROOT} as the folder above it, and see `seqwright data`. On your own data:"
        f" `seqwright train {name} {flag}`."
    )


def make(
    table: Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    origin: str = "recipe",
    base: Path | None = None,
    settled: bool = False,
) -> Recipe:
    """A validated recipe from plain tables; all problems are reported at once.

    File names are resolved against `base`; where they are `settled`, only those of overrides: a finished run can be
    opened without its texts.
    """
    table = {key: dict(value) if isinstance(value, Mapping) else value for key, value in table.items()}
    origins = {}
    for override in overrides:
        key, value = parse_override(override)
        _drop_exclusive(table, key)
        set_dotted(table, key, value)
        origins[key] = f"--set {override}"
    reader = ConfigLoader(origin, origins)
    for key in table.keys() - {*SECTIONS, "name"}:
        named = keys_named(key)
        hint = f" Did you mean {' or '.join(named)}?" if named else did_you_mean(key, [*SECTIONS, "name"])
        reader.problem(key, f"a recipe has no section [{key}].{hint}")
    name = table.get("name", "run")
    if not isinstance(name, str) or name in ("", ".", "..") or set(name) & set("/\\\0"):
        reader.problem("name", f"name must be a string that can name a folder, without / or \\, not {name!r}.")
    task = _task(table, reader)
    if isinstance(table.get("model"), Mapping) and "from" in table["model"]:
        table = fine_tuning(table, task)
    read: dict[str, Any] = {}
    for key, cls in sections(task).items():
        section = table.get(key, {})
        if not isinstance(section, Mapping):
            reader.problem(key, f"'{key}' is a section: write [{key}] with keys under it.")
        elif cls is None:
            read[key] = build.model_config(section, reader, task=task)
        else:
            read[key] = reader.read(cls, section, key)
    reader.finish()
    for key in ("data", "tokenizer"):
        names = [name for name in read[key].files if not settled or f"{key}.{name}" in origins]
        read[key] = settle(read[key], base, names)
    return Recipe(name=name, **read)


def _drop_exclusive(table: dict[str, Any], key: str) -> None:
    """Drops the key of a recipe that excludes the key of an override."""
    for keys in EXCLUSIVE:
        for other in keys if key in keys else ():
            section, name = other.split(".")
            if isinstance(table.get(section), dict):
                table[section].pop(name, None)


def _task(table: Mapping[str, Any], reader: ConfigLoader) -> str:
    """The kind of data of a recipe; text by default, and where the kind is unknown."""
    data = table.get("data", {})
    kind = data.get("kind", DEFAULT_TASK) if isinstance(data, Mapping) else DEFAULT_TASK
    if not isinstance(kind, str) or kind not in build.TASKS:
        reader.problem("data.kind", f"no data kind '{kind}'.{did_you_mean(str(kind), build.TASKS)}")
        return DEFAULT_TASK
    return str(kind)


def settle(section: Any, base: Path | None, keys: Sequence[str]) -> Any:
    """A section with the file names of these keys resolved: absolute, or relative to the data root."""
    settled: dict[str, Any] = {}
    for key in keys:
        names = getattr(section, key)
        if isinstance(names, str):
            settled[key] = _settle(names, base)
        elif names is not None:
            settled[key] = tuple(_settle(name, base) for name in names)
    return replace(section, **settled)


def _with_files(data: dict[str, Any], train: Sequence[str], valid: Sequence[str]) -> dict[str, Any]:
    """[data] with other files; the validation data of the old ones is dropped."""
    changed = dict(data)
    if train:
        if changed.pop("valid", None) is not None and not valid:
            # The recipe has validation data, but of other files; `make` reports an unknown kind.
            spec = build.TASKS.get(str(changed.get("kind")), build.TASKS[DEFAULT_TASK])
            changed["split"] = f"{spec.split_method} 5%"
        changed["train"] = [_settle(name, None) for name in train]
    if valid:
        changed.pop("split", None)
        changed["valid"] = [_settle(name, None) for name in valid]
    return changed


def _settle(name: str, base: Path | None) -> str:
    if is_embedded(name) or is_remote(name):
        return name
    path = resolve(name, base).resolve()
    root = os.environ.get(DATA_ROOT)
    if root and path.is_relative_to(Path(root).resolve()):
        return UNDER_ROOT + path.relative_to(Path(root).resolve()).as_posix()
    return str(path)


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Dotted keys whose values differ between two recipes, with both values."""
    for key in dict.fromkeys([*old, *new]):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) or isinstance(after, Mapping):
            yield from differences(before or {}, after or {}, f"{prefix}{key}.")
        elif before != after:
            yield prefix + key, before, after


def check_same(old: Recipe, new: Recipe, where: Path, *, moved: Collection[str] = ()) -> None:
    """Raises where a run would be resumed under another recipe, except for keys that do not change what is learned, and
    for those in `moved`: file names and how they are parsed, since what is read is compared later."""
    files = {f"data.{key}" for key in new.data.files}
    changed = [
        d
        for d in differences(old.table(), new.table())
        if d[0] not in {*MAY_CHANGE, *moved} - files and not d[0].startswith(("evaluation.", "decoding."))
    ]
    if any(key not in moved for key, *_ in changed):
        changed.sort(key=lambda d: d[0] not in files)  # other data first: defaults such as tokenizer.size follow them
        # Under another kind of data or model, keys that only one of them has say nothing.
        kinds = {"data.kind", "model.kind"} & {key for key, *_ in changed}
        shown = [d for d in changed if not kinds or (d[1] is not None and d[2] is not None)]
        lines = [f"{where} was begun with another recipe:"]
        lines += [f"  {key} was {_show(before)}, now {_show(after)}" for key, before, after in shown[:MAX_CHANGES]]
        more = len(changed) - len(shown[:MAX_CHANGES])
        lines += [f"  and {quantity(more, 'more key')}"] * (more > 0)
        raise ConfigError([*lines, _other_folder(old, new, where, changed)])


def _other_folder(old: Recipe, new: Recipe, where: Path, changed: Sequence[tuple[str, Any, Any]]) -> str:
    """The next move where a folder holds a run of another recipe."""
    free = free_folder(where)
    if len(changed) <= MAX_SET and all(isinstance(after, bool | int | float | str) for _, _, after in changed):
        values = {key: json.dumps(after) if isinstance(after, bool) else str(after) for key, _, after in changed}
        moves = [f"Train the new one in another folder: `{training_with(where, values)}`"]
    else:
        moves = [f"Give the new one another folder: --run {free}"]
    counted = old.kind in (*build.COUNTED, *build.DERIVED)
    if old.data.train != new.data.train and old.kind == new.kind and not counted:
        moves.append(f"or begin with the weights of the old one: --from {where} --run {free}")
    return ", ".join([*moves, f"or go on with the old settings: `seqwright train --run {where}`."])


def _show(value: Any) -> str:
    return "not set" if value is None else repr(list(value) if isinstance(value, tuple) else value)
