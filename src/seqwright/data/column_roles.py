"""`--columns text=review,label=stars`: columns of files by the role that they have in a task."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from seqwright.core.config import UserError, did_you_mean

Columns = str | Sequence[str] | Mapping[str, str]
"""Columns by role, in Python {"text": "review", "label": "stars"} or as on the command line."""
ROLES: dict[str, tuple[str, ...]] = {
    "labeled": ("label", "text", "text2"),
    "tagged": ("token", "tag"),
    "pairs": ("source", "target"),
}
"""Roles of columns by kind of data, in the order of data.columns; all other kinds have texts."""
TEXT_ROLES = ("text",)
_COMMA = re.compile(r",\s*(?=(?:text2?|label|tokens?|tag|source\d*|target)=)")
"""A comma before the next role, with any number of sources; column names may have other commas."""
_ROLE = re.compile(r",\s*(\w+)=")
"""What looks like a role inside the name of a column."""


def parse_columns(options: Sequence[str], roles: Sequence[str]) -> dict[str, str]:
    """Column names or numbers by role, from `role=column,role=column`; a bare column has the first role."""
    columns: dict[str, str] = {}
    for part in (part for option in options for part in _COMMA.split(option)):
        role, assigned, column = part.partition("=")
        if not assigned:
            role, column = roles[0], part
        if role not in roles:
            raise UserError(f"--columns {part}: no role '{role}' here.{did_you_mean(role, roles)}")
        if other := _ROLE.search(column):
            raise UserError(f"--columns {part}: no role '{other[1]}' here.{did_you_mean(other[1], roles)}")
        if role in columns or not column:
            raise UserError(f"--columns {part}: name one column for each role, as in --columns {roles[0]}=NAME.")
        columns[role] = column
    return columns


def columns_override(columns_by_role: Columns, kind: str) -> list[str]:
    """The override of data.columns that columns by role stand for, for this kind of data; none without columns."""
    if not columns_by_role:
        return []
    options = [columns_by_role] if isinstance(columns_by_role, str) else columns_by_role
    if isinstance(options, Mapping):
        options = [f"{role}={column}" for role, column in options.items()]
    roles = ROLES.get(kind, TEXT_ROLES)
    if not isinstance(options, Iterable) or not all(isinstance(option, str) for option in options):
        example = ", ".join(f'"{role}": "NAME"' for role in roles if role != "text2")
        raise UserError(f"columns={columns_by_role!r:.60} names no columns; write columns={{{example}}}.")
    columns = parse_columns(options, roles)
    needed = [role for role in roles if role != "text2"]
    if missing := [role for role in needed if role not in columns]:
        example = ",".join(f"{role}=NAME" for role in needed)
        raise UserError(f"--columns names no {missing[0]}; name all columns that are read: --columns {example}.")
    names = [columns[role] for role in roles if role in columns]
    numbered = kind == "pairs" and all(name.isdecimal() for name in names)
    return [f"data.columns={json.dumps([int(name) for name in names] if numbered else names, ensure_ascii=False)}"]
