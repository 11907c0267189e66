"""Masked language modeling data: packed rows with masked tokens for bidirectional encoders (Devlin et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from seqwright.core.batch import Batch, Source
from seqwright.core.config import UserError
from seqwright.data.order import permutation, randint
from seqwright.data.text.corpus import TextFiles
from seqwright.data.text.masking import Ints, Masking
from seqwright.data.text.stream import Stream
from seqwright.data.text.windows import grid
from seqwright.text.tokenizer import Tokenizer

MASK = "<mask>"


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
