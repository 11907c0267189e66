"""Where documents come from: file and line of each, kept beside the documents of a corpus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Unit = Literal["line", "record", "document"]


@dataclass(frozen=True)
class Origin:
    """The place of a document."""

    file: str
    number: int
    """From 1: its first line, its record in a table, or its number in a prepared corpus whose files are not there."""
    unit: Unit


@dataclass(frozen=True)
class Origins:
    """The places of the documents of a corpus, in order."""

    files: tuple[tuple[str, Unit], ...]
    """Name of each file, and what is numbered in it."""
    places: NDArray[np.integer]
    """(documents, 2): index of the file, number; int32, since there may be millions."""

    @classmethod
    def of_file(cls, name: str, numbers: NDArray[np.int64], unit: Unit = "line") -> Origins:
        """Of the documents of one file."""
        return cls(((name, unit),), np.stack([np.zeros_like(numbers), numbers], 1).astype(np.int32))

    @classmethod
    def join(cls, parts: Sequence[Origins]) -> Origins:
        """Of concatenated corpora."""
        firsts = np.cumsum([0, *(len(part.files) for part in parts)])
        shifted = [part.places + np.array([first, 0], np.int32) for part, first in zip(parts, firsts[:-1], strict=True)]
        files = tuple(file for part in parts for file in part.files)
        return cls(files, np.concatenate(shifted) if shifted else np.zeros((0, 2), np.int32))

    def select(self, documents: Sequence[int]) -> Origins:
        """Of these documents, in this order."""
        return Origins(self.files, self.places[list(documents)])

    def __getitem__(self, document: int) -> Origin:
        file, number = self.places[document].tolist()
        name, unit = self.files[file]
        return Origin(name, number, unit)
