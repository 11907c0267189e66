"""Images as sequences of patches, with augmentation, masking, noise or grayscale: the examples of image models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqwright.core.batch import IGNORE, Batch, Source
from seqwright.core.config import UserError, check_sizes
from seqwright.core.limits import check_limit
from seqwright.data.images.corpus import STRIPS, Images, ImagesConfig
from seqwright.data.images.files import Pixels
from seqwright.data.order import bit_generator, permutation

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

AUGMENTATION, CORRUPTION = 5, 6
"""Purposes of the random bits (`order.bit_generator`)."""
SEEN_FRAMES = 2
"""Frames of a movie that are not predicted: nothing moves before the second."""
LUMA = np.array([0.299, 0.587, 0.114], np.float32)
"""Luma weights of red, green and blue (ITU-R BT.601)."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The patch grid of images: squares row by row, or columns from left to right."""

    height: int
    width: int
    channels: int
    tall: int
    """Patch height in pixels."""
    wide: int
    """Patch width in pixels."""
    frames: int = 1
    """Frames of an image, each of which starts at a patch boundary."""

    def __post_init__(self) -> None:
        check_sizes(self, "height", "width", "channels", "tall", "wide", "frames")
        check_limit("SEQWRIGHT_MAX_PIXELS", self.height * self.width * self.channels, "an image has too many pixels")

    @classmethod
    def of(cls, images: Images, config: ImagesConfig) -> Grid:
        """The grid of these training images for the objective."""
        strip = config.objective in STRIPS
        if "colorize" in config.objective and images.pixels.shape[-1] == 1:
            raise UserError(f'objective = "{config.objective}" needs color images; these are grayscale.')
        frames = len(images.labels[0].split()) if config.objective == "frames" and images.labels else 1
        grid = cls.cut(images, config.patch, columns=strip, frames=frames)
        if config.objective == "next-frame" and grid.length <= SEEN_FRAMES:
            raise UserError(
                f"each image has {grid.length} frames of {config.patch} pixels, of which the first {SEEN_FRAMES} are"
                " not predicted; set data.patch to the width of a frame."
            )
        return grid

    @classmethod
    def cut(cls, images: Images, patch: int, *, columns: bool, frames: int = 1) -> Grid:
        """A grid of squares with sides of `patch` pixels, or of columns of that width; they must tile the image."""
        height, width, channels = images.pixels.shape[1:]
        tall = height if columns else patch
        grid = cls(height=height, width=width, channels=channels, tall=tall, wide=patch, frames=frames)
        if height % tall or width % patch or grid.length % frames:
            valid = [n for n in range(1, width + 1) if width % (n * frames) == 0 and (columns or height % n == 0)]
            raise UserError(
                f"patches of {patch} do not tile images of {height} × {width}"
                f"{f' with {frames} frames' if frames > 1 else ''}; set data.patch to"
                f" {' or '.join(map(str, valid))}."
            )
        return grid

    @property
    def length(self) -> int:
        """Patches per image: the sequence length."""
        return self.height // self.tall * (self.width // self.wide)

    @property
    def patch_dim(self) -> int:
        """Values per patch."""
        return self.tall * self.wide * self.channels

    def patches(self, images: NDArray[Any]) -> NDArray[Any]:
        """Patches (B, S, P) of images (B, H, W, C)."""
        rows, columns = self.height // self.tall, self.width // self.wide
        cut = images.reshape(len(images), rows, self.tall, columns, self.wide, self.channels)
        return cut.transpose(0, 1, 3, 2, 4, 5).reshape(len(images), self.length, self.patch_dim)

    def images(self, patches: NDArray[Any]) -> NDArray[Any]:
        """Images (B, H, W, C) of patches (B, S, P)."""
        rows, columns = self.height // self.tall, self.width // self.wide
        cut = patches.reshape(len(patches), rows, columns, self.tall, self.wide, self.channels)
        return cut.transpose(0, 1, 3, 2, 4, 5).reshape(len(patches), self.height, self.width, self.channels)

    def source(self, pixels: Pixels) -> Source:
        """The model's source for images (B, H, W, C): normalized patches as features."""
        features = torch.from_numpy(self.patches(normalize(pixels)))  # (B, S, P)
        return Source(mask=torch.ones(features.shape[:2], dtype=torch.bool), features=features)

    def fitted(self, images: Images) -> Images:
        """The images converted to the channels of the training images; another size is refused."""
        height, width, channels = images.pixels.shape[1:]
        if (height, width) != (self.height, self.width):
            raise UserError(
                f"these images are {height} × {width}, but the model was trained on {self.height} × {self.width}"
                " (height, width)."
            )
        if channels == self.channels:
            return images
        gray = np.round(images.pixels @ LUMA).astype(np.uint8)[..., None] if channels == 3 else images.pixels
        return replace(images, pixels=np.repeat(gray, self.channels, -1))


def normalize(pixels: Pixels) -> Floats:
    """Pixels scaled to [-1, 1]: black is -1, white is 1."""
    return pixels.astype(np.float32) / 127.5 - 1


def to_pixels(values: NDArray[Any]) -> Pixels:
    """The inverse of `normalize`, clipped."""
    return np.round((values + 1) * 127.5).clip(0, 255).astype(np.uint8)


class ImageFeed:
    """Batches of images as patches, with targets.

    Random shifts, flips, masks and noise are functions of (seed, step).
    """

    carried = False

    def __init__(
        self,
        images: Images,
        targets: Ints | None,
        grid: Grid,
        config: ImagesConfig,
        *,
        seed: int,
        batch: int,
        shuffle: bool = True,
    ):
        """Unless `shuffle`, images are in file order and not augmented: those of an evaluation."""
        self.images, self.targets, self.grid, self.config = images, targets, grid, config
        self.seed, self.size, self.shuffle = seed, batch, shuffle
        self.steps_per_epoch = -(-len(images) // batch)

    def batch(self, step: int) -> Batch:
        epoch, number = divmod(step, self.steps_per_epoch)
        count = len(self.images)
        order = permutation(self.seed, epoch, count) if self.shuffle else np.arange(count)
        rows = order[number * self.size : (number + 1) * self.size]
        pixels = self.images.pixels[rows]
        return self.make_batch(rows, self._augmented(pixels, step) if self.shuffle else pixels, step)

    def make_batch(self, rows: Ints, pixels: Pixels, step: int) -> Batch:
        """The batch of images (B, H, W, C) under the objective."""
        objective, values = self.config.objective, normalize(pixels)
        mask = torch.ones(len(rows), self.grid.length, dtype=torch.bool)
        if objective in ("class", "frames"):
            starts = None
            if objective == "frames":
                starts = (torch.arange(self.grid.length) % (self.grid.length // self.grid.frames) == 0).expand_as(mask)
            target = np.zeros(len(rows), np.int64) if self.targets is None else self.targets[rows]
            features = torch.from_numpy(self.grid.patches(values))
            return Batch.of_source(Source(mask=mask, features=features, word_starts=starts), torch.from_numpy(target))
        generator = np.random.Generator(bit_generator(self.seed, step, CORRUPTION))
        target = self.grid.patches(values)
        if objective == "next-frame":
            # The frame before each, black before the first: also what copying the last frame would predict.
            previous = np.concatenate([np.full_like(target[:, :1], -1), target[:, :-1]], 1)
            target[:, :SEEN_FRAMES] = IGNORE
            return Batch.of_source(Source(mask=mask, features=torch.from_numpy(previous)), torch.from_numpy(target))
        if objective == "inpaint":
            order = generator.random((len(rows), self.grid.length)).argsort(1)
            count = max(1, round(self.config.mask_rate * self.grid.length))  # the same number in every image
            masked, visible = order.argsort(1) < count, np.sort(order[:, count:], 1)
            # Loss on masked patches only (SimMIM, Xie et al. 2022); they are zero in the input and have segment 1.
            target = np.where(masked[..., None], target, np.float32(IGNORE))
            shown = np.where(masked[..., None], np.float32(0), self.grid.patches(values))
            source = Source(
                mask=mask,
                features=torch.from_numpy(shown),
                segments=torch.from_numpy(masked.astype(int)),
                visible=torch.from_numpy(visible),
            )
            return Batch.of_source(source, torch.from_numpy(target))
        if "colorize" in objective:
            values = np.repeat((values @ LUMA)[..., None], 3, -1)
        if "denoise" in objective:
            values = values + self.config.noise_std * generator.standard_normal(values.shape, np.float32)
        features = torch.from_numpy(self.grid.patches(values))
        return Batch.of_source(Source(mask=mask, features=features), torch.from_numpy(target))

    def _augmented(self, pixels: Pixels, step: int) -> Pixels:
        """Randomly shifted and flipped images, with edge padding."""
        limit, count = self.config.shift, len(pixels)
        if not limit and not self.config.flip:
            return pixels
        generator = np.random.Generator(bit_generator(self.seed, step, AUGMENTATION))
        down, across = generator.integers(-limit, limit + 1, (2, count, 1))
        rows = (np.arange(self.grid.height) + down).clip(0, self.grid.height - 1)  # (B, H)
        columns = (np.arange(self.grid.width) + across).clip(0, self.grid.width - 1)  # (B, W)
        if self.config.flip:
            columns = np.where(generator.random((count, 1)) < 0.5, columns[:, ::-1], columns)
        return pixels[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
