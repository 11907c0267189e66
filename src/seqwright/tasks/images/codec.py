"""The codec of an image run: its patch grid and its classes, saved with the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from seqwright.core.batch import EncoderSizes, OutputSpec
from seqwright.core.config import UserError
from seqwright.core.storage import read_record, write_json
from seqwright.data.images.corpus import Images, ImagesConfig, Objective
from seqwright.data.images.patches import Grid, ImageFeed, Ints
from seqwright.data.labeled.labels import Labels
from seqwright.runs.directory import RunDirectory


@dataclass(frozen=True, kw_only=True)
class SavedCodec:
    """The keys of labels.json of an image run."""

    grid: Grid
    answer: Objective
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ImageCodec:
    """Images to patches, and labels to targets."""

    grid: Grid
    objective: str
    names: tuple[str, ...] = ()
    """Class names in the order of their ids; empty for restoration."""

    @classmethod
    def learn(cls, images: Images, config: ImagesConfig) -> Self:
        """The codec of these training images."""
        grid = Grid.of(images, config)
        if config.objective not in ("class", "frames"):
            return cls(grid=grid, objective=config.objective)
        if images.labels is None:
            raise UserError(
                f'objective = "{config.objective}" needs labels: an IDX file of them, or a folder for each class.'
            )
        names = {name for label in images.labels for name in _classes(label, config.objective)}
        if len(names) < 2:
            raise UserError(f"every image has the label {images.labels[0]!r}; at least two classes are needed.")
        return cls(grid=grid, objective=config.objective, names=tuple(sorted(names)))

    @classmethod
    def open(cls, directory: RunDirectory) -> Self:
        saved = read_record(directory.labels_path, SavedCodec)
        return cls(grid=saved.grid, objective=saved.answer, names=saved.names)

    def save(self, directory: RunDirectory) -> None:
        table = {"grid": vars(self.grid), "answer": self.objective, "names": list(self.names)}
        write_json(directory.labels_path, table)

    @property
    def labels(self) -> Labels:
        """The classes as labels of a classifier."""
        return Labels(kind="single", names=self.names)

    @property
    def sizes(self) -> EncoderSizes:
        """Input and output sizes of the model."""
        if self.names:
            outputs = OutputSpec(kind="tags" if self.objective == "frames" else "class", count=len(self.names))
        else:
            outputs = OutputSpec(kind="pixels", count=self.grid.patch_dim)
        segments = 2 if self.objective == "inpaint" else 1  # segment 1 marks masked patches
        return EncoderSizes(
            answers=outputs,
            features=self.grid.patch_dim,
            length=self.grid.length,
            segments=segments,
            causal=self.objective == "next-frame",
        )

    def targets(self, images: Images) -> Ints | None:
        """Class ids (N,), or (N, frames); None for restoration."""
        if not self.names:
            return None
        if images.labels is None:
            raise UserError("these images have no labels, so predictions cannot be scored; give labels.")
        ids = {name: n for n, name in enumerate(self.names)}
        rows = [_classes(label, self.objective) for label in images.labels]
        unknown = sorted({name for row in rows for name in row if name not in ids})
        if unknown:
            raise UserError(f"the label {unknown[0]!r} was not in training; known are {', '.join(self.names[:12])}.")
        if any(len(row) != self.grid.frames for row in rows):
            raise UserError(f"every image needs {self.grid.frames} labels with spaces between them.")
        targets = np.array([[ids[name] for name in row] for row in rows], np.int64)
        return targets if self.objective == "frames" else targets[:, 0]

    def feed(self, images: Images, config: ImagesConfig, *, seed: int, batch: int) -> ImageFeed:
        """A feed of these images for training."""
        return ImageFeed(images, self.targets(images), self.grid, config, seed=seed, batch=batch)

    def evaluation_feed(self, images: Images, config: ImagesConfig, *, batch: int, labeled: bool = True) -> ImageFeed:
        """A feed of these images in file order, corrupted the same way every time; without targets unless `labeled`."""
        targets = self.targets(images) if labeled else None
        return ImageFeed(images, targets, self.grid, config, seed=0, batch=batch, shuffle=False)


def _classes(label: str, objective: str) -> list[str]:
    return label.split() if objective == "frames" else [label]
