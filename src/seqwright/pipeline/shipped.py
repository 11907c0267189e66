"""The recipes that ship with seqwright: found by name, described and searched, without importing any model."""

from __future__ import annotations

import re
from pathlib import Path

from seqwright.core.config import UserError, did_you_mean
from seqwright.runs.finding import is_run

SHIPPED = Path(__file__).parents[1] / "recipes"


def shipped() -> dict[str, Path]:
    """The recipes that come with seqwright, by name."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*/*.toml"), key=lambda path: path.stem)}


def find(recipe: str | Path) -> Path:
    """The file of a recipe: a path, or the name of one that ships with seqwright."""
    path = Path(recipe)
    if path.is_file():
        return path
    known = shipped()
    if str(recipe) in known:
        return known[str(recipe)]
    if is_run(path):
        raise UserError(
            f"{recipe} is a run, no recipe: `seqwright train --run {recipe}` resumes it; in Python,"
            f' `seqwright.open("{recipe}")` opens it.'
        )
    if len(path.parts) > 1 and path.suffix != ".toml":
        raise UserError(f"no recipe or run at {recipe}. `seqwright recipes` and `seqwright runs` list those there are.")
    hint = did_you_mean(str(recipe), known)
    if matching := [] if hint else search(str(recipe)):
        hint = f" Recipes about it: {', '.join(matching[:5])}."
    raise UserError(f"no recipe '{recipe}'.{hint} `seqwright recipes` lists them.")


def search(word: str) -> list[str]:
    """Names of the shipped recipes whose name or task has this word in it, then of those whose description has it as a
    whole word."""
    folded = word.casefold()
    named = [name for name, path in shipped().items() if folded in name.casefold() or folded in path.parent.name]
    whole = re.compile(rf"\b{re.escape(folded)}\b")
    return named + [
        name for name, path in shipped().items() if name not in named and whole.search(about(path).casefold())
    ]


def about(path: Path) -> str:
    """The description of a recipe: its first comment."""
    lines = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# "))
    return " ".join(lines)
