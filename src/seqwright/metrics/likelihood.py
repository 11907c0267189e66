"""Likelihood of a text under a language model: nll, perplexity, bits per byte and bits per character."""

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
from seqwright.core.config import UserError, check_not_negative, check_shares, check_sizes
from seqwright.core.progress import SILENT, Progress
from seqwright.core.protocols import Autoregressive, Counted
from seqwright.core.ranks import Ranks, evaluation_ranks
from seqwright.core.state import State
from seqwright.metrics.blocks import MIN_BLOCKS
from seqwright.metrics.counts import Counts, nll_counts, percentage, scores_json
from seqwright.metrics.score import Floats

CHUNK = 4096
"""Tokens scored at a time by models with a recurrent state."""
COUNTED_CHUNK = 1 << 18
"""The same for count-based models (n-grams), whose cost per token falls with the batch."""
BLOCK, MIN_BLOCK = 256, 32
"""Most and fewest tokens in a bootstrap unit if a text has too few documents to resample (block bootstrap)."""

TokenScore = Callable[[Batch, State | None], tuple[Tensor, State | None]]
"""A value for each target of a batch (B, T), and the state after where one was passed, as `Autoregressive.score`."""


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    stride: int | None = None
    """Tokens between overlapping windows, at most the context; default half the context. 1 gives each token the longest
    context. Unused by models without a context limit."""
    batch_size: int = 16
    """Windows per batch."""
    random_batches: int = 0
    """Also report the mean nll over this many batches of random windows (nanoGPT's estimate_loss uses 200)."""
    random_batch_size: int = 12
    """Windows per random batch."""
    resamples: int = 1000
    """Bootstrap resamples for confidence intervals; 0 for none."""
    seed: int = 1
    """Seed of the bootstrap and the random windows."""
    baseline: bool = True
    """Also fit an n-gram to the training text of a network, and score it on the same validation text."""
    accuracy: bool | None = None
    """Also report next-token accuracy: how often the most probable token is the next one. It needs all logits of a
    text; by default `evaluate` reports it where they are few."""
    cache_size: int | None = None
    """Also report the scores of an rnn, lstm or gru with a neural cache of this many hidden states (Grave et al. 2017;
    500 suits Penn Treebank, 2,000 WikiText-2), beside those of the static model."""
    cache_theta: float = 0.3
    """Flatness of the neural cache (θ): factor of the inner products of hidden states."""
    cache_lambda: float = 0.1
    """Interpolation weight of the neural cache (λ)."""
    dynamic_rate: float | None = None
    """Also report the scores of dynamic evaluation of an rnn, lstm or gru (Krause et al. 2018), beside those of the
    static model: learning rate of the SGD step after each scored segment; choose it on validation text."""
    dynamic_decay: float = 0.0
    """Dynamic evaluation: decay (λ) of the weights towards the trained ones after each segment."""
    dynamic_segment: int = 5
    """Dynamic evaluation: tokens of a segment."""

    def __post_init__(self) -> None:
        check_sizes(self, "stride", "batch_size", "random_batch_size", "cache_size", "dynamic_segment")
        check_not_negative(self, "random_batches", "resamples", "seed", "cache_theta", "dynamic_rate")
        check_shares(self, "cache_lambda", "dynamic_decay")


@dataclass(frozen=True, kw_only=True)
class ScoredText:
    """Log-probabilities of the tokens of a text, documents framed by <sos> and <eos>."""

    log_probs: Floats
    """(N - 1,): log p of token i + 1 given the tokens before it in the model's context; 0 where not predicted."""
    mask: NDArray[np.bool_]
    """(N - 1,): False where the next id is `<sos>`, which is given and never predicted (decision 0003)."""
    correct: NDArray[np.bool_] | None = None
    """(N - 1,): whether the most probable token is the next one; None where that was not computed."""

    @property
    def tokens(self) -> int:
        """Number of predicted tokens."""
        return int(self.mask.sum())

    @property
    def nll(self) -> float:
        """Mean negative log-likelihood of a token, in nats."""
        return float(-self.log_probs.sum() / self.tokens)

    def bootstrap_units(self, sizes: NDArray[np.int64]) -> Floats:
        """(units, 4): nll, tokens, bytes and characters of each document, or of each block if documents are few, and
        the number of correct predictions where they were computed.

        `sizes` (N - 1, 2) are the bytes and characters of each token.
        """
        starts = np.concatenate([[0], np.flatnonzero(~self.mask) + 1])
        starts = starts[starts < len(self.mask)]
        # Tokens of a document are dependent, so documents are resampled whole.
        if len(starts) < 30:
            size = max(MIN_BLOCK, min(BLOCK, len(self.mask) // MIN_BLOCKS))
            starts = np.arange(0, len(self.mask), size)
        correct = [] if self.correct is None else [self.correct]
        return np.add.reduceat(np.column_stack([-self.log_probs, self.mask, sizes, *correct]), starts)


def effective_stride(context: int, stride: int | None) -> int:
    """The stride in use: a stride longer than the context would skip tokens."""
    return min(stride or max(1, context // 2), context)


@torch.inference_mode()
def score_text(
    model: Autoregressive,
    ids: Tensor,
    *,
    sos: int | None,
    stride: int | None = None,
    batch_size: int = 16,
    rows: int = 1,
    mask_documents: bool = False,
    device: torch.device | str = "cpu",
    progress: Progress = SILENT,
) -> ScoredText:
    """Log-probability of every token of a text (N,).

    A model with a context limit scores overlapping windows; each token is scored once, with as much context as its
    window has. Other models read the text from end to end with carried state, or as `rows` parallel slices that each
    begin with an empty state, which is faster. `mask_documents` limits attention to a token's own document.
    """
    target = targets_of(ids, sos)
    chunk = COUNTED_CHUNK if isinstance(model, Counted) else CHUNK
    log_probs = np.zeros(target.numel())
    done = 0
    for first, part in over_text(
        model,
        model.score,
        ids,
        target,
        stride=stride,
        batch_size=batch_size,
        rows=rows,
        chunk=chunk,
        document_start=sos if mask_documents else None,
        device=device,
    ):
        log_probs[first : first + len(part)] = part
        done += len(part)
        progress.advance(done, target.numel())
    return ScoredText(log_probs=log_probs, mask=(target != IGNORE).numpy())


def targets_of(ids: Tensor, sos: int | None) -> Tensor:
    """The next token of every position of a text, IGNORE for `<sos>`."""
    if ids.numel() < 2:
        raise UserError("the text has no token to predict; give at least one token.")
    target = ids[1:].clone()
    if sos is not None:
        target[target == sos] = IGNORE
    return target


def over_text(
    model: Autoregressive,
    score: TokenScore,
    ids: Tensor,
    target: Tensor,
    *,
    stride: int | None,
    batch_size: int,
    rows: int,
    chunk: int,
    document_start: int | None,
    device: torch.device | str,
) -> Iterator[tuple[int, Floats]]:
    """(first position, values) of parts of a text: of overlapping windows, or of chunks with carried state."""
    if model.context is None:
        return _carried(model, score, ids[:-1], target, rows, chunk, device)
    stride = effective_stride(model.context, stride)
    parts = _windows(model.context, score, ids[:-1], target, stride, batch_size, document_start, device)
    return parts if evaluation_ranks().size == 1 else _merged(parts, len(target), evaluation_ranks())


def _merged(parts: Iterator[tuple[int, Floats]], length: int, ranks: Ranks) -> Iterator[tuple[int, Floats]]:
    """The values of all positions, of which each rank has computed some windows."""
    values = np.zeros(length)
    for first, part in parts:
        values[first : first + len(part)] = part
    yield 0, ranks.sum(torch.from_numpy(values)).numpy()


def _windows(
    context: int,
    score: TokenScore,
    input: Tensor,
    target: Tensor,
    stride: int,
    batch_size: int,
    document_start: int | None,
    device: torch.device | str,
) -> Iterator[tuple[int, Floats]]:
    """(first position, values) of the new tokens of each window; `document_start` is the id that begins a
    document if documents are masked from each other. Ranks that share an evaluation each have some of the windows."""
    length = min(context, len(input))
    stride = min(stride, length)
    stops = [length]
    while stops[-1] < len(input):
        stops.append(min(stops[-1] + stride, len(input)))
    # Every window has the full length: the last one is moved back to end with the text and overlaps more.
    firsts = [0, *stops[:-1]]
    ranks = evaluation_ranks()
    for group in range(batch_size * ranks.rank, len(stops), batch_size * ranks.size):
        ends = stops[group : group + batch_size]
        spans = [slice(end - length, end) for end in ends]
        batch = Batch.of_text(torch.stack([input[s] for s in spans]), torch.stack([target[s] for s in spans]))
        values, _ = score((batch if document_start is None else batch.with_documents(document_start)).to(device), None)
        for row, first, end in zip(
            values.cpu().double().numpy(), firsts[group : group + batch_size], ends, strict=True
        ):
            yield first, row[length - (end - first) :]


def _carried(
    model: Autoregressive,
    score: TokenScore,
    input: Tensor,
    target: Tensor,
    rows: int,
    chunk: int,
    device: torch.device | str,
) -> Iterator[tuple[int, Floats]]:
    """(first position, values) of each chunk of each slice, with carried state."""
    rows = min(rows, len(input))
    size = math.ceil(len(input) / rows)
    padding = rows * size - len(input)
    # Padding of the last slice repeats the last id; its targets are IGNORE and its scores are dropped below.
    inputs = torch.cat([input, input[-1:].expand(padding)]).view(rows, size)
    targets = torch.cat([target, target.new_full((padding,), IGNORE)]).view(rows, size)
    state = model.start(Source.empty(rows, device), capacity=size)
    for start in range(0, size, chunk):
        span = slice(start, start + chunk)
        batch = Batch.of_text(inputs[:, span].contiguous(), targets[:, span].contiguous())
        scored, next_state = score(batch.to(device), state)
        assert next_state is not None
        state = next_state
        for row, values in enumerate(scored.cpu().double().numpy()):
            first = row * size + start
            yield first, values[: max(0, len(input) - first)]


@torch.inference_mode()
def random_windows(
    model: Autoregressive,
    ids: Tensor,
    *,
    sos: int | None,
    context: int,
    batch_size: int,
    batches: int,
    seed: int,
    mask_documents: bool = False,
    device: torch.device | str,
) -> float:
    """Mean nll over random windows, as nanoGPT's estimate_loss: most tokens have less than the full context."""
    if len(ids) <= context:
        raise UserError(
            f"random windows of {context} tokens do not fit into a text of {len(ids)}; set random_batches = 0."
        )
    generator = torch.Generator().manual_seed(seed)
    total, count = 0.0, 0
    for _ in range(batches):
        starts = torch.randint(len(ids) - context, (batch_size,), generator=generator)
        windows = torch.stack([ids[start : start + context + 1] for start in starts.tolist()])
        target = windows[:, 1:].clone()
        if sos is not None:
            target[target == sos] = IGNORE
        batch = Batch.of_text(windows[:, :-1].contiguous(), target)
        log_probs, _ = model.score(
            (batch.with_documents(sos) if mask_documents and sos is not None else batch).to(device)
        )
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
    """JSON of an evaluation: plain numbers, and under "scores" each with its confidence interval and signature.

    `sizes` (N - 1, 2) are the bytes and characters of each token, resampled together with its nll. `lossy` is the
    reason why the tokens do not determine the text; then bits per byte and character are refused, since part of the
    text has no likelihood.
    """
    rows = text.bootstrap_units(sizes)
    # Nats to bits, per byte of the same resample: rescaling an interval of nll per token is too narrow (decision 0003).
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
    if text.correct is not None:
        name = "next_token_accuracy"
        hits = rows[:, [4, 1]]
        counts.append(Counts(name=name, rows=hits, formula=percentage, signature=f"{name}|{signature}"))
    result = scores_json(counts, config) | {"tokens": text.tokens}
    return result if lossy is None else result | dict.fromkeys(bits) | {"refused": dict.fromkeys(bits, lossy)}
