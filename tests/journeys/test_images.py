"""Image models through the command line: training, evaluation, prediction and report."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import seqwright as sw

from .conftest import Command

pytest.importorskip("sklearn", reason="needs scikit-learn: the extra [samples]")

SET = ("training.steps=150", "model.layers=1", "model.width=32", "training.learning_rate=1e-2", "model.ffn_width=32")
HOT = "decoding.temperature=5"
QUICK = [word for key in SET for word in ("--set", key)]


def test_image_classifier_trains_predicts_and_obeys_the_laws(seqwright: Command, tmp_path: Path) -> None:
    trained = seqwright("train", "digits", "--run", str(tmp_path / "r"), *QUICK)
    assert trained.status == 0, trained.err
    scores = seqwright("evaluate", str(tmp_path / "r"), "--json").json
    assert scores["accuracy"] > 30
    np.savez(tmp_path / "some.npz", images=np.zeros((3, 8, 8), np.uint8))
    lines = seqwright("classify", str(tmp_path / "r"), str(tmp_path / "some.npz"), "--json").out.splitlines()
    assert [json.loads(line)["image"] for line in lines] == [0, 1, 2]
    first = json.loads(lines[0])
    assert first["probabilities"][first["label"]] == first["probability"] == max(first["probabilities"].values())
    assert sum(first["probabilities"].values()) == pytest.approx(1)
    assert len({json.loads(line)["label"] for line in lines}) == 1
    np.savez(tmp_path / "large.npz", images=np.zeros((3, 9, 9), np.uint8))
    refused = seqwright("classify", str(tmp_path / "r"), str(tmp_path / "large.npz"))
    assert refused.status != 0
    assert "these images are 9 × 9, but the model was trained on 8 × 8" in refused.err
    assert all(finding.holds for finding in sw.check(tmp_path / "r"))
    assert "Classes" in (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    details = scores["details"]
    assert sum(map(sum, details["confusion"])) == scores["images"]
    fitted = json.loads((tmp_path / "r" / "summary.json").read_text(encoding="utf-8"))["temperature"]
    assert f"temperature:{fitted:.4g}|" in scores["scores"]["calibration_error"]["signature"]
    run = sw.open(tmp_path / "r")
    plain = run.classify([str(tmp_path / "some.npz")], temperature=1.0)
    assert (plain[0].probability < json.loads(lines[0])["probability"]) == (fitted < 1)
    hot = seqwright(
        "classify", str(tmp_path / "r"), str(tmp_path / "some.npz"), "--json", "--set", HOT
    ).out.splitlines()
    assert json.loads(hot[0])["probability"] < json.loads(lines[0])["probability"]
    (tmp_path / "one.pgm").write_bytes(b"P5 8 8 255 " + bytes(64))
    one = run.classify(tmp_path / "one.pgm")
    assert [image.label for image in run.classify(str(tmp_path / "some.npz"))] == [one.label] * 3
    assert run.classify([tmp_path / "one.pgm"] * 2) == [one] * 2 == [*run.classify(iter([tmp_path / "one.pgm"] * 2))]
    assert one.label in one._repr_html_()


def test_vit_with_mean_pooling_has_no_class_token(tmp_path: Path) -> None:
    opened = sw.train("digits", set=[*SET, 'model.pooling="mean"'], run=tmp_path / "r")
    assert "encoder.token" not in dict(opened.model.named_parameters())
    assert opened.evaluate()["accuracy"] > 30


def test_unseen_validation_classes_are_rejected_before_training(seqwright: Command, tmp_path: Path) -> None:
    for name, labels in (("train", "abab"), ("valid", "abac")):
        pixels = np.random.default_rng(1).integers(0, 256, (4, 8, 8), np.uint8)
        np.savez(tmp_path / f"{name}.npz", images=pixels, labels=np.array(list(labels)))
    refused = seqwright("train", "--images", "train.npz", "--valid", "valid.npz", "--run", "r")
    assert "the label 'c' was not in training" in refused.err
    assert not (tmp_path / "r").exists()


def test_colorization_scores_and_report(tmp_path: Path) -> None:
    opened = sw.train("digits-colorize", set=["training.steps=30", "training.evaluate_every=30"], run=tmp_path / "r")
    scores = opened.evaluate()
    assert scores["psnr"] > scores["psnr_shown"] - 3
    page = (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    assert 'src="data:image/png;base64,' in page
    given, made = next(iter(opened.restore(opened.images())))
    assert given.shape == made.shape == (16, 16, 3)


def test_next_frames_are_scored_beside_copies_of_the_last_frame(seqwright: Command, tmp_path: Path) -> None:
    small = [
        "training.steps=20",
        "training.evaluate_every=20",
        "model.layers=1",
        "model.width=32",
        "model.ffn_width=32",
    ]
    run = sw.train("moving-digits", set=small, run=tmp_path / "r")
    scores = run.evaluate()
    assert {"psnr", "psnr_last_frame", "psnr_rollout"} <= scores.keys()
    assert "PSNR of the last frame" in (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    refused = seqwright("train", "moving-digits", "--set", "model.kind=vit", "--run", tmp_path / "x")
    assert "next frames are predicted from past ones: set model.kind to gpt" in refused.err
    np.savez(tmp_path / "two.npz", images=np.zeros((9, 4, 8), np.uint8))
    refused = seqwright(
        "train", "moving-digits", "--images", tmp_path / "two.npz", "--set", "data.patch=4", "--run", "y"
    )
    assert "set data.patch to the width of a frame" in refused.err


@pytest.mark.parametrize(
    ("recipe", "pooling"), [("digits-inpaint", "first"), ("digits-inpaint", "mean"), ("digits-mae", "first")]
)
def test_classifier_fine_tuned_from_masked_image_modeling(recipe: str, pooling: str, tmp_path: Path) -> None:
    """Class token or mean pooling: at step 0 the classifier has the encoder weights of the masked image model."""
    small = ["model.layers=1", "model.width=16", "model.ffn_width=16", "training.steps=3", "training.evaluate_every=3"]
    filling = sw.train(recipe, set=[*small, f'model.pooling="{pooling}"'], run=tmp_path / "fill")
    still = ["training.steps=1", "training.learning_rate=1e-12", "training.weight_decay=0"]
    begun = sw.train(images="embedded:tinted-digits", base=tmp_path / "fill", set=still, run=tmp_path / "class")
    assert begun.settings.data.patch == 2
    fresh = dict(begun.model.encoder.named_parameters())
    for name, value in filling.model.encoder.named_parameters():
        assert torch.allclose(value, fresh[name], atol=1e-9), name
    assert ("encoder.token" in dict(begun.model.named_parameters())) == (pooling == "first")
    assert begun.evaluate()["accuracy"] >= 0


def test_classify_names_the_image_files_of_a_folder(seqwright: Command, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs Pillow: the extra [images]")
    for n in range(12):
        (tmp_path / "all" / "ab"[n % 2]).mkdir(parents=True, exist_ok=True)
        image.fromarray(np.full((8, 8), 20 * n, np.uint8)).save(tmp_path / "all" / "ab"[n % 2] / f"{n}.png")
    small = ("--set", "model.width=8", "--set", "model.layers=1", "--set", "training.steps=2")
    trained = seqwright("train", "--images", tmp_path / "all", "--run", tmp_path / "r", *small)
    assert trained.status == 0, trained.err
    lines = seqwright("classify", tmp_path / "r", tmp_path / "all").out.splitlines()
    expected = [str(path) for path in sorted((tmp_path / "all").rglob("*.png"))]
    assert [line.rsplit(": ", 1)[0] for line in lines] == expected
    rows = seqwright("classify", tmp_path / "r", tmp_path / "all" / "a", "--json").lines
    assert [row["file"] for row in rows] == expected[:6]
