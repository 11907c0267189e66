"""The text columns of a table: those that a user names, those of the training files, or those with usual names."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from seqwright.core.config import UserError, did_you_mean
from seqwright.data.headers import TEXT_NAMES, column_index, is_header, is_numbered, match_name, refuse_repeated
from seqwright.data.labeled.columns import two_columns
from seqwright.data.records import describe_row


@dataclass(frozen=True, kw_only=True)
class TextColumns:
    """What is known about the text columns of a table before it is opened."""

    roles: tuple[str, ...] = ("text",)
    """The role of each text, as in `--columns text=NAME`."""
    chosen: tuple[str, ...] = ()
    """Columns that the user names, one for each role."""
    trained: tuple[str, ...] = ()
    """Columns of the training files, which others often share."""
    names: Sequence[str] = TEXT_NAMES
    """Usual names."""
    classes: bool = False
    """Whether a file of two columns may hold a label and a text."""
    word_lists: bool = False
    """Whether a JSON list of words is a text, too, as for taggers."""


def table_layout(
    first: tuple[str, ...],
    rows: list[list[str]],
    wanted: TextColumns,
    name: str,
    delimiter: str,
) -> tuple[bool, Sequence[int]]:
    """Whether the first row is a header, and the indices of the text columns."""
    header = is_header(first, rows)
    # Numbers of the training files are those of a table without a header: under a header, names decide.
    for columns in (wanted.chosen, () if header else wanted.trained):
        if columns and is_numbered(columns):
            indices = [int(column) - 1 for column in columns]
            if all(0 <= index < len(first) for index in indices):
                return header, indices
            if columns is wanted.chosen:
                asked = ", ".join(columns)
                raise UserError(f"{name}, line 1 {describe_row(list(first), delimiter)}; --columns names {asked}.")
    if named := named_columns(first, wanted, name, header=header):
        refuse_repeated(named, first, name)
        return True, [first.index(column) for column in named]
    if len(first) == len(wanted.roles):
        return header, range(len(first))
    if len(wanted.roles) == 1 and len(first) == 2 and wanted.classes and not header:
        text = two_columns(first, rows, classes=True)[1]
        return not text.isdecimal(), [int(text) - 1 if text.isdecimal() else first.index(text)]
    raise ambiguous_columns(first, wanted, name)


def distinct_names(names: Sequence[str]) -> tuple[str, ...]:
    """The names of a header, repeated ones with a number behind, as pandas has them: note, note.1."""
    distinct: list[str] = []
    for name in names:
        numbered = (f"{name}.{n}" for n in itertools.count(1))
        distinct.append(
            name if name not in distinct else next(one for one in numbered if one not in (*names, *distinct))
        )
    return tuple(distinct)


def named_columns(columns: tuple[str, ...], wanted: TextColumns, name: str, *, header: bool = True) -> tuple[str, ...]:
    """Text columns by name; empty where none is known."""
    if wanted.chosen:
        for column in wanted.chosen:
            if column not in columns:
                raise _no_column(column, columns, name)
        return wanted.chosen
    if wanted.trained and set(wanted.trained) <= set(columns):
        return wanted.trained
    usual = match_name(columns, wanted.names) if header and len(wanted.roles) == 1 else None
    return () if usual is None else (usual,)


def check_column(column: str, columns: tuple[str, ...], name: str) -> None:
    """Raises where a table has no column of this name or number."""
    if column_index(column, columns) is None:
        raise _no_column(column, columns, name)


def _no_column(column: str, columns: tuple[str, ...], name: str) -> UserError:
    shown = ", ".join(repr(one[:40]) for one in columns[:12])
    return UserError(f"{name} has no column '{column}'; it has {shown}.{did_you_mean(column, columns)}")


def ambiguous_columns(columns: tuple[str, ...], wanted: TextColumns, name: str) -> UserError:
    shown = ", ".join([*(repr(column[:20]) for column in columns[:6]), *(["…"] if len(columns) > 6 else [])])
    example = ",".join(f"{role}=NAME" for role in wanted.roles)
    return UserError(
        f"{name} has {len(columns)} columns ({shown}); name the one of the text with --columns {example}, by header"
        " name or by number from 1."
        if len(wanted.roles) == 1
        else f"{name} has {len(columns)} columns ({shown}); name those of the texts with --columns {example}."
    )
