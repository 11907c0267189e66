"""From a recipe to a finished run: training, started, resumed or already finished."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seqwright import build
from seqwright.core.config import UserError, to_table
from seqwright.core.limits import check_limit
from seqwright.core.progress import SILENT, Progress
from seqwright.core.storage import load_tensors, write_text
from seqwright.layers.lora import add_lora, merge_lora
from seqwright.pipeline import recipe
from seqwright.pipeline.recipe import Recipe
from seqwright.reporting.report import report
from seqwright.reporting.run_facts import RunFacts
from seqwright.reporting.writers import TensorBoard, log_csv
from seqwright.runs.checkpoints import Checkpoint
from seqwright.runs.directory import RunDirectory, is_run
from seqwright.runs.run import refuse_unfinished
from seqwright.training import machine
from seqwright.training.averaging import average_weights
from seqwright.training.config import TrainingConfig
from seqwright.training.model_size import ModelSize, on_meta
from seqwright.training.schedule import ENDLESS
from seqwright.training.trainer import TensorGroups, Trainer, total_steps, warmup_steps
from seqwright.training.trainer_state import final_checkpoints
from seqwright.training.weights import init_from, load_weights, weights

STEP_KEYS = ("asked_steps", "steps_per_epoch")
"""Keys of the summary of a model trained by gradients."""
COMMON_KEYS = ("training.seed", "training.device")
"""Keys of [training] that may also be set for a counted model."""


class RunProgress(Progress):
    """Progress of a session at a run: notes are also recorded in its log, each once however often it is resumed."""

    def __init__(self, directory: RunDirectory, progress: Progress):
        self.directory, self.progress = directory, progress
        self.recorded = set(directory.notes())

    def note(self, text: str) -> None:
        self.progress.note(text)
        if text not in self.recorded:
            self.directory.note(text)
            self.recorded.add(text)

    def stage(self, text: str) -> None:
        self.progress.stage(text)

    def advance(self, done: int, total: int) -> None:
        self.progress.advance(done, total)

    def step(self, step: int, steps: int, loss: float | None, tokens_per_second: float) -> None:
        self.progress.step(step, steps, loss, tokens_per_second)

    def record(self, record: dict[str, Any]) -> None:
        self.directory.log(record)
        self.progress.record(record)


@dataclass(frozen=True, kw_only=True)
class TrainingOutcome:
    path: Path
    summary: dict[str, Any] | None
    """None where training was stopped before its end."""
    stopped: str | None = None
    """The signal that stopped training."""
    already: bool = False
    """Whether the run was already finished."""


def train(wanted: Recipe, path: Path, progress: Progress = SILENT) -> TrainingOutcome:
    """Trains a recipe in a run directory, or resumes the run that is there."""
    existing = is_run(path)
    directory = RunDirectory.open(path) if existing else RunDirectory.create(path, recipe=wanted.toml())
    if directory.learned:
        before = recipe.make(directory.recipe(), origin=str(directory.recipe_path), settled=True)
        recipe.check_same(before, wanted, path)
    with directory.writing():
        try:
            return TrainingSession(wanted, directory, progress).run()
        except BaseException:
            if not existing and not directory.learned:  # unreadable data leaves no run behind
                directory.discard()
            raise


class TrainingSession:
    """One session at a run, from a fresh or resumed model to the summary. It is the trainer's checkpoint store."""

    def __init__(self, wanted: Recipe, directory: RunDirectory, progress: Progress):
        self.recipe, self.directory, self.progress = wanted, directory, progress
        self.board: TensorBoard | None = None

    def run(self) -> TrainingOutcome:
        path = self.directory.path
        build.refuse_derived(self.recipe.kind)
        if self.directory.finished and not self._wants_more():
            return TrainingOutcome(path=path, summary=self.directory.summary(), already=True)
        if not self.directory.learned:
            self.directory.clear()
        self.directory.write_recipe(self.recipe.toml())
        self.recorded = RunProgress(self.directory, self.progress)
        self.task = build.task_spec(self.recipe.data.kind).task(self.recipe, self.directory, self.recorded)
        sizes = self.task.codec.sizes
        refuse_too_large(self.recipe, sizes)
        torch.manual_seed(self.recipe.training.seed)
        self.model = build.model(self.recipe.model, sizes, task=self.recipe.data.kind)
        if self.recipe.kind in build.COUNTED:
            return TrainingOutcome(path=path, summary=self._count())
        self._initialize()
        return self._train()

    def _initialize(self) -> None:
        """Loads the weights of the run to fine-tune into a fresh model, and adds LoRA."""
        training = self.recipe.training
        if training.init_from is not None and not self.directory.checkpoints.steps():
            base = RunDirectory.open(training.init_from)
            refuse_unfinished(base)
            fresh = init_from(self.model, load_tensors(base.model_path)[0])
            named = f"; {', '.join(fresh)} are new and begin fresh" if fresh else ""
            self.recorded.note(f"begun with the weights of {training.init_from}{named}.")
        if training.lora_rank is not None:
            adapted = add_lora(self.model, rank=training.lora_rank, alpha=training.lora_alpha)
            self.progress.note(
                f"LoRA of rank {training.lora_rank} on {adapted} matrices; the embedding is learned in full."
            )

    def log(self, record: dict[str, Any]) -> None:
        self.recorded.record(record)
        if self.board is not None:
            self.board(record)

    def save(self, step: int, groups: TensorGroups, progress: dict[str, Any], kept: list[int]) -> None:
        state = {"progress": progress, "corpus": self.task.fingerprint}
        self.directory.checkpoints.save(step, groups, state, keep=1, kept=kept)

    def load(self, step: int) -> tuple[TensorGroups, dict[str, Any]]:
        checkpoint = self.directory.checkpoints.load(step)
        return checkpoint.groups, checkpoint.state["progress"]

    def rewind(self, step: int) -> None:
        self.directory.rewind(step)

    def _wants_more(self) -> bool:
        """Whether the recipe of a finished run now has more steps."""
        if self.recipe.kind in build.COUNTED:
            return False
        steps, reached = self.recipe.training.steps, self.directory.summary(*STEP_KEYS)
        if self.recipe.training.epochs is not None:
            steps = round(self.recipe.training.epochs * reached["steps_per_epoch"])
        if steps and steps < reached["asked_steps"]:
            self.progress.note(f"its {reached['asked_steps']:,} steps are more than the {steps:,} asked for: it stays.")
        return (steps or 0) > reached["asked_steps"]

    def _count(self) -> dict[str, Any]:
        """Fits a counted model; its summary."""
        machine.device(self.recipe.training.device)  # refuses a missing device, although it would be unused
        changed = recipe.differences(to_table(TrainingConfig()), to_table(self.recipe.training), "training.")
        if unused := [key for key, *_ in changed if key not in COMMON_KEYS]:
            self.recorded.note(f"{self.recipe.kind} counts and takes no steps: {', '.join(unused)} change nothing.")
        start = time.perf_counter()
        self.model.fit(self.task.corpus, self.progress)
        self.progress.stage("")
        seconds = time.perf_counter() - start
        for text in self.model.notes:
            self.recorded.note(text)
        tensors = self.model.state_dict()
        facts = {"steps": 0, "seconds": seconds, "parameters": sum(t.numel() for t in tensors.values())}
        return self._finish(tensors, facts | dict(self.model.facts), "cpu")

    def _train(self) -> TrainingOutcome:
        """Trains by gradient descent, from the last checkpoint where there is one."""
        trainer = self._trainer()
        checkpoint = self.directory.checkpoints.latest()
        if checkpoint is not None:
            if checkpoint.state["corpus"] != self.task.fingerprint:
                raise UserError(
                    f"the training or validation data is not what {self.directory.path} was begun with;"
                    " restore it, or train in another folder with --run."
                )
            trainer.restore(checkpoint.groups, checkpoint.state["progress"])
            self.directory.rewind(checkpoint.step)
            self._note_resume(trainer, checkpoint)
        if "tensorboard" in self.recipe.training.writers:
            self.board = TensorBoard(self.directory.tensorboard_path, trainer.progress.step)
        stopped = trainer.fit()
        self._close_writers()
        progress = trainer.progress
        if not trainer.finished:
            self.log({"kind": "stop", "step": progress.step, "reason": stopped})
            return TrainingOutcome(path=self.directory.path, summary=None, stopped=stopped)
        return TrainingOutcome(path=self.directory.path, summary=self._finalize(trainer))

    def _finalize(self, trainer: Trainer) -> dict[str, Any]:
        """Loads or averages the final weights: last, best or several, as `training.weights` has it."""
        progress = trainer.progress
        steps = final_checkpoints(progress, self.recipe.training)
        groups = [self.directory.checkpoints.load(step).groups for step in steps]
        load_weights(trainer.model, average_weights([group.get("ema", group["model"]) for group in groups]))
        merge_lora(trainer.model)
        facts = {
            "steps": progress.step,
            "asked_steps": trainer.steps,
            "steps_per_epoch": trainer.feed.steps_per_epoch,
            "seconds": progress.seconds,
            "trained_tokens": progress.tokens,
            "parameters": sum(p.numel() for p in trainer.model.parameters()),
            "best_step": progress.best_step or progress.step,
            "weights": {"kind": self.recipe.training.weights, "steps": steps, "ema": self.recipe.training.ema_decay},
        }
        return self._finish(weights(trainer.model), facts, trainer.device)

    def _note_resume(self, trainer: Trainer, checkpoint: Checkpoint) -> None:
        self.log({"kind": "resume", "step": checkpoint.step})
        if checkpoint.note:
            self.recorded.note(checkpoint.note)
        else:
            self.progress.note(f"going on from step {checkpoint.step:,}.")
        schedule = self.recipe.training.schedule
        if self.directory.finished and schedule not in ENDLESS:
            self.recorded.note(
                f"the {schedule} schedule is stretched to {trainer.steps:,} steps: the rate goes on at "
                f"{trainer.learning_rate(checkpoint.step):.3g}, where the finished run had come down further."
            )

    def _close_writers(self) -> None:
        if self.board is not None:
            self.board.close()
        if "csv" in self.recipe.training.writers:
            write_text(self.directory.path / "log.csv", log_csv(self.directory.records()))

    def _trainer(self) -> Trainer:
        config = self.recipe.training
        feed = self.task.feed(self.model)
        parameters = sum(p.numel() for p in self.model.parameters())
        device = machine.device(config.device)
        steps = total_steps(config, feed)
        if warmup_steps(config, steps) < (config.warmup_steps or 0):
            self.recorded.note(f"the warm-up is shortened to {warmup_steps(config, steps)} of the {steps:,} steps.")
        self.progress.note(
            f"{self.recipe.kind} with {parameters:,} parameters on {device.type}: {steps:,} steps,"
            f" {steps / feed.steps_per_epoch:.2f} epochs."
        )
        return Trainer(
            self.model,
            feed,
            config,
            self,
            evaluate=lambda: self.task.evaluate(self.model, device, quick=True),
            sample=lambda: self._sample(device),
            format_batch=self.task.show,
            reporter=self.progress,
        )

    def _sample(self, device: torch.device | str) -> list[dict[str, str]]:
        self.model.eval()
        return self.task.sample(self.model, device)

    def _finish(
        self, tensors: dict[str, torch.Tensor], facts: dict[str, Any], device: torch.device | str
    ) -> dict[str, Any]:
        """Saves weights, scores, report and summary; the summary, which marks a run as finished, last."""
        steps = facts["weights"]["steps"] if "weights" in facts else [facts["steps"]]
        about = {"kind": self.recipe.kind, "step": " ".join(map(str, steps))}
        if self.directory.tokenizer_path.exists():
            about["tokenizer"] = self.directory.tokenizer.hash
        self.directory.save_model(tensors, about)
        self.progress.note("weights are saved; scoring the validation data, if there is any, and writing the report.")
        scores = self.task.evaluate(self.model, device, quick=False)
        if self.recipe.kind in build.COUNTED:
            for sample in self._sample(device):
                self.log({"kind": "sample", "step": 0, **sample})
        summary = {"kind": self.recipe.kind} | facts | (scores.as_json() if scores else {})
        summary["seconds"] = round(summary["seconds"], 3)
        summary["fingerprint"] = self.directory.fingerprint
        self.directory.finish(summary, report(facts_of(self.directory, summary)))
        return summary


def refuse_too_large(wanted: Recipe, sizes: Any) -> None:
    """Raises where a model with its gradients and optimizer state would not fit into memory."""
    if wanted.kind in build.COUNTED:
        return

    def check(size: ModelSize) -> None:
        what = f"[model] has {size.tensors:,} parameter tensors or more"
        check_limit("SEQWRIGHT_MAX_PARAMETER_TENSORS", size.tensors, what)

    model = on_meta(lambda: build.model(wanted.model, sizes, task=wanted.data.kind), check)
    parameters = sum(p.numel() for p in model.parameters())
    needed, memory = 16 * parameters, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory and machine.device(wanted.training.device).type == "cpu":
        raise UserError(
            f"a model of {parameters:,} parameters needs about {needed / 1e9:,.0f} GB to be trained, and this machine"
            f" has {memory / 1e9:,.0f} GB; make it narrower or shallower, or give it a shorter context."
        )


def keep(
    made: Recipe,
    path: Path,
    *,
    tokenizer: str,
    model: Any,
    notes: Sequence[str],
    beside: Mapping[str, str] | None = None,
    **facts: Any,
) -> dict[str, Any]:
    """Writes a finished run of a model that was not trained (imported, mixed), with the `beside` files that its kind
    needs; returns the summary, which is written last."""
    with RunDirectory.staged(path, recipe=made.toml()) as directory:
        write_text(directory.tokenizer_path, tokenizer)
        for name, text in (beside or {}).items():
            write_text(directory.path / name, text)
        for note in notes:
            directory.note(note)
        tensors = model.state_dict()
        directory.save_model(tensors, {"kind": made.kind, "step": "0"})
        summary = {"kind": made.kind, "steps": 0, "seconds": 0.0, "fingerprint": directory.fingerprint}
        summary |= {"parameters": sum(tensor.numel() for tensor in tensors.values())} | facts
        directory.finish(summary, report(facts_of(directory, summary)))
    return summary


def facts_of(directory: RunDirectory, summary: dict[str, Any] | None = None) -> RunFacts:
    """The facts that report pages show."""
    certificate = directory.certificate() if summary is None else None
    return RunFacts(
        name=directory.recipe().get("name", directory.path.name),
        recipe=directory.recipe(),
        environment=directory.environment(),
        log=directory.records(),
        summary=summary if summary is not None else directory.summary(),
        laws=[vars(law) for law in certificate.laws] if certificate else [],
    )
