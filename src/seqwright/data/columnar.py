"""Parquet and Arrow files as blocks of JSON lines, in the memory of one row group (the [data] extra)."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from seqwright.core.config import UserError
from seqwright.core.printable import first_line
from seqwright.core.regular_files import open_regular

ROWS = 1024
"""Rows decoded at a time."""
IPC_FILE = b"ARROW1"
"""Magic bytes at the start of the Arrow IPC file format; the streaming format has none."""


class MissingExtraError(UserError):
    """A module of an optional extra is not installed; no file is to blame."""


def extra_module(name: str, what: str) -> Any:
    """A module of the [data] extra, imported when it is needed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(f"{what} needs {name.split('.')[0]}: pip install 'seqwright[data]'.") from error


def row_blocks(path: Path, size: int) -> Iterator[tuple[int, str]]:
    """(number of the first row, JSON lines of the string columns) of blocks of about `size` bytes."""
    extra_module("pyarrow", f"reading {path}")
    invalid = extra_module("pyarrow.lib", f"reading {path}").ArrowException
    lines: list[str] = []
    characters, first, row = 0, 1, 1
    try:
        for batch in _batches(path):
            for record in batch.to_pylist():
                lines.append(json.dumps(record, ensure_ascii=False) + "\n")
                characters += len(lines[-1])
                row += 1
                if characters >= size:
                    yield first, "".join(lines)
                    lines, characters, first = [], 0, row
    except (invalid, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read after row {row - 1:,}: {first_line(error)}") from error
    if lines:
        yield first, "".join(lines)


def _batches(path: Path) -> Iterator[Any]:
    """Batches of the string columns of a file."""
    arrow = importlib.import_module("pyarrow")
    with os.fdopen(open_regular(path), "rb") as file:
        if path.suffix == ".parquet":
            table = importlib.import_module("pyarrow.parquet").ParquetFile(file)
            yield from table.iter_batches(ROWS, columns=_string_columns(table.schema_arrow, arrow, path))
            return
        for batch in _ipc_batches(file):
            columns = batch.select(_string_columns(batch.schema, arrow, path))
            yield from (columns.slice(first, ROWS) for first in range(0, columns.num_rows, ROWS))


def _ipc_batches(file: IO[bytes]) -> Iterator[Any]:
    """Record batches of the Arrow IPC file format, or of the streaming format (`datasets.Dataset.save_to_disk`)."""
    ipc = importlib.import_module("pyarrow.ipc")
    is_file = file.read(len(IPC_FILE)) == IPC_FILE
    file.seek(0)
    if not is_file:
        yield from ipc.open_stream(file)
        return
    reader = ipc.open_file(file)
    for number in range(reader.num_record_batches):
        yield reader.get_batch(number)


def _string_columns(schema: Any, arrow: Any, path: Path) -> list[str]:
    names = [field.name for field in schema if _is_string(field.type, arrow.types)]
    if not names:
        raise UserError(f"{path} has no column of strings; its columns are {', '.join(schema.names) or 'none'}.")
    return names


def _is_string(column: Any, types: Any) -> bool:
    """Whether values are strings: also views of them, which polars writes, and pandas' categories."""
    if types.is_dictionary(column):
        column = column.value_type
    kinds = ("is_string", "is_large_string", "is_string_view")
    return any(getattr(types, kind)(column) for kind in kinds if hasattr(types, kind))  # views since pyarrow 16
