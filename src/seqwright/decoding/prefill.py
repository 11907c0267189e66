"""Prefill: prompts read into a new decoding state; on a GPU by a CUDA graph where their shape comes again.

Prompts of a few hundred tokens take a GPU less time than launching the kernels that read them, one by one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqwright.core.batch import Source
from seqwright.core.cuda_graph import Captured
from seqwright.core.protocols import Autoregressive
from seqwright.core.state import Rewindable, State
from seqwright.decoding.kept import Entry, keep, on_device, reference, take


def prefill(
    model: Autoregressive, ids: Tensor, count: Tensor | None, *, capacity: int, captures: bool
) -> tuple[Tensor, State]:
    """Log-probabilities (B, V) after prompts (B, T), of which `count` (B,) tokens are real, and a state with room for
    `capacity` tokens. A shape is captured when it comes for the fourth time."""
    key = "prefill", str(ids.device), ids.shape, count is None, capacity
    entry = take(model, key) if captures else None
    if entry is None or entry.value is None:
        log_probs, state = model.step(ids, model.start(Source.empty(len(ids), ids.device), capacity=capacity), count)
        # Cached attention never waits for the device; what is encoded again at every step does.
        if captures and isinstance(state, Rewindable) and state.static(1) is not None:
            again = None if entry is None else CapturedPrefill(model, ids, count, capacity)
            keep(model, key, Entry(again, {}), ids.device)
        return log_probs, state
    captured: CapturedPrefill = entry.value
    log_probs, state = captured(ids, count)
    keep(model, key, Entry(captured, captured.tensors), ids.device)
    return log_probs, state


class CapturedPrefill:
    """Reads prompts of one shape; log-probabilities and states are copies, which the next call does not overwrite."""

    def __init__(self, model: Autoregressive, ids: Tensor, count: Tensor | None, capacity: int):
        self.model = reference(model)
        self.start = model.start(Source.empty(len(ids), ids.device), capacity=capacity)
        """The empty state: every call writes the same slots of its cache, so that the others stay zero."""
        self.ids = torch.empty_like(ids)
        self.count = None if count is None else torch.empty_like(count)
        self.output: tuple[Tensor, State] | None = None
        self.captured = Captured(self._run, ids.device, outlives=True)

    def __call__(self, ids: Tensor, count: Tensor | None) -> tuple[Tensor, State]:
        self.ids.copy_(ids)
        if self.count is not None and count is not None:
            self.count.copy_(count)
        self.captured()
        assert self.output is not None
        log_probs, state = self.output
        return log_probs.clone(), state.copied()

    def _run(self) -> None:
        self.output = self.model().step(self.ids, self.start, self.count)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """What it writes."""
        assert self.output is not None
        return {"log_probs": self.output[0]} | on_device("state.", self.output[1])
