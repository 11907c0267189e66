"""CUDA graphs: a step is captured once and replayed without launching its kernels one by one (decision 70)."""

from __future__ import annotations

import functools
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


class Captured:
    """A function captured as a CUDA graph; on other devices it is just called.

    Its tensors must keep their addresses and shapes, and it must not read values from the device. The first call is a
    warm-up, since library handles and workspaces cannot be created during a capture; the second captures; later ones
    replay.
    """

    def __init__(self, function: Callable[[], None], device: torch.device, pool: Any = None, *, outlives: bool = False):
        self.function, self.device = function, device
        self.outlives = outlives
        """Whether it is replayed after other work, which may free the workspaces of cuBLAS (torch.compile does): those
        that are allocated during the capture belong to the graph."""
        self.pool = pool
        """Memory that graphs share which are never replayed at the same time (`torch.cuda.graph_pool_handle()`)."""
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None

    @classmethod
    def again(cls, function: Callable[[], None], device: torch.device, graph: torch.cuda.CUDAGraph | None) -> Captured:
        """A function that was captured before over the same tensors; on other devices it is just called."""
        captured = cls(function, device, outlives=True)
        captured.calls, captured.graph = 2, graph
        return captured

    def __call__(self) -> None:
        self.calls += 1
        if self.device.type != "cuda":
            self.function()
        elif self.calls == 1:
            self._warm_up()
        else:
            self.graph = self.graph or self._capture()
            self.graph.replay()

    def _warm_up(self) -> None:
        """Runs on the stream of the capture: cuBLAS workspaces belong to a stream."""
        with self._side_stream():
            self.function()

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Captures without `torch.cuda.graph`, which also empties the caching allocator that a search needs."""
        graph = torch.cuda.CUDAGraph()
        # Destroying an older graph while a stream captures invalidates the capture, so nothing is collected meanwhile.
        collecting = gc.isenabled()
        gc.disable()
        try:
            with self._side_stream():
                if self.outlives:
                    torch._C._cuda_clearCublasWorkspaces()
                graph.capture_begin(
                    pool=self.pool, capture_error_mode="thread_local"
                )  # other threads may launch theirs
                try:
                    self.function()
                finally:
                    graph.capture_end()
                    if self.outlives:
                        torch._C._cuda_clearCublasWorkspaces()
        finally:
            if collecting:
                gc.enable()
        return graph

    @contextmanager
    def _side_stream(self) -> Iterator[None]:
        """A side stream, ordered after the work queued on the current stream and before what is queued later."""
        current, side = torch.cuda.current_stream(self.device), _stream(self.device, threading.get_ident())
        side.wait_stream(current)
        try:
            with torch.cuda.stream(side):
                yield
        finally:
            current.wait_stream(side)


@functools.cache
def _stream(device: torch.device, thread: int) -> torch.cuda.Stream:
    """The one side stream of a thread on a device, so that its workspaces are allocated once."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class HostCopy:
    """A copy of a tensor on its way to the host, which later work on the device does not change."""

    def __init__(self, tensor: Tensor):
        self.ready: torch.cuda.Event | None = None
        """When it is there; None: it is there already."""
        if tensor.device.type != "cuda":
            self.tensor = tensor.clone()
            return
        self.tensor = torch.empty_like(tensor, device="cpu", pin_memory=True)
        self.tensor.copy_(tensor, non_blocking=True)
        self.ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self.ready.record(torch.cuda.current_stream(tensor.device))

    def wait(self) -> Tensor:
        """The copy, once it is there."""
        if self.ready is not None:
            self.ready.synchronize()
        return self.tensor
