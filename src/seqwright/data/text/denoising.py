"""Denoising pre-training data (BART, T5): noised sources and their targets, from plain text, noised anew each step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from seqwright.core.batch import IGNORE, Batch, Source
from seqwright.core.config import UserError, check_sizes
from seqwright.data.order import permutation, randint, uniform
from seqwright.data.text import noise
from seqwright.data.text.corpus import TextFiles
from seqwright.data.text.masked import MASK
from seqwright.data.text.stream import Stream
from seqwright.data.text.windows import grid
from seqwright.text.tokenizer import Tokenizer

NOISE = 6
"""Purpose of the random numbers of noise (`order.uniform`)."""
NOISE_DENSITY = {"infilling": 0.3, "deletion": 0.3, "spans": 0.15, "prefix": 0.5}
"""Default noise density, as in the papers; for a prefix, the share that is missing on average."""


@dataclass(frozen=True, kw_only=True)
class DenoisingConfig(TextFiles):
    kind: Literal["denoising"] = "denoising"
    """Text for denoising pre-training."""
    noise: Literal["infilling", "spans", "deletion", "prefix"] = "infilling"
    """Noising function: infilling replaces each span by one <mask>, and the target is the whole text (BART); spans
    replaces each by a sentinel, and the target is the spans (T5); deletion removes single tokens; prefix cuts the text
    at a random position, and the target is the rest."""
    noise_density: float | None = None
    """Share of tokens that are noised; default 0.3, for spans 0.15. Not for prefix."""
    mean_span_length: float = 3.0
    """Mean span length in tokens."""
    permute_sentences: bool = False
    """Sentence permutation in addition (infilling and deletion only)."""
    length: int = 128
    """Tokens per example; documents are packed, and split where they are longer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self, "length")
        if not 0 < self.density < 1:
            raise UserError(f"noise_density must be between 0 and 1, not {self.noise_density}.")
        if self.mean_span_length < 1:
            raise UserError(f"mean_span_length must be at least 1, not {self.mean_span_length}.")
        if self.permute_sentences and self.noise in ("spans", "prefix"):
            raise UserError(
                f'targets of noise = "{self.noise}" keep the order of the source; leave permute_sentences out.'
            )
        if self.noise_density is not None and self.noise == "prefix":
            raise UserError('a prefix ends at a random position; leave noise_density out with noise = "prefix".')

    @property
    def density(self) -> float:
        """The noise density, by default that of the noising function."""
        return NOISE_DENSITY[self.noise] if self.noise_density is None else self.noise_density

    def noised_tokens(self, length: int) -> int:
        """The number of noised tokens in a text of this length: at least one, and never all."""
        return min(length - 1, max(1, math.floor(self.density * length + 0.5)))

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """The special tokens that the noising function needs: sentinels or `<mask>`."""
        count = max(1, round(self.noised_tokens(self.length) / self.mean_span_length))
        return {"spans": tuple(f"<x{n}>" for n in range(count)), "infilling": (MASK,)}.get(self.noise, ())


class DenoisingRows:
    """A feed of packed texts of fixed length, noised by (seed, step); each token is in one example per epoch."""

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
        self.sentinels = [tokenizer.special_tokens[name] for name in config.special_tokens]
        tokens = tokenizer.tokens(range(tokenizer.size))
        # (V,): tokens that end a sentence, as BART splits documents at full stops.
        self.ends = np.array([token.strip().endswith((".", "!", "?")) for token in tokens])
        self.ends[self.eos] = True
        count = -(-len(self.ids) // self.length)
        self.windows, self.shifts = grid(len(self.ids), self.length) if shift else (count, (0, 0))
        self.steps_per_epoch = -(-self.windows // batch)

    def batch(self, step: int) -> Batch:
        epoch, number = divmod(step, self.steps_per_epoch)
        windows = permutation(self.seed, epoch, self.windows)[number * self.rows : (number + 1) * self.rows]
        shift = randint(self.seed, epoch, *self.shifts)
        draws = uniform(self.seed, step, NOISE, len(windows) * 3 * (self.length + 1)).reshape(len(windows), 3, -1)
        pairs = []
        for window, numbers in zip(windows.tolist(), draws, strict=True):
            begin = window * self.length - shift
            text = self.ids[max(begin, 0) : begin + self.length].astype(np.int64)
            pairs.append(self.pair(text, numbers))
        return self._to_batch(pairs)

    def pair(self, ids: noise.Ints, numbers: noise.Floats) -> tuple[noise.Ints, noise.Ints]:
        """(source, target) of a text, without special tokens around them; `numbers` (3, length + 1) are uniform."""
        config = self.config
        total = config.noised_tokens(len(ids))
        if total < 1:  # a single token is not noised
            return ids, ids
        order, positions, lengths = numbers
        if config.noise == "prefix":
            end = 1 + int(positions[0] * (len(ids) - 1))
            return ids[:end], ids[end:]
        if config.noise == "spans":
            return noise.span_corruption(
                noise.remove_spans(ids, noise.random_partition(total, config.mean_span_length, lengths), positions),
                self.sentinels,
            )
        source = noise.permute_sentences(ids, self.ends[ids], order) if config.permute_sentences else ids
        if config.noise == "deletion":
            deleted = np.argsort(positions[: len(ids)], kind="stable")[:total]
            return np.delete(source, deleted), ids
        spans = noise.poisson_lengths(total, config.mean_span_length, lengths)
        return noise.text_infilling(noise.remove_spans(source, spans, positions), self.sentinels[0]), ids

    def _to_batch(self, pairs: Sequence[tuple[noise.Ints, noise.Ints]]) -> Batch:
        """Teacher forcing: source `x₁ x₂ … <eos>`, input `<sos> y₁ y₂ …`, target `y₁ y₂ … <eos>`."""
        ended = [[np.append(side, self.eos) for side in sides] for sides in zip(*pairs, strict=True)]
        # Padded with -1, since every id from 0 on may be a token.
        source, target = (
            torch.nn.utils.rnn.pad_sequence([torch.from_numpy(row) for row in side], batch_first=True, padding_value=-1)
            for side in ended
        )
        pad = self.tokenizer.padding
        input = torch.cat([torch.full_like(target[:, :1], self.sos), target[:, :-1]], 1)
        real = target >= 0
        return Batch(
            source=Source(mask=source >= 0, ids=source.masked_fill(source < 0, pad)),
            input=input.masked_fill(~real, pad),
            target=target.masked_fill(~real, IGNORE),
        )
