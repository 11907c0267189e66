"""Patches: lossless cutting, masking, noise and augmentation as functions of (seed, step)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seqwright.core.batch import IGNORE
from seqwright.core.config import UserError
from seqwright.data.images.corpus import Images, ImagesConfig
from seqwright.data.images.patches import Grid, ImageFeed, normalize, to_pixels

PIXELS = np.random.default_rng(1).integers(0, 256, (7, 6, 8, 3), np.uint8)


def image_feed(seed: int = 3, batch: int = 4, **options) -> ImageFeed:
    config = ImagesConfig(**{"train": "x", "patch": 2} | options)
    images = Images(pixels=PIXELS, labels=tuple("ababab" + "a"))
    grid = Grid.of(images, config)
    return ImageFeed(images, np.array([0, 1, 0, 1, 0, 1, 0]), grid, config, seed=seed, batch=batch)


def test_patches_round_trip() -> None:
    grid = image_feed().grid
    assert grid.length == 12
    cut = grid.patches(PIXELS)
    assert cut.shape == (7, 12, 12)
    assert np.array_equal(cut[0, 1], PIXELS[0, 0:2, 2:4].reshape(-1))
    assert np.array_equal(grid.images(cut), PIXELS)
    assert np.array_equal(to_pixels(normalize(PIXELS)), PIXELS)


def test_patches_that_do_not_tile_the_image_are_refused() -> None:
    with pytest.raises(UserError, match=r"set data\.patch to 1 or 2"):
        image_feed(patch=4)


@pytest.mark.parametrize("objective", ["class", "inpaint", "denoise", "colorize", "denoise+colorize"])
def test_image_batch_is_a_function_of_seed_and_step(objective: str) -> None:
    options = {"objective": objective, "shift": 1, "flip": True}
    for step in (0, 1, 5):
        one, other = (image_feed(**options).batch(step) for _ in range(2))
        assert torch.equal(one.source.features, other.source.features)
        assert torch.equal(one.target, other.target)
    assert not torch.equal(
        image_feed(**options).batch(0).source.features, image_feed(seed=4, **options).batch(0).source.features
    )


def test_every_image_once_per_epoch() -> None:
    feed = image_feed()
    seen = torch.cat([feed.batch(step).source.features for step in range(feed.steps_per_epoch)])
    assert len(seen) == len(PIXELS)
    expected = {row.tobytes() for row in feed.grid.patches(normalize(PIXELS))}
    assert {row.numpy().tobytes() for row in seen} == expected


def test_augmentation_shifts_with_edge_padding_and_flips() -> None:
    """Brute force: every augmented image is a shift of the original, flipped or not, and every combination occurs."""
    padded = np.pad(PIXELS[0], ((1, 1), (1, 1), (0, 0)), mode="edge")
    shifts = {(y, x): padded[y : y + 6, x : x + 8] for y in range(3) for x in range(3)}
    for options, ways in (({"shift": 1, "flip": True}, 18), ({"shift": 1}, 9), ({"flip": True}, 2), ({}, 1)):
        feed = image_feed(**options)
        augmented = {feed._augmented(PIXELS[:1], step).tobytes() for step in range(200)}
        assert len(augmented) == ways
        assert augmented <= {image.tobytes() for shift in shifts.values() for image in (shift, shift[:, ::-1])}


def test_inpaint_has_loss_on_masked_patches_only() -> None:
    batch = image_feed(objective="inpaint", mask_rate=0.25).batch(0)
    masked = batch.source.segments == 1
    assert (masked.sum(1) == 3).all()
    assert (batch.source.features[masked] == 0).all()
    assert (batch.target[~masked] == IGNORE).all()
    assert (batch.target[masked].abs() <= 1).all()
    assert (
        (image_feed(objective="inpaint", mask_rate=0.01).batch(0).source.segments == 1).sum(1) == 1
    ).all()  # one at least


def test_colorize_input_is_grayscale_and_denoise_noise_has_noise_std() -> None:
    grid = image_feed().grid
    gray = grid.images(image_feed(objective="colorize").batch(0).source.features.numpy())
    assert np.allclose(gray[..., 0], gray[..., 2])
    noisy = image_feed(objective="denoise", noise_std=0.5, batch=7).batch(0)
    spread = (noisy.source.features - noisy.target).std()
    assert abs(float(spread) - 0.5) < 0.05


def test_frames_start_at_patch_boundaries() -> None:
    config = ImagesConfig(train="x", patch=2, objective="frames")
    images = Images(pixels=PIXELS, labels=("a b",) * 7)
    grid = Grid.of(images, config)
    batch = ImageFeed(images, np.zeros((7, 2), np.int64), grid, config, seed=1, batch=3).batch(0)
    assert batch.source.word_starts[0].tolist() == [True, False, True, False]
    assert batch.target.shape == (3, 2)


def test_next_frame_is_predicted_from_the_frame_before() -> None:
    feed = image_feed(objective="next-frame")
    batch, frames = feed.batch(0), feed.grid.length
    assert feed.grid.patch_dim == 6 * 2 * 3
    assert batch.source.features.shape == batch.target.shape == (4, frames, 36)
    assert (batch.source.features[:, 0] == -1).all()
    assert torch.equal(batch.source.features[:, 3], batch.target[:, 2])
    assert (batch.target[:, :2] == IGNORE).all()
    with pytest.raises(UserError, match=r"set data\.patch to the width of a frame"):
        image_feed(objective="next-frame", patch=4)
    with pytest.raises(UserError, match="leave shift and flip out"):
        image_feed(objective="next-frame", shift=1)


def test_words_of_a_label_are_frames_only_with_that_objective() -> None:
    images = Images(pixels=PIXELS, labels=("new york",) * 7)
    assert Grid.of(images, ImagesConfig(train="x", patch=2)).frames == 1
    frames = ImagesConfig(train="x", patch=8, objective="frames")
    with pytest.raises(UserError, match=r"6 × 8 with 2 frames; set data\.patch to 1 or 2 or 4\."):
        Grid.of(images, frames)


def test_colorize_refuses_grayscale_images() -> None:
    with pytest.raises(UserError, match="these are grayscale"):
        Grid.of(Images(pixels=PIXELS[..., :1]), ImagesConfig(train="x", patch=2, objective="colorize"))


def test_fitted_converts_channels_and_refuses_other_sizes() -> None:
    grid, gray = image_feed().grid, PIXELS[..., :1]
    assert grid.channels == 3
    colored = grid.fitted(Images(pixels=gray)).pixels
    assert all(np.array_equal(colored[..., n], gray[..., 0]) for n in range(3))
    alone = Grid.cut(Images(pixels=gray), 2, columns=False)
    assert np.array_equal(alone.fitted(Images(pixels=colored)).pixels, gray)
    with pytest.raises(UserError, match="these images are 6 × 6, but the model was trained on 6 × 8"):
        grid.fitted(Images(pixels=PIXELS[:, :, :6]))
