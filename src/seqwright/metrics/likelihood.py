"""Likelihood: what probability a model gives to a whole text, as nll, perplexity and bits per byte or character."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqwright.core.batch import IGNORE, Batch, Source
from seqwright.core.config import UserError, check_not_negative, check_sizes
from seqwright.core.protocols import Autoregressive, Counted, Watch, unwatched
from seqwright.metrics.counts import Counts, nll_counts, scored
from seqwright.metrics.score import Floats

CHUNK = 4096
"""Tokens scored at a time by models that carry their state."""
COUNTED_CHUNK = 1 << 18
"""The same for counted models, which answer many questions at once faster than few."""
BLOCK = 256
"""Tokens in a unit of the bootstrap where a text has too few documents to resample."""


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    stride: int | None = None
    """Tokens by which windows move over a text, at most the context; half of it unless given. 1 gives each token the
    fullest context. Models that see any length use none."""
    batch_size: int = 16
    """Windows scored at a time."""
    random_batches: int = 0
    """Beside the whole text, the mean nll over this many batches of random windows (nanoGPT's measure uses 200)."""
    random_batch_size: int = 12
    """Windows in each of those batches."""
    resamples: int = 1000
    """Bootstrap resamples behind an interval; 0 for none."""
    seed: int = 1
    """Fixes the bootstrap and the random windows."""

    def __post_init__(self) -> None:
        check_sizes(self, "stride", "batch_size", "random_batch_size")
        check_not_negative(self, "random_batches", "resamples", "seed")


@dataclass(frozen=True, kw_only=True)
class ScoredText:
    """A framed text with the log-probability of each of its tokens."""

    log_probs: Floats
    """(N - 1,): of token i + 1, given all before it that the model could see."""
    real: NDArray[np.bool_]
    """(N - 1,): False where the next id is `<sos>`, which is given and never predicted."""

    @property
    def tokens(self) -> int:
        return int(self.real.sum())

    @property
    def nll(self) -> float:
        """Mean negative log-likelihood of a token, in nats."""
        return float(-self.log_probs.sum() / self.tokens)

    def units(self, sizes: NDArray[np.int64]) -> Floats:
        """(units, 4): nll, tokens, bytes and characters of each document, or each block where documents are few.

        `sizes` (N - 1, 2) says for how many bytes and characters each token stands.
        """
        starts = np.concatenate([[0], np.flatnonzero(~self.real) + 1])
        starts = starts[starts < len(self.real)]
        if len(starts) < 30:
            starts = np.arange(0, len(self.real), BLOCK)
        return np.add.reduceat(np.column_stack([-self.log_probs, self.real, sizes]), starts)


def stride_of(context: int, asked: int | None) -> int:
    """Tokens by which windows really move: a longer stride than the context would leave tokens out."""
    return min(asked or max(1, context // 2), context)


@torch.inference_mode()
def score_text(
    model: Autoregressive,
    ids: Tensor,
    *,
    sos: int | None,
    stride: int | None = None,
    batch: int = 16,
    rows: int = 1,
    apart: bool = False,
    device: torch.device | str = "cpu",
    watch: Watch = unwatched,
) -> ScoredText:
    """Scores each token of a framed text (N,).

    A model with a context sees overlapping windows of it, as rows of ordinary batches; one without reads the text from
    end to end with carried state (as `rows` slices side by side, each begun afresh, where speed matters more). `apart`
    keeps tokens of a window from seeing other documents than their own.
    """
    if ids.numel() < 2:
        raise UserError("there is nothing to predict in this text; give at least one token.")
    target = ids[1:].clone()
    if sos is not None:
        target[target == sos] = IGNORE
    border = sos if apart else None
    parts = (
        _carried(model, ids[:-1], target, rows, device)
        if model.context is None
        else _windows(model, ids[:-1], target, stride_of(model.context, stride), batch, border, device)
    )
    log_probs = np.zeros(target.numel())
    done = 0
    for place, found in parts:
        log_probs[place : place + len(found)] = found
        done += len(found)
        watch(done, target.numel())
    return ScoredText(log_probs=log_probs, real=(target != IGNORE).numpy())


def _windows(
    model: Autoregressive,
    input: Tensor,
    target: Tensor,
    stride: int,
    batch: int,
    border: int | None,
    device: torch.device | str,
) -> Iterator[tuple[int, Floats]]:
    """(first position, log-probabilities) of each stretch, read with as much context before it as the model takes;
    `border` begins documents that are kept apart."""
    assert model.context is not None
    length = min(model.context, len(input))
    stride = min(stride, length)
    stops = [length]
    while stops[-1] < len(input):
        stops.append(min(stops[-1] + stride, len(input)))
    firsts = [0, *stops[:-1]]
    for group in range(0, len(stops), batch):
        ends = stops[group : group + batch]
        spans = [slice(end - length, end) for end in ends]
        given = Batch.of_text(torch.stack([input[s] for s in spans]), torch.stack([target[s] for s in spans]))
        log_probs, _ = model.score((given if border is None else given.with_documents(border)).to(device))
        for row, first, end in zip(log_probs.cpu().double().numpy(), firsts[group : group + batch], ends, strict=True):
            yield first, row[length - (end - first) :]


def _carried(
    model: Autoregressive, input: Tensor, target: Tensor, rows: int, device: torch.device | str
) -> Iterator[tuple[int, Floats]]:
    """(first position, log-probabilities) of each chunk of each slice."""
    rows = min(rows, len(input))
    size = math.ceil(len(input) / rows)
    missing = rows * size - len(input)
    inputs = torch.cat([input, input[-1:].expand(missing)]).view(rows, size)
    targets = torch.cat([target, target.new_full((missing,), IGNORE)]).view(rows, size)
    state = model.start(Source.empty(rows, device), capacity=size)
    chunk = COUNTED_CHUNK if isinstance(model, Counted) else CHUNK
    for begin in range(0, size, chunk):
        span = slice(begin, begin + chunk)
        given = Batch.of_text(inputs[:, span].contiguous(), targets[:, span].contiguous())
        log_probs, after = model.score(given.to(device), state)
        assert after is not None
        state = after
        for row, values in enumerate(log_probs.cpu().double().numpy()):
            place = row * size + begin
            yield place, values[: max(0, len(input) - place)]


@torch.inference_mode()
def random_windows(
    model: Autoregressive,
    ids: Tensor,
    *,
    sos: int | None,
    context: int,
    batch: int,
    batches: int,
    seed: int,
    apart: bool = False,
    device: torch.device | str,
) -> float:
    """Mean nll over windows at random places, most tokens with less context than they could have: nanoGPT's measure."""
    if len(ids) <= context:
        raise UserError(f"random windows of {context} tokens do not fit a text of {len(ids)}; set random_batches = 0.")
    generator = torch.Generator().manual_seed(seed)
    total, count = 0.0, 0
    for _ in range(batches):
        places = torch.randint(len(ids) - context, (batch,), generator=generator)
        windows = torch.stack([ids[p : p + context + 1] for p in places.tolist()])
        target = windows[:, 1:].clone()
        if sos is not None:
            target[target == sos] = IGNORE
        given = Batch.of_text(windows[:, :-1].contiguous(), target)
        log_probs, _ = model.score((given.with_documents(sos) if apart and sos is not None else given).to(device))
        total -= log_probs.cpu().double().sum().item()
        count += int((target != IGNORE).sum())
    return total / max(1, count)


def likelihood_scores(
    text: ScoredText,
    *,
    sizes: NDArray[np.int64],
    signature: str,
    lossy: str | None = None,
    config: EvaluationConfig,
) -> dict[str, Any]:
    """The JSON of an evaluation: plain numbers, and under "scores" each with its interval and signature.

    `sizes` (N - 1, 2) says for how many bytes and characters each token stands, and is resampled with it. `lossy` says
    why the tokens do not determine the text; then bits per byte and character are refused, because the model was not
    asked for all of it.
    """
    rows = text.units(sizes)
    bits: dict[str, Callable[[Floats], Floats]] = {
        "bits_per_byte": lambda sums: sums[:, 0] / math.log(2) / np.maximum(1, sums[:, 2]),
        "bits_per_character": lambda sums: sums[:, 0] / math.log(2) / np.maximum(1, sums[:, 3]),
    }
    counts = nll_counts(rows, signature)
    if lossy is None:
        counts += [
            Counts(name=name, rows=rows, formula=formula, signature=f"{name}|{signature}", better=-1)
            for name, formula in bits.items()
        ]
    found = scored(counts, config) | {"tokens": text.tokens}
    return found if lossy is None else found | dict.fromkeys(bits) | {"refused": dict.fromkeys(bits, lossy)}
