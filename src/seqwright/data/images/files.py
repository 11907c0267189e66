"""Image files as pixels, through Pillow: which there are in a folder, how large they are, what is on them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqwright.core.config import UserError
from seqwright.data.files import plain_suffix, read_bytes

Pixels = NDArray[np.uint8]

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
ORIENTATION, TURNED = 0x0112, (5, 6, 7, 8)
"""The EXIF key that says how a camera was held, and its values for lying on a side."""


def image_files(path: Path) -> list[Path]:
    """The image files in a folder and those under it, but for hidden ones, in order; or the file itself."""
    there = [path] if plain_suffix(path) in IMAGES and path.is_file() else sorted(path.rglob("*"))
    return [found for found in there if found.suffix.lower() in IMAGES and found.is_file() and found.name[0] != "."]


def sizes_of(path: Path) -> Iterator[tuple[int, int]]:
    """Height and width of each image file, without reading what is on them."""
    image = _pillow()
    for found in image_files(path):
        try:
            with image.open(found) as opened:
                lying = opened.getexif().get(ORIENTATION) in TURNED
                yield opened.size if lying else opened.size[::-1]
        except (OSError, ValueError, SyntaxError) as error:
            raise _broken(found, error) from error


def decode(path: Path, size: tuple[int, int] | None) -> Pixels:
    """An image file as (H, W, 1) or (H, W, 3), scaled to a height and width where they are given."""
    image = _pillow()
    from PIL import ImageOps

    try:
        with image.open(io.BytesIO(read_bytes(path))) as opened:
            whole = ImageOps.exif_transpose(opened)
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        raise _broken(path, error) from error
    if whole.mode.startswith("I"):  # 16 bits, of which a plain conversion would cut off all that is not nearly black
        whole = image.fromarray((np.asarray(whole).astype(np.uint32) >> 8).astype(np.uint8))
    if whole.has_transparency_data:  # what lies under clear pixels is often black: ink would be lost in it
        whole = image.alpha_composite(image.new("RGBA", whole.size, "white"), whole.convert("RGBA"))
    whole = whole.convert("L" if whole.mode in ("1", "L") else "RGB")
    if size is not None:
        whole = whole.resize((size[1], size[0]), image.Resampling.BILINEAR)
    pixels = np.asarray(whole, np.uint8)
    return pixels[..., None] if pixels.ndim == 2 else pixels


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise UserError("image files are read by Pillow: pip install 'seqwright[images]'.") from None
    return Image


def _broken(path: Path, error: Exception) -> UserError:
    return UserError(f"{path} is no image that can be read ({error}); mend it or take it away.")
