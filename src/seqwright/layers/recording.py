"""Calls of modules recorded by forward hooks: one recorder for alignments, inspection, explanations (decision 161)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")

Arguments = tuple[Any, ...]
Options = dict[str, Any]


@contextmanager
def recorded_calls(
    modules: Sequence[nn.Module], value: Callable[[Any, Arguments, Options, Any], T]
) -> Iterator[list[list[T]]]:
    """For each module, `value(module, arguments, options, output)` of each of its calls while entered.

    Values are computed inside the call, before a KV cache or a state that was passed is written again.
    """
    calls: list[list[T]] = [[] for _ in modules]

    def hook_of(module_calls: list[T]) -> Any:
        def hook(module: nn.Module, arguments: Arguments, options: Options, output: Any) -> None:
            module_calls.append(value(module, arguments, options, output))

        return hook

    handles = [
        module.register_forward_hook(hook_of(module_calls), with_kwargs=True)
        for module, module_calls in zip(modules, calls, strict=True)
    ]
    try:
        with uncompiled():
            yield calls
    finally:
        for handle in handles:
            handle.remove()


def uncompiled() -> AbstractContextManager[Any]:
    """Runs compiled modules as they were before: code compiled without hooks calls none that were added later."""
    if "torch._dynamo" not in sys.modules:  # nothing is compiled, and its import takes seconds
        return nullcontext()
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


def attention_weights(module: Any, arguments: Arguments, options: Options, output: Any) -> Tensor:
    """(B, H, T, K), or (B, T, S) of global attention: the weights that an attention module averaged values with."""
    weights: Tensor = module.weights(*arguments[:2], **options)
    return weights
