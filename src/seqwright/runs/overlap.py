"""Which data runs were trained on and hold out, beside the files of an evaluation or a mixture."""

from __future__ import annotations

import filecmp
import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from seqwright.core.config import UserError, to_table
from seqwright.core.warning import SeqwrightWarning
from seqwright.data.files import COMPRESSED, MissingFileError, as_list, naming_errors, resolve
from seqwright.runs.calls import checked_options
from seqwright.runs.facts import moved_files
from seqwright.runs.run import Run

V = TypeVar("V", bound=Callable[..., Any])

HELD_OUT = ("train", "valid", "split", "columns", "separator", "bad_rows")
"""Keys of [data] that determine the validation split."""

LONG = 24
"""Bytes of a line that two texts have in common only if one is taken from the other."""
SAMPLED = 1_000
"""Such lines that are looked for in training files."""
READ = 1 << 24
"""Bytes that are read of the evaluated file, and of all training files together."""


class TrainingDataWarning(SeqwrightWarning):
    """The data of an evaluation are training data."""


def warns_of_training_data(evaluate: V) -> V:
    """An `evaluate` of a run with a warning where it was trained on the files, and the next move where its own data are
    missing."""

    @functools.wraps(evaluate)
    def call(self: Run, *inputs: Any, **options: Any) -> Any:
        options = checked_options(evaluate, inputs, options)
        on = inputs[0] if inputs else options.pop("on", None)
        for file in trained_on(self, on or ()):
            text = f"{self.path} was trained on {file} (or a part of it): this is no score of unseen data."
            warnings.warn(text, TrainingDataWarning, stacklevel=2)
        with own_data(self, on):
            return evaluate(self, on, **options)

    return cast(V, call)


@contextmanager
def own_data(run: Run, on: Any = None, *, use: str = "is evaluated on") -> Iterator[None]:
    """Context manager that reads the data of a run unless files are given (`on`): where it was moved, the error says
    how to go on. `use` says what the run does with it."""
    if on is not None and not as_list(on):
        raise UserError(f"on={on!r} names no file; name one, or leave it out for the data of {run.path}.")
    try:
        yield
    except MissingFileError as error:
        if on is not None:
            raise
        raise UserError(
            f"{error} {run.path} {use} its own data by default; name others with --on FILE."
            f" {moved_files(run.path, run.settings.data)}"
        ) from error


def trained_on(run: Run, files: str | Sequence[str]) -> list[str]:
    """Those of the files that a run was trained on."""
    return files_of(run.settings.data.train, files)


def files_of(train: str | Sequence[str], files: str | Sequence[str]) -> list[str]:
    """Those of some files that are training files, by path, by their contents, or by most of their lines."""
    learned, seen = sorted({*map(_resolved, as_list(train))}), []
    for path in sorted({*map(_resolved, as_list(files))}):
        if path in learned:
            seen.append(str(path))
        elif same := next((other for other in learned if _same_contents(path, other)), None):
            seen.append(f"{path}, a copy of {same}")
        elif similar := _file_with_most_lines(path, learned):
            seen.append(f"{path}, most of whose lines are in {similar}")
    return seen


def validation_notes(data: Any) -> Iterator[str]:
    """A note on each validation file that is training text."""
    for file in files_of(data.train, data.valid or ()):
        yield f"the validation text {file} is training text: scores of it are none of unseen text."


def _file_with_most_lines(path: Path, learned: Sequence[Path]) -> Path | None:
    """The training file that has more than half of the long lines of a file, by a sample of them; or None."""
    long = [line for line in _first_lines(path, READ) if len(line) >= LONG]
    sample = {*long[:: max(1, len(long) // SAMPLED)]}
    left = READ
    for other in learned if sample else ():
        lines = _first_lines(other, left)
        if len(sample.intersection(lines)) > len(sample) / 2:
            return other
        left = max(0, left - sum(map(len, lines)))
    return None


def _first_lines(path: Path, most: int) -> list[bytes]:
    """Lines of the first bytes of a file, without their ends; none of what cannot be read. No encoding is needed to
    find a line again, and images have none."""
    with suppress(OSError, UserError), naming_errors(path), COMPRESSED.get(path.suffix, open)(path, "rb") as file:
        return list(file.read(most).splitlines())
    return []


def _same_contents(one: Path, other: Path) -> bool:
    try:
        return one.is_file() and other.is_file() and filecmp.cmp(one, other, shallow=False)
    except OSError:
        return False


def tuned_on(run: Run, files: str | Sequence[str]) -> bool:
    """Whether a run is a mixture whose weights were tuned on these files, or on its validation data for none."""
    if "tuned_on" not in run.summary:
        return False
    names = [name for name in as_list(run.summary["tuned_on"]) if name != "validation"]
    held_out = as_list(run.settings.data.valid)
    tuned, scored = ({*map(_resolved, as_list(of) or held_out)} for of in (names, files))
    return bool(tuned & scored) or not (tuned or scored)  # a split has no file


def hold_out_the_same(one: Run, other: Run) -> bool:
    """Whether two runs of the same kind of data have the same validation split, by the keys that determine it, or by
    the fingerprints of training and validation data: one text may have two names."""
    corpora = {run.summary.get("corpus") or run.path for run in (one, other)}
    if len(corpora) == 1:
        return True
    mine, theirs = (to_table(run.settings.data) for run in (one, other))
    return all(mine.get(key) == theirs.get(key) for key in HELD_OUT)


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
