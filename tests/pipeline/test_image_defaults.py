"""Default recipes for users' images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seqwright.core.config import UserError
from seqwright.pipeline.wanted import wanted_recipe
from seqwright.tasks.images.defaults import patch


@pytest.mark.parametrize(
    ("height", "width", "side"), [(8, 8, 2), (28, 28, 4), (32, 32, 4), (224, 224, 28), (8, 54, 2), (7, 13, 1)]
)
def test_patches_fill_an_image_and_are_few(height: int, width: int, side: int) -> None:
    assert patch(height, width) == side
    assert height % side == width % side == 0


def test_default_sizes_follow_the_images(tmp_path: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (30, 28, 28), np.uint8)
    np.savez(tmp_path / "a.npz", images=pixels, labels=np.arange(30) % 3)
    recipe = wanted_recipe(None, images=str(tmp_path / "a.npz"))
    assert (recipe.kind, recipe.data.patch, recipe.data.shift, recipe.data.split) == ("vit", 4, 2, "stratified 20%")
    assert recipe.model.config.context == 50  # 7 × 7 patches and a class token
    assert wanted_recipe(None, images=str(tmp_path / "a.npz"), model="lstm").kind == "lstm"
    with pytest.raises(UserError, match="images have no tokenizer"):
        wanted_recipe(None, images=str(tmp_path / "a.npz"), set=['tokenizer.kind="words"'])
    captions = wanted_recipe(None, captions=str(tmp_path / "a.npz"))
    assert (captions.kind, captions.tokenizer.kind, captions.data.split) == ("transformer", "words", "images 20%")


def test_image_files_of_different_sizes_are_resized(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs Pillow: the extra [images]")
    for n, name in enumerate(("cat", "dog") * 3):
        (tmp_path / name).mkdir(exist_ok=True)
        image.fromarray(np.full((20 + n, 30), 40 * n, np.uint8)).save(tmp_path / name / f"{n}.png")
    recipe = wanted_recipe(None, images=str(tmp_path))
    assert recipe.data.size == (64, 64)
    assert recipe.data.patch == 8
