"""Images as sequences of patches, moved, hidden, noisy or gray: the examples of a model that sees."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqwright.core.batch import IGNORE, Batch, Source
from seqwright.core.config import UserError
from seqwright.data.images.corpus import Images, ImagesConfig
from seqwright.data.images.files import Pixels
from seqwright.data.order import bits, permutation

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

MOVED, SPOILT = 5, 6
"""Purposes of the bits that are drawn (`order.bits`)."""
LUMA = np.array([0.299, 0.587, 0.114], np.float32)
"""How bright red, green and blue are (ITU-R BT.601)."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """How pictures are cut: squares row by row, or columns from left to right."""

    height: int
    width: int
    channels: int
    tall: int
    """Rows of a patch."""
    wide: int
    """Columns of a patch."""
    frames: int = 1
    """OutputSpec of a picture, each of which begins at a patch of its own."""

    @classmethod
    def of(cls, pictures: Images, config: ImagesConfig) -> Grid:
        """The grid that these pictures are cut by to be answered about."""
        strip = config.objective == "frames"
        if "colorize" in config.objective and pictures.pixels.shape[-1] == 1:
            raise UserError(f'answer = "{config.objective}" needs pictures that have colors; these are gray.')
        frames = len(pictures.labels[0].split()) if strip and pictures.labels else 1
        return cls.cut(pictures, config.patch, columns=strip, frames=frames)

    @classmethod
    def cut(cls, pictures: Images, patch: int, *, columns: bool, frames: int = 1) -> Grid:
        """Squares with sides of `patch` pixels, or columns of that width; refused where they do not fill a picture."""
        height, width, channels = pictures.pixels.shape[1:]
        tall = height if columns else patch
        grid = cls(height=height, width=width, channels=channels, tall=tall, wide=patch, frames=frames)
        if height % tall or width % patch or grid.length % frames:
            fitting = [n for n in range(1, width + 1) if width % (n * frames) == 0 and (columns or height % n == 0)]
            raise UserError(
                f"patches of {patch} do not fill pictures of {height} × {width}"
                f"{f' with {frames} frames' if frames > 1 else ''}; set data.patch to"
                f" {' or '.join(map(str, fitting))}."
            )
        return grid

    @property
    def length(self) -> int:
        """Patches of a picture."""
        return self.height // self.tall * (self.width // self.wide)

    @property
    def numbers(self) -> int:
        """Numbers of a patch."""
        return self.tall * self.wide * self.channels

    def patches(self, pictures: NDArray[Any]) -> NDArray[Any]:
        """(B, S, P) from (B, H, W, C)."""
        rows, columns = self.height // self.tall, self.width // self.wide
        cut = pictures.reshape(len(pictures), rows, self.tall, columns, self.wide, self.channels)
        return cut.transpose(0, 1, 3, 2, 4, 5).reshape(len(pictures), self.length, self.numbers)

    def pictures(self, patches: NDArray[Any]) -> NDArray[Any]:
        """(B, H, W, C) from (B, S, P)."""
        rows, columns = self.height // self.tall, self.width // self.wide
        cut = patches.reshape(len(patches), rows, columns, self.tall, self.wide, self.channels)
        return cut.transpose(0, 1, 3, 2, 4, 5).reshape(len(patches), self.height, self.width, self.channels)

    def source(self, pixels: Pixels) -> Source:
        """Images (B, H, W, C) as they are given to a model."""
        features = torch.from_numpy(self.patches(to_numbers(pixels)))  # (B, S, P)
        return Source(mask=torch.ones(features.shape[:2], dtype=torch.bool), features=features)

    def fitted(self, pictures: Images) -> Images:
        """These pictures, with or without colors as those that were learned from; refused where the sizes differ."""
        height, width, channels = pictures.pixels.shape[1:]
        if (height, width) != (self.height, self.width):
            raise UserError(
                f"pictures of {height} × {width} were given, and {self.height} × {self.width} are wanted"
                " (height, width)."
            )
        if channels == self.channels:
            return pictures
        gray = np.round(pictures.pixels @ LUMA).astype(np.uint8)[..., None] if channels == 3 else pictures.pixels
        return replace(pictures, pixels=np.repeat(gray, self.channels, -1))


def to_numbers(pixels: Pixels) -> Floats:
    """Black is -1, white is 1."""
    return pixels.astype(np.float32) / 127.5 - 1


def to_pixels(numbers: NDArray[Any]) -> Pixels:
    return np.round((numbers + 1) * 127.5).clip(0, 255).astype(np.uint8)


class Views:
    """Batches of pictures as they are shown to a model, with what it is to answer.

    What is random in a batch - movement, hidden patches, noise - is a function of (seed, step).
    """

    carried = False

    def __init__(
        self, pictures: Images, targets: Ints | None, grid: Grid, config: ImagesConfig, *, seed: int, batch: int
    ):
        self.pictures, self.targets, self.grid, self.config = pictures, targets, grid, config
        self.seed, self.size = seed, batch
        self.steps_per_epoch = -(-len(pictures) // batch)

    def batch(self, step: int) -> Batch:
        epoch, number = divmod(step, self.steps_per_epoch)
        order = permutation(self.seed, epoch, len(self.pictures))
        rows = order[number * self.size : (number + 1) * self.size]
        return self.view(rows, self._moved(self.pictures.pixels[rows], step), step)

    def still(self, step: int) -> tuple[Ints, Batch]:
        """The rows of a batch in order, unmoved, for measuring."""
        rows = np.arange(step * self.size, min((step + 1) * self.size, len(self.pictures)))
        return rows, self.view(rows, self.pictures.pixels[rows], step)

    def view(self, rows: Ints, pixels: Pixels, step: int) -> Batch:
        """Images (B, H, W, C) with their answers, as the configuration asks for them."""
        answer, whole = self.config.objective, to_numbers(pixels)
        mask = torch.ones(len(rows), self.grid.length, dtype=torch.bool)
        if answer in ("class", "frames"):
            starts = None
            if answer == "frames":
                starts = (torch.arange(self.grid.length) % (self.grid.length // self.grid.frames) == 0).expand_as(mask)
            target = np.zeros(len(rows), np.int64) if self.targets is None else self.targets[rows]
            features = torch.from_numpy(self.grid.patches(whole))
            return Batch.of_source(Source(mask=mask, features=features, word_starts=starts), torch.from_numpy(target))
        draws = np.random.Generator(bits(self.seed, step, SPOILT))
        target = self.grid.patches(whole)
        if answer == "inpaint":
            ranks = draws.random((len(rows), self.grid.length)).argsort(1).argsort(1)
            hidden = ranks < max(1, round(self.config.mask_rate * self.grid.length))  # as many in every picture
            target = np.where(hidden[..., None], target, np.float32(IGNORE))
            seen = np.where(hidden[..., None], np.float32(0), self.grid.patches(whole))
            source = Source(mask=mask, features=torch.from_numpy(seen), segments=torch.from_numpy(hidden.astype(int)))
            return Batch.of_source(source, torch.from_numpy(target))
        if "colorize" in answer:
            whole = np.repeat((whole @ LUMA)[..., None], 3, -1)
        if "denoise" in answer:
            whole = whole + self.config.noise_std * draws.standard_normal(whole.shape, np.float32)
        features = torch.from_numpy(self.grid.patches(whole))
        return Batch.of_source(Source(mask=mask, features=features), torch.from_numpy(target))

    def _moved(self, pixels: Pixels, step: int) -> Pixels:
        """Images shifted and mirrored by chance; beyond the border it goes on as it was there."""
        most, count = self.config.shift, len(pixels)
        if not most and not self.config.flip:
            return pixels
        draws = np.random.Generator(bits(self.seed, step, MOVED))
        down, across = draws.integers(-most, most + 1, (2, count, 1))
        rows = (np.arange(self.grid.height) + down).clip(0, self.grid.height - 1)  # (B, H)
        columns = (np.arange(self.grid.width) + across).clip(0, self.grid.width - 1)  # (B, W)
        if self.config.flip:
            columns = np.where(draws.random((count, 1)) < 0.5, columns[:, ::-1], columns)
        return pixels[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
