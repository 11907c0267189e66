"""Captured steps that outlive a call: the next call of the same shapes on the same model replays them (decision 194).

To run a step once and to capture it takes as long as to replay it some forty times, which most calls of a server or a
notebook would spend anew. What was captured belongs to the model, with the tensors that it reads and writes; whoever
takes it copies their own values there.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from seqwright.core.state import State

M = TypeVar("M")
S = TypeVar("S", bound=State)

MAX_BYTES = 2 << 30
"""Bytes of tensors that a model keeps at most, the oldest being dropped; no more than a sixteenth of the device."""
MAX_ENTRIES = 64
ATTRIBUTE = "_captured_steps"


@dataclass
class Entry:
    """Something captured, with the tensors it reads and writes."""

    value: Any
    tensors: Mapping[str, Tensor]

    @property
    def bytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())


class Kept:
    """What calls of one model captured, oldest first. A copy of the model begins without: its weights are elsewhere."""

    def __init__(self) -> None:
        self.entries: dict[tuple[Hashable, Circumstances], Entry] = {}
        self.lock = threading.Lock()

    def __deepcopy__(self, memo: object) -> Kept:
        return Kept()

    def __reduce__(self) -> tuple[type[Kept], tuple[()]]:
        return Kept, ()


def take(model: object, key: Hashable) -> Entry | None:
    """What was kept under a key on this thread with the same weights, no longer kept: nobody else uses it meanwhile."""
    kept = vars(model).get(ATTRIBUTE) if isinstance(model, nn.Module) else None
    if not isinstance(kept, Kept) or not isinstance(model, nn.Module):
        return None
    circumstances = _circumstances(model)
    with kept.lock:
        return kept.entries.pop((key, circumstances), None)


def keep(model: object, key: Hashable, entry: Entry, device: torch.device) -> None:
    """Keeps what was captured for a later call, unless its tensors are too large, the model is no network, or hooks
    listen to it, which a replay would not call."""
    if not isinstance(model, nn.Module) or entry.bytes > (limit := max_bytes(device)):
        return
    circumstances = _circumstances(model)
    if circumstances.hooked:
        return
    kept: Kept = vars(model).setdefault(ATTRIBUTE, Kept())
    alive = {thread.ident for thread in threading.enumerate()}
    with kept.lock:
        kept.entries[key, circumstances] = entry
        for old in [
            one for one in kept.entries if one[1].weights != circumstances.weights or one[1].thread not in alive
        ]:
            del kept.entries[old]  # which could never be taken again
        while len(kept.entries) > MAX_ENTRIES or sum(one.bytes for one in kept.entries.values()) > limit:
            del kept.entries[next(iter(kept.entries))]


def reference(model: M) -> Callable[[], M]:
    """The model, held weakly where it is a network: what it keeps would else keep it."""
    if not isinstance(model, nn.Module):
        return lambda: model
    weak = weakref.ref(model)

    def alive() -> M:
        held = weak()
        assert held is not None
        return held

    return alive


def max_bytes(device: torch.device) -> int:
    """Bytes that a model keeps on a device at most."""
    if device.type != "cuda":
        return MAX_BYTES
    return min(MAX_BYTES, torch.cuda.get_device_properties(device).total_memory // 16)


def layout(tensors: Mapping[str, Tensor]) -> Hashable:
    """Shapes, strides and dtypes: what captured steps depend on besides values."""
    return tuple((name, tensor.shape, tensor.stride(), tensor.dtype) for name, tensor in tensors.items())


def on_device(prefix: str, state: State) -> dict[str, Tensor]:
    """The tensors of a state by name, without numbers of the host, which have no axes."""
    return {prefix + name: tensor for name, tensor in state.named_tensors() if tensor.dim()}


def host_numbers(state: State) -> dict[str, Tensor]:
    """The others."""
    return {name: tensor for name, tensor in state.named_tensors() if not tensor.dim()}


def moved(prefix: str, state: S, tensors: Mapping[str, Tensor]) -> S:
    """The state in these tensors, which get its values; itself where they are its own."""
    own = on_device(prefix, state)
    if all(tensors[name] is tensor for name, tensor in own.items()):
        return state
    for name, tensor in own.items():
        if tensors[name] is not tensor:
            tensors[name].copy_(tensor)
    return state.from_tensors(host_numbers(state) | {name.removeprefix(prefix): tensors[name] for name in own})


class Circumstances(NamedTuple):
    """What a capture depends on besides its key."""

    thread: int
    """Whose streams and counters the kernels use."""
    stream: int
    """On which its calls are ordered."""
    precision: tuple[object, ...]
    training: bool
    hooked: bool
    weights: tuple[int, ...]
    """Addresses of parameters and buffers."""


def _circumstances(model: nn.Module) -> Circumstances:
    modules = _modules(model)
    tensors = [
        tensor
        for module in modules
        for table in (module._parameters, module._buffers)
        for tensor in table.values()
        if tensor is not None
    ]
    stream = torch.cuda.current_stream().cuda_stream if any(tensor.is_cuda for tensor in tensors) else 0
    precision = (
        getattr(torch.backends.cuda.matmul, "fp32_precision", None),
        getattr(torch.backends.cudnn.rnn, "fp32_precision", None),
        torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None,
    )
    weights = tuple(tensor.data_ptr() for tensor in tensors)
    return Circumstances(threading.get_ident(), stream, precision, model.training, _is_hooked(modules), weights)


def _modules(model: nn.Module) -> list[nn.Module]:
    """The modules of a model. Two nested generators a level, as in `nn.Module.parameters`, would take as long as the
    GPU takes for a decoding step."""
    modules = [model]
    for module in modules:  # which grows
        modules.extend(child for child in module._modules.values() if child is not None)
    return modules


def _is_hooked(modules: list[nn.Module]) -> bool:
    """Whether forward hooks listen to a module."""
    return any(module._forward_hooks or module._forward_pre_hooks for module in modules)
