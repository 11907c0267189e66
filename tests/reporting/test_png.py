"""PNG encoding and contact sheets."""

from __future__ import annotations

import io

import numpy as np
import pytest

from seqwright.reporting.png import png, sheet


@pytest.mark.parametrize("channels", [1, 3])
def test_png_decoded_by_pillow_has_the_same_pixels(channels: int) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs Pillow: the extra [images]")
    pixels = np.random.default_rng(1).integers(0, 256, (5, 7, channels), np.uint8)
    read = np.asarray(image.open(io.BytesIO(png(pixels))))
    assert np.array_equal(read.reshape(pixels.shape), pixels)


def test_sheet_has_one_row_per_array() -> None:
    rows = [np.full((3, 4, 5, 1), shade, np.uint8) for shade in (0, 9)]
    pixels = sheet(rows)
    assert pixels.shape == (2 * (4 + 2), 3 * (5 + 2), 1)
    assert pixels[0, 0, 0] == 0
    assert pixels[6, 0, 0] == 9
    assert pixels[4, 0, 0] == 255
