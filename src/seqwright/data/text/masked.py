"""Masked language modeling data: packed rows with masked tokens for bidirectional encoders (Devlin et al. 2019).

Masks are dynamic: the same text is masked differently each time (Liu et al. 2019). They are a function of (seed, step),
so that a resumed training masks what an uninterrupted one would have masked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from seqwright.core.batch import IGNORE, Batch, Source
from seqwright.core.config import UserError
from seqwright.data.order import permutation, randint, uniform
from seqwright.data.text.corpus import TextFiles
from seqwright.data.text.stream import Stream
from seqwright.data.text.windows import grid
from seqwright.text.tokenizer import Tokenizer

Ints = NDArray[np.int64]

MASK = "<mask>"
MASKS = 5
"""Purpose of the random numbers of masks (`order.uniform`)."""
MASKED, RANDOM = 0.8, 0.1
"""Of the selected tokens, the share replaced by `<mask>` and the share replaced by a random token; the rest keep their
id, so that every input token may be wrong (Devlin et al. 2019)."""


@dataclass(frozen=True, kw_only=True)
class MaskedConfig(TextFiles):
    kind: Literal["masked"] = "masked"
    """Text for masked language models."""
    mask_rate: float = 0.15
    """Share of tokens that are masked."""
    whole_words: bool = False
    """Whole-word masking: all pieces of a word are masked, or none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.mask_rate < 1:
            raise UserError(f"mask_rate must be between 0 and 1, not {self.mask_rate}.")


class MaskedRows:
    """A feed of packed rows with masked tokens; each token is read once per epoch.

    A row is `<sos>` and a window of the text across document boundaries, which `<eos>` marks. The grid of windows
    shifts each epoch.
    """

    carried = False

    def __init__(
        self,
        stream: Stream,
        tokenizer: Tokenizer,
        config: MaskedConfig,
        *,
        length: int,
        batch: int,
        seed: int,
        shift: bool = True,
    ):
        assert tokenizer.mask is not None
        self.masking = Masking(mask=tokenizer.mask, plain=tokenizer.is_text, rate=config.mask_rate)
        self.tokenizer, self.whole_words = tokenizer, config.whole_words
        self.ids = stream.ids[stream.ids != stream.sos]
        self.sos, self.pad = stream.sos, stream.pad
        self.inner, self.rows, self.seed = length - 1, batch, seed  # <sos> takes one position
        count = -(-len(self.ids) // self.inner)
        self.windows, self.shifts = grid(len(self.ids), self.inner) if shift else (count, (0, 0))
        self.steps_per_epoch = -(-self.windows // batch)

    def batch(self, step: int) -> Batch:
        epoch, number = divmod(step, self.steps_per_epoch)
        windows = permutation(self.seed, epoch, self.windows)[number * self.rows : (number + 1) * self.rows]
        ids, real = self.read(windows, randint(self.seed, epoch, *self.shifts))
        starts = self.tokenizer.word_start_mask(ids) if self.whole_words else None
        masked, target = self.masking.apply(ids, seed=self.seed, step=step, word_starts=starts)
        source = Source(mask=torch.from_numpy(real), ids=torch.from_numpy(masked))
        return Batch.of_source(source, torch.from_numpy(target))

    def read(self, windows: Ints, shift: int) -> tuple[Ints, np.ndarray]:
        """(B, S) ids, `<sos>` first and right-padded, and the padding mask."""
        begin = windows * self.inner - shift
        end = np.minimum(begin + self.inner, len(self.ids))
        positions = np.maximum(begin, 0)[:, None] + np.arange(self.inner)  # (B, S - 1)
        real = positions < end[:, None]
        inner = np.where(real, self.ids[np.where(real, positions, 0)].astype(np.int64), self.pad)
        first = np.ones((len(windows), 1), np.int64)
        return np.concatenate([first * self.sos, inner], 1), np.concatenate([first == 1, real], 1)


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
