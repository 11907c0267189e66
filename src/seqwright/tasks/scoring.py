"""Scoring: one pass of a model over a feed, with a row of numbers for each example."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from seqwright.core.batch import IGNORE, Batch
from seqwright.core.progress import SILENT, Progress
from seqwright.core.protocols import Autoregressive, Feed
from seqwright.core.ranks import SINGLE, evaluation_ranks
from seqwright.data.bucketing import BucketedFeed, Ints
from seqwright.metrics.score import Floats

T = TypeVar("T")
U = TypeVar("U")


@torch.no_grad()  # not inference_mode: marginals of a CRF are gradients of its partition function
def score_epoch(
    model: Any,
    feed: Feed,
    compute: Callable[[Batch], Floats],
    *,
    device: torch.device | str,
    progress: Progress = SILENT,
) -> Floats:
    """`compute` of every batch of an epoch, in evaluation mode, concatenated in the order of the feed.

    Ranks that share an evaluation each compute some of the batches, and have all results: `compute` must return all
    that is needed of a batch, not keep it elsewhere.
    """
    model.eval()
    ranks = evaluation_ranks() if feed.steps_per_epoch >= evaluation_ranks().size else SINGLE
    blocks = []
    for step in range(ranks.rank, feed.steps_per_epoch, ranks.size):
        blocks.append(compute(feed.batch(step).to(device)))
        progress.advance(step + 1, feed.steps_per_epoch)
    if ranks.size == 1:
        return np.concatenate(blocks)
    rows = ranks.cat(torch.tensor([len(block) for block in blocks])).tolist()
    merged = np.split(ranks.cat(torch.from_numpy(np.concatenate(blocks))).numpy(), np.cumsum(rows)[:-1])
    steps = [step for rank in range(ranks.size) for step in range(rank, feed.steps_per_epoch, ranks.size)]
    return np.concatenate([merged[place] for place in np.argsort(steps)])


def decode_shared(
    inputs: Sequence[T], decode: Callable[[Sequence[T]], Iterable[U]], *, progress: Progress = SILENT
) -> list[U]:
    """What `decode` returns for every input (values that JSON can hold), in order.

    Ranks that share an evaluation each decode a contiguous part, and have all results.
    """
    ranks = evaluation_ranks()
    mine = ranks.rows(len(inputs))
    outputs = []
    for output in decode(inputs[mine.start : mine.stop]) if mine else ():
        outputs.append(output)
        progress.advance(len(outputs), len(mine))
    return [output for part in ranks.gather(outputs) for output in part]


def visited(feed: BucketedFeed) -> Ints:
    """(rows,): the examples in the order in which the first epoch of a bucketed feed visits them."""
    return np.concatenate([feed.rows(step) for step in range(feed.steps_per_epoch)])


def target_nll(model: Autoregressive) -> Callable[[Batch], Floats]:
    """A function of a batch: (B, 2) nll sum in nats and number of target tokens of each row."""

    def compute(batch: Batch) -> Floats:
        log_probs, _ = model.score(batch)
        tokens = (batch.target != IGNORE).sum(1)
        return torch.stack([-log_probs.double().sum(1), tokens.double()], 1).cpu().numpy()

    return compute
