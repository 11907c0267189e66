"""Patches: nothing is lost in cutting, and what is random is a function of (seed, step)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seqwright.core.batch import IGNORE
from seqwright.core.config import UserError
from seqwright.data.images.corpus import Images, ImagesConfig
from seqwright.data.images.patches import Grid, Views, to_numbers, to_pixels

PIXELS = np.random.default_rng(1).integers(0, 256, (7, 6, 8, 3), np.uint8)


def views(seed: int = 3, batch: int = 4, **options) -> Views:
    config = ImagesConfig(**{"train": "x", "patch": 2} | options)
    pictures = Images(pixels=PIXELS, labels=tuple("ababab" + "a"))
    grid = Grid.of(pictures, config)
    return Views(pictures, np.array([0, 1, 0, 1, 0, 1, 0]), grid, config, seed=seed, batch=batch)


def test_patches_and_back() -> None:
    grid = views().grid
    assert grid.length == 12
    cut = grid.patches(PIXELS)
    assert cut.shape == (7, 12, 12)
    assert np.array_equal(cut[0, 1], PIXELS[0, 0:2, 2:4].reshape(-1))
    assert np.array_equal(grid.pictures(cut), PIXELS)
    assert np.array_equal(to_pixels(to_numbers(PIXELS)), PIXELS)


def test_patches_that_do_not_fill_a_picture_are_refused() -> None:
    with pytest.raises(UserError, match=r"set data\.patch to 1 or 2"):
        views(patch=4)


@pytest.mark.parametrize("objective", ["class", "inpaint", "denoise", "colorize", "denoise+colorize"])
def test_a_batch_is_a_function_of_seed_and_step(objective: str) -> None:
    given = {"objective": objective, "shift": 1, "flip": True}
    for step in (0, 1, 5):
        one, other = (views(**given).batch(step) for _ in range(2))
        assert torch.equal(one.source.features, other.source.features)
        assert torch.equal(one.target, other.target)
    assert not torch.equal(views(**given).batch(0).source.features, views(seed=4, **given).batch(0).source.features)


def test_every_picture_comes_once_an_epoch() -> None:
    feed = views()
    seen = torch.cat([feed.batch(step).source.features for step in range(feed.steps_per_epoch)])
    assert len(seen) == len(PIXELS)
    wanted = {row.tobytes() for row in feed.grid.patches(to_numbers(PIXELS))}
    assert {row.numpy().tobytes() for row in seen} == wanted


def test_moved_pictures_keep_their_borders() -> None:
    """Brute force: every moved picture is the old one by some shift, mirrored or not, and each way is met."""
    padded = np.pad(PIXELS[0], ((1, 1), (1, 1), (0, 0)), mode="edge")
    shifts = {(y, x): padded[y : y + 6, x : x + 8] for y in range(3) for x in range(3)}
    for options, ways in (({"shift": 1, "flip": True}, 18), ({"shift": 1}, 9), ({"flip": True}, 2), ({}, 1)):
        feed = views(**options)
        moved = {feed._moved(PIXELS[:1], step).tobytes() for step in range(200)}
        assert len(moved) == ways
        assert moved <= {way.tobytes() for shift in shifts.values() for way in (shift, shift[:, ::-1])}


def test_fill_asks_only_for_what_is_hidden() -> None:
    batch = views(objective="inpaint", mask_rate=0.25).batch(0)
    hidden = batch.source.segments == 1
    assert (hidden.sum(1) == 3).all()
    assert (batch.source.features[hidden] == 0).all()
    assert (batch.target[~hidden] == IGNORE).all()
    assert (batch.target[hidden].abs() <= 1).all()
    assert (
        (views(objective="inpaint", mask_rate=0.01).batch(0).source.segments == 1).sum(1) == 1
    ).all()  # one at least


def test_gray_has_no_color_left_and_noise_is_as_strong_as_asked() -> None:
    grid = views().grid
    gray = grid.pictures(views(objective="colorize").batch(0).source.features.numpy())
    assert np.allclose(gray[..., 0], gray[..., 2])
    noisy = views(objective="denoise", noise_std=0.5, batch=7).batch(0)
    spread = (noisy.source.features - noisy.target).std()
    assert abs(float(spread) - 0.5) < 0.05


def test_frames_begin_at_a_patch_each() -> None:
    config = ImagesConfig(train="x", patch=2, objective="frames")
    pictures = Images(pixels=PIXELS, labels=("a b",) * 7)
    grid = Grid.of(pictures, config)
    batch = Views(pictures, np.zeros((7, 2), np.int64), grid, config, seed=1, batch=3).batch(0)
    assert batch.source.word_starts[0].tolist() == [True, False, True, False]
    assert batch.target.shape == (3, 2)


def test_words_of_a_label_are_frames_only_where_they_are_asked_for() -> None:
    pictures = Images(pixels=PIXELS, labels=("new york",) * 7)
    assert Grid.of(pictures, ImagesConfig(train="x", patch=2)).frames == 1
    frames = ImagesConfig(train="x", patch=8, objective="frames")
    with pytest.raises(UserError, match=r"6 × 8 with 2 frames; set data\.patch to 1 or 2 or 4\."):
        Grid.of(pictures, frames)


def test_gray_pictures_have_no_colors_to_ask_for() -> None:
    with pytest.raises(UserError, match="these are gray"):
        Grid.of(Images(pixels=PIXELS[..., :1]), ImagesConfig(train="x", patch=2, objective="colorize"))


def test_pictures_get_or_lose_colors_to_fit() -> None:
    grid, gray = views().grid, PIXELS[..., :1]
    assert grid.channels == 3
    colored = grid.fitted(Images(pixels=gray)).pixels
    assert all(np.array_equal(colored[..., n], gray[..., 0]) for n in range(3))
    alone = Grid.cut(Images(pixels=gray), 2, columns=False)
    assert np.array_equal(alone.fitted(Images(pixels=colored)).pixels, gray)
    with pytest.raises(UserError, match="6 × 6 were given, and 6 × 8 are wanted"):
        grid.fitted(Images(pixels=PIXELS[:, :, :6]))
