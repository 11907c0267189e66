"""The tables of docs/api.md, from signatures and docstrings: `python docs/api_page.py` writes them into the page.

The site shows whole docstrings in their place (mkdocstrings); the tables are for whoever reads the Markdown.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("api.md")
BEGIN, END = "<!-- tables: python docs/api_page.py -->", "<!-- end of tables -->"
DIRECTIVE = re.compile(r"^::: (\S+)\n((?:    .*\n)*)", re.MULTILINE)
"""What the site replaces: a module, class or function, and its options."""


def tables(page: str) -> str:
    """A table for each module or class of the page's directives, in their order."""
    functions: list[str] = []
    classes: list[str] = []
    for path, options in DIRECTIVE.findall(page):
        thing, members = resolve(path), re.search(r"members: \[(.*?)\]", options, re.DOTALL)
        names = [name.strip() for name in members[1].split(",")] if members else []
        if inspect.isclass(thing):
            classes += [f"\n**`{thing.__name__}`**: {first_sentence(thing)}\n"]
            rows = [row(f".{name}", inspect.getattr_static(thing, name)) for name in names]
            classes += ["| | |", "|---|---|", *rows] if rows else []
        elif names:
            functions += [row(f"sw.{name}", getattr(thing, name)) for name in names]
        else:
            functions.append(row(f"sw.{thing.__name__}", thing))
    return "\n".join(["| function | |", "|---|---|", *functions, *classes])


def row(name: str, thing: Any) -> str:
    """A function, method or property, with its signature and what it returns."""
    attribute = getattr(thing, "fget", None) or getattr(thing, "func", None)  # of a property, cached or not
    described = attribute or thing
    call = "" if attribute or not inspect.isroutine(thing) else f"({', '.join(parameters(thing))})"
    return f"| `{name}{call}` | {first_sentence(described)} |"


def parameters(function: Any) -> Iterator[str]:
    """Names of the parameters, `=…` where they have defaults."""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        yield star + parameter.name + ("" if parameter.default is parameter.empty else "=…")


def first_sentence(thing: Any) -> str:
    text = re.sub(r"\s+", " ", inspect.cleandoc(thing.__doc__ or ""))
    return re.split(r"(?<=[.]) (?=[A-Z`])", text)[0].replace("|", "\\|")


def resolve(path: str) -> Any:
    """The module, class or function of a dotted path."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)


def written(page: str) -> str:
    """The page with its tables written anew."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{tables(page)}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
