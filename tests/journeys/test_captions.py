"""Captioning through the command line: training, decoding, evaluation and report."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import seqwright as sw

from .conftest import Command

CAPTIONS = ("nothing", "left", "right", "left and right")
SMALL = ("width=32", "layers=1", "heads=2", "ffn_width=32", "dropout=0")
QUICK = [word for key in SMALL for word in ("--set", f"model.{key}")] + ["--set", "training.learning_rate=5e-3"]


def sides(path: Path, rows: int, seed: int) -> np.ndarray:
    """Noisy images that are bright on the left, on the right, on both sides or on none, as an .npz with captions."""
    rng = np.random.default_rng(seed)
    which = np.arange(rows) % 4
    pixels = rng.integers(0, 60, (rows, 4, 8), np.uint8)
    pixels[which % 2 == 1, :, :4] += 150
    pixels[which >= 2, :, 4:] += 150
    np.savez(path, images=pixels, captions=np.array(CAPTIONS)[which])
    return pixels


@pytest.fixture
def run(seqwright: Command, workdir: Path) -> Path:
    sides(workdir / "train.npz", 80, 1)
    sides(workdir / "valid.npz", 16, 2)
    steps = ("--set", "training.epochs=25", "--set", "training.batch_size=16")
    files = ("--captions", "train.npz", "--valid", "valid.npz")
    trained = seqwright("train", *files, "--run", "r", *QUICK, *steps)
    assert trained.status == 0, trained.err
    return workdir / "r"


def test_captioning_trains_decodes_evaluates_and_reports(run: Path, seqwright: Command, workdir: Path) -> None:
    pixels = sides(workdir / "new.npz", 8, 3)
    assert seqwright("caption", run, "new.npz").out.splitlines() == [*CAPTIONS, *CAPTIONS]
    captions = [json.loads(line) for line in seqwright("caption", run, "new.npz", "--json").out.splitlines()]
    assert [caption["image"] for caption in captions] == list(range(8))
    assert {caption["file"] for caption in captions} == {captions[0]["file"]}
    assert all(caption["reason"] == "end" and caption["log_prob"] <= 0 for caption in captions)
    three = seqwright("caption", run, "new.npz", "--json", "--set", "decoding.n_best=3").out.splitlines()
    assert all(len(json.loads(line)["others"]) == 2 for line in three)
    np.savez(workdir / "wrong.npz", images=pixels, captions=np.array([*CAPTIONS, "left", "left", "left", "nothing"]))
    scores = seqwright("evaluate", run, "--on", "wrong.npz", "--json").json
    assert scores["exact_match"] == pytest.approx(100 * 5 / 8)
    # three substitutions and two insertions: five edits over ten reference words
    assert scores["word_error_rate"] == pytest.approx(100 * 5 / 10)
    assert scores["nll"] > seqwright("evaluate", run, "--json").json["nll"]
    page = (run / "report.html").read_text(encoding="utf-8")
    assert 'src="data:image/png;base64,' in page
    assert all(finding.holds for finding in sw.check(run))


def test_invalid_caption_inputs_are_rejected(run: Path, seqwright: Command, workdir: Path) -> None:
    np.savez(workdir / "large.npz", images=np.zeros((1, 8, 8), np.uint8))
    refused = seqwright("caption", run, "large.npz")
    assert refused.status == 2
    assert "these images are 8 × 8, but the model was trained on 4 × 8" in refused.err
    np.savez(workdir / "mute.npz", images=np.arange(320, dtype=np.uint8).reshape(10, 4, 8))
    assert "have no captions" in seqwright("evaluate", run, "--on", "mute.npz").err
    assert "captions images; try `seqwright caption`" in seqwright("classify", run, "mute.npz").err
    assert "try `seqwright caption`" in seqwright("embed", run, "text.txt").err
    assert "have no captions" in seqwright("train", "--captions", "mute.npz", "--run", "m").err
