"""Token masking (Devlin et al. 2019) as a pure function of (seed, step).

Masks are dynamic: the same text is masked differently each time (Liu et al. 2019), and a resumed training masks what
an uninterrupted one would have masked.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqwright.core.batch import IGNORE
from seqwright.data.order import uniform

Ints = NDArray[np.int64]

MASKS = 5
"""Purpose of the random numbers of masks (`order.uniform`)."""
MASKED, RANDOM = 0.8, 0.1
"""Of the selected tokens, the share replaced by `<mask>` and the share replaced by a random token; the rest keep their
id, so that every input token may be wrong (Devlin et al. 2019)."""


@dataclass(frozen=True, kw_only=True)
class Masking:
    """Selects tokens to predict and replaces them in the input."""

    mask: int
    """Id of `<mask>`."""
    plain: NDArray[np.bool_]
    """(V,): ids of text. Special tokens are never selected, and never drawn as replacements."""
    rate: float = 0.15

    def apply(
        self, ids: Ints, *, seed: int, step: int, word_starts: NDArray[np.bool_] | None = None
    ) -> tuple[Ints, Ints]:
        """(B, S) input with masked tokens, and targets, IGNORE where no token is selected; whole words are selected
        where `word_starts` (B, S) is given."""
        selection, outcome, replacement = uniform(seed, step, MASKS, 3 * ids.size).reshape(3, *ids.shape)
        if word_starts is not None:  # all pieces of a word share the draw of the first
            first = np.maximum.accumulate(np.where(word_starts, np.arange(ids.shape[1]), 0), 1)
            selection = np.take_along_axis(selection, first, 1)
        selected = (selection < self.rate) & self.plain[ids]
        vocabulary = np.flatnonzero(self.plain)
        shown = np.where(outcome < MASKED + RANDOM, vocabulary[(replacement * len(vocabulary)).astype(np.int64)], ids)
        shown = np.where(outcome < MASKED, self.mask, shown)
        return np.where(selected, shown, ids), np.where(selected, ids, IGNORE)
