"""Public functions whose unknown keywords and wrong arguments are errors that name what is meant."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from seqwright.core.arguments import refuse_wrong_types
from seqwright.core.config import did_you_mean
from seqwright.core.progress import SILENT
from seqwright.pipeline.recipe import keys_named
from seqwright.reporting.progress import TerminalProgress
from seqwright.runs.calls import UnknownOptionError

F = TypeVar("F", bound=Callable[..., Any])

HYPERPARAMETERS = ("training.", "model.")
"""Sections whose keys people pass to `train` as keywords."""


def hinted(function: F) -> F:
    """A function whose unknown keywords are errors that name the option or the recipe key that is meant."""
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def call(*inputs: Any, **options: Any) -> Any:
        for name, value in options.items():
            if name not in known:
                keys = [key for key in keys_named(name) if "minutes" in known and key.startswith(HYPERPARAMETERS)]
                hint = f' It is a key of the recipe: set=["{keys[0]}={value}"].' if keys else did_you_mean(name, known)
                raise UnknownOptionError(f"{function.__name__} has no option '{name}'.{hint}")
        if "progress" in known and not options.get("progress", SILENT):
            options["progress"] = SILENT  # False and None, as elsewhere
        if options.get("progress") is True:
            with TerminalProgress() as options["progress"]:
                return call(*inputs, **options)
        places = [name for name, one in known.items() if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        refuse_wrong_types(function, dict(zip(places, inputs, strict=False)) | options)
        return function(*inputs, **options)

    return cast(F, call)
