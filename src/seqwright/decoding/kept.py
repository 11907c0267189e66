"""Captured steps that outlive a call: the next call of the same shapes on the same model replays them (decision 194).

To run a step once and to capture it takes as long as to replay it fifty times, which most calls of a server or a
notebook would spend anew. What was captured belongs to the model, with the tensors that it reads and writes; whoever
takes it copies their own values there.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from seqwright.core.state import State

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
        self.entries: dict[Hashable, Entry] = {}

    def __deepcopy__(self, memo: object) -> Kept:
        return Kept()


def take(model: object, key: Hashable) -> Entry | None:
    """What was kept under a key on this thread with the same weights, no longer kept: nobody else uses it meanwhile."""
    if not isinstance(model, nn.Module) or ATTRIBUTE not in vars(model):
        return None
    entry: Entry | None = vars(model)[ATTRIBUTE].entries.pop((key, _circumstances(model)), None)
    return entry


def keep(model: object, key: Hashable, entry: Entry, device: torch.device) -> None:
    """Keeps what was captured for a later call, unless its tensors are too large or the model is no network."""
    if not isinstance(model, nn.Module) or entry.bytes > (limit := max_bytes(device)):
        return
    kept = vars(model).setdefault(ATTRIBUTE, Kept())
    kept.entries[key, _circumstances(model)] = entry
    while len(kept.entries) > MAX_ENTRIES or sum(one.bytes for one in kept.entries.values()) > limit:
        del kept.entries[next(iter(kept.entries))]


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


def _circumstances(model: nn.Module) -> Hashable:
    """What a capture also depends on: the thread, whose streams and counters its kernels use, precision, weights."""
    weights = tuple(tensor.data_ptr() for tensor in (*model.parameters(), *model.buffers()))
    precision = torch.backends.cuda.matmul.allow_tf32, torch.is_autocast_enabled("cuda")
    return threading.get_ident(), precision, weights
