"""The decoding step of all slots: the model reads the last ids, processors and sampling choose the next.

A step is a function of tensors that keep their places, so that a CUDA graph replays it without launching its kernels
one by one, and the host waits for the device once for several steps (decision 156). Elsewhere the same function is
called.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from seqwright.core.batch import accumulator_dtype
from seqwright.core.cuda_graph import Captured
from seqwright.core.protocols import Autoregressive
from seqwright.core.state import State
from seqwright.decoding.processors import History, LogitsProcessors, RowOptions

LOOK_EVERY = 16
"""Steps after which the host looks at the ids of a device; those generated after an end are discarded."""
CAPTURED = {"cuda"}
"""Devices on which the steps of a model with static states are captured."""


@dataclass
class Rows(State):
    """What sampling needs of every slot, on the device; written in place."""

    last: Tensor  # (N,): the id generated last
    generated: Tensor  # (N,): the length of the output
    options: RowOptions
    history: History

    def sample_(self, log_probs: Tensor, processors: LogitsProcessors) -> Tensor:
        """Samples one id from each row of log-probabilities (N, V), and appends it: (2, N), the ids and their
        log-probabilities under the model itself. One tensor, so that one transfer takes both to the host."""
        history = self.history if processors.needs_history else None
        chosen = processors.sample(log_probs, self.options, self.generated, history)  # (N,)
        gained = log_probs.gather(1, chosen.unsqueeze(1)).squeeze(1)
        self.last.copy_(chosen)
        self.generated.add_(1)
        if history is not None:
            history.append_(chosen)
        wide = accumulator_dtype(chosen.device)
        return torch.stack([chosen.to(wide), gained.to(wide)])


class DecodingStep:
    """Runs steps over a state and its rows; captures them anew where a tensor has moved."""

    def __init__(self, model: Autoregressive, device: torch.device):
        self.model, self.device = model, device
        self.captures = device.type in CAPTURED
        self.ahead = LOOK_EVERY if self.captures else 1
        self.graphs: dict[Hashable, Captured] = {}
        """One for each set of processors; all over the tensors below."""
        self.state: State | None = None
        self.tensors: list[Tensor] = []
        self.outputs = torch.empty(0)  # (ahead, 2, N)
        self.place = torch.zeros(1, dtype=torch.long, device=device)
        """Where the next step writes its outputs."""

    def run(self, state: State, rows: Rows, processors: LogitsProcessors, steps: int) -> tuple[Tensor, State]:
        """Outputs (at most `steps`, 2, N) of the next steps, as `Rows.sample_` returns them, and the state after: one
        step where they cannot be captured."""
        static = state.static(steps) if self.captures else None
        if static is None:
            log_probs, state = self.model.step(rows.last.unsqueeze(1), state)
            return rows.sample_(log_probs, processors).unsqueeze(0), state
        self._keep(static, rows)
        if processors.signature not in self.graphs:
            step = partial(self._step_in_place, static, rows, processors)
            self.graphs[processors.signature] = Captured(step, self.device)
        graph = self.graphs[processors.signature]
        self.place.zero_()
        for _ in range(steps):
            graph()
        static.count_steps(steps)
        return self.outputs[:steps], static

    def _keep(self, state: State, rows: Rows) -> None:
        """Forgets the captured steps of other tensors; numbers without axes are the host's own."""
        tensors = [tensor for part in (state, rows) for _, tensor in part.named_tensors() if tensor.dim()]
        moved = len(tensors) != len(self.tensors) or any(a is not b for a, b in zip(tensors, self.tensors, strict=True))
        if moved or state is not self.state:
            self.graphs.clear()
            self.state, self.tensors = state, tensors
            size = (self.ahead, 2, len(rows.last))
            self.outputs = torch.empty(size, dtype=accumulator_dtype(self.device), device=self.device)

    def _step_in_place(self, state: State, rows: Rows, processors: LogitsProcessors) -> None:
        """A step that leaves every tensor where it was."""
        log_probs, after = self.model.step(rows.last.unsqueeze(1), state)
        state.copy_(after)
        self.outputs.index_copy_(0, self.place, rows.sample_(log_probs, processors).unsqueeze(0))
        self.place.add_(1)
