"""Image files, read with Pillow: listing, sizes, and decoding to pixels."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqwright.core.config import UserError
from seqwright.core.limits import check_limit
from seqwright.data.files import plain_suffix, read_bytes

Pixels = NDArray[np.uint8]

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
ORIENTATION, ROTATED = 0x0112, (5, 6, 7, 8)
"""The EXIF orientation tag, and its values for images rotated by 90°."""


def image_files(path: Path) -> list[Path]:
    """The image files in a folder and its subfolders, sorted, without hidden ones; or the file itself."""
    entries = [path] if plain_suffix(path) in SUFFIXES and path.is_file() else sorted(path.rglob("*"))
    return [file for file in entries if file.suffix.lower() in SUFFIXES and file.is_file() and file.name[0] != "."]


def sizes_of(path: Path) -> Iterator[tuple[int, int]]:
    """Height and width of each image file, from headers only."""
    pillow = _pillow()
    for file in image_files(path):
        try:
            with pillow.open(file) as opened:
                rotated = opened.getexif().get(ORIENTATION) in ROTATED
                size = opened.size if rotated else opened.size[::-1]  # Pillow's size is (width, height)
        except Exception as error:
            raise _unreadable(file, error) from error
        yield size


def decode(path: Path, size: tuple[int, int] | None) -> Pixels:
    """The pixels (H, W, 1) or (H, W, 3) of an image file, resized to (height, width) if given."""
    pillow = _pillow()
    from PIL import ImageOps

    try:
        with pillow.open(io.BytesIO(read_bytes(path))) as opened:
            _check_pixels(path, opened.size)
            return _pixels(ImageOps.exif_transpose(opened), size, pillow)
    except UserError:
        raise
    except Exception as error:  # decoders of damaged files raise anything: struct.error, IndexError, KeyError, …
        raise _unreadable(path, error) from error


def _pixels(image: Any, size: tuple[int, int] | None, pillow: Any) -> Pixels:
    if image.mode.startswith("I"):  # 16 bits: Pillow's convert would clip everything above 255 to white
        image = pillow.fromarray((np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8))
    if image.has_transparency_data:  # transparent pixels are often stored as black, in which dark ink would be lost
        image = pillow.alpha_composite(pillow.new("RGBA", image.size, "white"), image.convert("RGBA"))
    image = image.convert("L" if image.mode in ("1", "L") else "RGB")
    if size is not None:
        image = image.resize((size[1], size[0]), pillow.Resampling.BILINEAR)
    pixels = np.asarray(image, np.uint8)
    return pixels[..., None] if pixels.ndim == 2 else pixels


def _check_pixels(path: Path, size: tuple[int, int]) -> None:
    pixels = size[0] * size[1]
    check_limit("SEQWRIGHT_MAX_PIXELS", pixels, f"{path} has {size[0]:,} × {size[1]:,} pixels")


def _pillow() -> Any:
    try:
        from PIL import Image

        Image.MAX_IMAGE_PIXELS = None  # its limit of 179 million is replaced by one that can be raised
    except ImportError:
        raise UserError("image files are read by Pillow: pip install 'seqwright[images]'.") from None
    return Image


def _unreadable(path: Path, error: Exception) -> UserError:
    return UserError(f"{path} cannot be read as an image ({error}); repair or remove it.")
