"""Training that is killed repeatedly and resumed ends with bitwise the same weights as without interruption."""

from __future__ import annotations

import json
import multiprocessing
import random
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from seqwright.pipeline import recipe
from seqwright.pipeline import training as session
from tests.journeys.commands import records, synthetic_text

KILLS = 10
COMMON: dict[str, Any] = {
    "steps": 400,
    "batch_size": 8,
    "checkpoint_every": 7,
    "log_every": 3,
    "evaluate_every": 50,
    "keep_last": 1,
}
MODELS: dict[str, dict[str, Any]] = {
    "gpt": {"kind": "gpt", "layers": 2, "width": 32, "heads": 2, "context": 16, "dropout": 0.2},
    "lstm": {"kind": "lstm", "layers": 2, "width": 32, "dropout": 0.2},
}


STATEFUL: dict[str, Any] = {
    "ema_decay": 0.95,
    "learning_rate": 0.3,  # so high that validation soon plateaus and the loss spikes
    "schedule": "plateau",
    "plateau_patience": 1,
    "evaluate_every": 25,
    "patience": 50,
    "spike_threshold": 1.5,
    "keep_last": 3,
    "weights": "average-last",
}
"""Every option with state in the checkpoint, in one training."""


def make_recipe(kind: str, text: Path, **training: Any) -> recipe.Recipe:
    table = {
        "data": {"train": [str(text)], "split": "tail 10%"},
        "tokenizer": {"kind": "characters"},
        "model": MODELS[kind],
        "training": COMMON | {"sample_every": 100} | ({"sequence_length": 16} if kind == "lstm" else {}) | training,
        "decoding": {"max_tokens": 20},
    }
    return recipe.make(table)


def train(settings: recipe.Recipe, path: Path) -> None:
    torch.set_num_threads(1)  # the same order of summation on any machine
    session.train(settings, path)


def worker(settings: recipe.Recipe, path: Path) -> Any:
    """A training process, forked from a server that has torch preloaded, so that it starts at once."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["seqwright.pipeline.training", "torch._dynamo"])  # optimizers load the latter
    process = processes.Process(target=train, args=(settings, path), daemon=True)
    process.start()
    return process


def train_to_end(settings: recipe.Recipe, path: Path) -> float:
    """Trains to the end; returns the seconds spent in training steps."""
    process = worker(settings, path)
    process.join(120)
    assert process.exitcode == 0
    return float(json.loads((path / "summary.json").read_text())["seconds"])


def weights(path: Path) -> bytes:
    return (path / "model.safetensors").read_bytes()


def log_of(path: Path) -> list[dict[str, Any]]:
    """Log records without timings."""
    kept = records(path, "train") + records(path, "epoch") + records(path, "evaluation") + records(path, "sample")
    timed = {"seconds", "tokens_per_second"}
    return [{key: value for key, value in record.items() if key not in timed} for record in kept]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(synthetic_text(100))
    return path


def train_until_killed(settings: recipe.Recipe, path: Path, rng: random.Random, max_delay: float) -> int:
    """Trains until killed at a random time: while opening the run, or up to `max_delay` seconds after a log record.

    Returns the last logged step.
    """
    before = len(lines_of(path))
    process = worker(settings, path)
    if rng.random() < 0.7:
        while len(lines_of(path)) <= before:
            assert process.is_alive()
            time.sleep(0.002)
    process.join(rng.uniform(0, max_delay))
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL, "training finished before it could be killed"
    return max((record["step"] for record in records(path, "train")), default=0)


def lines_of(path: Path) -> list[bytes]:
    log = path / "log.jsonl"
    return log.read_bytes().split(b"\n") if log.exists() else []


@pytest.mark.parametrize(
    ("kind", "training"), [pytest.param("gpt", {}, marks=pytest.mark.slow), ("lstm", {}), ("gpt", STATEFUL)]
)
def test_resume_after_ten_kills_is_bitwise_identical(
    kind: str, training: dict[str, Any], text: Path, tmp_path: Path
) -> None:
    settings = make_recipe(kind, text, **training)
    seconds = train_to_end(settings, tmp_path / "uninterrupted")
    if training:
        assert records(tmp_path / "uninterrupted", "spike"), "no loss spike to roll back from"
        assert records(tmp_path / "uninterrupted", "train")[-1]["learning_rate"] < training["learning_rate"], (
            "no plateau"
        )
    rng = random.Random(kind)
    killed = tmp_path / "killed"
    reached = [train_until_killed(settings, killed, rng, seconds / 8) for _ in range(KILLS)]
    assert len({step for step in reached if 0 < step < settings.training.steps}) >= 3, "kills must hit running training"
    train_to_end(settings, killed)
    assert weights(killed) == weights(tmp_path / "uninterrupted")
    assert log_of(killed) == log_of(tmp_path / "uninterrupted")
    assert records(killed, "resume")


PHASES = ("start", "steps", "evaluation", "checkpoint", "report")


def phase_of(path: Path) -> str:
    """What a killed training was at: the files it left tell."""
    if list(path.glob("checkpoints/.tmp-*")):
        return "checkpoint"
    if (path / "model.safetensors").exists():
        return "report"
    logged = [json.loads(line) for line in lines_of(path)[:-1]]
    return "start" if not logged else "evaluation" if logged[-1]["kind"] == "evaluation" else "steps"


@pytest.mark.slow
def test_resume_after_a_thousand_kills_is_bitwise_identical(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kills at uniform times of the whole process, in trainings one after the other until there were a thousand."""
    settings = make_recipe("gpt", text, steps=24, checkpoint_every=2, evaluate_every=5, sample_every=10)
    train_to_end(settings, tmp_path / "first")  # starts the fork server, which takes longer than a training
    began = time.monotonic()
    train_to_end(settings, tmp_path / "uninterrupted")
    seconds = time.monotonic() - began
    rng, kills, trainings = random.Random(0), Counter[str](), 0
    while kills.total() < 1000:
        killed = tmp_path / f"killed-{trainings}"
        for _ in range(25):
            process = worker(settings, killed)
            if rng.random() < 0.2:  # the end is short: some are killed once the final weights are there
                while process.is_alive() and not (killed / "model.safetensors").exists():
                    time.sleep(0.002)
                process.join(rng.uniform(0, seconds / 8))
            else:
                process.join(rng.uniform(0, seconds))
            process.kill()
            process.join()
            if process.exitcode == 0:
                break
            kills[phase_of(killed)] += 1
        else:
            train_to_end(settings, killed)
        assert weights(killed) == weights(tmp_path / "uninterrupted")
        assert log_of(killed) == log_of(tmp_path / "uninterrupted")
        shutil.rmtree(killed)
        trainings += 1
    with capsys.disabled():
        counts = ", ".join(f"{phase} {kills[phase]:,}" for phase in PHASES)
        sys.stdout.write(f"\n{kills.total():,} kills of {trainings:,} trainings: {counts}\n")


@pytest.mark.parametrize("training", [{}, {"precision": "bf16"}, {"deterministic": True}], ids=str)
def test_training_is_deterministic(text: Path, tmp_path: Path, training: dict[str, Any]) -> None:
    settings = make_recipe("gpt", text, steps=12, **training)
    for name in ("one", "other"):
        train(settings, tmp_path / name)
    assert weights(tmp_path / "one") == weights(tmp_path / "other")
    assert log_of(tmp_path / "one") == log_of(tmp_path / "other")
    train(make_recipe("gpt", text, steps=12, seed=2, **training), tmp_path / "seeded")
    assert weights(tmp_path / "seeded") != weights(tmp_path / "one")
