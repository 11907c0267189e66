"""Embedded image datasets: scikit-learn's handwritten digits, alone, tinted by class, in strips, captioned, moving."""

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
"""RGB color of each digit."""
STRIPS, FRAMES = 4000, 6
"""Number of strips, and digits per strip."""
CAPTIONED = 8000
"""Number of captioned strips."""
MOVIES, MOVIE_FRAMES, FRAME_SIDE = 8000, 10, 16
"""Number of movies, frames of each, and height and width of a frame in pixels."""
SPEEDS = (-2, -1, 1, 2)
"""Velocities along each axis in pixels per frame."""
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TAIL = 0.1
"""Share of the strips, at the end, whose digits no other strip shows: the held-out tail."""


def embedded_images(name: str) -> tuple[Pixels, tuple[str, ...]]:
    """Pixels (N, H, W, C) and labels of the dataset `embedded:NAME`."""
    key = name.removeprefix(PREFIX)
    if key not in DATASETS:
        raise UserError(f"no embedded images '{key}'.{did_you_mean(key, DATASETS)}")
    return DATASETS[key]()


def digits() -> tuple[Pixels, tuple[str, ...]]:
    """1,797 grayscale digits of 8 × 8 pixels."""
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]
    except ImportError:
        raise UserError("digits come from scikit-learn: pip install 'seqwright[samples]'.") from None
    dataset = load_digits()
    gray = np.round(dataset.images * (255 / 16)).astype(np.uint8)  # (N, 8, 8), from 17 gray levels
    return gray[..., None], tuple(map(str, dataset.target.tolist()))


def tinted_digits() -> tuple[Pixels, tuple[str, ...]]:
    """The digits at 16 × 16 in the color of their class, on a textured background: for colorization, since the color
    of a grayscale digit can be predicted from its shape alone."""
    gray, labels = digits()
    ink = np.kron(gray[..., 0], np.ones((2, 2), np.uint8))[..., None] / 255  # (N, 16, 16, 1)
    generator = np.random.Generator(np.random.PCG64(1))
    rows, columns = np.mgrid[0:16, 0:16]
    slant, phase = generator.integers(1, 4, (2, len(gray), 1, 1))
    waves = 0.5 + 0.5 * np.sin((rows * slant + columns) * 0.8 + phase)  # (N, 16, 16)
    background = (30 + 70 * waves)[..., None] * (0.8 + 0.4 * generator.random((len(gray), 1, 1, 3)))
    tint = np.array(TINTS, float)[list(map(int, labels))][:, None, None]  # (N, 1, 1, 3)
    return np.round(ink * tint + (1 - ink) * background).clip(0, 255).astype(np.uint8), labels


def digit_strips() -> tuple[Pixels, tuple[str, ...]]:
    """Strips of six digits with one label per frame of 8 × 8 pixels. The last tenth of the strips is drawn from the
    last tenth of the digits, which no other strip shows, so that `split = "tail 10%"` has no leak."""
    gray, labels = digits()
    generator, held_out = np.random.Generator(np.random.PCG64(2)), round(TAIL * STRIPS)
    first = round((1 - TAIL) * len(gray))
    chosen = np.concatenate(
        [
            generator.integers(0, first, (STRIPS - held_out, FRAMES)),
            generator.integers(first, len(gray), (held_out, FRAMES)),
        ]
    )
    strips = gray[chosen].transpose(0, 2, 1, 3, 4).reshape(STRIPS, 8, 8 * FRAMES, 1)
    return strips, tuple(" ".join(labels[n] for n in row) for row in chosen.tolist())


def digit_captions() -> tuple[Pixels, tuple[str, ...]]:
    """Strips of one to six digits at random positions, at least a pixel between them, captioned by their names. The
    last tenth of the strips is drawn from every tenth digit, which no other strip shows, so that `split = "tail 10%"`
    has no leak."""
    gray, labels = digits()
    generator, held_out = np.random.Generator(np.random.PCG64(3)), round(TAIL * CAPTIONED)
    reserved = np.arange(len(gray)) % 10 == 0
    pools = np.flatnonzero(~reserved), np.flatnonzero(reserved)
    strips, captions = np.zeros((CAPTIONED, 8, 9 * FRAMES, 1), np.uint8), []
    for n, strip in enumerate(strips):
        chosen = generator.choice(pools[n >= CAPTIONED - held_out], generator.integers(1, FRAMES + 1))
        # Sorted offsets spread the free columns before, between and after the digits.
        offsets = np.sort(generator.integers(0, strip.shape[1] - 9 * len(chosen) + 1, len(chosen)))
        for index, digit in enumerate(chosen):
            left = offsets[index] + 9 * index
            strip[:, left : left + 8] = gray[digit]
        captions.append(" ".join(NAMES[int(labels[digit])] for digit in chosen))
    return strips, tuple(captions)


def moving_digits() -> tuple[Pixels, tuple[str, ...]]:
    """Movies of a digit that moves at a constant velocity and bounces off the edges, their frames side by side, as
    Moving MNIST (Srivastava et al. 2015); labeled by the digit. The last tenth of the movies shows every tenth digit,
    which no other movie shows, so that `split = "tail 10%"` has no leak."""
    gray, labels = digits()
    generator, held_out = np.random.Generator(np.random.PCG64(4)), round(TAIL * MOVIES)
    reserved = np.arange(len(gray)) % 10 == 0
    chosen = np.concatenate(
        [
            generator.choice(np.flatnonzero(~reserved), MOVIES - held_out),
            generator.choice(np.flatnonzero(reserved), held_out),
        ]
    )
    room = FRAME_SIDE - gray.shape[1]  # a position p on a line that is folded at 0 and at `room`
    start, velocity = generator.integers(0, room + 1, (2, MOVIES)), generator.choice(SPEEDS, (2, MOVIES))
    line = start[..., None] + velocity[..., None] * np.arange(MOVIE_FRAMES)  # (2, N, F)
    top, left = room - np.abs(line % (2 * room) - room)
    side = np.arange(gray.shape[1])
    movies = np.zeros((MOVIES, FRAME_SIDE, FRAME_SIDE * MOVIE_FRAMES, 1), np.uint8)
    for frame in range(MOVIE_FRAMES):
        rows, columns = top[:, frame, None] + side, left[:, frame, None] + frame * FRAME_SIDE + side  # (N, 8)
        movies[np.arange(MOVIES)[:, None, None], rows[:, :, None], columns[:, None]] = gray[chosen]
    return movies, tuple(labels[n] for n in chosen)


DATASETS: dict[str, Callable[[], tuple[Pixels, tuple[str, ...]]]] = {
    "digits": digits,
    "tinted-digits": tinted_digits,
    "digit-strips": digit_strips,
    "digit-captions": digit_captions,
    "moving-digits": moving_digits,
}
