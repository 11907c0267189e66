"""The part that runs with image sources share: image classifiers, restorers and captioners."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from seqwright.data.files import plain_suffix
from seqwright.data.images.corpus import Images, read_images, read_splits
from seqwright.data.images.files import SUFFIXES, Pixels
from seqwright.data.images.patches import Grid
from seqwright.runs.embedding import Embedded, Pooled
from seqwright.runs.run import Run

V = TypeVar("V", bound=Callable[..., Any])


def one_or_many_images(verb: V) -> V:
    """A verb of many image files that also takes one: the name of an image file has one result; that of a folder, .npz
    or IDX file, and a list of names, have a list of them; of any other iterable, an iterator of results."""

    @functools.wraps(verb)
    def call(self: Run, files: Any, *inputs: Any, **options: Any) -> Any:
        one = isinstance(files, str | os.PathLike)
        results = verb(self, [files] if one else files, *inputs, **options)
        if one and plain_suffix(Path(files)) in SUFFIXES and not Path(files).is_dir():
            (result,) = results
            return result
        return list(results) if one or isinstance(files, Sequence) else results

    return cast(V, call)


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

    def embed(self, texts: Iterable[str], *, pooling: Pooled = "mean") -> Iterator[Embedded]:
        """Not supported: it has no vectors of texts."""
        raise self._unsupported()

    def images(self, on: str | Sequence[str] | None = None) -> Images:
        """Images of files, or the validation images of the run."""
        if on is None:
            images = read_splits(self.settings.data)[1]
        else:  # image files are resized to the training images
            images = read_images(on, replace(self.settings.data, size=(self.grid.height, self.grid.width)))
        if images is None:
            raise self._nothing_held_out("images")
        return self.grid.fitted(images)
