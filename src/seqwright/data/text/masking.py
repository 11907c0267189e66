"""Masks: which tokens are hidden, and what is shown in their place. A pure function of (seed, step), so that the same
text is hidden otherwise each time (Liu et al. 2019) and a resumed training hides what it would have hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqwright.core.batch import IGNORE
from seqwright.data.order import uniform

Ints = NDArray[np.int64]

MASKS = 5
"""The purpose under which masks draw their numbers."""
REPLACED, STRANGE = 0.8, 0.1
"""Of the hidden tokens, the share shown as `<mask>` and the share shown as a token drawn at random; the others are
shown as they are, so that no token can be trusted (Devlin et al. 2019)."""


@dataclass(frozen=True, kw_only=True)
class Masking:
    """What may be hidden, and how much of it."""

    mask: int
    """The id of `<mask>`."""
    plain: NDArray[np.bool_]
    """(V,): ids that stand for text. No other is ever hidden, nor shown in the place of one."""
    share: float = 0.15

    def hide(
        self, ids: Ints, *, seed: int, step: int, word_starts: NDArray[np.bool_] | None = None
    ) -> tuple[Ints, Ints]:
        """(B, S) as the model sees it, and the tokens to guess, IGNORE where none is; whole words where it is said at
        which positions they begin."""
        chance, fate, stranger = uniform(seed, step, MASKS, 3 * ids.size).reshape(3, *ids.shape)
        if word_starts is not None:  # the pieces of a word share the chance of its first
            first = np.maximum.accumulate(np.where(word_starts, np.arange(ids.shape[1]), 0), 1)
            chance = np.take_along_axis(chance, first, 1)
        hidden = (chance < self.share) & self.plain[ids]
        others = np.flatnonzero(self.plain)
        shown = np.where(fate < REPLACED + STRANGE, others[(stranger * len(others)).astype(np.int64)], ids)
        shown = np.where(fate < REPLACED, self.mask, shown)
        return np.where(hidden, shown, ids), np.where(hidden, ids, IGNORE)
