"""Files that set the weights of a mixture, and the runs that have learned from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from seqwright.core.config import UserError
from seqwright.data.files import as_list, resolve
from seqwright.runs.run import Run


def learned(runs: Sequence[Run], on: str | Sequence[str]) -> Iterator[str]:
    """What is wrong with weights found on a file that a run has learned from: it is too sure of it."""
    for run in runs:
        for file in sorted(set(map(_place, as_list(on))) & set(map(_place, as_list(run.settings.data.train)))):
            yield (
                f"{file} sets the weights, but {run.path} has learned from it and is surer of it than of other text;"
                " name held-out text with --on."
            )


def _place(name: str) -> Path:
    """Where a file is, or would be."""
    try:
        return resolve(name).resolve()
    except UserError:
        return Path(name)
