"""Captions through the command line: pictures of one's own, learned, said, scored and shown."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import seqwright as sw

from .conftest import Command

SAID = ("nothing", "left", "right", "left and right")
SMALL = ("width=32", "layers=1", "heads=2", "ffn_width=32", "dropout=0")
QUICK = [word for key in SMALL for word in ("--set", f"model.{key}")] + ["--set", "training.learning_rate=5e-3"]


def sides(path: Path, rows: int, seed: int) -> np.ndarray:
    """Noisy pictures with a light on the left, on the right, on both sides or on none, as an .npz with captions."""
    draws = np.random.default_rng(seed)
    which = np.arange(rows) % 4
    pixels = draws.integers(0, 60, (rows, 4, 8), np.uint8)
    pixels[which % 2 == 1, :, :4] += 150
    pixels[which >= 2, :, 4:] += 150
    np.savez(path, images=pixels, captions=np.array(SAID)[which])
    return pixels


@pytest.fixture
def run(seqwright: Command, here: Path) -> Path:
    sides(here / "train.npz", 80, 1)
    sides(here / "valid.npz", 16, 2)
    steps = ("--set", "training.epochs=25", "--set", "training.batch_size=16")
    files = ("--captions", "train.npz", "--valid", "valid.npz")
    trained = seqwright("train", *files, "--run", "r", *QUICK, *steps)
    assert trained.status == 0, trained.err
    return here / "r"


def test_captions_are_learned_said_scored_and_shown(run: Path, seqwright: Command, here: Path) -> None:
    pixels = sides(here / "new.npz", 8, 3)
    assert seqwright("caption", run, "new.npz").out.splitlines() == [*SAID, *SAID]
    said = [json.loads(line) for line in seqwright("caption", run, "new.npz", "--json").out.splitlines()]
    assert [one["picture"] for one in said] == list(range(8))
    assert {one["file"] for one in said} == {said[0]["file"]}
    assert all(one["reason"] == "end" and one["log_prob"] <= 0 for one in said)
    three = seqwright("caption", run, "new.npz", "--json", "--set", "decoding.n_best=3").out.splitlines()
    assert all(len(json.loads(line)["others"]) == 2 for line in three)
    np.savez(here / "wrong.npz", images=pixels, captions=np.array([*SAID, "left", "left", "left", "nothing"]))
    scores = seqwright("evaluate", run, "--on", "wrong.npz", "--json").json
    assert scores["exact_match"] == pytest.approx(100 * 5 / 8)
    # one word for another twice, three words for one: five edits, and the references have ten words
    assert scores["word_error_rate"] == pytest.approx(100 * 5 / 10)
    assert scores["nll"] > seqwright("evaluate", run, "--json").json["nll"]
    page = (run / "report.html").read_text(encoding="utf-8")
    assert 'src="data:image/png;base64,' in page
    assert all(finding.holds for finding in sw.check(run))


def test_what_does_not_fit_is_refused(run: Path, seqwright: Command, here: Path) -> None:
    np.savez(here / "large.npz", images=np.zeros((1, 8, 8), np.uint8))
    refused = seqwright("caption", run, "large.npz")
    assert refused.status == 2
    assert "these images are 8 × 8, but the model was trained on 4 × 8" in refused.err
    np.savez(here / "mute.npz", images=np.arange(320, dtype=np.uint8).reshape(10, 4, 8))
    assert "have no captions" in seqwright("evaluate", run, "--on", "mute.npz").err
    assert "says what is on pictures; try `seqwright caption`" in seqwright("classify", run, "mute.npz").err
    assert "try `seqwright caption`" in seqwright("embed", run, "text.txt").err
    assert "have no captions" in seqwright("train", "--captions", "mute.npz", "--run", "m").err
