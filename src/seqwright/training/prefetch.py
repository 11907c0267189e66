"""Batches prepared ahead of the step that takes them, in page-locked memory, while a GPU computes."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from seqwright.core.batch import Batch
from seqwright.core.protocols import Feed


class Prefetched:
    """A feed whose next batch is prepared by another thread: the order of a feed is a function of the step."""

    def __init__(self, feed: Feed):
        self.feed = feed
        self.steps_per_epoch, self.carried = feed.steps_per_epoch, feed.carried
        self.executor = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        self.next: tuple[int, Future[Batch]] | None = None

    def batch(self, step: int) -> Batch:
        ahead = self.next
        batch = ahead[1].result() if ahead is not None and ahead[0] == step else self._pinned(step)
        self.next = step + 1, self.executor.submit(self._pinned, step + 1)
        return batch

    def _pinned(self, step: int) -> Batch:
        return self.feed.batch(step).pin_memory()
