"""Calls of the verbs of runs from Python: arguments are checked, and options of the commands found where they are."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from seqwright.core.arguments import WrongTypeError, parameters_of, refuse_wrong_types, shown
from seqwright.core.config import UserError, did_you_mean
from seqwright.core.progress import SILENT

V = TypeVar("V", bound=Callable[..., Any])

OF_OPEN = {name: f"{name}=…" for name in ("columns", "set", "device", "precision", "trust")}
OF_OPEN |= {"skip_bad_rows": 'set=["data.bad_rows=skip"]', "encoding": 'set=["data.encoding=…"]'}
"""Options of the commands that `seqwright.open` has in Python."""
DATA = ("data", "file", "files", "path", "test", "text", "texts")
"""What people call the data of an evaluation."""


class UnknownOptionError(UserError, TypeError):
    """A keyword that a function does not have."""


def checked_options(verb: Callable[..., Any], inputs: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a call of a verb; UserError for wrong ones, wrong kinds of arguments, and too many of them."""
    parameters, name = parameters_of(verb), verb.__name__
    places = [p.name for p in parameters.values() if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD][1:]
    if len(inputs) > len(places):
        raise WrongTypeError(
            f"{name} takes {' and '.join(places)}, and options by name, not {len(inputs)} arguments; several texts or"
            f" files are a list: {name}([…, …])."
        )
    for option, value in options.items():
        if option not in parameters and (instead := _instead(name, option, value)):
            raise UnknownOptionError(f"{name} has no option '{option}'{instead}.")
    if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):  # of a section, checked as such
        for option in options.keys() - parameters.keys():
            hint = did_you_mean(option, [*parameters][1:])
            raise UnknownOptionError(f"{name} has no option '{option}'.{hint}")
    given = dict(options)
    if "progress" in parameters and not options.get("progress", SILENT):
        given["progress"] = SILENT  # False and None
    refuse_wrong_types(verb, dict(zip(places, inputs, strict=False)) | given)
    return given


def checked(verb: V) -> V:
    """A method of a run whose arguments are checked."""

    @functools.wraps(verb)
    def call(self: Any, *inputs: Any, **options: Any) -> Any:
        return verb(self, *inputs, **checked_options(verb, inputs, options))

    return cast(V, call)


def check_text(value: Any) -> None:
    """Raises where a value is no text: neither a string, nor several that belong together (words, parts of a pair)."""
    if isinstance(value, str) or (isinstance(value, list | tuple) and all(isinstance(part, str) for part in value)):
        return
    how = "give a string, or a list of strings"
    if isinstance(value, bytes):
        how = "decode bytes first: value.decode()"
    elif isinstance(value, Mapping):
        how = 'give its text, as in row["text"]'
    elif hasattr(value, "read_text"):
        how = "give what is in it: path.read_text(), or its lines"
    raise UserError(f"{shown(value)} is no text; {how}.")


def refuse_table(texts: Any, verb: str) -> None:
    """Raises for a data frame, which iterates over the names of its columns."""
    if hasattr(texts, "iterrows") or hasattr(texts, "iter_rows"):
        raise WrongTypeError(
            f'a table ({type(texts).__name__}) is no list of texts; give a column: {verb}(table["text"]).'
        )


def _instead(verb: str, option: str, value: Any) -> str:
    """Where an option of the command is in Python."""
    if option in OF_OPEN:
        return f"; `seqwright.open` has it: open(RUN, {OF_OPEN[option]}).{verb}(…)"
    if verb == "evaluate" and option in DATA:
        return "; name the data with on=…"
    if verb == "evaluate" and option == "label_errors":
        return f"; run.label_errors(on, limit={value!r}) lists them"
    if verb == "evaluate" and option in ("json", "as_json"):
        return "; run.evaluate(…).as_json() is what the command prints"
    if verb == "score" and option == "tokens":
        return "; every result has its tokens"
    if option == "processes":
        return f": several processes share the work of a command, `seqwright {verb} RUN --processes N`"
    return ""
