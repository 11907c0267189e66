"""Killed without warning, again and again, training ends with the same bits as if nothing had happened."""

from __future__ import annotations

import json
import multiprocessing
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from seqwright.pipeline import recipe
from seqwright.pipeline import training as session
from tests.journeys.commands import records, text_of

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


REMEMBERING: dict[str, Any] = {
    "ema_decay": 0.95,
    "learning_rate": 0.3,  # so high that validation soon stands still and losses jump
    "schedule": "plateau",
    "plateau_patience": 1,
    "evaluate_every": 25,
    "patience": 50,
    "spike_threshold": 1.5,
    "keep_last": 3,
    "weights": "average-last",
}
"""Everything that a checkpoint must carry, in one training."""


def wanted(kind: str, text: Path, **training: Any) -> recipe.Recipe:
    table = {
        "data": {"train": [str(text)], "split": "tail 10%"},
        "tokenizer": {"kind": "characters"},
        "model": MODELS[kind],
        "training": COMMON | {"sample_every": 100} | ({"sequence_length": 16} if kind == "lstm" else {}) | training,
        "decoding": {"max_tokens": 20},
    }
    return recipe.make(table)


def train(asked: recipe.Recipe, path: Path) -> None:
    torch.set_num_threads(1)  # sums are taken in the same order on any machine
    session.train(asked, path)


def worker(asked: recipe.Recipe, path: Path) -> Any:
    """A training process, forked from a server that has torch loaded, so that it is at work at once."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["seqwright.pipeline.training", "torch._dynamo"])  # optimizers load the latter
    process = processes.Process(target=train, args=(asked, path), daemon=True)
    process.start()
    return process


def finished(asked: recipe.Recipe, path: Path) -> float:
    """Trains to the end; the seconds spent in steps."""
    process = worker(asked, path)
    process.join(120)
    assert process.exitcode == 0
    return float(json.loads((path / "summary.json").read_text())["seconds"])


def weights(path: Path) -> bytes:
    return (path / "model.safetensors").read_bytes()


def log_of(path: Path) -> list[dict[str, Any]]:
    """What a training says of itself, but for how long it took."""
    kept = records(path, "train") + records(path, "epoch") + records(path, "evaluation") + records(path, "sample")
    timed = {"seconds", "tokens_per_second"}
    return [{key: value for key, value in record.items() if key not in timed} for record in kept]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(text_of(100))
    return path


def disturbed(asked: recipe.Recipe, path: Path, moments: random.Random, most: float) -> int:
    """Trains until killed at a random moment: while it opens the run, or up to `most` seconds after a line of its log.

    Returns the last step that the log knows.
    """
    before = len(lines_of(path))
    process = worker(asked, path)
    if moments.random() < 0.7:
        while len(lines_of(path)) <= before:
            assert process.is_alive()
            time.sleep(0.002)
    process.join(moments.uniform(0, most))
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL, "it was over before it could be killed"
    return max((record["step"] for record in records(path, "train")), default=0)


def lines_of(path: Path) -> list[bytes]:
    log = path / "log.jsonl"
    return log.read_bytes().split(b"\n") if log.exists() else []


@pytest.mark.parametrize(("kind", "training"), [("gpt", {}), ("lstm", {}), ("gpt", REMEMBERING)])
def test_killed_ten_times_the_weights_are_the_same_to_the_bit(
    kind: str, training: dict[str, Any], text: Path, tmp_path: Path
) -> None:
    asked = wanted(kind, text, **training)
    seconds = finished(asked, tmp_path / "whole")
    if training:
        assert records(tmp_path / "whole", "spike"), "nothing to go back from"
        assert records(tmp_path / "whole", "train")[-1]["learning_rate"] < training["learning_rate"], "no plateau"
    moments = random.Random(kind)
    killed = tmp_path / "killed"
    reached = [disturbed(asked, killed, moments, seconds / 8) for _ in range(KILLS)]
    assert len({step for step in reached if 0 < step < asked.training.steps}) >= 3, "kills must meet training under way"
    finished(asked, killed)
    assert weights(killed) == weights(tmp_path / "whole")
    assert log_of(killed) == log_of(tmp_path / "whole")
    assert records(killed, "resume")


@pytest.mark.parametrize("training", [{}, {"precision": "bf16"}, {"deterministic": True}], ids=str)
def test_the_same_recipe_gives_the_same_bits(text: Path, tmp_path: Path, training: dict[str, Any]) -> None:
    asked = wanted("gpt", text, steps=12, **training)
    for name in ("one", "other"):
        train(asked, tmp_path / name)
    assert weights(tmp_path / "one") == weights(tmp_path / "other")
    assert log_of(tmp_path / "one") == log_of(tmp_path / "other")
    train(wanted("gpt", text, steps=12, seed=2, **training), tmp_path / "seeded")
    assert weights(tmp_path / "seeded") != weights(tmp_path / "one")
