"""From a recipe to a finished run: training, started, resumed or already finished, on one process or several ranks.

Rank 0 owns the run directory: it reads the data and decides first, then sends the others its recipe, tokenizers and
checkpoint. They need the training files, but not the run directory: each works in a temporary folder.
"""

from __future__ import annotations

import hashlib
import tempfile
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from seqwright import __version__, build
from seqwright.core.config import UserError
from seqwright.core.progress import SILENT, Progress
from seqwright.core.ranks import Ranks
from seqwright.core.storage import write_text
from seqwright.pipeline import recipe
from seqwright.pipeline.budget import with_decisions
from seqwright.pipeline.fitting import with_shortened_fit
from seqwright.pipeline.outcome import TrainingOutcome, replaced_files
from seqwright.pipeline.recipe import Recipe
from seqwright.pipeline.scaling import refuse_idle_offload, refuse_ranks
from seqwright.pipeline.session import TrainingSession
from seqwright.runs.directory import RunDirectory
from seqwright.runs.finding import is_run
from seqwright.training import machine
from seqwright.training.divergence import DivergenceError
from seqwright.training.process_group import environment_ranks, joined


def train(wanted: Recipe, path: Path, progress: Progress = SILENT) -> TrainingOutcome:
    """Trains a recipe in a run directory, or resumes the run that is there.

    Under torchrun (or `seqwright train --processes`) this process is one of several ranks.
    """
    wanted = recipe.with_files(wanted)
    size = environment_ranks().size
    refuse_ranks(wanted, size)
    refuse_idle_offload(wanted.training, size)
    # A finished run is opened where its device is missing, too.
    device = machine.device(wanted.training.device) if size > 1 else torch.device("cpu")
    with joined(device, _identity(wanted)) as ranks:
        outcome = _lead(wanted, path, progress, ranks) if ranks.first else _follow(path, ranks)
        ranks.barrier()
    return outcome


def _identity(wanted: Recipe) -> dict[str, str]:
    """What must be the same on every rank."""
    recipe_hash = hashlib.sha256(wanted.toml().encode()).hexdigest()[:12]
    return {"version of seqwright": __version__, "version of torch": torch.__version__, "recipe": recipe_hash}


def _lead(wanted: Recipe, path: Path, progress: Progress, ranks: Ranks) -> TrainingOutcome:
    """Trains on rank 0 (or the only process), in the run directory."""
    # Imported before there is a run: an interrupt of an import ends the process at once (`__main__`).
    assert callable(build.task_spec(wanted.data.kind).task)
    existing = is_run(path)
    directory = RunDirectory.open(path) if existing else RunDirectory.create(path, recipe=wanted.toml())
    moved = False
    if directory.learned:
        before = recipe.make(directory.recipe(), origin=str(directory.recipe_path), settled=True)
        # What is read is compared where it is on record: the same columns may be found or named.
        on_record = directory.checkpoints.steps() or (directory.finished and "corpus" in directory.summary())
        files = {f"data.{key}" for key in wanted.data.files} if on_record else set()
        files -= set(replaced_files(wanted, before, directory))
        wanted = with_shortened_fit(wanted, before, progress)
        recipe.check_same(before, wanted, path, moved=[*files, *(recipe.READING if on_record else ())])
        moved = before.data != wanted.data
        wanted = with_decisions(wanted, before, directory)
    with directory.writing(), machine.threads(wanted.training.threads):
        session = TrainingSession(wanted, directory, progress, ranks, moved=moved)
        try:
            return session.run()
        except DivergenceError:  # the run stays, for its report
            raise
        except recipe.OtherDataError:
            recipe.check_same(before, wanted, path, moved=files)  # names the keys, where files are parsed otherwise
            raise
        except BaseException:
            with suppress(UserError):  # an interrupt of the wait for a checkpoint: a thread still writes it
                session.background.wait()
            if not existing and not directory.learned:  # unreadable data leaves no run behind
                directory.discard()
            raise
        finally:
            session.dismiss()


def _follow(path: Path, ranks: Ranks) -> TrainingOutcome:
    """Trains on another rank: receives recipe and tokenizers from rank 0, and writes nothing."""
    sent: dict[str, Any] | None = ranks.from_first(lambda: None)
    if sent is None:  # rank 0 had nothing to train, or was refused
        return TrainingOutcome(path=path, summary=None)
    wanted = recipe.make(tomllib.loads(sent["recipe"]), origin="the recipe of rank 0", settled=True)
    with tempfile.TemporaryDirectory() as folder, machine.threads(wanted.training.threads):
        directory = RunDirectory.create(Path(folder) / "run", recipe=sent["recipe"])
        for name, text in sent["files"].items():
            write_text(directory.path / name, text)
        directory.received = True
        return TrainingSession(wanted, directory, SILENT, ranks).follow(sent)
