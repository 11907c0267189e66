"""Progress of counting beyond memory: stage, share done, rate and time left."""

from __future__ import annotations

import time

from seqwright.core.progress import SILENT, Progress

PASSES = 3
"""Passes over the n-grams of an order: sorted runs, their merge, the estimate."""


INTERVAL = 1.0
"""Seconds between reports, at least."""


class Meter:
    """Reports the share of the work done, in n-grams of all passes."""

    def __init__(self, progress: Progress, tokens: int, order: int):
        self.progress = progress
        self.tokens = tokens
        self.total = max(PASSES * tokens * (order - 1), 1)
        self.done = 0
        self.start = self.reported = time.monotonic()

    def advance(self, ngrams: int, stage: str) -> None:
        """Reports after a block of n-grams."""
        self.done = min(self.done + ngrams, self.total)
        now = time.monotonic()
        if now - self.reported < INTERVAL:
            return
        self.reported, share = now, self.done / self.total
        rate, left = self.tokens * share / (now - self.start), (now - self.start) * (1 / share - 1)
        self.progress.stage(f"{stage}: {share:.0%} of all work, {rate:,.0f} tokens/s, {left:,.0f} s left")


UNSEEN = Meter(SILENT, 0, 1)
"""Reports to nobody."""
