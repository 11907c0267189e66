"""Options of training as a user meets them: averaged weights, early ends, longer trainings, further logs."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from seqwright.core.storage import load_tensors
from tests.journeys.commands import TINY_GPT, records
from tests.journeys.conftest import Command


def sets(**options: object) -> list[str]:
    return [part for key, value in options.items() for part in ("--set", f"training.{key}={value}")]


def test_the_run_ends_with_the_mean_of_averaged_checkpoints(seqwright: Command, here: Path) -> None:
    options = sets(ema_decay=0.5, keep_last=3, weights="average-last", checkpoint_every=2, writers='["csv"]')
    said = seqwright("train", "--text", "text.txt", *TINY_GPT, *options, "--run", "run", "--json")
    assert said.status == 0, said.err
    assert said.json["summary"]["weights"] == {"kind": "average-last", "steps": [2, 4, 6], "ema": 0.5}
    folders = [here / "run" / "checkpoints" / f"step-{step:08d}" for step in (2, 4, 6)]
    parts = [load_tensors(folder / "ema.safetensors")[0] for folder in folders]
    final, about = load_tensors(here / "run" / "model.safetensors")
    assert about["step"] == "2 4 6"
    for name, tensor in final.items():
        torch.testing.assert_close(tensor, sum(part[name] for part in parts) / 3)
    assert (here / "run" / "log.csv").read_text().startswith("kind,step,")


def test_a_training_that_ended_early_is_finished(seqwright: Command, here: Path) -> None:
    options = sets(steps=400, evaluate_every=1, learning_rate=2.0, patience=2, warmup_steps=0, max_grad_norm=0)
    said = seqwright("train", "--text", "text.txt", *TINY_GPT, *options, "--run", "run", "--json")
    assert said.status == 0, said.err
    summary = json.loads((here / "run" / "summary.json").read_text())
    assert summary["steps"] < summary["asked_steps"] == 400
    assert summary["best_step"] == summary["steps"] - 2
    assert records(here / "run", "early")
    assert "was finished before" in seqwright("train", "--run", "run").out


def test_a_stretched_schedule_is_said(seqwright: Command, copy: Path) -> None:
    said = seqwright("train", "--run", "run", "--set", "training.steps=10")
    assert said.status == 0, said.err
    assert "the cosine schedule is stretched to 10 steps: the rate goes on at" in said.err


def test_a_finished_run_is_not_shortened(seqwright: Command, copy: Path) -> None:
    said = seqwright("train", "--run", "run", "--set", "training.steps=2")
    assert said.status == 0, said.err
    assert "its 6 steps are more than the 2 asked for: it stays." in said.err
    assert "was finished before" in said.out
    assert "asked for" not in seqwright("train", "--run", "run").err


def test_a_curriculum_needs_lengths(seqwright: Command, here: Path) -> None:
    said = seqwright("train", "--text", "text.txt", *TINY_GPT, *sets(curriculum="true"), "--run", "run")
    assert said.status == 2
    assert 'use data.examples = "documents"' in said.err
    lines = ("--set", "data.examples=documents", "--set", "data.document=line", "--set", "model.context=64")
    said = seqwright("train", "--text", "text.txt", *TINY_GPT, *sets(curriculum="true"), *lines, "--run", "run")
    assert said.status == 0, said.err
