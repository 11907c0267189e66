"""PNG files from pixels, and several pictures as one sheet: what a page needs to show what a model saw."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]

GAP = 2
"""White pixels between the pictures of a sheet."""


def png(pixels: Pixels) -> bytes:
    """A PNG of (H, W, 1) gray or (H, W, 3) colors."""
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2}[channels], 0, 0, 0)
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], 1)  # no filter in any line
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )


def sheet(rows: Sequence[Pixels]) -> Pixels:
    """Rows of pictures (N, H, W, C), one under the other."""
    return np.concatenate([_row(row) for row in rows])


def embedded(pixels: Pixels) -> str:
    """A PNG in the words of a page."""
    return base64.b64encode(png(pixels)).decode()


def _row(pictures: Pixels) -> Pixels:
    spaced = np.pad(pictures, ((0, 0), (0, GAP), (0, GAP), (0, 0)), constant_values=255)  # (N, H, W, C)
    return np.concatenate(list(spaced), 1)
