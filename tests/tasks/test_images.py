"""OutputSpec about pictures and what they are worth: numbers by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seqwright.core.batch import IGNORE, Batch, Source
from seqwright.data.images.patches import Grid
from seqwright.tasks.images.task import answered, errors, restored, said_of, shown_pictures


def test_what_is_said_of_a_picture_and_of_its_frames() -> None:
    frames = np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2]])
    assert said_of(frames[0], "abc") == ("b", 0.7)
    assert said_of(frames, "abc") == ("b a", pytest.approx(0.35))


def test_restored_pictures_are_scored_where_they_were_asked_for() -> None:
    """Two pictures of two patches of two numbers; a patch of the first was not asked for."""
    target = np.array([[[1, -1], [IGNORE, IGNORE]], [[0, 0], [0, 0]]], float)
    off = np.array([[[0.4, 0]], [[0, 0.2]]])
    made = errors(target + off, target)
    assert made == pytest.approx(np.array([[0.16, 2], [0.08, 4]]))
    found = {one.name: one for one in restored(made, errors(target + 1, target), "inpaint")}
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


def test_pictures_are_shown_with_what_was_made_where_it_was_asked_for() -> None:
    grid = Grid(height=1, width=2, channels=1, tall=1, wide=1)
    features = torch.tensor([[[0.0], [1.0]]])  # the first patch is hidden
    source = Source(mask=torch.ones(1, 2, dtype=torch.bool), features=features)
    batch = Batch.of_source(source, torch.tensor([[[-1.0], [float(IGNORE)]]]))
    given, best = shown_pictures(batch, np.array([[[-0.6], [0.3]]]), grid)
    assert (given.ravel().tolist(), best.ravel().tolist()) == ([128, 255], [51, 255])


def test_answers_are_probabilities_of_classes_or_numbers() -> None:
    logits = torch.tensor([[0.0, np.log(3.0)]])
    model = torch.nn.Dropout(0.5).train()
    model.forward = lambda batch: logits * (1 if not model.training else 0)  # type: ignore[method-assign]
    source = Source(mask=torch.ones(1, 1, dtype=torch.bool))
    assert answered(model, Batch.of_source(source, torch.tensor([1])), "cpu")[0] == pytest.approx([0.25, 0.75])
    numbers = answered(model, Batch.of_source(source, torch.tensor([[0.0, 1.0]])), "cpu")
    assert numbers == pytest.approx(logits.numpy())
