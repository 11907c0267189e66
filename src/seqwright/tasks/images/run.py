"""The part that runs with image sources share: image classifiers, restorers and captioners."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from seqwright.core.config import UserError
from seqwright.data.images.corpus import Images, read_images, read_splits
from seqwright.data.images.files import Pixels
from seqwright.data.images.patches import Grid
from seqwright.runs.embedding import Embedded, Pooled
from seqwright.runs.run import Run


class ImageInputRun(Run):
    """A run whose sources are images of one size."""

    @property
    def grid(self) -> Grid:
        """The patch grid."""
        grid: Grid = self.codec.grid
        return grid

    def synthetic_pixels(self, rows: int) -> Pixels:
        """Images of noise (B, H, W, C), the same every time."""
        shape = (rows, self.grid.height, self.grid.width, self.grid.channels)
        return np.random.default_rng(1).integers(0, 256, shape, np.uint8)

    def embed(self, texts: Iterable[str], *, pooling: Pooled = "mean", **options: Any) -> Iterator[Embedded]:
        """Not supported: it has no vectors of texts."""
        raise self._unsupported()

    def images(self, on: str | Sequence[str] | None = None) -> Images:
        """Images of files, or the validation images of the run."""
        if on is None:
            images = read_splits(self.settings.data)[1]
        else:  # image files are resized to the training images
            images = read_images(on, replace(self.settings.data, size=(self.grid.height, self.grid.width)))
        if images is None:
            raise UserError(f"{self.path} has no validation images of its own; name files with --on.")
        return self.grid.fitted(images)
