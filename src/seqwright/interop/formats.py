"""Registry of export and import formats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from seqwright.core.config import UserError, pick
from seqwright.core.protocols import Counted
from seqwright.interop.arpa import export_arpa, import_arpa
from seqwright.runs.run import Run

EXPORTS: dict[str, Callable[[Run, Path], dict[str, Any]]] = {"arpa": export_arpa}
IMPORTS: dict[str, Callable[[Path, Path, Path | None], dict[str, Any]]] = {"arpa": import_arpa}
"""Importers by file extension, ignoring .gz and .xz: of a file, into a folder, with a tokenizer."""


def export(run: Run, path: Path, to: str | None = None) -> dict[str, Any]:
    """Writes a counted model in another program's format, by default that of the file's extension; facts of the file.

    Networks are refused with how PyTorch opens their files as they are.
    """
    name = to or _extension(path)
    if not isinstance(run.model, Counted):
        tokenizer = f'; `tokenizers.Tokenizer.from_file("{run.directory.tokenizer_path}")` its tokenizer'
        raise UserError(
            f"{run.path} holds a network of kind '{run.settings.kind}', which needs no export (n-grams have one: arpa)."
            f' `safetensors.torch.load_file("{run.directory.model_path}")` reads its weights in plain PyTorch'
            f"{tokenizer if run.directory.tokenizer_path.exists() else ''}; [model] in {run.directory.recipe_path} has"
            " its sizes."
        )
    if name not in EXPORTS and run.settings.kind not in ("ngram", "arpa"):
        raise UserError(
            f"{run.path} holds a model of kind '{run.settings.kind}', which has no export (n-grams have one: arpa);"
            f' `seqwright.open("{run.path}")` serves it in Python.'
        )
    return {"to": name} | pick(name, EXPORTS, "export")(run, path)


def importer(path: Path) -> Callable[[Path, Path, Path | None], dict[str, Any]]:
    """The importer for a file, by its extension."""
    extension = _extension(path)
    if extension not in IMPORTS:
        known = ", ".join(f".{name}" for name in IMPORTS)
        raise UserError(
            f"{path}: unknown file extension '.{extension}'; rename the file if its format is one of {known}."
        )
    return IMPORTS[extension]


def _extension(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".xz").rpartition(".")[2]
