"""The laws on every kind that sees."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from seqwright import build
from seqwright.core.batch import IGNORE, Batch
from seqwright.core.config import UserError
from seqwright.data.images.corpus import Images, ImagesConfig
from seqwright.studies.training_laws import TRAINING_LAWS
from seqwright.tasks.images.codec import ImageCodec
from seqwright.tasks.images.movies import rollout, rollout_target

from .images import ANSWERS, IMAGE_ENCODERS, MASKED_AUTOENCODERS, VIT, seeing


def test_every_kind_has_a_row() -> None:
    assert set(build.task_spec("images").models) == {str(row["kind"]) for row in IMAGE_ENCODERS.values()}


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        *itertools.product(IMAGE_ENCODERS, ANSWERS),
        *itertools.product(MASKED_AUTOENCODERS, ["inpaint"]),
        ("gpt", "next-frame"),
    ],
)
def test_batched_is_alone(name: str, answer: str) -> None:
    model, batch = seeing(name, answer)
    with torch.no_grad():
        together = model(batch)
        alone = torch.cat([model(batch.rows_of(torch.tensor([row]))) for row in range(batch.rows)])
    assert torch.allclose(together, alone, atol=1e-12)
    assert together.shape[: batch.target.dim()] == batch.target.shape


@pytest.mark.parametrize(
    ("name", "answer"), [*(("vit", answer) for answer in ANSWERS), ("mae", "inpaint"), ("gpt", "next-frame")]
)
@pytest.mark.parametrize("law", TRAINING_LAWS)
def test_training_law(law: str, name: str, answer: str) -> None:
    assert TRAINING_LAWS[law](*seeing(name, answer)) <= 1e-9


@pytest.mark.parametrize("name", ["vit", *MASKED_AUTOENCODERS])
def test_masked_pixels_do_not_affect_outputs(name: str) -> None:
    model, batch = seeing(name, "inpaint")
    with torch.no_grad():
        before = model(batch)
        batch.source.features[batch.source.segments == 1] += 5.0
        assert torch.equal(model(batch), before)
        batch.source.features[batch.source.segments == 0] += 5.0
        assert (model(batch) - before).abs().max() > 1e-3


@pytest.mark.parametrize("name", MASKED_AUTOENCODERS)
@torch.no_grad()
def test_masked_autoencoder_encodes_visible_patches_only(name: str) -> None:
    """As the classifier's forward pass where all are visible; of a batch, class token and visible patches otherwise."""
    model, batch = seeing(name, "inpaint")
    source = batch.source
    class_token = int(name == "mae")
    assert model.encoded(source).vectors.size(1) == class_token + source.mask.size(1) // 2
    everything = replace(source, visible=torch.arange(source.mask.size(1)).expand_as(source.mask))
    expected = model.encoder(model.embedding(source), source.mask).vectors
    assert torch.allclose(model.encoded(everything).vectors, expected, atol=1e-12)
    nothing = replace(source, visible=source.visible[:, :0])
    assert model(Batch.of_source(nothing, batch.target)).isfinite().all()


def test_next_frames_depend_on_past_frames_only() -> None:
    model, batch = seeing("gpt", "next-frame")
    with torch.no_grad():
        before = model(batch)
        batch.source.features[:, 2] += 5.0
        assert torch.equal(model(batch)[:, :2], before[:, :2])
        assert (model(batch)[:, 2] - before[:, 2]).abs().max() > 1e-3
    with pytest.raises(UserError, match="next frames are predicted from past ones"):
        seeing("vit", "next-frame")


def test_rollout_is_consistent_with_its_predictions() -> None:
    """The model, given the true first half and the predicted frames since, predicts these again."""
    model, batch = seeing("gpt", "next-frame")  # six frames: the rollout predicts the last three
    frames = torch.from_numpy(rollout(model, batch))
    assert batch.source.features is not None
    features = batch.source.features.clone()
    features[:, 4:] = frames[:, 3:5]
    with torch.no_grad():
        assert torch.allclose(model(Batch.of_source(replace(batch.source, features=features), batch.target)), frames)
        assert torch.equal(frames[:, :4], model(batch)[:, :4])
        assert (frames - model(batch))[:, 4:].abs().amax((0, 2)).min() > 1e-3
    target = rollout_target(batch.target.numpy())
    assert (target[:, :3] == IGNORE).all()
    assert np.array_equal(target[:, 3:], batch.target.numpy()[:, 3:])


@pytest.mark.parametrize("frames", [3, 4, 5, 10])
def test_rollout_begins_where_training_predicts(frames: int) -> None:
    images = Images(pixels=np.zeros((1, 2, 2 * frames, 1), np.uint8), labels=None)
    config = ImagesConfig(train="x", patch=2, objective="next-frame")
    target = ImageCodec.learn(images, config).feed(images, config, seed=1, batch=1).batch(0).target.numpy()
    predicted = (rollout_target(target) != IGNORE).any((0, 2))
    assert predicted.any()
    assert not (predicted & (target == IGNORE).all((0, 2))).any()


def test_masked_autoencoder_refuses_what_it_cannot_be() -> None:
    with pytest.raises(UserError, match=r'data\.objective = "inpaint"'):
        seeing("mae", "class")
    for table, message in (
        ({"decoder_width": 4}, "set decoder_layers, too"),
        ({"decoder_layers": 1, "attention_window": 3}, "leave attention_window out"),
        ({"decoder_layers": 1, "decoder_width": 5}, "width 5 cannot be split over 2 heads"),
    ):
        with pytest.raises(UserError, match=message):
            build.model_config(VIT | table, task="images")


@torch.no_grad()
def test_only_a_class_token_stands_in_front() -> None:
    for name, answer, more in (("vit", "class", 1), ("vit", "frames", 0), ("vit mean", "class", 0)):
        model, given = seeing(name, answer)
        assert model.encoded(given.source).vectors.size(1) == given.source.mask.size(1) + more
    model, given = seeing("vit")
    before = model(given)
    model.encoder.token[0] += 1
    assert (model(given) - before).abs().max() > 1e-3
