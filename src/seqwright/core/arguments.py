"""Arguments of Python functions, checked by their annotations: an error says which kind is meant."""

from __future__ import annotations

import functools
import inspect
import numbers
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from seqwright.core.config import UserError

KINDS: dict[str, tuple[str, type | tuple[type, ...]]] = {
    "str": ("a string", str),
    "Path": ("a path", os.PathLike),
    "int": ("a whole number", numbers.Integral),
    "float": ("a number", numbers.Real),
    "bool": ("True or False", (bool, np.bool_)),
    "None": ("None", type(None)),
}
"""Names in annotations, in words, and the values that are of them."""
NAMED = {
    "Run": "a run that seqwright.open returned",
    "Recipe": "a Recipe that seqwright.load returned",
    "Progress": "a subclass of seqwright.core.progress.Progress, or None",
}
"""Classes of ours, which are compared by name: they are above this file."""
PATHS = (KINDS["str"][0], KINDS["Path"][0])


class WrongTypeError(UserError, TypeError):
    """An argument of a wrong kind."""


@functools.cache
def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Parameters of a function by name, inspected once: that takes longer than many a call."""
    return inspect.signature(function).parameters


def refuse_wrong_types(function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Raises for an argument that its annotation excludes; those with other annotations are checked where they are
    read."""
    parameters = parameters_of(function)
    for name, value in arguments.items():
        parts = str(parameters[name].annotation).split(" | ") if name in parameters else [""]
        if not all(part in KINDS or part in NAMED for part in parts) or any(_is(value, part) for part in parts):
            continue
        kinds = [NAMED.get(part) or KINDS[part][0] for part in parts if part != "None"]
        if {"str", "Path"} <= {*parts}:
            kinds = [*(kind for kind in kinds if kind not in PATHS), "the path of a file or folder"]
        raise WrongTypeError(f"{function.__name__}: {name} is {' or '.join(kinds)}, not {shown(value)}.")


def shown(value: Any) -> str:
    """A value and its type, for messages."""
    return f"{repr(value)[:60]} ({type(value).__name__})"


def _is(value: Any, kind: str) -> bool:
    if kind in NAMED:
        return any(base.__name__ == kind for base in type(value).__mro__)
    return isinstance(value, KINDS[kind][1])
