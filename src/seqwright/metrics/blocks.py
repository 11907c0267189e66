"""Blocks of a text as units of comparison: the same bytes for every language model, whatever its tokenizer."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from seqwright.metrics.counts import Counts
from seqwright.metrics.examples import Examples, digest
from seqwright.metrics.score import Floats, signature

MAX_BYTES, MIN_BYTES = 1024, 128
"""Target sizes of a block: tokens of a block are dependent, as are those of a document."""
MIN_BLOCKS = 32
"""Shorter texts have smaller blocks, so that there are enough to resample."""


def text_blocks(text: bytes) -> NDArray[np.int64]:
    """Offsets of the blocks of a text, 0 first: whole lines of at least the target size together, longer ones cut."""
    size = max(MIN_BYTES, min(MAX_BYTES, len(text) // MIN_BLOCKS))
    line_starts = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
    starts = [0]
    for line in [*line_starts.tolist(), len(text)]:
        while line - starts[-1] >= 2 * size:  # a line without end, as of a text of one line
            starts.append(starts[-1] + size)
        if line - starts[-1] >= size and line < len(text):
            starts.append(line)
    return np.array(starts, np.int64)


def block_examples(text: bytes, token_bytes: NDArray[np.int64], nll: Floats) -> Examples:
    """Bits per byte of each block; a token belongs to the block of its first byte.

    `token_bytes` (tokens,) add up to the text, and `nll` (tokens,) is in nats.
    """
    starts = text_blocks(text)
    block = np.searchsorted(starts, np.cumsum(token_bytes) - token_bytes, side="right") - 1
    sizes = np.diff(np.append(starts, len(text)))
    rows = np.stack([np.bincount(block, weights=nll, minlength=len(starts)) / math.log(2), sizes], 1)
    counts = Counts(
        name="bits_per_byte",
        rows=rows,
        formula=lambda sums: sums[:, 0] / np.maximum(1, sums[:, 1]),
        signature=signature("bits_per_byte", blocks=len(starts), bytes=len(text)),
        better=-1,
    )
    ends = np.append(starts[1:], len(text))
    inputs = [text[start:end].decode(errors="ignore") for start, end in zip(starts, ends, strict=True)]
    return Examples(
        unit="block of text",
        counts=[counts],
        fingerprint=digest(text.decode(errors="replace")),
        inputs=inputs,
        references=[""] * len(inputs),
        outputs=[f"{bits / max(1, size):.3f} bits per byte" for bits, size in rows.tolist()],
    )
