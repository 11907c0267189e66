"""Damaged text and its restoration: pairs for encoder-decoders, made from plain text anew at every step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from seqwright.core.batch import IGNORE, Batch, Source
from seqwright.core.config import UserError, check_sizes
from seqwright.data.order import draw, permutation, uniform
from seqwright.data.text import noise
from seqwright.data.text.corpus import TextFiles
from seqwright.data.text.masked import MASK
from seqwright.data.text.stream import Stream
from seqwright.data.text.windows import grid
from seqwright.text.tokenizer import Tokenizer

NOISE = 6
"""The purpose under which noise draws its numbers."""
SHARES = {"infilling": 0.3, "deletion": 0.3, "spans": 0.15, "prefix": 0.5}
"""The share of the tokens that is damaged, as in the papers; of a prefix, what is missing on average."""


@dataclass(frozen=True, kw_only=True)
class DenoisingConfig(TextFiles):
    kind: Literal["denoising"] = "denoising"
    """Text to be restored from what is left of it."""
    noise: Literal["infilling", "spans", "deletion", "prefix"] = "infilling"
    """What is done: each span becomes one <mask> and the whole text is said (infilling, BART), each becomes a sentinel
    and only the spans are said (spans, T5), single tokens go without a trace (deletion), or the text is given up to any
    place and the rest is said (prefix)."""
    noise_density: float | None = None
    """The share of the tokens that is damaged; 0.3 unless given, 0.15 for spans. A prefix may end anywhere."""
    mean_span_length: float = 3.0
    """The mean length of a span."""
    permute_sentences: bool = False
    """Whether sentences are also put into another order (not for spans)."""
    length: int = 128
    """Tokens of a text; documents are packed, and cut where they are longer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self, "length")
        if not 0 < self.damaged < 1:
            raise UserError(f"share must be between 0 and 1, not {self.noise_density}.")
        if self.mean_span_length < 1:
            raise UserError(f"span must be at least 1, not {self.mean_span_length}.")
        if self.permute_sentences and self.noise in ("spans", "prefix"):
            raise UserError(f"what is said stands where it stood; leave permute out with noise = {self.noise}.")
        if self.noise_density is not None and self.noise == "prefix":
            raise UserError("a prefix may end anywhere; leave share out with noise = prefix.")

    @property
    def damaged(self) -> float:
        return SHARES[self.noise] if self.noise_density is None else self.noise_density

    def total(self, length: int) -> int:
        """Tokens that are damaged in a text of so many: at least one, and never all."""
        return min(length - 1, max(1, math.floor(self.damaged * length + 0.5)))

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """The reserved tokens that this noise needs."""
        count = max(1, round(self.total(self.length) / self.mean_span_length))
        return {"spans": tuple(f"<x{n}>" for n in range(count)), "infilling": (MASK,)}.get(self.noise, ())


class DenoisingRows:
    """Every token once an epoch, in texts of one length that are damaged anew by (seed, step)."""

    carried = False

    def __init__(
        self,
        stream: Stream,
        tokenizer: Tokenizer,
        config: DenoisingConfig,
        *,
        batch: int,
        seed: int,
        shift: bool = True,
    ):
        if tokenizer.eos is None:
            raise UserError("sources and targets are ended by <eos>; keep it in tokenizer.special_tokens.")
        self.sos, self.eos = stream.sos, tokenizer.eos
        self.ids = stream.ids[stream.ids != stream.sos]
        self.config, self.tokenizer = config, tokenizer
        self.length, self.rows, self.seed = config.length, batch, seed
        self.marks = [tokenizer.special_tokens[name] for name in config.special_tokens]
        shown = tokenizer.tokens(range(tokenizer.size))
        self.ends = np.array([name.strip().endswith((".", "!", "?")) for name in shown])
        self.ends[self.eos] = True
        count = -(-len(self.ids) // self.length)
        self.windows, self.shifts = grid(len(self.ids), self.length) if shift else (count, (0, 0))
        self.steps_per_epoch = -(-self.windows // batch)

    def batch(self, step: int) -> Batch:
        epoch, number = divmod(step, self.steps_per_epoch)
        windows = permutation(self.seed, epoch, self.windows)[number * self.rows : (number + 1) * self.rows]
        shift = draw(self.seed, epoch, *self.shifts)
        drawn = uniform(self.seed, step, NOISE, len(windows) * 3 * (self.length + 1)).reshape(len(windows), 3, -1)
        pairs = []
        for window, numbers in zip(windows.tolist(), drawn, strict=True):
            begin = window * self.length - shift
            text = self.ids[max(begin, 0) : begin + self.length].astype(np.int64)
            pairs.append(self.pair(text, numbers))
        return self._framed(pairs)

    def pair(self, ids: noise.Ints, numbers: noise.Floats) -> tuple[noise.Ints, noise.Ints]:
        """(source, target) of a text, without frames; `numbers` (3, length + 1) decide everything."""
        config = self.config
        total = config.total(len(ids))
        if total < 1:  # a single token is left as it is
            return ids, ids
        order, places, lengths = numbers
        if config.noise == "prefix":
            end = 1 + int(places[0] * (len(ids) - 1))
            return ids[:end], ids[end:]
        if config.noise == "spans":
            return noise.marked(
                noise.parted(ids, noise.even_lengths(total, config.mean_span_length, lengths), places), self.marks
            )
        source = noise.permuted(ids, self.ends[ids], order) if config.permute_sentences else ids
        if config.noise == "deletion":
            gone = np.argsort(places[: len(ids)], kind="stable")[:total]
            return np.delete(source, gone), ids
        spans = noise.poisson_lengths(total, config.mean_span_length, lengths)
        return noise.infilled(noise.parted(source, spans, places), self.marks[0]), ids

    def _framed(self, pairs: Sequence[tuple[noise.Ints, noise.Ints]]) -> Batch:
        """`x₁ x₂ … <eos>` is given, `<sos> y₁ y₂ …` read and `y₁ y₂ … <eos>` predicted, as with any pairs."""
        ended = [[np.append(side, self.eos) for side in sides] for sides in zip(*pairs, strict=True)]
        source, target = (
            torch.nn.utils.rnn.pad_sequence([torch.from_numpy(row) for row in side], batch_first=True, padding_value=-1)
            for side in ended
        )
        pad = self.tokenizer.padding
        read = torch.cat([torch.full_like(target[:, :1], self.sos), target[:, :-1]], 1)
        real = target >= 0
        return Batch(
            source=Source(mask=source >= 0, ids=source.masked_fill(source < 0, pad)),
            input=read.masked_fill(~real, pad),
            target=target.masked_fill(~real, IGNORE),
        )
