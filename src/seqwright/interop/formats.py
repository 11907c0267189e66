"""The formats in which models leave and arrive."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from seqwright.core.config import UserError
from seqwright.interop.arpa import export_arpa, import_arpa
from seqwright.runs.run import Run

EXPORTS: dict[str, Callable[[Run, Path], dict[str, Any]]] = {"arpa": export_arpa}
IMPORTS: dict[str, Callable[[Path, Path], dict[str, Any]]] = {"arpa": import_arpa}
"""By the ending of a file's name, .gz or .xz put aside."""


def importer(path: Path) -> Callable[[Path, Path], dict[str, Any]]:
    """The function that reads a file of this name."""
    ending = path.name.removesuffix(".gz").removesuffix(".xz").rpartition(".")[2]
    if ending not in IMPORTS:
        known = ", ".join(f".{name}" for name in IMPORTS)
        raise UserError(
            f"{path}: no format is known by the ending '.{ending}'; rename the file if it is one of {known}."
        )
    return IMPORTS[ending]
