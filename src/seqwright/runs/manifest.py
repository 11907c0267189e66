"""The manifest of a run or checkpoint: size and sha256 of every file that its model is opened from.

A file is announced in the manifest before it is replaced: until then its previous record is accepted too, so that a
kill between the two writes is no damage.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from seqwright.core.config import UserError
from seqwright.core.lock import is_locked
from seqwright.core.regular_files import FileRecord, read_errors
from seqwright.core.storage import read_bytes, read_record, to_json, write_text

T = TypeVar("T")

NAME = "manifest.json"
LOG = "log.jsonl"
"""The log grows by appended lines: its record is one of its first bytes."""
RUN_FILES = (
    *("environment.json", "recipe.toml", "tokenizer.json", "source-tokenizer.json", "tokenizer-*.json", "labels.json"),
    *("degeneration.json", "model.safetensors", "summary.json", LOG),
)
"""The files of a run that a manifest binds; pages and tables made of them (report.html, log.csv) are not among them."""
MODEL_FILES = ("tokenizer.json", "source-tokenizer.json", "tokenizer-*.json", "labels.json")
"""What a model needs beside its weights and [model]."""
WAITS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4)
"""Seconds between attempts to read a run that is being written."""
MODEL_TABLE = "recipe.toml [model]"
"""The record of the [model] section."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Records of files by name."""

    files: dict[str, FileRecord]
    replaced: dict[str, FileRecord | None] = field(default_factory=dict)
    """Previous records of files whose replacement was announced; None for a file that was not there."""
    model: dict[str, FileRecord] = field(default_factory=dict)
    """Of a checkpoint: records of the run's tokenizers, labels and [model] at that step."""

    def __post_init__(self) -> None:
        if outside := [name for name in (*self.files, *self.replaced) if Path(name).name != name]:
            raise UserError(f"it lists {outside[0]!r}, which is no file name.")

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        return read_record(folder / NAME, cls)

    def write(self, folder: Path) -> None:
        write_text(folder / NAME, self.json())

    def json(self) -> str:
        """The contents of manifest.json."""
        return to_json(asdict(self), indent=2) + "\n"

    def check(self, folder: Path, known: Mapping[str, Path], *, contents: bool = True) -> dict[str, FileRecord]:
        """The records of the files that are there; UserError for a changed, missing or additional one.

        Without `contents` only sizes are compared. A missing summary.json makes a run unfinished, not damaged.
        """
        found = {}
        for name in sorted({*self.files, *known}):
            path, record = folder / name, self.files.get(name)
            accepted = [record, *([self.replaced[name]] if name in self.replaced else [])]
            if not path.exists():
                if name != "summary.json" and None not in accepted:
                    raise UserError(f"{path} is missing. Restore it from a copy, or train again.")
                continue
            match = next((one for one in accepted if one is not None and _matches(path, one, contents)), None)
            if match is None:
                raise UserError(_changed(path, added=record is None))
            found[name] = match
        return found

    def announce(self, folder: Path, new: Mapping[str, FileRecord]) -> Manifest:
        """This manifest with new records of files that are about to be replaced."""
        before = {name: FileRecord.of(folder / name) if (folder / name).exists() else None for name in new}
        changed = {name: record for name, record in before.items() if record != new[name]}
        return Manifest(files=self.files | dict(new), replaced=self.replaced | changed)


def settled(folder: Path, read: Callable[[], T], *, beside_writer: bool = False) -> T:
    """What `read` returns of a run, read again where the manifest has changed meanwhile: another process is writing it.

    With `beside_writer` also where `read` fails and the run is locked: a manifest comes after the files it announced.
    """
    for wait in (*WAITS, None):
        before, result, error = _contents(folder), None, None
        try:
            result = read()
        except UserError as problem:
            error = problem
        changed = _contents(folder) != before
        if error is None and not changed:
            return result  # type: ignore[return-value]
        if error is not None and (wait is None or not (changed or (beside_writer and is_locked(folder)))):
            raise error
        if wait is None:
            raise UserError(f"{folder} is being written at this moment. Try again when that is done.")
        time.sleep(wait)
    raise AssertionError("unreachable")


def run_files(folder: Path, patterns: tuple[str, ...] = RUN_FILES) -> dict[str, Path]:
    """The files of a run that are there, by name."""
    return {path.name: path for pattern in patterns for path in sorted(folder.glob(pattern))}


def records_of(files: Mapping[str, Path]) -> dict[str, FileRecord]:
    """The record of each file."""
    return {name: FileRecord.of(path) for name, path in files.items()}


def model_records(folder: Path, model_table: Any) -> dict[str, FileRecord]:
    """Records of what a run's weights were trained with: tokenizers, labels and [model]."""
    table = json.dumps(model_table, sort_keys=True, ensure_ascii=False)
    return records_of(run_files(folder, MODEL_FILES)) | {MODEL_TABLE: FileRecord.of_text(table)}


def fingerprint(records: Mapping[str, FileRecord]) -> str:
    """One sha256 over the hashes of weights, tokenizers, labels and [model]: equal for the same model only."""
    lines = "".join(f"{name} {record.sha256}\n" for name, record in sorted(records.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def _contents(folder: Path) -> bytes | None:
    """The bytes of a manifest; None where there is none to read."""
    try:
        return read_bytes(folder / NAME)
    except (OSError, UserError):
        return None


def _matches(path: Path, record: FileRecord, contents: bool) -> bool:
    with read_errors(path):
        size = path.stat().st_size
    if size < record.size or (size != record.size and path.name != LOG):
        return False
    return not contents or FileRecord.of(path, record.size) == record


def _changed(path: Path, *, added: bool) -> str:
    why = "manifest.json does not list it" if added else "its size or sha256 is not that of manifest.json"
    again = "delete it to finish the run again" if path.name == "summary.json" else "train again"
    return (
        f"{path} is damaged: {why}. Restore it from a copy, or {again}; if you changed it yourself, accept it with"
        f" `seqwright check {path.parent} --accept`."
    )
