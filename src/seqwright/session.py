"""From a recipe to a finished run: the training journey, begun, resumed or found finished."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from seqwright import build, recipe
from seqwright.batch import Batch
from seqwright.config import UserError
from seqwright.data.stream import Stream, make_stream
from seqwright.data.text import document_kind, read_splits
from seqwright.decoding.text import complete
from seqwright.evaluate import evaluate_text
from seqwright.recipe import Recipe
from seqwright.reporting.facts import RunFacts
from seqwright.reporting.report import report
from seqwright.run_directory import RunDirectory, is_run
from seqwright.storage import save_tensors, write_json, write_text
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.training import train as train_tokenizer
from seqwright.training import machine
from seqwright.training.trainer import Groups, Trainer, total_steps
from seqwright.training.weights import load_weights, weights

QUICK_ROWS = 16
"""Slices side by side when a model with carried state is evaluated during training."""
QUICK_TOKENS = 1 << 16
"""The most of the validation text that is scored during training; all of it is scored at the end."""


class Listener(Protocol):
    """Who is told how training goes."""

    def say(self, text: str) -> None:
        """A sentence a person should read."""

    def step(self, step: int, steps: int, loss: float | None, tokens_per_second: float) -> None: ...

    def record(self, record: dict[str, Any]) -> None:
        """A line of the log."""


class Silence:
    """A listener that keeps it to itself."""

    def say(self, text: str) -> None: ...

    def step(self, step: int, steps: int, loss: float | None, tokens_per_second: float) -> None: ...

    def record(self, record: dict[str, Any]) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Outcome:
    path: Path
    summary: dict[str, Any] | None
    """None where training was stopped before its end."""
    stopped: str | None = None
    """What asked training to stop."""
    already: bool = False
    """The run was finished before."""


def train(wanted: Recipe | None, path: Path, listener: Listener | None = None) -> Outcome:
    """Trains a recipe in a run directory, or goes on where it was left; without a recipe, by the directory's own."""
    listener = listener or Silence()
    if is_run(path):
        directory = RunDirectory.open(path)
        begun = recipe.make(directory.recipe(), origin=str(directory.recipe_path), settled=True)
        if wanted is not None:
            recipe.check_same(begun, wanted, path)
        wanted = wanted or begun
    elif wanted is None:
        raise UserError(f"no run at {path} to go on with; name a recipe or give --text FILE.")
    else:
        directory = RunDirectory.create(path, recipe=wanted.toml())
    with directory.writing():
        return Session(wanted, directory, listener).run()


class Session:
    """One sitting at a run: what is there is opened, what is missing is made."""

    def __init__(self, wanted: Recipe, directory: RunDirectory, listener: Listener):
        self.recipe, self.directory, self.listener = wanted, directory, listener

    def run(self) -> Outcome:
        path = self.directory.path
        if self.directory.finished and not self._wants_more():
            return Outcome(path=path, summary=self.directory.summary(), already=True)
        write_text(self.directory.recipe_path, self.recipe.toml())
        self._prepare()
        torch.manual_seed(self.recipe.training.seed)
        self.model = build.model(self.recipe.model, self.tokenizer.vocabulary)
        if self.recipe.kind in build.COUNTED:
            return Outcome(path=path, summary=self._count())
        return self._descend()

    def log(self, record: dict[str, Any]) -> None:
        self.directory.log(record)
        self.listener.record(record)

    def save(self, step: int, groups: Groups, progress: dict[str, Any], best: int | None) -> None:
        state = {"progress": progress, "corpus": self.train_stream.fingerprint}
        self.directory.checkpoints.save(step, groups, state, keep=self.recipe.training.keep, best=best)

    def _wants_more(self) -> bool:
        """Whether a finished run is asked for more steps than it took."""
        if self.recipe.kind in build.COUNTED:
            return False
        asked = self.recipe.training.steps
        if self.recipe.training.epochs is not None:
            asked = round(self.recipe.training.epochs * self.directory.summary()["steps_per_epoch"])
        return (asked or 0) > self.directory.summary()["steps"]

    def _prepare(self) -> None:
        """Text to tokenizer to streams; what was noticed on the way is said and put on record."""
        data = self.recipe.data
        kind = document_kind(data, self.recipe.tokenizer.kind)
        train, valid = read_splits(data, kind)
        notes = list(train.notes)
        if valid is not None and data.split is not None:
            notes.append(f"held out for validation: {data.split} of the text ({valid.characters:,} characters).")
        path = self.directory.tokenizer_path
        if path.exists():
            self.tokenizer = Tokenizer.open(path)
        else:
            self.tokenizer = train_tokenizer(self.recipe.tokenizer, train.documents)
            write_text(path, self.tokenizer.json)
            notes += self.tokenizer.notes
        self.train_stream = make_stream(train, self.tokenizer)
        self.valid_stream = None if valid is None else make_stream(valid, self.tokenizer)
        for name, stream in (("training", self.train_stream), ("validation", self.valid_stream)):
            if stream is not None and stream.unknown:
                notes.append(f"{stream.unknown:,} of {stream.targets:,} {name} tokens are <unk>.")
        size = f"{self.train_stream.targets:,} training tokens in {self.train_stream.documents:,} document(s)"
        notes.append(f"{size}; {self.tokenizer.kind} vocabulary of {self.tokenizer.size:,}.")
        known = set(self.directory.notes())
        for note in notes:
            self.listener.say(note)
            if note not in known:
                self.directory.note(note)

    def _count(self) -> dict[str, Any]:
        begun = time.perf_counter()
        self.model.fit(self.train_stream)
        seconds = time.perf_counter() - begun
        for note in self.model.notes:
            self.listener.say(note)
            self.directory.note(note)
        tensors = self.model.tensors()
        return self._finish(
            tensors, {"steps": 0, "seconds": seconds, "parameters": sum(t.numel() for t in tensors.values())}, "cpu"
        )

    def _descend(self) -> Outcome:
        trainer = self._trainer()
        checkpoint = self.directory.checkpoints.latest()
        if checkpoint is not None:
            if checkpoint.state["corpus"] != self.train_stream.fingerprint:
                raise UserError(
                    f"the training text is not the one that {self.directory.path} was begun with;"
                    " restore it, or train in another folder with --run."
                )
            trainer.restore(checkpoint.groups, checkpoint.state["progress"])
            self.directory.rewind(checkpoint.step)
            self.log({"kind": "resume", "step": checkpoint.step})
            self.listener.say(checkpoint.note or f"going on from step {checkpoint.step:,}.")
        stopped = trainer.fit()
        progress = trainer.progress
        if progress.step < trainer.steps:
            self.log({"kind": "stop", "step": progress.step, "reason": stopped})
            return Outcome(path=self.directory.path, summary=None, stopped=stopped)
        best = progress.best_step or progress.step
        if best != progress.step:
            load_weights(trainer.model, self.directory.checkpoints.load(best).groups["model"])
        facts = {
            "steps": progress.step,
            "steps_per_epoch": trainer.feed.steps_per_epoch,
            "seconds": progress.seconds,
            "tokens": progress.tokens,
            "parameters": sum(p.numel() for p in trainer.model.parameters()),
            "best_step": best,
        }
        return Outcome(path=self.directory.path, summary=self._finish(weights(trainer.model), facts, trainer.device))

    def _trainer(self) -> Trainer:
        config = self.recipe.training
        feed = build.feed(
            self.train_stream,
            examples=self.recipe.data.examples,
            context=self.model.context,
            length=config.length,
            batch=config.batch,
            seed=config.seed,
            kind=self.recipe.kind,
        )
        parameters = sum(p.numel() for p in self.model.parameters())
        device = machine.device(config.device)
        steps = total_steps(config, feed)
        self.listener.say(
            f"{self.recipe.kind} with {parameters:,} parameters on {device.type}: {steps:,} steps,"
            f" {steps / feed.steps_per_epoch:.2f} epochs."
        )
        return Trainer(
            self.model,
            feed,
            config,
            self,
            evaluate=None
            if self.valid_stream is None
            else lambda: self._evaluate(self.valid_stream, device, quick=True),
            sample=lambda: self._sample(device),
            show=self._show,
            watch=self.listener.step,
        )

    def _evaluate(self, stream: Stream | None, device: torch.device | str, *, quick: bool) -> dict[str, Any]:
        """The scores that the log carries while training goes on, or all of them at its end."""
        assert stream is not None
        config = self.recipe.evaluation
        if not quick:
            return evaluate_text(self.model, self.tokenizer, stream, config, device=device)
        fast = replace(config, resamples=0, random_batches=0, stride=self.model.context)
        scores = evaluate_text(
            self.model, self.tokenizer, stream.first(QUICK_TOKENS), fast, device=device, rows=QUICK_ROWS
        )
        return {key: scores[key] for key in ("nll", "perplexity", "bits_per_byte", "bits_per_character")}

    def _sample(self, device: torch.device | str) -> list[dict[str, str]]:
        if isinstance(self.model, torch.nn.Module):
            self.model.eval()
        said = complete(self.model, self.tokenizer, [""], self.recipe.decoding, device=device)
        return [{"prompt": one.prompt, "text": one.text} for one in said]

    def _show(self, batch: Batch) -> str:
        return repr(self.tokenizer.decode(batch.input[0].tolist())[:200])

    def _finish(
        self, tensors: dict[str, torch.Tensor], facts: dict[str, Any], device: torch.device | str
    ) -> dict[str, Any]:
        """Weights, scores, sample, summary and report, the summary last: it is what says that a run is finished."""
        step = str(facts.get("best_step", facts["steps"]))
        save_tensors(self.directory.model_path, tensors, {"kind": self.recipe.kind, "step": step})
        scores = {} if self.valid_stream is None else self._evaluate(self.valid_stream, device, quick=False)
        if self.recipe.kind in build.COUNTED:
            for text in self._sample(device):
                self.log({"kind": "sample", "step": 0, **text})
        summary = {"kind": self.recipe.kind} | facts | scores
        summary["seconds"] = round(summary["seconds"], 3)
        write_text(self.directory.report_path, report(facts_of(self.directory, summary)))
        write_json(self.directory.summary_path, summary)
        return summary


def facts_of(directory: RunDirectory, summary: dict[str, Any] | None = None) -> RunFacts:
    """What the report pages are drawn from."""
    return RunFacts(
        name=directory.recipe().get("name", directory.path.name),
        recipe=directory.recipe(),
        environment=directory.environment(),
        log=directory.records(),
        summary=summary if summary is not None else directory.summary(),
    )
