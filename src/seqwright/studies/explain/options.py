"""Options of topics: the numbers and texts of an example, which `--set` changes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

from seqwright.core.config import ConfigLoader, UserError, did_you_mean, parse_override

Vector = tuple[float, ...]
Rows = tuple[Vector, ...]
"""A matrix by rows."""

INDEXED = re.compile(r"(\w+)((?:\[\s*\d+(?:\s*,\s*\d+)*\s*\])*)")
"""`W_Q`, `W_Q[0,1]` or `W_Q[0][1]`; indices count from 0."""
MAX_LENGTH = 64
"""Of vectors that may change their length: an example should be readable."""


@dataclass(frozen=True, kw_only=True)
class TopicOptions:
    """Base of the options of topics; vectors and matrices keep their shape unless they are `resizable`.

    Options are of the example, unless they are listed here. `text` is what `--on` gives.
    """

    resizable: ClassVar[tuple[str, ...]] = ()
    run_only: ClassVar[tuple[str, ...]] = ()
    """Options that are read with a trained run only, such as the number of a layer."""
    either: ClassVar[tuple[str, ...]] = ()
    """Options that are read with and without a run."""


O = TypeVar("O", bound=TopicOptions)


def option_names(cls: type[TopicOptions], *, run: bool) -> list[str]:
    """Options that `--set` changes with a trained run, or without one."""
    names = [f.name for f in fields(cls) if f.name != "text"]
    return [name for name in names if name in cls.either or (name in cls.run_only) == run]


def with_overrides(cls: type[O], overrides: Iterable[str], topic: str, *, run: bool) -> O:
    """Options with `name=value` overrides, also of one entry: `W_Q[0,1]=0.5`."""
    defaults = cls()
    table: dict[str, Any] = {}
    names, others = option_names(cls, run=run), option_names(cls, run=not run)
    origins = {}
    for override in overrides:
        if "=" not in override:
            raise UserError(f"--set {override}: expected name=value; explain {topic} has {', '.join(names)}.")
        key, value = parse_override(override)
        match = INDEXED.fullmatch(key)
        if match is None or match[1] not in names:
            word = key if match is None else match[1]
            raise UserError(f"--set {override}: {_no_option(word, topic, names, others, run)}")
        name = match[1]
        origins[name] = f"--set {override}"
        table.setdefault(name, _plain(getattr(defaults, name)))
        if match[2]:
            _set_entry(table[name], [int(n) for n in re.findall(r"\d+", match[2])], value, override)
        else:
            table[name] = value
    loader = ConfigLoader(f"explain {topic}", origins, noun=f"explain {topic}")
    options = loader.read(cls, table)
    loader.finish()
    assert options is not None
    for name, origin in origins.items():
        _check_shape(cls, name, getattr(defaults, name), getattr(options, name), origin)
    return options


def settings(options: TopicOptions, *, run: bool) -> dict[str, Any]:
    """Names and values of the options that `--set` changes, as lists."""
    return {name: _plain(getattr(options, name)) for name in option_names(type(options), run=run)}


def _no_option(word: str, topic: str, names: list[str], others: list[str], run: bool) -> str:
    """Why `word` cannot be set, and what can."""
    able = f"--set changes {', '.join(names)}" if names else "nothing can be changed"
    if word == "text":
        return "--on TEXT sets the text."
    if word in others and run:
        return f"'{word}' is of the example; with --run {able}."
    if word in others:
        return f"'{word}' is of a trained run: add --run RUN. Of the example {able}."
    return f"explain {topic} has no value '{word}'.{did_you_mean(word, names) or f' Here {able}.'}"


def _set_entry(nested: Any, index: list[int], value: Any, override: str) -> None:
    *path, last = index
    for level, n in enumerate(index):
        if not isinstance(nested, list):
            raise UserError(f"--set {override}: it has {level} indices, not {len(index)}.")
        if n >= len(nested):
            raise UserError(f"--set {override}: indices go from 0 to {len(nested) - 1}, not to {n}.")
        if level < len(path):
            nested = nested[n]
    nested[last] = value


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _check_shape(cls: type[TopicOptions], name: str, default: Any, value: Any, origin: str) -> None:
    if name in cls.resizable:
        if isinstance(value, tuple) and not 1 <= len(value) <= MAX_LENGTH:
            raise UserError(f"{origin}: give 1 to {MAX_LENGTH} entries, not {len(value):,}.")
    elif _shape(value) != _shape(default):
        shape = _shape(default)
        entry = f"{name}[{','.join('0' for _ in shape)}]=1"
        size = f"is {' × '.join(map(str, shape))}" if len(shape) > 1 else f"has {len(default)} entries"
        raise UserError(f"{origin}: {name} {size}; give as many numbers, or one: {entry}.")
    if isinstance(default, tuple) and len({_shape(row) for row in value}) > 1:
        raise UserError(f"{origin}: the rows of {name} must be equally long.")


def _shape(value: Any) -> tuple[int, ...]:
    return (len(value), *(_shape(value[0]) if value else ())) if isinstance(value, tuple) else ()
