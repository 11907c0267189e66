"""Rows of ids without padding, as the bag reads them: of a padded source, or some of many texts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from seqwright.core.batch import Source
from seqwright.models.bag.features import Ints
from seqwright.text.ragged import RaggedTexts, concatenated_ranges


@dataclass(frozen=True)
class Unpadded:
    """The rows of a padded source as ragged texts."""

    ids: Ints
    lengths: Ints
    segments: NDArray[np.integer] | None
    words: NDArray[np.integer] | None

    @classmethod
    def of(cls, source: Source) -> Unpadded:
        assert source.ids is not None
        mask = source.mask.cpu()

        def real(values: Tensor | None) -> Ints | None:
            return None if values is None else values.cpu()[mask].numpy()

        ids = source.ids.cpu()[mask].numpy()
        return cls(ids, mask.sum(1).numpy(), real(source.segments), real(source.words))

    @classmethod
    def select(cls, texts: RaggedTexts, rows: Ints, ends: Ints | None = None) -> Unpadded:
        """The given rows of ragged texts; `ends` are the cumulative sums of their lengths."""
        starts = (np.cumsum(texts.lengths) if ends is None else ends)[rows] - texts.lengths[rows]
        positions = concatenated_ranges(starts, texts.lengths[rows])
        segments, words = (None if part is None else part[positions] for part in (texts.segments, texts.words))
        return cls(texts.ids[positions], texts.lengths[rows], segments, words)
