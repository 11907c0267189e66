"""Captured work: a CUDA device repeats it as one graph, without being told each kernel anew; others are just called."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


class Captured:
    """Work on tensors that stay where they are, of shapes that stay as they are, reading no number from the device.

    The first call runs it and so warms up what may not be made during a capture (libraries' handles and workspaces);
    the second captures it; from then on it is replayed.
    """

    def __init__(self, work: Callable[[], None], device: torch.device):
        self.work, self.device = work, device
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        self.calls += 1
        if self.device.type != "cuda":
            self.work()
        elif self.calls == 1:
            self._warm_up()
        else:
            self.graph = self.graph or self._capture()
            self.graph.replay()

    def _warm_up(self) -> None:
        """A capture runs on a stream of its own, so what it needs is made on one."""
        with self._aside():
            self.work()

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Begun and ended by hand: `torch.cuda.graph` also empties the cache of memory, which a search needs."""
        graph = torch.cuda.CUDAGraph()
        # Destroying an older graph while a stream captures invalidates the capture, so nothing is collected meanwhile.
        collecting = gc.isenabled()
        gc.disable()
        with self._aside():
            graph.capture_begin(capture_error_mode="thread_local")  # other threads may go on with theirs
            try:
                self.work()
            finally:
                graph.capture_end()
                if collecting:
                    gc.enable()
        return graph

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """On another stream, after what this one was told and before what it will be told."""
        here, aside = torch.cuda.current_stream(self.device), torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            yield
        here.wait_stream(aside)
