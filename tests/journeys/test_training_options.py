"""Training options through the command line: weight averaging, early stopping, more steps, log writers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

import seqwright as sw
from seqwright.core.storage import load_tensors
from tests.journeys.commands import TINY_GPT, records
from tests.journeys.conftest import Command


def sets(**options: object) -> list[str]:
    return [part for key, value in options.items() for part in ("--set", f"training.{key}={value}")]


def test_checkpoint_averaging_of_ema_weights(seqwright: Command, workdir: Path) -> None:
    options = sets(ema_decay=0.5, keep_last=3, weights="average-last", checkpoint_every=2, writers='["csv"]')
    result = seqwright("train", "--text", "text.txt", *TINY_GPT, *options, "--run", "run", "--json")
    assert result.status == 0, result.err
    assert result.json["summary"]["weights"] == {"kind": "average-last", "steps": [2, 4, 6], "ema": 0.5}
    folders = [workdir / "run" / "checkpoints" / f"step-{step:08d}" for step in (2, 4, 6)]
    parts = [load_tensors(folder / "ema.safetensors")[0] for folder in folders]
    final, about = load_tensors(workdir / "run" / "model.safetensors")
    assert about["step"] == "2 4 6"
    for name, tensor in final.items():
        torch.testing.assert_close(tensor, sum(part[name] for part in parts) / 3)
    assert (workdir / "run" / "log.csv").read_text().startswith("kind,step,")


def test_early_stopping_finishes_the_run(seqwright: Command, workdir: Path) -> None:
    options = sets(steps=400, evaluate_every=1, learning_rate=0.1, patience=2, warmup_steps=0, max_grad_norm=0)
    result = seqwright("train", "--text", "text.txt", *TINY_GPT, *options, "--run", "run", "--json")
    assert result.status == 0, result.err
    summary = json.loads((workdir / "run" / "summary.json").read_text())
    assert summary["steps"] < summary["asked_steps"] == 400
    assert summary["best_step"] == summary["steps"] - 2
    assert records(workdir / "run", "early")
    assert "was already finished" in seqwright("train", "--run", "run").out


def test_stretched_learning_rate_schedule_is_reported(seqwright: Command, run_copy: Path) -> None:
    result = seqwright("train", "--run", "run", "--set", "training.steps=10")
    assert result.status == 0, result.err
    assert "the cosine schedule is stretched to 10 steps: the rate goes on at" in result.err


def test_finished_run_ignores_fewer_steps(seqwright: Command, run_copy: Path) -> None:
    result = seqwright("train", "--run", "run", "--set", "training.steps=2")
    assert result.status == 0, result.err
    assert "its 6 steps are more than the 2 asked for, which count from the beginning: it stays." in result.err
    assert "was already finished" in result.out
    assert "asked for" not in seqwright("train", "--run", "run").err


def test_curriculum_needs_examples_of_different_lengths(seqwright: Command, workdir: Path) -> None:
    result = seqwright("train", "--text", "text.txt", *TINY_GPT, *sets(curriculum="true"), "--run", "run")
    assert result.status == 2
    assert 'use data.examples = "documents"' in result.err
    lines = ("--set", "data.examples=documents", "--set", "data.document=line", "--set", "model.context=64")
    result = seqwright("train", "--text", "text.txt", *TINY_GPT, *sets(curriculum="true"), *lines, "--run", "run")
    assert result.status == 0, result.err


def test_divergence_ends_training_with_the_next_move(seqwright: Command, workdir: Path) -> None:
    rate = ("--set", "training.learning_rate=10", "--set", "training.steps=40")
    result = seqwright("train", "--text", "text.txt", *TINY_GPT, *rate, "--run", "run")
    assert result.status == 2
    assert "worse than chance" in result.err
    assert "--set training.learning_rate=0.001" in result.err
    (row,) = seqwright("runs", ".", "--json").lines
    assert row["state"].startswith("diverged at step")
    page = next(workdir.rglob("report.html")).read_text(encoding="utf-8")
    assert re.search(r"seqwright train \S+recipe.toml --set training.learning_rate=\S+ --run", page)
    assert "worse than chance" in (workdir / "run" / "report.html").read_text()
    with pytest.raises(sw.UserError, match="worse than chance"):
        sw.train(text="text.txt", set=[item for item in (*TINY_GPT, *rate) if item != "--set"], run="again")
