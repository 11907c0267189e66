"""PNG encoding of pixel arrays and contact sheets, for images in reports."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]

GAP = 2
"""White pixels between the images of a sheet."""


def png(pixels: Pixels) -> bytes:
    """PNG bytes of an (H, W, 1) grayscale or (H, W, 3) RGB array."""
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2}[channels], 0, 0, 0)
    lines = np.concatenate(
        [np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], 1
    )  # filter type 0 (none) in every scanline
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )


def sheet(rows: Sequence[Pixels]) -> Pixels:
    """A contact sheet: one row per array of images (N, H, W, C)."""
    return np.concatenate([_row(row) for row in rows])


def base64_png(pixels: Pixels) -> str:
    """A PNG as base64, for a data URI."""
    return base64.b64encode(png(pixels)).decode()


def _row(images: Pixels) -> Pixels:
    spaced = np.pad(images, ((0, 0), (0, GAP), (0, GAP), (0, 0)), constant_values=255)  # (N, H, W, C)
    return np.concatenate(list(spaced), 1)
