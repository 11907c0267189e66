"""The decoding step of all slots: the model reads the last ids, processors and sampling choose the next.

A step is a function of tensors that keep their places, so that a CUDA graph replays it without launching its kernels
one by one, and the host waits for the device once for several steps (decision 156). Elsewhere the same function is
called.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from seqwright.core.batch import accumulator_dtype
from seqwright.core.cuda_graph import Captured, HostCopy
from seqwright.core.protocols import Autoregressive
from seqwright.core.state import State
from seqwright.decoding.kept import layout, moved, on_device, reference
from seqwright.decoding.processors import History, LogitsProcessors, RowOptions
from seqwright.decoding.requests import Generation

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


@dataclass
class Outputs:
    """What steps of all slots generated, on its way to the host."""

    generations: Sequence[Generation | None]
    """Of each slot."""
    values: HostCopy  # (k, 2, N): ids and log-probabilities of k steps

    @property
    def steps(self) -> int:
        return len(self.values.tensor)

    def gained(self) -> dict[int, list[tuple[int, float]]]:
        """Ids and log-probabilities of each sequence by its number; waits for the device."""
        by_slot = self.values.wait().permute(2, 1, 0).tolist()  # ids, then log-probabilities, by step
        return {
            generation.id: list(zip(map(int, by_slot[slot][0]), by_slot[slot][1], strict=True))
            for slot, generation in enumerate(self.generations)
            if generation is not None
        }


class DecodingStep:
    """Runs steps over a state and its rows, which it moves to tensors of its own where steps are captured; captures
    them anew where a shape differs."""

    def __init__(self, model: Autoregressive, device: torch.device):
        self.model, self.device = reference(model), device
        self.captures = device.type in CAPTURED
        self.ahead = LOOK_EVERY if self.captures else 1
        self.graphs: dict[Hashable, Captured] = {}
        """One for each set of processors and extent of a KV cache; all over the tensors below."""
        self.tensors: dict[str, Tensor] = {}
        self.outputs = torch.empty(0)  # (ahead, 2, N)
        self.place = torch.zeros(1, dtype=torch.long, device=device)
        """Where the next step writes its outputs."""

    def run(
        self,
        state: State,
        rows: Rows,
        processors: LogitsProcessors,
        generations: Sequence[Generation | None],
        steps: int,
    ) -> tuple[Outputs, State, Rows]:
        """Outputs of the next steps, at most `steps`, as `Rows.sample_` returns them, and the state and rows after: one
        step where they cannot be captured. Does not wait for a device."""
        static = state.static(steps) if self.captures else None
        if static is None:
            log_probs, state = self.model().step(rows.last.unsqueeze(1), state)
            return Outputs(generations, HostCopy(rows.sample_(log_probs, processors).unsqueeze(0))), state, rows
        static, rows = self._moved(static, rows)
        key = processors.signature, static.captured_as()
        if key not in self.graphs:
            step = partial(self._step_in_place, static, rows, processors)
            self.graphs[key] = Captured(step, self.device, outlives=True)
        graph = self.graphs[key]
        self.place.zero_()
        for _ in range(steps):
            graph()
        static.count_steps(steps)
        return Outputs(generations, HostCopy(self.outputs[:steps])), static, rows

    def _moved(self, state: State, rows: Rows) -> tuple[State, Rows]:
        """State and rows in the tensors that steps were captured over; those of another layout replace them."""
        tensors = on_device("state.", state) | on_device("rows.", rows)
        if layout(tensors) != layout(self.tensors):
            self.graphs.clear()
            self.tensors = tensors
            size = (self.ahead, 2, len(rows.last))
            self.outputs = torch.empty(size, dtype=accumulator_dtype(self.device), device=self.device)
            return state, rows
        return moved("state.", state, self.tensors), moved("rows.", rows, self.tensors)

    def _step_in_place(self, state: State, rows: Rows, processors: LogitsProcessors) -> None:
        """A step that leaves every tensor where it was."""
        log_probs, after = self.model().step(rows.last.unsqueeze(1), state)
        state.copy_(after)
        self.outputs.index_copy_(0, self.place, rows.sample_(log_probs, processors).unsqueeze(0))
        self.place.add_(1)
