"""Images without files: scikit-learn's handwritten digits alone, tinted by class, in strips, with captions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from seqwright.core.config import UserError, did_you_mean
from seqwright.data.samples.text import PREFIX

Pixels = NDArray[np.uint8]

TINTS = (
    (230, 60, 60),
    (60, 200, 80),
    (70, 110, 240),
    (240, 190, 40),
    (200, 70, 220),
    (50, 210, 210),
    (245, 140, 60),
    (150, 230, 90),
    (240, 120, 170),
    (170, 150, 250),
)
"""Red, green and blue of each digit."""
STRIPS, FRAMES = 4000, 6
"""Strips drawn, and digits of each."""
CAPTIONED = 8000
"""Strips drawn that have captions."""
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TAIL = 0.1
"""Share of the strips, at the end, that show digits which no other strip shows."""


def embedded_pictures(name: str) -> tuple[Pixels, tuple[str, ...]]:
    """Pixels (N, H, W, C) and labels of what `embedded:NAME` stands for."""
    key = name.removeprefix(PREFIX)
    if key not in PICTURES:
        raise UserError(f"no embedded pictures '{key}'.{did_you_mean(key, PICTURES)}")
    return PICTURES[key]()


def digits() -> tuple[Pixels, tuple[str, ...]]:
    """1,797 digits of 8 × 8 pixels, gray."""
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]
    except ImportError:
        raise UserError("digits come from scikit-learn: pip install 'seqwright[samples]'.") from None
    held = load_digits()
    gray = np.round(held.images * (255 / 16)).astype(np.uint8)  # (N, 8, 8)
    return gray[..., None], tuple(map(str, held.target.tolist()))


def tinted_digits() -> tuple[Pixels, tuple[str, ...]]:
    """The digits at 16 × 16, in the color of their class on a textured ground: what color a gray one had can be known
    from its shape alone."""
    gray, labels = digits()
    ink = np.kron(gray[..., 0], np.ones((2, 2), np.uint8))[..., None] / 255  # (N, 16, 16, 1)
    draws = np.random.Generator(np.random.PCG64(1))
    rows, columns = np.mgrid[0:16, 0:16]
    slant, phase = draws.integers(1, 4, (2, len(gray), 1, 1))
    waves = 0.5 + 0.5 * np.sin((rows * slant + columns) * 0.8 + phase)  # (N, 16, 16)
    ground = (30 + 70 * waves)[..., None] * (0.8 + 0.4 * draws.random((len(gray), 1, 1, 3)))
    tint = np.array(TINTS, float)[list(map(int, labels))][:, None, None]  # (N, 1, 1, 3)
    return np.round(ink * tint + (1 - ink) * ground).clip(0, 255).astype(np.uint8), labels


def digit_strips() -> tuple[Pixels, tuple[str, ...]]:
    """Six digits side by side: a label for each frame of 8 × 8 pixels. The last tenth of the strips and of the digits
    are kept for each other, so that `split = "tail 10%"` is fair."""
    gray, labels = digits()
    draws, kept = np.random.Generator(np.random.PCG64(2)), round(TAIL * STRIPS)
    known = round((1 - TAIL) * len(gray))
    chosen = np.concatenate(
        [draws.integers(0, known, (STRIPS - kept, FRAMES)), draws.integers(known, len(gray), (kept, FRAMES))]
    )
    strips = gray[chosen].transpose(0, 2, 1, 3, 4).reshape(STRIPS, 8, 8 * FRAMES, 1)
    return strips, tuple(" ".join(labels[n] for n in row) for row in chosen.tolist())


def digit_captions() -> tuple[Pixels, tuple[str, ...]]:
    """One to six digits on a strip, somewhere and a pixel or more apart, and their names in words. The last tenth of
    the strips show every tenth digit, which no other strip shows, so that `split = "tail 10%"` is fair."""
    gray, labels = digits()
    draws, kept = np.random.Generator(np.random.PCG64(3)), round(TAIL * CAPTIONED)
    held = np.arange(len(gray)) % 10 == 0
    pools = np.flatnonzero(~held), np.flatnonzero(held)
    strips, said = np.zeros((CAPTIONED, 8, 9 * FRAMES, 1), np.uint8), []
    for n, strip in enumerate(strips):
        chosen = draws.choice(pools[n >= CAPTIONED - kept], draws.integers(1, FRAMES + 1))
        # The room that is left is dealt out before, between and behind the digits.
        gaps = np.sort(draws.integers(0, strip.shape[1] - 9 * len(chosen) + 1, len(chosen)))
        for place, digit in enumerate(chosen):
            left = gaps[place] + 9 * place
            strip[:, left : left + 8] = gray[digit]
        said.append(" ".join(NAMES[int(labels[digit])] for digit in chosen))
    return strips, tuple(said)


PICTURES: dict[str, Callable[[], tuple[Pixels, tuple[str, ...]]]] = {
    "digits": digits,
    "tinted-digits": tinted_digits,
    "digit-strips": digit_strips,
    "digit-captions": digit_captions,
}
