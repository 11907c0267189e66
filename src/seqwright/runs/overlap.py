"""Overlap of evaluation and tuning files with the training files of runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from seqwright.core.config import UserError
from seqwright.data.files import as_list, resolve
from seqwright.runs.run import Run


def trained_on(run: Run, files: str | Sequence[str]) -> list[Path]:
    """Those of the files that a run was trained on, by path."""
    return sorted(set(map(_resolved, as_list(files))) & set(map(_resolved, as_list(run.settings.data.train))))


def training_overlap(runs: Sequence[Run], on: str | Sequence[str]) -> Iterator[str]:
    """A warning for each tuning file that a run was trained on: its weight would be too large."""
    for run in runs:
        for file in trained_on(run, on):
            yield (
                f"the weights are tuned on {file}, but {run.path} was trained on it and is overconfident there;"
                " give held-out text with --on."
            )


def _resolved(name: str) -> Path:
    """The absolute path of a data file, or its name where it does not exist."""
    try:
        return resolve(name).resolve()
    except UserError:
        return Path(name)
