"""Batches of varying lengths padded to few shapes, so that captured steps are replayed more often than captured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.core.batch import IGNORE, Batch, Source
from seqwright.core.protocols import EncodesSource, Feed
from seqwright.training.config import TrainingConfig

UNIT, UNITS = 4, 8
"""Padded lengths are multiples of the first up to as many of them as the second, then of twice that up to twice as
long, …; those of rows are twice as dense."""
MIN_ROWS = 16
"""Fewer rows are not padded: copies would cost more than they save."""
FIRST = 4
"""Batches that stand for a feed whose lengths vary."""


def padding(model: nn.Module, config: TrainingConfig) -> Callable[[Batch], Batch]:
    """How batches are padded for captured steps of a model.

    A compiled step of another number of rows is compiled again, for any number: as long as the first time. So the last
    batch of an epoch of windows gets the rows of the others; without compilation it is captured besides.
    """
    context = model.context if isinstance(model, EncodesSource) else None
    return partial(few_shapes, context=context, rows=config.batch_size if config.compile == "inductor" else 0)


def few_shapes(batch: Batch, context: int | None, rows: int = 0) -> Batch:
    """The batch of a translator or of a classifier of texts, padded to one of few shapes within the model's context.

    Rows of a translator are padded, too, by copies of the first whose targets are IGNOREd. Padded = unpadded, but for
    the dropout masks. Other batches are left alone: their shapes vary little, or their targets are by position. Windows
    of text get at least `rows` rows.
    """
    source = batch.source
    if rows > batch.rows and _is_window(batch):
        return _with_rows(batch, rows)
    if source.ids is None or not source.ids.size(1) or source.visible is not None or source.word_starts is not None:
        return batch
    extra_source, extra = (_extra(ids.size(1), context) for ids in (source.ids, batch.input))
    if not batch.input.size(1):
        by_text = batch.target.dim() == 1 or batch.target.is_floating_point()
        return replace(batch, source=_padded(source, extra_source, 0)) if by_text else batch
    more = _on_grid(batch.rows, UNIT, 2 * UNITS) - batch.rows if batch.rows >= MIN_ROWS else 0
    return replace(
        batch,
        source=_padded(source, extra_source, more),
        input=_repeated(F.pad(batch.input, (0, extra)), more),
        target=F.pad(batch.target, (0, extra, 0, more), value=IGNORE),
    )


def lengths_vary(feed: Feed) -> bool:
    """Whether the first batches of a feed have several shapes."""
    batches = [feed.batch(step) for step in range(min(FIRST, feed.steps_per_epoch))]
    return len({(batch.source.mask.shape, batch.input.shape) for batch in batches}) > 1


class FirstBatches:
    """The first batches of a feed over and over: few shapes, which are soon captured."""

    def __init__(self, feed: Feed):
        self.feed, self.steps_per_epoch, self.carried = feed, feed.steps_per_epoch, feed.carried

    def batch(self, step: int) -> Batch:
        return self.feed.batch(step % min(FIRST, self.steps_per_epoch))


def _is_window(batch: Batch) -> bool:
    """Whether targets are tokens by position of a text without another: of a language model, or a masked one."""
    one_text = not (batch.source.mask.size(1) and batch.input.size(1)) and batch.source.word_starts is None
    return one_text and batch.target.dim() == 2 and not batch.target.is_floating_point()


def _with_rows(batch: Batch, rows: int) -> Batch:
    """The batch with so many rows, by copies of the first without targets."""
    more = rows - batch.rows
    padded = batch.mapped(lambda tensor: _repeated(tensor, more))
    return replace(padded, target=F.pad(batch.target, (0, 0, 0, more), value=IGNORE))


def _extra(length: int, context: int | None) -> int:
    """Padding of a side, which has at most `context` positions."""
    extra = _on_grid(length, UNIT, UNITS) - length
    return extra if context is None else max(0, min(extra, context - length))


def _on_grid(size: int, unit: int, units: int) -> int:
    """The next size on the grid."""
    while size > units * unit:
        unit *= 2
    return -(-size // unit) * unit


def _padded(source: Source, extra: int, more: int) -> Source:
    """The source with more padding and more rows. Padded ids are 0: what the mask hides is not read."""
    tensors = {
        name: _repeated(F.pad(tensor, (0, 0) * (tensor.dim() - 2) + (0, extra)), more)
        for name, tensor in source.named_tensors()
    }
    return replace(source, **tensors)


def _repeated(tensor: Tensor, more: int) -> Tensor:
    """The tensor followed by copies of its first row."""
    return torch.cat([tensor, tensor[:1].expand(more, *tensor.shape[1:])]) if more else tensor
