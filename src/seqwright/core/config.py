"""Configuration: frozen dataclasses, loaded strictly from TOML tables and `--set` overrides.

All problems of a recipe are reported together, each with its file and dotted key, and with the closest known name.
"""

from __future__ import annotations

import ast
import datetime
import difflib
import functools
import inspect
import json
import re
import sys
import textwrap
import tomllib
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

from seqwright.core.synonyms import KEYS_BY_SYNONYM
from seqwright.core.wording import worded

T = TypeVar("T")

MAX_SIZE = 1 << 48
"""Of widths, lengths and counts: far below what an int64 of a tensor holds."""


class UserError(Exception):
    """An error that the user can fix, as its message explains. Other exceptions are bugs and keep their traceback."""

    def __str__(self) -> str:
        return worded(super().__str__())


class ConfigError(UserError):
    """All problems of a recipe, one per line."""

    def __init__(self, problems: list[str]):
        self.problems = problems
        super().__init__("\n".join(problems))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A suggestion: the known name of a synonym, else the closest by spelling, else the known names if they are few."""
    known, folded = list(dict.fromkeys(known)), word.casefold()
    names = {name.casefold(): name for name in known}
    for key in KEYS_BY_SYNONYM.get(folded.replace("-", "_"), KEYS_BY_SYNONYM.get(folded, ())):
        if key in names:
            return f" Did you mean '{key}'?"
    closest = difflib.get_close_matches(folded, names, n=1, cutoff=0.6)
    if closest:
        return f" Did you mean '{names[closest[0]]}'?"
    return f" Known: {', '.join(name or repr(name) for name in known)}." if 0 < len(known) <= 24 else ""


def pick(kind: str, table: Mapping[str, Any], what: str) -> Any:
    """The entry of a kind in its table; an unknown kind is an error with a suggestion."""
    if kind not in table:
        raise UserError(f"no {what} kind '{kind}'.{did_you_mean(kind, table)}")
    return table[kind]


def check_sizes(config: object, *names: str) -> None:
    """Raises for sizes below 1 or above MAX_SIZE."""
    refuse(wrong_sizes(config, *names))


def check_shares(config: object, *names: str) -> None:
    """Raises for fractions outside [0, 1)."""
    refuse(wrong_shares(config, *names))


def check_not_negative(config: object, *names: str) -> None:
    """Raises for negative numbers."""
    refuse(wrong_negatives(config, *names))


def wrong_sizes(config: object, *names: str) -> list[str]:
    """The problems of sizes below 1 or above MAX_SIZE; options that are None or strings are skipped."""
    numbers = list(_numbers(config, names))
    small = [f"{name} must be at least 1, not {value}" for name, value in numbers if value < 1]
    return small + [f"{name} must be at most {MAX_SIZE:,}" for name, value in numbers if value > MAX_SIZE]


def wrong_shares(config: object, *names: str) -> list[str]:
    """The problems of fractions outside [0, 1): dropout rates, decay rates, parts of a data set."""
    return [
        f"{name} must be at least 0 and below 1, not {value}"
        for name, value in _numbers(config, names)
        if not 0 <= value < 1
    ]


def wrong_negatives(config: object, *names: str) -> list[str]:
    """The problems of negative numbers."""
    return [f"{name} must not be below 0, but is {value}" for name, value in _numbers(config, names) if value < 0]


def refuse(problems: list[str]) -> None:
    """Raises a UserError with all problems, if there are any."""
    if problems:
        raise UserError("; ".join(problems) + ".")


class ConfigLoader:
    """Loads dataclasses from plain tables; collects problems, each with the origin of its key."""

    def __init__(self, origin: str, origins: Mapping[str, str] | None = None, *, noun: str = "a recipe"):
        self.origin = origin
        self.noun = noun
        """What holds the keys outside of any section, for messages."""
        self.origins = origins or {}
        """Origins of dotted keys that are not from the file (`--set`)."""
        self.problems: list[str] = []

    def problem(self, key: str, text: str) -> None:
        # `--set a.b=1` is also to blame for an unknown section a, and `--set a={b=1}` for an unknown key a.b.
        blamed = (
            origin for k, origin in self.origins.items() if f"{k}.".startswith(f"{key}.") or key.startswith(f"{k}.")
        )
        self.problems.append(f"{next(blamed, self.origin)}: {text}")

    def read(self, cls: type[T], table: Mapping[str, Any], section: str = "") -> T | None:
        """An instance of `cls` from a table, or None with the reasons in `problems`."""
        before = len(self.problems)
        prefix = f"{section}." if section else ""
        place = f"[{section}]" if section else self.noun
        values = self.values(cls, table, section)
        for f in fields(cls):  # type: ignore[arg-type]
            if f.name not in table and f.default is MISSING and f.default_factory is MISSING:
                self.problem(prefix + f.name, f"{place} needs the key '{f.name}'.")
        if len(self.problems) > before:
            return None
        try:
            return cls(**values)
        except UserError as error:  # validation in __post_init__, whose message names the keys
            words = set(re.findall(r"\w+", str(error)))
            named = [prefix + key for key in values if key in words and prefix + key in self.origins]
            origin = self.origins[named[0]] if named else self.origin
            self.problems.append(f"{origin}: [{section}] {error}" if section else f"{origin}: {error}")
            return None

    def values(self, cls: type, table: Mapping[str, Any], section: str = "") -> dict[str, Any]:
        """The values of a table by key, converted; unknown keys and other types are problems."""
        types_of, values = _types(cls), dict[str, Any]()
        prefix = f"{section}." if section else ""
        place = f"[{section}]" if section else self.noun
        for key, value in table.items():
            dotted = prefix + key
            if key not in types_of:
                self.problem(dotted, f"{place} has no key '{key}'.{did_you_mean(key, types_of)}")
                continue
            wanted = types_of[key]
            inner = _section(wanted)
            if inner and isinstance(value, Mapping):
                values[key] = self.read(inner, value, dotted)
                continue
            try:
                values[key] = _convert(value, wanted)
            except ValueError as error:
                self.problem(dotted, f"{dotted} {error}")
        return values

    def finish(self) -> None:
        """Raises all problems as one ConfigError."""
        if self.problems:
            raise ConfigError(self.problems)


def with_options(config: T, options: Mapping[str, Any]) -> T:
    """A configuration with some keys replaced, checked as in a recipe: UserError for an unknown key or another type."""
    types_of, problems, values = _types(typing.cast(type, type(config))), [], {}
    for key, value in options.items():
        if key not in types_of:
            problems.append(f"no option '{key}'.{did_you_mean(key, types_of)}")
            continue
        try:
            plain = value.tolist() if hasattr(value, "tolist") else value  # of NumPy
            values[key] = _convert(list(plain) if isinstance(plain, tuple) else plain, types_of[key])
        except ValueError as error:
            problems.append(f"{key} {error}")
    if problems:
        raise ConfigError(problems)
    return replace(config, **values)  # type: ignore[type-var]


def parse_override(text: str) -> tuple[str, Any]:
    """`a.b=value` as a dotted key and a value: TOML where it parses to a type that keys have, otherwise a string."""
    key, equals, raw = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise UserError(f"--set {text}: expected key=value, as in --set training.steps=100.")
    try:
        table = tomllib.loads(f"x = {raw}")
    except (ValueError, RecursionError):
        bare = raw.strip() or raw  # a separator may be a space
        if bare.startswith("[") and bare.endswith("]"):  # a shell takes the quotes out of ["a", "b"]
            return key, [item.strip() for item in bare[1:-1].split(",")]
        return key, bare
    dated = isinstance(table["x"], datetime.date | datetime.time)  # no key is a date, but a name may look like one
    return key, raw.strip() if dated or len(table) > 1 else table["x"]


def set_dotted(table: dict[str, Any], key: str, value: Any) -> None:
    """Sets a value in nested tables, creating missing ones."""
    *parents, last = key.split(".")
    for parent in parents:
        table = table.setdefault(parent, {})
        if not isinstance(table, dict):
            raise UserError(f"--set {key}: '{parent}' is a value, not a section.")
    table[last] = value


def to_table(config: Any) -> dict[str, Any]:
    """A dataclass as plain tables, without keys that are None (TOML has no null)."""
    table: dict[str, Any] = {}
    for f in fields(config):
        value = getattr(config, f.name)
        if value is None and f.default not in (None, MISSING):  # omitted, it would be loaded as its default
            raise UserError(f"{type(config).__name__}.{f.name} cannot be None: TOML has no null; set a value.")
        if value is not None:
            table[f.name] = (
                to_table(value) if is_dataclass(value) else list(value) if isinstance(value, tuple) else value
            )
    return table


def write_toml(table: Mapping[str, Any]) -> str:
    """Plain tables as TOML text."""
    lines: list[str] = []
    _write_table(table, (), lines)
    return "\n".join(lines).strip() + "\n"


@dataclass(frozen=True)
class Key:
    """One configuration key, for `--help` and the reference."""

    name: str
    type: str
    default: Any
    help: str


@functools.cache
def describe(cls: type) -> tuple[Key, ...]:
    """The keys of a configuration class; the string under a field is its help."""
    helps: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        try:
            source = inspect.getsource(base)
        except (OSError, TypeError):  # a class that was typed at a prompt has no help
            continue
        body = ast.parse(textwrap.dedent(source)).body[0]
        assert isinstance(body, ast.ClassDef)
        for statement, following in zip(body.body, body.body[1:], strict=False):
            if (
                isinstance(statement, ast.AnnAssign)
                and isinstance(statement.target, ast.Name)
                and isinstance(following, ast.Expr)
                and isinstance(following.value, ast.Constant)
            ):
                helps[statement.target.id] = " ".join(str(following.value.value).split())
    keys = []
    for f in fields(cls):
        default = None if f.default is MISSING else f.default
        keys.append(Key(f.name, _name(_types(cls)[f.name]), default, helps.get(f.name, "")))
    return tuple(keys)


def section_of(cls: type, key: str) -> type | None:
    """The configuration class of a key that is a section; None for values."""
    return _section(_types(cls)[key])


def _numbers(config: object, names: Iterable[str]) -> Iterator[tuple[str, int | float]]:
    for name in names:
        value = getattr(config, name)
        if isinstance(value, int | float):
            yield name, value


def _section(wanted: Any) -> type | None:
    """The dataclass of a type that is one or `| None`; None for other types."""
    choices = [c for c in typing.get_args(wanted) or (wanted,) if c is not type(None)]
    return choices[0] if len(choices) == 1 and is_dataclass(choices[0]) and isinstance(choices[0], type) else None


@functools.cache
def _types(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in fields(cls)}


def _convert(value: Any, wanted: Any) -> Any:
    """The value as the wanted type. The only coercion is int to float: no bool is an int, no string a number."""
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if wanted is Any:
        return value
    if origin is typing.Literal:
        if any(value == a and type(value) is type(a) for a in arguments):
            return value
        raise ValueError(f"is {_show(value)}.{did_you_mean(str(value), map(str, arguments))}")
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:  # JSON has a null, TOML has none
            return None
        for argument in arguments:
            if argument is type(None):
                continue
            try:
                return _convert(value, argument)
            except ValueError:
                continue
    elif origin is list:
        if isinstance(value, list):
            return [_convert(item, arguments[0]) for item in value]
    elif origin is dict:
        if isinstance(value, Mapping):
            return {key: _convert(item, arguments[1]) for key, item in value.items()}
    elif isinstance(wanted, type) and is_dataclass(wanted):
        if isinstance(value, Mapping):
            loader = ConfigLoader("wrong", noun="it")
            made = loader.read(wanted, value)
            if made is None:
                raise ValueError(f"is {loader.problems[0]}")
            return made
    elif origin is tuple:
        repeated = arguments[-1] is Ellipsis
        if isinstance(value, list) and (repeated or len(value) == len(arguments)):
            wanted_items = [arguments[0]] * len(value) if repeated else arguments
            return tuple(_convert(item, w) for item, w in zip(value, wanted_items, strict=True))
        if repeated and not isinstance(value, list) and typing.get_origin(arguments[0]) is not tuple:
            item = 1 if arguments[0] in (int, float) and type(value) not in (int, float) else value
            raise ValueError(f"must be {_name(wanted)}, as in {_show([item])}, not {_show(value)}.")
    elif wanted is float:
        if type(value) in (int, float) and abs(value) <= sys.float_info.max:  # neither nan, inf nor a giant int
            return float(value)
    elif type(value) is wanted:
        return value
    raise ValueError(f"must be {_name(wanted)}, not {_show(value)}.")


_PLURALS: dict[Any, str] = {int: "whole numbers", float: "numbers", str: "strings"}


def _name(wanted: Any) -> str:
    arguments = typing.get_args(wanted)
    origin = typing.get_origin(wanted)
    if origin is typing.Literal:
        return " | ".join(json.dumps(a) for a in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_name(a) for a in arguments if a is not type(None))
    if origin is list or (origin is tuple and arguments[-1] is Ellipsis):
        return f"a list of {_PLURALS.get(arguments[0], _name(arguments[0]))}"
    if origin is tuple:
        return f"a list [{', '.join(_name(a) for a in arguments)}]"
    if is_dataclass(wanted) or origin is dict:
        return "a section"
    names = {int: "a whole number", float: "a number", str: "a string", bool: "true or false", Any: "tables"}
    return names.get(wanted, str(wanted))


def _show(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _write_table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    for key, value in table.items():
        if not isinstance(value, Mapping) and value is not None:
            lines.append(f"{_bare(key)} = {write_value(value)}")
    for key, value in table.items():
        if isinstance(value, Mapping):
            lines.extend(["", f"[{'.'.join(_bare(part) for part in (*path, key))}]"])
            _write_table(value, (*path, key), lines)


def _bare(key: str) -> str:
    plain = key.replace("-", "").replace("_", "")
    return key if plain.isascii() and plain.isalnum() else write_value(key)


def write_value(value: Any) -> str:
    """A value in TOML syntax."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # TOML has the escapes of JSON, and also requires DEL to be escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(write_value(item) for item in value) + "]"
    raise TypeError(f"TOML cannot hold {value!r}")
