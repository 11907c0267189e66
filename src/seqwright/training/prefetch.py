"""Batches prepared ahead of the step that takes them, in page-locked memory, while a GPU computes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from seqwright.core.batch import Batch
from seqwright.core.protocols import Feed


class Prefetched:
    """A feed whose next batch is prepared by another thread: the order of a feed is a function of the step.

    All batches are prepared by that one thread: feeds keep what they have computed of an epoch, without locks.
    """

    def __init__(self, feed: Feed, steps: int, shape: Callable[[Batch], Batch] = lambda batch: batch):
        """`shape` may pad batches further (`training.shapes`)."""
        self.feed, self.steps, self.shape = feed, steps, shape
        self.steps_per_epoch, self.carried = feed.steps_per_epoch, feed.carried
        self.executor = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        self.next: tuple[int, Future[Batch]] | None = None

    def batch(self, step: int) -> Batch:
        if self.next is None or self.next[0] != step:  # the first, or a training that was rolled back
            self.next = step, self.executor.submit(self._pinned, step)
        batch = self.next[1].result()
        # Not beyond the last step: the first batch of an epoch may take as long as all of its texts do.
        self.next = (step + 1, self.executor.submit(self._pinned, step + 1)) if step + 1 < self.steps else None
        return batch

    def _pinned(self, step: int) -> Batch:
        return self.shape(self.feed.batch(step)).pin_memory()
