"""Options: frozen dataclasses beside the code that reads them, filled from TOML and `--set` without forgiving a typo.

Loading collects every problem before it complains, each with its file and dotted key, and a suggestion where one is
near.
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
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, TypeVar

from seqwright.core.synonyms import OURS

T = TypeVar("T")


class UserError(Exception):
    """Something the user can mend; the message says how. Everything else is a bug and keeps its traceback."""


class ConfigError(UserError):
    """Every problem found in a recipe, one a line."""

    def __init__(self, problems: list[str]):
        self.problems = problems
        super().__init__("\n".join(problems))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A sentence that suggests the known name of a synonym, or the nearest by spelling, or lists the known when few."""
    spelled = {name.casefold(): name for name in known}
    for ours in OURS.get(word.casefold().replace("-", "_"), OURS.get(word.casefold(), ())):
        if ours in spelled:
            return f" Did you mean '{ours}'?"
    near = difflib.get_close_matches(word.casefold(), spelled, n=1, cutoff=0.6)
    if near:
        return f" Did you mean '{spelled[near[0]]}'?"
    return f" Known: {', '.join(spelled.values())}." if 0 < len(spelled) <= 24 else ""


def pick(kind: str, table: Mapping[str, Any], what: str) -> Any:
    """The entry of a table of kinds, or an error that suggests one."""
    if kind not in table:
        raise UserError(f"no {what} kind '{kind}'.{did_you_mean(kind, table)}")
    return table[kind]


def check_sizes(config: object, *names: str) -> None:
    """Refuses sizes below one."""
    refuse(wrong_sizes(config, *names))


def check_shares(config: object, *names: str) -> None:
    """Refuses shares below zero, and those that leave nothing."""
    refuse(wrong_shares(config, *names))


def check_not_negative(config: object, *names: str) -> None:
    """Refuses numbers below zero."""
    refuse(wrong_negatives(config, *names))


def wrong_sizes(config: object, *names: str) -> list[str]:
    """What is wrong with the options that count something; those not given, or given in words, are fine."""
    return [f"{name} must be at least 1, not {value}" for name, value in _numbers(config, names) if value < 1]


def wrong_shares(config: object, *names: str) -> list[str]:
    """What is wrong with the options that are a part of a whole, and not all of it."""
    return [
        f"{name} is a share: 0 or more and below 1, not {value}"
        for name, value in _numbers(config, names)
        if not 0 <= value < 1
    ]


def wrong_negatives(config: object, *names: str) -> list[str]:
    """What is wrong with the options that may be zero, but not less."""
    return [f"{name} must not be below 0, but is {value}" for name, value in _numbers(config, names) if value < 0]


def refuse(problems: list[str]) -> None:
    """Raises all problems in one sentence; without any, nothing."""
    if problems:
        raise UserError("; ".join(problems) + ".")


class ConfigLoader:
    """Fills dataclasses from plain tables, remembering where each key was written and every problem met."""

    def __init__(self, origin: str, origins: Mapping[str, str] | None = None, *, noun: str = "a recipe"):
        self.origin = origin
        self.noun = noun
        """What holds the keys outside of any section, for messages."""
        self.origins = origins or {}
        """Dotted keys that were written elsewhere than in the file (`--set`)."""
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
        types_of = _types(typing.cast(type, cls))
        values: dict[str, Any] = {}
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
        for f in fields(cls):  # type: ignore[arg-type]
            if f.name not in table and f.default is MISSING and f.default_factory is MISSING:
                self.problem(prefix + f.name, f"{place} needs the key '{f.name}'.")
        if len(self.problems) > before:
            return None
        try:
            return cls(**values)
        except UserError as error:  # a check of values, made by the dataclass itself, which names its keys
            words = set(re.findall(r"\w+", str(error)))
            named = [prefix + key for key in values if key in words and prefix + key in self.origins]
            origin = self.origins[named[0]] if named else self.origin
            self.problems.append(f"{origin}: [{section}] {error}" if section else f"{origin}: {error}")
            return None

    def finish(self) -> None:
        """Raises everything that was wrong, at once."""
        if self.problems:
            raise ConfigError(self.problems)


def parse_override(text: str) -> tuple[str, Any]:
    """`a.b=value` as a dotted key and a value: TOML where it parses to one of our types, otherwise plain strings."""
    key, equals, raw = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise UserError(f"--set {text}: expected key=value, as in --set training.steps=100.")
    try:
        table = tomllib.loads(f"x = {raw}")
    except (ValueError, RecursionError):
        bare = raw.strip()
        if bare.startswith("[") and bare.endswith("]"):  # a shell takes the quotes out of ["a", "b"]
            return key, [item.strip() for item in bare[1:-1].split(",")]
        return key, bare
    dated = isinstance(table["x"], datetime.date | datetime.time)  # no key is a date, but a name may look like one
    return key, raw.strip() if dated or len(table) > 1 else table["x"]


def set_dotted(table: dict[str, Any], key: str, value: Any) -> None:
    """Writes a value into nested tables, making them on the way."""
    *parents, last = key.split(".")
    for parent in parents:
        table = table.setdefault(parent, {})
        if not isinstance(table, dict):
            raise UserError(f"--set {key}: '{parent}' is a value, not a section.")
    table[last] = value


def to_table(config: Any) -> dict[str, Any]:
    """A dataclass as plain tables; keys that are None are left out (TOML has no null)."""
    table: dict[str, Any] = {}
    for f in fields(config):
        value = getattr(config, f.name)
        if value is None and f.default not in (None, MISSING):  # left out, it would come back as its default
            raise UserError(f"{type(config).__name__}.{f.name} cannot be None: a recipe has no way to say so.")
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
    """One key of a configuration, for help and documentation."""

    name: str
    type: str
    default: Any
    help: str


@functools.cache
def describe(cls: type) -> tuple[Key, ...]:
    """The keys of a configuration class; the string under a field is its help."""
    helps: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(body, ast.ClassDef)
        for statement, following in zip(body.body, body.body[1:], strict=False):
            if (
                isinstance(statement, ast.AnnAssign)
                and isinstance(statement.target, ast.Name)
                and isinstance(following, ast.Expr)
                and isinstance(following.value, ast.Constant)
            ):
                helps[statement.target.id] = " ".join(str(following.value.value).split())
    found = []
    for f in fields(cls):
        default = None if f.default is MISSING else f.default
        found.append(Key(f.name, _name(_types(cls)[f.name]), default, helps.get(f.name, "")))
    return tuple(found)


def section_of(cls: type, key: str) -> type | None:
    """The configuration class that a key holds, where it holds one."""
    return _section(_types(cls)[key])


def _numbers(config: object, names: Iterable[str]) -> Iterator[tuple[str, int | float]]:
    for name in names:
        value = getattr(config, name)
        if isinstance(value, int | float):
            yield name, value


def _section(wanted: Any) -> type | None:
    """The dataclass a key holds, where it holds one (or none)."""
    choices = [c for c in typing.get_args(wanted) or (wanted,) if c is not type(None)]
    return choices[0] if len(choices) == 1 and is_dataclass(choices[0]) and isinstance(choices[0], type) else None


@functools.cache
def _types(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in fields(cls)}


def _convert(value: Any, wanted: Any) -> Any:
    """The value as the wanted type, exactly: no bool passes for an int, no string for a number."""
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
        if repeated and not isinstance(value, list):
            raise ValueError(f"must be {_name(wanted)}, as in {_show([value])}, not {_show(value)}.")
    elif wanted is float:
        if type(value) in (int, float) and abs(value) <= sys.float_info.max:  # neither nan, inf nor a giant int
            return float(value)
    elif type(value) is wanted:
        return value
    raise ValueError(f"must be {_name(wanted)}, not {_show(value)}.")


def _name(wanted: Any) -> str:
    arguments = typing.get_args(wanted)
    origin = typing.get_origin(wanted)
    if origin is typing.Literal:
        return " | ".join(json.dumps(a) for a in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_name(a) for a in arguments if a is not type(None))
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return f"a list of {_name(arguments[0])}"
        return f"a list [{', '.join(_name(a) for a in arguments)}]"
    if origin is list:
        return f"a list of {_name(arguments[0])}"
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
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for DEL, which TOML wants escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(write_value(item) for item in value) + "]"
    raise TypeError(f"TOML cannot hold {value!r}")
