"""From a recipe to a finished run: the training journey, begun, resumed or found finished."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from seqwright import build
from seqwright.core.config import UserError, to_table
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
from seqwright.training.schedule import ENDLESS
from seqwright.training.trainer import TensorGroups, Trainer, total_steps, warmup_steps
from seqwright.training.trainer_state import final_checkpoints
from seqwright.training.weights import init_from, load_weights, weights

TRAINED = ("asked_steps", "steps_per_epoch")
"""What the summary of a run with steps says beside the rest."""
ANYWHERE = ("training.seed", "training.device")
"""Keys of [training] that a counted model may be given without a word: every machine has a seed and a device."""


class Listener(Protocol):
    """Who is told how training goes."""

    def say(self, text: str) -> None:
        """A sentence a person should read."""

    def doing(self, text: str) -> None:
        """What work without steps is at; nothing when it is over."""

    def step(self, step: int, steps: int, loss: float | None, tokens_per_second: float) -> None: ...

    def record(self, record: dict[str, Any]) -> None:
        """A line of the log."""


class Silence:
    """A listener that keeps it to itself."""

    def say(self, text: str) -> None: ...

    def doing(self, text: str) -> None: ...

    def step(self, step: int, steps: int, loss: float | None, tokens_per_second: float) -> None: ...

    def record(self, record: dict[str, Any]) -> None: ...


@dataclass(frozen=True, kw_only=True)
class TrainingOutcome:
    path: Path
    summary: dict[str, Any] | None
    """None where training was stopped before its end."""
    stopped: str | None = None
    """What asked training to stop."""
    already: bool = False
    """The run was finished before."""


def train(wanted: Recipe, path: Path, listener: Listener | None = None) -> TrainingOutcome:
    """Trains a recipe in a run directory, or goes on where it was left."""
    begun = is_run(path)
    directory = RunDirectory.open(path) if begun else RunDirectory.create(path, recipe=wanted.toml())
    if directory.learned:
        before = recipe.make(directory.recipe(), origin=str(directory.recipe_path), settled=True)
        recipe.check_same(before, wanted, path)
    with directory.writing():
        try:
            return TrainingSession(wanted, directory, listener or Silence()).run()
        except BaseException:
            if not begun and not directory.learned:  # a text that could not be read is no run
                directory.discard()
            raise


class TrainingSession:
    """One sitting at a run: what is there is opened, what is missing is made."""

    def __init__(self, wanted: Recipe, directory: RunDirectory, listener: Listener):
        self.recipe, self.directory, self.listener = wanted, directory, listener
        self.board: TensorBoard | None = None

    def run(self) -> TrainingOutcome:
        path = self.directory.path
        build.refuse_derived(self.recipe.kind)
        if self.directory.finished and not self._wants_more():
            return TrainingOutcome(path=path, summary=self.directory.summary(), already=True)
        if not self.directory.learned:
            self.directory.clear()
        self.directory.write_recipe(self.recipe.toml())
        self.known = set(self.directory.notes())
        self.task = build.task_spec(self.recipe.data.kind).task(self.recipe, self.directory, self.note)
        refuse_too_large(self.recipe, self.task.sizes)
        torch.manual_seed(self.recipe.training.seed)
        self.model = build.model(self.recipe.model, self.task.sizes, task=self.recipe.data.kind)
        if self.recipe.kind in build.COUNTED:
            return TrainingOutcome(path=path, summary=self._count())
        self._begin()
        return self._descend()

    def _begin(self) -> None:
        """Gives a fresh model the weights it begins with, and the corrections it learns in their place."""
        training = self.recipe.training
        if training.init_from is not None and not self.directory.checkpoints.steps():
            base = RunDirectory.open(training.init_from)
            refuse_unfinished(base)
            fresh = init_from(self.model, load_tensors(base.model_path)[0])
            named = f"; {', '.join(fresh)} are new and begin fresh" if fresh else ""
            self.note(f"begun with the weights of {training.init_from}{named}.")
        if training.lora_rank is not None:
            adapted = add_lora(self.model.encoder, rank=training.lora_rank, alpha=training.lora_alpha)
            self.listener.say(
                f"LoRA of rank {training.lora_rank} on {adapted} matrices; the embedding is learned in full."
            )

    def log(self, record: dict[str, Any]) -> None:
        self.directory.log(record)
        self.listener.record(record)
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
        """Whether a finished run is asked for more steps than it took."""
        if self.recipe.kind in build.COUNTED:
            return False
        asked, reached = self.recipe.training.steps, self.directory.summary(*TRAINED)
        if self.recipe.training.epochs is not None:
            asked = round(self.recipe.training.epochs * reached["steps_per_epoch"])
        if asked and asked < reached["asked_steps"]:
            self.listener.say(f"its {reached['asked_steps']:,} steps are more than the {asked:,} asked for: it stays.")
        return (asked or 0) > reached["asked_steps"]

    def note(self, text: str) -> None:
        """Says it, and puts it on record where it is not there from an earlier sitting."""
        self.listener.say(text)
        if text not in self.known:
            self.directory.note(text)
            self.known.add(text)

    def _count(self) -> dict[str, Any]:
        machine.device(self.recipe.training.device)  # which is not there may not be asked for, used or not
        given = recipe.differences(to_table(TrainingConfig()), to_table(self.recipe.training), "training.")
        if idle := [key for key, *_ in given if key not in ANYWHERE]:
            self.note(f"{self.recipe.kind} counts and takes no steps: {', '.join(idle)} change nothing.")
        begun = time.perf_counter()
        self.model.fit(self.task.corpus, self.listener.doing)
        self.listener.doing("")
        seconds = time.perf_counter() - begun
        for said in self.model.notes:
            self.note(said)
        tensors = self.model.state_dict()
        facts = {"steps": 0, "seconds": seconds, "parameters": sum(t.numel() for t in tensors.values())}
        return self._finish(tensors, facts | getattr(self.model, "facts", {}), "cpu")

    def _descend(self) -> TrainingOutcome:
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
            self._say_what_goes_on(trainer, checkpoint)
        if "tensorboard" in self.recipe.training.writers:
            self.board = TensorBoard(self.directory.tensorboard_path, trainer.progress.step)
        stopped = trainer.fit()
        self._close_writers()
        progress = trainer.progress
        if not trainer.finished:
            self.log({"kind": "stop", "step": progress.step, "reason": stopped})
            return TrainingOutcome(path=self.directory.path, summary=None, stopped=stopped)
        return TrainingOutcome(path=self.directory.path, summary=self._settle(trainer))

    def _settle(self, trainer: Trainer) -> dict[str, Any]:
        """Takes the weights that the recipe wants to end with, and finishes."""
        progress = trainer.progress
        chosen = final_checkpoints(progress, self.recipe.training)
        groups = [self.directory.checkpoints.load(step).groups for step in chosen]
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
            "weights": {"kind": self.recipe.training.weights, "steps": chosen, "ema": self.recipe.training.ema_decay},
        }
        return self._finish(weights(trainer.model), facts, trainer.device)

    def _say_what_goes_on(self, trainer: Trainer, checkpoint: Checkpoint) -> None:
        self.log({"kind": "resume", "step": checkpoint.step})
        if checkpoint.note:
            self.note(checkpoint.note)
        else:
            self.listener.say(f"going on from step {checkpoint.step:,}.")
        schedule = self.recipe.training.schedule
        if self.directory.finished and schedule not in ENDLESS:
            self.note(
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
            self.note(f"the warm-up is shortened to {warmup_steps(config, steps)} of the {steps:,} steps.")
        self.listener.say(
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
            on_step=self.listener.step,
        )

    def _sample(self, device: torch.device | str) -> list[dict[str, str]]:
        if isinstance(self.model, torch.nn.Module):
            self.model.eval()
        return self.task.sample(self.model, device)

    def _finish(
        self, tensors: dict[str, torch.Tensor], facts: dict[str, Any], device: torch.device | str
    ) -> dict[str, Any]:
        """Weights, scores, sample, summary and report, the summary last: it is what says that a run is finished."""
        steps = facts["weights"]["steps"] if "weights" in facts else [facts["steps"]]
        about = {"kind": self.recipe.kind, "step": " ".join(map(str, steps))}
        if self.directory.tokenizer_path.exists():
            about["tokenizer"] = self.directory.tokenizer.hash
        self.directory.save_model(tensors, about)
        self.listener.say("weights are saved; scoring the validation data, if there is any, and writing the report.")
        scores = self.task.evaluate(self.model, device, quick=False) or {}
        if self.recipe.kind in build.COUNTED:
            for text in self._sample(device):
                self.log({"kind": "sample", "step": 0, **text})
        summary = {"kind": self.recipe.kind} | facts | scores
        summary["seconds"] = round(summary["seconds"], 3)
        summary["fingerprint"] = self.directory.fingerprint
        self.directory.finish(summary, report(facts_of(self.directory, summary)))
        return summary


def refuse_too_large(wanted: Recipe, sizes: Any) -> None:
    """Raises where a model, its gradients and its optimizer would not fit the memory of the machine."""
    if wanted.kind in build.COUNTED or machine.device(wanted.training.device).type != "cpu":
        return
    with torch.device("meta"):
        model = build.model(wanted.model, sizes, task=wanted.data.kind)
    parameters = sum(p.numel() for p in model.parameters())
    needed, there = 16 * parameters, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise UserError(
            f"a model of {parameters:,} parameters needs about {needed / 1e9:,.0f} GB to be trained, and this machine"
            f" has {there / 1e9:,.0f} GB; make it narrower or shallower, or give it a shorter context."
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
    """A finished run of a model that was made elsewhere (imported, mixed), with other files beside it that its kind
    needs; its summary, written last."""
    with RunDirectory.staged(path, recipe=made.toml()) as directory:
        write_text(directory.tokenizer_path, tokenizer)
        for name, text in (beside or {}).items():
            write_text(directory.path / name, text)
        for said in notes:
            directory.note(said)
        tensors = model.state_dict()
        directory.save_model(tensors, {"kind": made.kind, "step": "0"})
        summary = {"kind": made.kind, "steps": 0, "seconds": 0.0, "fingerprint": directory.fingerprint}
        summary |= {"parameters": sum(tensor.numel() for tensor in tensors.values())} | facts
        directory.finish(summary, report(facts_of(directory, summary)))
    return summary


def facts_of(directory: RunDirectory, summary: dict[str, Any] | None = None) -> RunFacts:
    """What the report pages are drawn from."""
    certificate = directory.certificate() if summary is None else None
    return RunFacts(
        name=directory.recipe().get("name", directory.path.name),
        recipe=directory.recipe(),
        environment=directory.environment(),
        log=directory.records(),
        summary=summary if summary is not None else directory.summary(),
        laws=[vars(law) for law in certificate.laws] if certificate else [],
    )
