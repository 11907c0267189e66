"""The folder of a run: what it holds, and who may write to it.

    recipe.toml  tokenizer.json  labels.json  degeneration.json  model.safetensors
    log.jsonl  summary.json  environment.json  manifest.json  report.html
    checkpoints/step-00001000/{model,optimizer}.safetensors + state.json + manifest.json, carry and ema where needed
    checkpoints/latest

Killed at any moment, it opens, and training goes on from the last checkpoint. `environment.json` is written first and
removed last: it marks a folder as ours and has the version of this layout. A folder that holds other files is never
used. From the first weights on, manifest.json has the sha256 of every file, checked whenever the run is opened.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from seqwright import __version__
from seqwright.core.config import UserError
from seqwright.core.lock import NAME as LOCK
from seqwright.core.lock import is_lock, lock, new_directory
from seqwright.core.regular_files import FileRecord, refuse_irregular
from seqwright.core.storage import (
    append_jsonl,
    is_leftover,
    read_json,
    read_jsonl,
    read_record,
    read_toml,
    recover,
    save_tensors,
    sync,
    tensor_shapes,
    to_json,
    to_record,
    write_errors,
    write_json,
    write_text,
)
from seqwright.runs.checkpoints import Checkpoints
from seqwright.runs.environment import environment, now
from seqwright.runs.finding import is_run, not_a_run
from seqwright.runs.manifest import (
    LOG,
    NAME,
    Manifest,
    fingerprint,
    model_records,
    records_of,
    run_files,
    settled,
)
from seqwright.runs.schemas import Certificate, Environment, Summary, check_log
from seqwright.text.tokenizer import Tokenizer

FORMAT = 3
"""The version of the layout; raised when files or recipe keys change. Older runs are refused, not converted."""


class RunDirectory:
    """A run on disk: from `create` or `open`. Long writers work inside `with run.writing():`."""

    def __init__(self, path: Path):
        self.path = path
        self.received = False
        """Whether its tokenizers and labels are those of another rank's run (decision 173)."""
        self.recipe_path = path / "recipe.toml"
        self.tokenizer_path = path / "tokenizer.json"
        self.source_tokenizer_path = path / "source-tokenizer.json"
        self.labels_path = path / "labels.json"
        self.degeneration_path = path / "degeneration.json"
        self.model_path = path / "model.safetensors"
        self.log_path = path / "log.jsonl"
        self.summary_path = path / "summary.json"
        self.environment_path = path / "environment.json"
        self.report_path = path / "report.html"
        self.tensorboard_path = path / "tensorboard"
        self.certificate_path = path / "certificate.json"
        self.manifest_path = path / NAME
        self.lock_path = path / LOCK
        self.checkpoints = Checkpoints(path / "checkpoints")
        self.hashed: dict[str, FileRecord] = {}
        """Records of the files that `open` has hashed."""
        self.made_folders: list[Path] = []
        """The folder and those above it that were not there before, deepest first: they go when the run is
        discarded."""

    @classmethod
    def create(cls, path: Path | str, *, recipe: str) -> Self:
        """A new run from the text of its resolved recipe, in a folder that is not there yet or holds nothing."""
        run = cls(Path(path))
        run._refuse_other_things()
        run.made_folders = [folder for folder in (run.path, *run.path.parents) if not folder.exists()]
        with write_errors(run.path):
            run.path.mkdir(parents=True, exist_ok=True)
        with run._alone():
            if is_run(run.path):
                raise UserError(f"{path} already holds a run. Choose another folder, or delete it to start again.")
            try:
                inode = run.path.stat().st_ino
                write_json(run.environment_path, {"format": FORMAT, "inode": inode, **environment()})
                write_text(run.recipe_path, recipe)
            except BaseException:
                run.discard()
                raise
        return run

    @classmethod
    def refuse_existing(cls, path: Path) -> None:
        """Raises unless a new run may be made in a folder."""
        cls(path)._refuse_other_things()
        if is_run(path):
            raise UserError(f"{path} already holds a run. Choose another folder, or delete it to start again.")

    @classmethod
    @contextmanager
    def staged(cls, path: Path, *, recipe: str) -> Iterator[Self]:
        """A new run in a temporary folder, renamed to `path` when the block succeeds; a kill leaves nothing there."""
        cls.refuse_existing(path)
        final = cls(path)
        if path.is_dir() and any(path.iterdir()):  # what a killed `create` left
            with final._alone():
                final.discard()
        with new_directory(path) as folder:
            run = cls.create(folder, recipe=recipe)
            with run.writing():
                yield run

    @classmethod
    def open(cls, path: Path | str, *, contents: bool = True) -> Self:
        """An existing run whose files are all checked; without `contents` the hashes of its files are not."""
        return settled(Path(path), lambda: cls._checked(Path(path), contents), beside_writer=True)

    @classmethod
    def _checked(cls, path: Path, contents: bool) -> Self:
        run = cls._readable(path)
        if run.finished or run.model_path.exists():
            checked = run.check(contents=contents)
            run.hashed = checked if contents else {}
        return run

    @classmethod
    def accept(cls, path: Path | str) -> Self:
        """A run whose files were changed on purpose, with a new manifest of them and a note in its log."""
        run = cls._readable(Path(path))
        with run.writing():
            run.note("files changed since training were accepted.")
            run.seal()
        return run

    @classmethod
    def _readable(cls, path: Path) -> Self:
        """An existing run whose files can be read, whether or not they are as they were written."""
        run = cls(path)
        if not is_run(run.path):
            raise UserError(not_a_run(run.path))
        refuse_irregular(run.path)
        made = read_record(run.environment_path, Environment, extensible=True)
        if made.format > FORMAT:
            raise UserError(
                f"{path} was made by seqwright {made.seqwright}, format {made.format}; this is seqwright "
                f"{__version__}, which reads formats up to {FORMAT}. Upgrade seqwright to open it."
            )
        if made.format < FORMAT:
            raise UserError(
                f"{path} has run format {made.format}, and this seqwright reads format {FORMAT}. Train it again."
            )
        run.recipe()
        run.records()
        if run.tokenizer_path.exists() or (run.finished and run.recipe().get("tokenizer")):  # images need none
            read_json(run.tokenizer_path)
        if run.finished:
            run.summary()
        if run.finished or run.model_path.exists():
            tensor_shapes(run.model_path)  # a complete file
        return run

    def check(self, *, contents: bool = True) -> dict[str, FileRecord]:
        """The records of the files that the manifest binds; UserError where one is not as it was written."""
        return Manifest.read(self.path).check(self.path, run_files(self.path), contents=contents)

    @functools.cached_property
    def fingerprint(self) -> str:
        """sha256 over weights, tokenizers, labels and [model]: which model a score belongs to."""
        return self.fingerprint_of(self.hashed.get(self.model_path.name) or FileRecord.of(self.model_path))

    def fingerprint_of(self, weights: FileRecord) -> str:
        """The fingerprint of the model with these weights: the final ones, or those of a checkpoint."""
        records = {self.model_path.name: weights} | model_records(self.path, self.recipe().get("model"))
        return fingerprint(records)

    def seal(self, announced: Mapping[str, FileRecord] | None = None) -> None:
        """Writes the manifest of the files as they are, with records `announced` of those about to be replaced."""
        if self.log_path.exists():
            sync(self.log_path)
        self.__dict__.pop("fingerprint", None)
        self.hashed = {}
        Manifest(files=records_of(run_files(self.path))).announce(self.path, announced or {}).write(self.path)

    def write_recipe(self, text: str) -> None:
        """Replaces the recipe."""
        self._announce({self.recipe_path.name: FileRecord.of_text(text)})
        write_text(self.recipe_path, text)

    def save_model(self, tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
        """Writes the weights that the scores are taken with, and their manifest."""
        name = self.model_path.name
        save_tensors(self.model_path, tensors, about, lambda staged: self.seal({name: FileRecord.of(staged)}))
        self.seal()

    def finish(self, summary: Mapping[str, Any], report: str) -> None:
        """Writes the report and then the summary, which marks the run as finished."""
        write_text(self.report_path, report)
        text = to_json(summary, indent=2) + "\n"
        self.seal({self.summary_path.name: FileRecord.of_text(text)})
        write_text(self.summary_path, text)
        self.seal()

    def _announce(self, new: Mapping[str, FileRecord]) -> None:
        """Puts files that are about to be replaced into the manifest, if there is one yet."""
        if self.manifest_path.exists():
            Manifest.read(self.path).announce(self.path, new).write(self.path)

    @contextmanager
    def writing(self) -> Iterator[Self]:
        """Alone in this folder until the block ends."""
        with self._alone():
            if not is_run(self.path):
                raise UserError(_taken_back(self.path))
            yield self

    def _refuse_other_things(self) -> None:
        """Raises where the folder holds more than a killed `create` leaves, and is no run: that is somebody's."""
        if is_run(self.path):
            return
        if self.path.is_file():
            raise UserError(f"{self.path} is a file. Name a new folder with --run.")
        for path in sorted(self.path.glob("*")):
            if not (is_leftover(path) or self._is_mark(path)):
                raise UserError(
                    f"{self.path} is not a run and holds other things ({path.name}). Choose an empty folder with --run."
                )

    def _is_mark(self, path: Path) -> bool:
        """Whether this is the lock or the environment that `create` writes before anything else."""
        if is_lock(path):
            return True
        if path == self.environment_path and not path.is_symlink():
            with suppress(UserError):
                made = read_json(path)
                return isinstance(made, dict) and "format" in made
        return False

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Holds the lock."""
        try:
            held = lock(self.path, "Wait for it, stop it, or give this one another folder with --run.")
        except FileNotFoundError:
            raise UserError(_taken_back(self.path)) from None
        with held:
            recover(self.path)
            recover(self.checkpoints.path)
            yield

    def recipe(self) -> dict[str, Any]:
        """The resolved recipe as plain tables."""
        recipe = read_toml(self.recipe_path)
        wrong = [key for key, table in recipe.items() if not isinstance(table, str if key == "name" else dict)]
        if not wrong and not isinstance(recipe.get("model", {}).get("kind", ""), str):
            wrong = ["model.kind"]
        if wrong:
            raise UserError(
                f"{self.recipe_path} is damaged: [{wrong[0]}] is wrong. Restore it from a copy, or train again."
            )
        return recipe

    def environment(self) -> Any:
        """Versions, hardware and command of the process that created the run."""
        return read_json(self.environment_path)

    def summary(self, *needed: str) -> dict[str, Any]:
        """Counts and scores of a finished run, with the keys that every run has and those `needed`."""
        summary = read_json(self.summary_path)
        missing = [key for key in needed if not isinstance(summary, dict) or key not in summary]
        if missing:
            raise UserError(
                f"{self.summary_path} is damaged: it has no '{missing[0]}'. Delete it to finish the run again."
            )
        to_record(summary, Summary, self.summary_path, extensible=True)
        return dict(summary)

    def certificate(self) -> Certificate | None:
        """What `check --save` stored of this very model; None where nothing was, or its files were changed since."""
        if not self.certificate_path.exists() or not self.manifest_path.exists():
            return None
        certificate = read_record(self.certificate_path, Certificate, extensible=True)
        bound = {name: record for name, record in Manifest.read(self.path).files.items() if name != LOG}
        same = all(certificate.files.get(name) == record for name, record in bound.items())
        return certificate if same else None

    @property
    def native(self) -> bool:
        """Whether the run was created in this folder, rather than copied or received."""
        return read_record(self.environment_path, Environment, extensible=True).inode == self.path.stat().st_ino

    @property
    def finished(self) -> bool:
        """Whether training came to its end: the summary is written last."""
        return self.summary_path.exists()

    @property
    def learned(self) -> bool:
        """Whether there is anything a training would go on from or end with."""
        return bool(self.checkpoints.steps()) or self.model_path.exists()

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The run's tokenizer, of its targets where they have their own; a large one takes half a second to read."""
        return Tokenizer.open(self.tokenizer_path)

    @functools.cached_property
    def source_tokenizer(self) -> Tokenizer:
        """That of its sources: the same, where the vocabulary is joint."""
        separate = self.source_tokenizer_path.exists()
        return Tokenizer.open(self.source_tokenizer_path) if separate else self.tokenizer

    def tokenizer_paths(self) -> list[Path]:
        """Of a mixture whose parts cut text each in its own way: tokenizer.json, tokenizer-2.json, ….."""
        others = sorted(self.path.glob("tokenizer-*.json"), key=lambda path: (len(path.name), path))
        return [self.tokenizer_path, *others]

    def clear(self) -> None:
        """Forgets how far a training came that learned nothing: the next one may have another recipe."""
        for path in self.tokenizer_paths():
            path.unlink(missing_ok=True)
        for read in ("tokenizer", "source_tokenizer"):
            self.__dict__.pop(read, None)
        self.source_tokenizer_path.unlink(missing_ok=True)
        self.labels_path.unlink(missing_ok=True)
        self.degeneration_path.unlink(missing_ok=True)
        self.manifest_path.unlink(missing_ok=True)
        self.log_path.unlink(missing_ok=True)
        shutil.rmtree(self.tensorboard_path, ignore_errors=True)

    def discard(self) -> None:
        """Remove a run without a checkpoint; other files of its folder stay. Killed half-way, it can be made
        again: the environment goes last."""
        self.clear()
        with suppress(OSError):  # not there, or not empty
            self.checkpoints.path.rmdir()
        self.recipe_path.unlink(missing_ok=True)
        self.environment_path.unlink(missing_ok=True)
        self.lock_path.unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            for folder in self.made_folders:
                folder.rmdir()

    def log(self, record: Mapping[str, Any]) -> None:
        """Adds one line to the log."""
        append_jsonl(self.log_path, record)

    def records(self) -> list[dict[str, Any]]:
        """The log, oldest first."""
        records = read_jsonl(self.log_path, "kind") if self.log_path.exists() else []
        check_log(records, self.log_path)
        return records

    def note(self, text: str) -> None:
        """Puts on record what a reader of the numbers should know: a fall-back, a truncation, a held-out part."""
        self.log({"kind": "note", "text": text, "time": now()})

    def notes(self) -> list[str]:
        return [record["text"] for record in self.records() if record["kind"] == "note"]

    def rewind(self, step: int) -> None:
        """Forgets the log's steps after `step`: a resumed run takes them again. Notes stay."""
        kept = [record for record in self.records() if record.get("step", 0) <= step]
        text = "".join(to_json(record) + "\n" for record in kept)
        self._announce({self.log_path.name: FileRecord.of_text(text)})
        write_text(self.log_path, text)


def _taken_back(path: Path) -> str:
    return f"{path} was taken back by the process that made it, which failed. Try again."
