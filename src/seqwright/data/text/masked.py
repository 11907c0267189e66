"""Text with some of its tokens hidden: packed rows for a model that reads both ways (Devlin et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from seqwright.core.batch import Batch, Source
from seqwright.core.config import UserError
from seqwright.data.order import draw, permutation
from seqwright.data.text.corpus import TextFiles
from seqwright.data.text.masking import Ints, Masking
from seqwright.data.text.stream import Stream
from seqwright.data.text.windows import grid
from seqwright.text.tokenizer import Tokenizer

MASK = "<mask>"


@dataclass(frozen=True, kw_only=True)
class MaskedConfig(TextFiles):
    kind: Literal["masked"] = "masked"
    """Text with hidden tokens to guess."""
    mask_rate: float = 0.15
    """The share of the tokens that is hidden."""
    whole_words: bool = False
    """Whether the pieces of a word are hidden together or not at all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.mask_rate < 1:
            raise UserError(f"share must be between 0 and 1, not {self.mask_rate}.")


class MaskedRows:
    """Every token once an epoch, in rows that begin with `<sos>` and hold what follows one another in the text, over
    the borders of documents, which `<eos>` marks. Where rows begin moves from epoch to epoch."""

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
        self.masking = Masking(mask=tokenizer.mask, plain=tokenizer.is_text, share=config.mask_rate)
        self.tokenizer, self.whole_words = tokenizer, config.whole_words
        self.ids = stream.ids[stream.ids != stream.sos]
        self.sos, self.pad = stream.sos, stream.pad
        self.inner, self.rows, self.seed = length - 1, batch, seed
        count = -(-len(self.ids) // self.inner)
        self.windows, self.shifts = grid(len(self.ids), self.inner) if shift else (count, (0, 0))
        self.steps_per_epoch = -(-self.windows // batch)

    def batch(self, step: int) -> Batch:
        epoch, number = divmod(step, self.steps_per_epoch)
        windows = permutation(self.seed, epoch, self.windows)[number * self.rows : (number + 1) * self.rows]
        ids, real = self.read(windows, draw(self.seed, epoch, *self.shifts))
        starts = self.tokenizer.word_start_mask(ids) if self.whole_words else None
        seen, target = self.masking.hide(ids, seed=self.seed, step=step, word_starts=starts)
        source = Source(mask=torch.from_numpy(real), ids=torch.from_numpy(seen))
        return Batch.of_source(source, torch.from_numpy(target))

    def read(self, windows: Ints, shift: int) -> tuple[Ints, np.ndarray]:
        """(B, S) ids with `<sos>` in front and padding behind, and which are real."""
        begin = windows * self.inner - shift
        end = np.minimum(begin + self.inner, len(self.ids))
        places = np.maximum(begin, 0)[:, None] + np.arange(self.inner)  # (B, S - 1)
        real = places < end[:, None]
        inside = np.where(real, self.ids[np.where(real, places, 0)].astype(np.int64), self.pad)
        first = np.ones((len(windows), 1), np.int64)
        return np.concatenate([first * self.sos, inside], 1), np.concatenate([first == 1, real], 1)
