"""Registry of export and import formats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from seqwright.core.config import UserError
from seqwright.interop.arpa import export_arpa, import_arpa
from seqwright.runs.run import Run

EXPORTS: dict[str, Callable[[Run, Path], dict[str, Any]]] = {"arpa": export_arpa}
IMPORTS: dict[str, Callable[[Path, Path], dict[str, Any]]] = {"arpa": import_arpa}
"""Importers by file extension, ignoring .gz and .xz."""


def importer(path: Path) -> Callable[[Path, Path], dict[str, Any]]:
    """The importer for a file, by its extension."""
    extension = path.name.removesuffix(".gz").removesuffix(".xz").rpartition(".")[2]
    if extension not in IMPORTS:
        known = ", ".join(f".{name}" for name in IMPORTS)
        raise UserError(
            f"{path}: unknown file extension '.{extension}'; rename the file if its format is one of {known}."
        )
    return IMPORTS[extension]
