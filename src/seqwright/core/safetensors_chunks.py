"""Serialization of tensors in the safetensors format, chunk by chunk: a JSON header, then the bytes of each tensor.

The library's writer maps all tensors into memory at once; those of a large n-gram model are in temporary files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}
"""Types of registered encoders included, such as the complex rotations of some."""
CHUNK = 1 << 26
"""Bytes of a tensor written at a time."""


@dataclass(frozen=True)
class StreamedTensors:
    """Tensors that are made one after another, in the order of `names`, while a file is written: memory holds one."""

    like: Mapping[str, Tensor]
    """Tensors of the same types and shapes by name, such as sharded ones."""
    read: Callable[[str], Tensor]
    """Makes the next tensor, contiguous on the CPU."""

    @property
    def names(self) -> list[str]:
        """Names in the order of a file: aligned without padding."""
        return sorted(self.like, key=lambda name: (-self.like[name].element_size(), name))


def safetensors_chunks(
    given: Mapping[str, Tensor] | StreamedTensors, metadata: Mapping[str, str]
) -> Iterator[bytes | memoryview]:
    """A safetensors file, chunk by chunk; tensors are contiguous, on the CPU, and share no memory."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    streamed = given if isinstance(given, StreamedTensors) else StreamedTensors(given, given.__getitem__)
    tensors, names = streamed.like, streamed.names
    end = 0
    for name in names:
        tensor = tensors[name]
        start, end = end, end + tensor.numel() * tensor.element_size()
        shape, offsets = list(tensor.shape), [start, end]
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": shape, "data_offsets": offsets}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in names:
        flat = streamed.read(name).reshape(-1)
        if flat.stride(0) != 1:  # none or one element is contiguous with any stride, but no view as bytes
            flat = flat.as_strided(flat.shape, (1,))
        data = flat.view(torch.uint8).numpy().data
        yield from (data[start : start + CHUNK] for start in range(0, len(data), CHUNK))
