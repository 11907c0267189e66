"""One session at a run: from a fresh or resumed model to the summary of a finished run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from seqwright import build
from seqwright.core.config import UserError
from seqwright.core.progress import Progress
from seqwright.core.ranks import SINGLE, Ranks, TensorGroups, evaluation_by
from seqwright.core.storage import load_tensors, write_text
from seqwright.data.files import MissingFileError
from seqwright.layers.lora import add_lora, merge_lora
from seqwright.metrics.counts import NoTargetsError
from seqwright.pipeline import counting
from seqwright.pipeline.baseline import baseline
from seqwright.pipeline.budget import few, longest, measure, seconds_of_steps
from seqwright.pipeline.compilation import compile_choice
from seqwright.pipeline.facts import advice_of, facts_of, scored_on
from seqwright.pipeline.memory import refuse_too_large
from seqwright.pipeline.outcome import TrainingOutcome, note_changed_files, note_kept_weights, wants_more
from seqwright.pipeline.recipe import OtherDataError, Recipe
from seqwright.pipeline.run_progress import RunProgress
from seqwright.pipeline.scaling import RankFeed, described, order, refuse_without_blocks
from seqwright.reporting.advice import baseline_of
from seqwright.reporting.report import report
from seqwright.reporting.writers import TensorBoard, log_csv
from seqwright.runs.checkpoints import Checkpoint
from seqwright.runs.directory import RunDirectory
from seqwright.runs.facts import moved_files
from seqwright.runs.run import refuse_unfinished
from seqwright.tasks.base import Task
from seqwright.tasks.scores import Scores
from seqwright.training import machine
from seqwright.training.averaging import average_weights
from seqwright.training.checkpoint_store import BackgroundStore, Gather
from seqwright.training.divergence import DivergenceError, chance_nll
from seqwright.training.model_size import on_meta
from seqwright.training.schedule import ENDLESS, warmup_steps
from seqwright.training.shapes import lengths_vary
from seqwright.training.trainer import Trainer, total_steps
from seqwright.training.trainer_state import final_checkpoints
from seqwright.training.weights import init_from, load_weights, weights

MEASURING = "measuring the speed of this machine"


class TrainingSession:
    """One session at a run, from a fresh or resumed model to the summary. It is the trainer's checkpoint store.

    Of several ranks, rank 0 runs a session in the run directory, and the others follow it in temporary folders.
    """

    def __init__(
        self,
        wanted: Recipe,
        directory: RunDirectory,
        progress: Progress,
        ranks: Ranks = SINGLE,
        *,
        moved: bool = False,
    ):
        self.recipe, self.directory, self.progress, self.ranks = wanted, directory, progress, ranks
        self.moved = moved
        """Whether data files have other names than those of the recipe on disk, or are parsed otherwise."""
        self.background = BackgroundStore(self)
        self.board: TensorBoard | None = None
        self.followed = ranks.size == 1
        """Whether the other ranks have been sent what to train, or that there is nothing."""

    def run(self) -> TrainingOutcome:
        build.refuse_derived(self.recipe.kind)
        already = self.directory.finished and not wants_more(self.recipe, self.directory, self.progress)
        if already and not self.moved:
            return self._already()
        machine.device(self.recipe.training.device)  # refuses a missing one before the data is read
        if not self.directory.learned:
            self.directory.clear()
        self.recorded = RunProgress(self.directory, self.progress, notes=not already)
        self.task = self._read_data(counting.fitted_on(self.recipe) if already else self.recipe)
        checkpoint = self.directory.checkpoints.latest()
        self._refuse_other_data(checkpoint)
        self.recorded.accept()
        self.directory.write_recipe(self.recipe.toml())
        if already:
            return self._already()
        refuse_too_large(self.recipe, self.task.codec.sizes)
        self._build_model()
        if self.recipe.kind in build.COUNTED:
            return self._count(checkpoint)
        self._initialize()
        return self._train(checkpoint)

    def follow(self, sent: Mapping[str, Any]) -> TrainingOutcome:
        """Trains on another rank than 0, by what rank 0 sent."""
        self.recorded = RunProgress(self.directory, self.progress)
        self.task = self._read_data(self.recipe)
        if self.task.fingerprint != sent["corpus"]:
            raise UserError("its training or validation files are not those of rank 0; copy them from there.")
        sharded = self.recipe.training.parallel == "fsdp" and self.recipe.kind not in build.REGISTERED
        self._build_model(meta=sharded)
        self._add_lora()
        trainer = self._trainer()
        if sent["resumes"]:
            trainer.restore(None, self.ranks.from_first(dict))
        stopped, finished, device = trainer.fit(), trainer.finished, trainer.device
        self.ranks.from_first(float)  # the last checkpoint is written
        if finished:  # an unsharded model takes the place of the trained one, and shares the final scores
            del trainer
            self._build_model()
            self.ranks.from_first(lambda: None)  # the final weights are saved
            self._final_scores(device)
        return TrainingOutcome(path=self.directory.path, summary=None, stopped=stopped)

    def dismiss(self) -> None:
        """Ends the wait of the other ranks where there is nothing to train, once."""
        if not self.followed:
            self.followed = True
            self.ranks.from_first(lambda: None)

    def _build_model(self, *, meta: bool = False) -> None:
        """Builds the model; a rank that gets its shards from rank 0 builds it without memory (`meta`)."""
        torch.manual_seed(self.recipe.training.seed)
        make = partial(build.model, self.recipe.model, self.task.codec.sizes, task=self.recipe.data.kind)
        self.model = on_meta(make, lambda size: None) if meta else make()

    def _read_data(self, settings: Recipe) -> Task:
        """The task with its data; of a run that is resumed, a missing file may have been moved."""
        try:
            return build.task_spec(self.recipe.data.kind).task(settings, self.directory, self.recorded)
        except UserError as error:
            if isinstance(error, MissingFileError) and self.directory.learned:
                raise UserError(f"{error} {moved_files(self.directory.path, self.recipe.data)}") from error
            if self.moved:
                raise OtherDataError(str(error)) from error
            raise

    def _refuse_other_data(self, checkpoint: Checkpoint | None) -> None:
        """Raises where training would be resumed on data of another hash: scores could not be compared."""
        finished = self.directory.summary().get("corpus") if self.directory.finished else None
        known = finished if checkpoint is None else checkpoint.state["corpus"]
        if known not in (None, self.task.fingerprint):
            begun = f", where --from {self.directory.path} begins with these weights"
            raise OtherDataError(
                f"the training or validation data is not what {self.directory.path} was begun with: its hash is"
                " another. Restore it, name its new path with --set data.train=FILE, or train in another folder with"
                f" --run{'' if self.recipe.kind in build.COUNTED else begun}."
            )

    def _initialize(self) -> None:
        """Loads the weights of the run to fine-tune into a fresh model, and adds LoRA."""
        training = self.recipe.training
        if training.init_from is not None and not self.directory.checkpoints.steps():
            base = RunDirectory.open(training.init_from)
            refuse_unfinished(base)
            fresh = init_from(self.model, load_tensors(base.model_path)[0])
            named = f"; {', '.join(fresh)} are new and begin fresh" if fresh else ""
            self.recorded.note(f"begun with the weights of {training.init_from}{named}.")
        self._add_lora()

    def _add_lora(self) -> None:
        training = self.recipe.training
        if training.lora_rank is not None:
            adapted = add_lora(self.model, rank=training.lora_rank, alpha=training.lora_alpha)
            self.progress.note(
                f"LoRA of rank {training.lora_rank} on {adapted} matrices; the embedding is learned in full."
            )

    def log(self, record: dict[str, Any]) -> None:
        self.recorded.record(record)
        if self.board is not None:
            self.board(record)

    def save(self, step: int, gather: Gather, progress: dict[str, Any], kept: list[int]) -> None:
        state = {"progress": progress, "corpus": self.task.fingerprint}
        self.directory.checkpoints.save(step, gather(), state, keep=1, kept=kept)

    def load(self, step: int) -> tuple[TensorGroups, dict[str, Any]]:
        checkpoint = self.directory.checkpoints.load(step)
        return checkpoint.groups, checkpoint.state["progress"]

    def rewind(self, step: int) -> None:
        self.directory.rewind(step)

    def _count(self, checkpoint: Checkpoint | None) -> TrainingOutcome:
        """Fits a counted model, from the last checkpoint where there is one."""
        path = self.directory.path
        fitted = counting.fit(self.recipe, self.model, self.task, self.directory, self.recorded, checkpoint)
        if fitted.stopped is not None:
            return TrainingOutcome(path=path, summary=None, stopped=fitted.stopped)
        self.model, self.task = fitted.model, fitted.task
        summary = self._finish(self.model.state_dict(), fitted.facts, "cpu", fitted.scores)
        self.directory.checkpoints.clear()
        return TrainingOutcome(path=path, summary=summary)

    def _train(self, checkpoint: Checkpoint | None) -> TrainingOutcome:
        """Trains by gradient descent, from the last checkpoint where there is one."""
        refuse_without_blocks(self.model, self.recipe.training, self.ranks)
        self._fit_baseline()
        self._decide_compile()
        self._decide_steps()
        self.followed = True
        resumes = checkpoint is not None
        self.ranks.from_first(lambda: order(self.recipe, self.directory, self.task.fingerprint, resumes=resumes))
        trainer = self._trainer()
        if checkpoint is not None:
            progress = checkpoint.state["progress"]
            trainer.restore(checkpoint.groups, self.ranks.from_first(lambda: progress))
            self.directory.rewind(checkpoint.step)
            self._note_resume(trainer, checkpoint)
        if "tensorboard" in self.recipe.training.writers:
            self.board = TensorBoard(self.directory.tensorboard_path, trainer.progress.step)
        try:
            stopped = trainer.fit()
            trainer.progress.saving_seconds += self.ranks.from_first(self.background.wait)
        except DivergenceError as error:
            self.log({"kind": "diverged", "step": trainer.progress.step, "reason": error.args[0]})
            write_text(self.directory.report_path, report(facts_of(self.directory, {})))
            raise
        finally:
            self._close_writers()
            self.background.wait()
        progress = trainer.progress
        if not trainer.finished:
            self.log({"kind": "stop", "step": progress.step, "reason": stopped})
            return TrainingOutcome(path=self.directory.path, summary=None, stopped=stopped)
        path, summary = self.directory.path, self._finalize(trainer)
        return TrainingOutcome(path=path, summary=summary, advice=advice_of(self.directory, summary))

    def _finalize(self, trainer: Trainer) -> dict[str, Any]:
        """Loads or averages the final weights: last, best or several, as `training.weights` has it."""
        progress = trainer.progress
        steps = final_checkpoints(progress, self.recipe.training)
        load_weights(self.model, average_weights([self.directory.checkpoints.load(step).weights for step in steps]))
        merge_lora(self.model.to(trainer.device))
        facts = {
            "steps": progress.step,
            "asked_steps": trainer.steps,
            "steps_per_epoch": trainer.feed.steps_per_epoch,
            "seconds": progress.seconds,
            "saving_seconds": round(progress.saving_seconds, 3),
            "trained_tokens": progress.tokens,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "ranks": self.ranks.size,
            "best_step": progress.best_step or progress.step,
            **self._baseline_facts(),
            "weights": {"kind": self.recipe.training.weights, "steps": steps, "ema": self.recipe.training.ema_decay},
        }
        note_kept_weights(self.progress, self.recipe.training.weights, steps, progress.step)
        return self._finish(weights(self.model), facts, trainer.device)

    def _baseline_facts(self) -> dict[str, Any]:
        record = baseline_of(self.directory.records())
        kept = {} if record is None else {key: value for key, value in record.items() if key not in ("kind", "step")}
        return {"baseline": kept} if kept else {}

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

    def _already(self) -> TrainingOutcome:
        note_changed_files(self.recipe, self.directory, self.progress)
        path, summary = self.directory.path, self.directory.summary()
        advice = advice_of(self.directory, summary)
        return TrainingOutcome(path=path, summary=summary, already=True, advice=advice)

    def _fit_baseline(self) -> None:
        """Logs the scores of a counted baseline, once."""
        known = baseline_of(self.directory.records())
        if known is None and (record := baseline(self.recipe, self.task, self.progress)):
            self.log(record)

    def _decide_steps(self) -> None:
        """Turns a time budget into steps, once: they are in the run's recipe before the first of them is taken."""
        config = self.recipe.training
        if config.minutes is None or config.steps is not None:
            return
        self.progress.note(f"measuring how many steps fit into {config.minutes:g} min.")
        feed, device = RankFeed(self.task.feed(self.model), self.ranks), machine.device(config.device)
        self.progress.stage(MEASURING)
        evaluate, sample = partial(self._evaluate, device=device, quick=True), partial(self._sample, device=device)
        most = longest(config, feed)
        speed = measure(self.model, feed, config, evaluations=(evaluate, sample), max_steps=few(most))
        self.progress.stage("")
        budgeted = speed.budgeted(config, config.minutes, most)
        self.recipe = replace(self.recipe, training=budgeted)
        self.directory.write_recipe(self.recipe.toml())
        self.recorded.note(speed.announcement(config, budgeted.steps or 0, most))
        self.recorded.forecast.announced = True

    def _decide_compile(self) -> None:
        """Chooses, once, how steps are run on a GPU; it is in the run's recipe before the first of them is taken."""
        config = self.recipe.training
        if config.compile != "auto" or not machine.captures(config, machine.device(config.device), self.ranks):
            return
        layers, seconds = len(machine.transformer_blocks(self.model)), 60 * (config.minutes or 0)
        feed = self.task.feed(self.model)
        if layers and (config.minutes is None or config.steps is not None):
            self.progress.stage(MEASURING)
            seconds = seconds_of_steps(self.model, feed, config)
            self.progress.stage("")
        choice, why = compile_choice(layers, seconds, varying=bool(layers) and lengths_vary(feed))
        self.recipe = replace(self.recipe, training=replace(config, compile=choice))
        self.directory.write_recipe(self.recipe.toml())
        self.recorded.note(why)

    def _trainer(self) -> Trainer:
        config, feed = self.recipe.training, self.task.feed(self.model)
        parameters = sum(p.numel() for p in self.model.parameters())
        device, steps = machine.device(config.device), total_steps(config, feed)
        if warmup_steps(config, steps) < (config.warmup_steps or 0):
            self.recorded.note(f"the warm-up is shortened to {warmup_steps(config, steps)} of the {steps:,} steps.")
        self.progress.note(
            f"{self.recipe.kind} with {parameters:,} parameters on {device.type}{described(config, self.ranks)}:"
            f" {steps:,} steps, {steps / feed.steps_per_epoch:.2f} epochs."
        )
        trainer = Trainer(
            self.model,
            feed,
            config,
            self.background,
            evaluate=lambda: self._evaluate(self.model, device, quick=True),
            sample=lambda: self._sample(self.model, device),
            format_batch=self.task.show,
            reporter=self.recorded,
            chance=chance_nll(self.task.codec.sizes),
            ranks=self.ranks,
        )
        self.model = trainer.evaluated
        return trainer

    def _evaluate(self, model: Any, device: torch.device | str, *, quick: bool) -> Scores | None:
        """Scores on the validation data; None where it has nothing to predict, which is noted with the final ones."""
        try:
            return self.task.evaluate(model, device, quick=quick)
        except NoTargetsError as error:
            if not quick:
                self.recorded.note(f"validation data: {error}")
            return None

    def _final_scores(self, device: torch.device | str) -> Scores | None:
        """Scores of the final weights, which rank 0 has, shared by all ranks."""
        if self.ranks.size > 1:
            named = sorted(weights(self.model.to(device)).items())  # merging LoRA changes the order of parameters
            self.ranks.copy_from_first(tensor for _, tensor in named)
        with evaluation_by(self.ranks):
            return self._evaluate(self.model, device, quick=False)

    def _sample(self, model: Any, device: torch.device | str) -> list[dict[str, str]]:
        model.eval()
        return self.task.sample(model, device)

    def _finish(
        self,
        tensors: dict[str, torch.Tensor],
        facts: dict[str, Any],
        device: torch.device | str,
        scores: Scores | None = None,
    ) -> dict[str, Any]:
        """Saves weights, scores, report and summary; the summary, which marks a run as finished, last."""
        steps = facts["weights"]["steps"] if "weights" in facts else [facts["steps"]]
        about = {"kind": self.recipe.kind, "step": " ".join(map(str, steps))}
        if self.directory.tokenizer_path.exists():
            about["tokenizer"] = self.directory.tokenizer.hash
        self.ranks.from_first(lambda: self.directory.save_model(tensors, about))
        self.progress.note("weights are saved; scoring and writing the report.")
        scores = scores or self._final_scores(device)
        if self.recipe.kind in build.COUNTED:
            for sample in self._sample(self.model, device):
                self.log({"kind": "sample", "step": 0, **sample})
        summary = {"kind": self.recipe.kind} | facts | (scores.as_json() if scores else {})
        summary["seconds"] = round(summary["seconds"], 3)
        summary |= {"fingerprint": self.directory.fingerprint, "corpus": self.task.fingerprint}
        if scores:
            summary = {"scored_on": scored_on(self.recipe), "refitted": counting.refits(self.recipe)} | summary
        self.directory.finish(summary, report(facts_of(self.directory, summary)))
        return summary
