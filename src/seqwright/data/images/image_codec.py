"""What a run sees pictures through: how they are cut, and what it may answer. Kept in its folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from seqwright.core.batch import EncoderSizes, OutputSpec
from seqwright.core.config import UserError
from seqwright.data.images.corpus import Images, ImagesConfig
from seqwright.data.images.patches import Grid, Ints, Views
from seqwright.data.labeled.labels import Labels


@dataclass(frozen=True, kw_only=True)
class ImageCodec:
    grid: Grid
    answer: str
    names: tuple[str, ...] = ()
    """Classes in the order of their numbers; none where pictures are answered."""

    @classmethod
    def of(cls, pictures: Images, config: ImagesConfig) -> Self:
        """Through which these training pictures are seen."""
        grid = Grid.of(pictures, config)
        if config.objective not in ("class", "frames"):
            return cls(grid=grid, answer=config.objective)
        if pictures.labels is None:
            raise UserError(
                f'answer = "{config.objective}" needs labels: an IDX file of them, or a folder for each class.'
            )
        names = {name for label in pictures.labels for name in _parted(label, config.objective)}
        if len(names) < 2:
            raise UserError(f"every picture has the label {pictures.labels[0]!r}; at least two classes are needed.")
        return cls(grid=grid, answer=config.objective, names=tuple(sorted(names)))

    @classmethod
    def read(cls, table: dict[str, Any]) -> Self:
        """What `table` wrote."""
        return cls(grid=Grid(**table["grid"]), answer=table["answer"], names=tuple(table["names"]))

    def table(self) -> dict[str, Any]:
        return {"grid": vars(self.grid), "answer": self.answer, "names": list(self.names)}

    @property
    def labels(self) -> Labels:
        return Labels(kind="single", names=self.names)

    @property
    def sizes(self) -> EncoderSizes:
        if self.names:
            answers = OutputSpec(kind="tags" if self.answer == "frames" else "class", count=len(self.names))
        else:
            answers = OutputSpec(kind="pixels", count=self.grid.numbers)
        hidden = 2 if self.answer == "inpaint" else 1
        return EncoderSizes(answers=answers, features=self.grid.numbers, length=self.grid.length, segments=hidden)

    def targets(self, pictures: Images) -> Ints | None:
        """(N,) classes, or (N, frames); none where pictures are answered."""
        if not self.names:
            return None
        if pictures.labels is None:
            raise UserError("these pictures have no labels; there is nothing to compare answers with.")
        numbers = {name: n for n, name in enumerate(self.names)}
        rows = [_parted(label, self.answer) for label in pictures.labels]
        unknown = sorted({name for row in rows for name in row if name not in numbers})
        if unknown:
            raise UserError(f"the label {unknown[0]!r} was not learned; known are {', '.join(self.names[:12])}.")
        if any(len(row) != self.grid.frames for row in rows):
            raise UserError(f"every picture needs {self.grid.frames} labels with spaces between them.")
        found = np.array([[numbers[name] for name in row] for row in rows], np.int64)
        return found if self.answer == "frames" else found[:, 0]

    def views(self, pictures: Images, config: ImagesConfig, *, seed: int, batch: int, known: bool = True) -> Views:
        """Images as a model is shown them, with what it is to answer where that is known."""
        targets = self.targets(pictures) if known else None
        return Views(pictures, targets, self.grid, config, seed=seed, batch=batch)


def _parted(label: str, answer: str) -> list[str]:
    return label.split() if answer == "frames" else [label]
