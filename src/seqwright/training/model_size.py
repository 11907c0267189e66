"""The size of a model before memory is allocated: modules are built on the meta device, within bounds.

A [model] table of a few bytes can stand for terabytes: one width, a number of layers, a context whose positional
encoding is computed rather than stored.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_buffer_registration_hook as on_buffer
from torch.nn.modules.module import register_module_parameter_registration_hook as on_parameter
from torch.overrides import TorchFunctionMode

from seqwright.core.config import UserError
from seqwright.core.limits import check_limit
from seqwright.core.storage import tensor_shapes

M = TypeVar("M")

INITIALIZERS = {"normal_", "uniform_", "trunc_normal_", "kaiming_uniform_", "kaiming_normal_"}
"""Functions of torch.nn.init and in-place methods that draw random numbers."""

SLACK = 1 << 20
"""Parameters beyond those of the weights that are built before tying or freezing replaces them."""


@dataclass
class ModelSize:
    """Running totals of a model under construction, tied tensors counted each time."""

    tensors: int = 0
    parameters: int = 0
    buffer_bytes: int = 0


class WithoutInitialization(TorchFunctionMode):
    """Leaves new parameters as they are: random numbers on the meta device import torch's compiler, which takes 2 s."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in INITIALIZERS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def on_meta(make: Callable[[], M], check: Callable[[ModelSize], None]) -> M:
    """The model that `make` builds, on the meta device: shapes without memory.

    `check` is called with the size so far at every parameter and may raise: a billion layers of nothing fill memory,
    too. All buffers together (positional tables, which are computed) are bounded by SEQWRIGHT_MAX_BUFFER_BYTES.
    """
    size, thread = ModelSize(), threading.get_ident()
    counted: set[Tensor] = set()  # a tied parameter is registered again, under another name

    def add_parameter(module: nn.Module, name: str, parameter: Tensor | None) -> None:
        if parameter is None or threading.get_ident() != thread:  # hooks see the modules of all threads
            return
        if parameter not in counted:
            counted.add(parameter)
            size.tensors += 1
            size.parameters += parameter.numel()
            check(size)

    def add_buffer(module: nn.Module, name: str, buffer: Tensor | None) -> None:
        if buffer is not None and threading.get_ident() == thread:
            size.buffer_bytes += buffer.nbytes
            what = f"[model] has buffers (positional tables) of {size.buffer_bytes:,} bytes"
            check_limit("SEQWRIGHT_MAX_BUFFER_BYTES", size.buffer_bytes, what)

    with _hooked(on_parameter, add_parameter), _hooked(on_buffer, add_buffer):
        try:
            with torch.device("meta"), WithoutInitialization():
                return make()
        except (RuntimeError, TypeError, ValueError, OverflowError, MemoryError) as error:
            reason = str(error).split("\n")[0][:200]
            raise UserError(f"no model of these sizes can be built ({reason}); make [model] smaller.") from error


def refuse_larger(make: Callable[[], Any], weights: Path) -> None:
    """Raises UserError where a model has more parameters than its weight file, without allocating either."""
    shapes = tensor_shapes(weights)
    stored = sum(shape.numel() for shape in shapes.values())

    def check(size: ModelSize) -> None:
        if size.tensors > 2 * len(shapes) + 16 or size.parameters > 2 * stored + SLACK:
            raise UserError(
                f"the [model] of {weights.parent / 'recipe.toml'} is larger than {weights.name}, which has"
                f" {stored:,} parameters in {len(shapes):,} tensors. Restore both from a copy, or train again."
            )

    on_meta(make, check)


@contextmanager
def _hooked(register: Callable[[Any], Any], hook: Callable[..., None]) -> Iterator[None]:
    handle = register(hook)
    try:
        yield
    finally:
        handle.remove()
