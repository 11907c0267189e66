"""Predictions of image models and their scores, against numbers computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seqwright.core.batch import IGNORE, Batch, Source
from seqwright.data.images.patches import Grid
from seqwright.tasks.images.scores import predict, restoration_counts, squared_errors
from seqwright.tasks.images.task import predicted_label, reconstructions


def test_the_label_of_an_image_and_of_its_frames() -> None:
    frames = np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2]])
    assert predicted_label(frames[0], "abc") == ("b", 0.7)
    assert predicted_label(frames, "abc") == ("b a", pytest.approx(0.35))


def test_restored_images_are_scored_at_their_targets() -> None:
    """Two images of two patches of two values; one patch of the first is no target."""
    target = np.array([[[1, -1], [IGNORE, IGNORE]], [[0, 0], [0, 0]]], float)
    off = np.array([[[0.4, 0]], [[0, 0.2]]])
    restored = squared_errors(target + off, target)
    assert restored == pytest.approx(np.array([[0.16, 2], [0.08, 4]]))
    found = {
        one.name: one
        for one in restoration_counts(np.hstack([restored, squared_errors(target + 1, target)]), "inpaint")
    }
    assert found["squared_error"].value == pytest.approx(0.04)
    assert found["nll"].value == pytest.approx(np.pi * 0.04)
    assert found["psnr"].value == pytest.approx(20)  # from black to white are 2, and 4 / 0.04 is 100
    assert found["psnr_shown"].value == pytest.approx(10 * np.log10(4))
    assert {name: one.better for name, one in found.items()} == {
        "nll": -1,
        "squared_error": -1,
        "psnr": 1,
        "psnr_shown": 1,
    }


def test_reconstructions_show_outputs_at_targets_only() -> None:
    grid = Grid(height=1, width=2, channels=1, tall=1, wide=1)
    features = torch.tensor([[[0.0], [1.0]]])  # the first patch is masked
    source = Source(mask=torch.ones(1, 2, dtype=torch.bool), features=features)
    batch = Batch.of_source(source, torch.tensor([[[-1.0], [float(IGNORE)]]]))
    source_pixels, restored = reconstructions(batch, np.array([[[-0.6], [0.3]]]), grid)
    assert (source_pixels.ravel().tolist(), restored.ravel().tolist()) == ([128, 255], [51, 255])


def test_predictions_are_class_probabilities_or_values() -> None:
    logits = torch.tensor([[0.0, np.log(3.0)]])
    source = Source(mask=torch.ones(1, 1, dtype=torch.bool))
    classes, values = (Batch.of_source(source, torch.tensor(target)) for target in ([1], [[0.0, 1.0]]))
    assert predict(lambda batch: logits, classes)[0] == pytest.approx([0.25, 0.75])
    assert predict(lambda batch: logits, values) == pytest.approx(logits.numpy())
