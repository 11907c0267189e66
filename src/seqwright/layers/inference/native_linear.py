"""Linear layers in compiled C, for inference on a CPU: float32 or int8 weights in the order in which they are read."""

from __future__ import annotations

import ctypes
import functools
import mmap
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.core import native
from seqwright.layers.inference.int8_linear import Int8Linear

ACTIVATIONS = ("none", "relu", "relu2", "gelu", "gelu-tanh", "silu")
"""As decoding.c numbers them."""
ALIGNMENT = 64
"""Bytes of a cache line."""

Pointer, Integer = ctypes.c_void_p, ctypes.c_int64


class LinearFields(ctypes.Structure):
    """`Linear` of decoding.c."""

    _fields_ = (
        ("panels", Pointer),
        ("scale", Pointer),
        ("bias", Pointer),
        ("inputs", Integer),
        ("outputs", Integer),
    )


@functools.cache
def kernels() -> Any:
    """The functions of decoding.c; None where this machine cannot compile them."""
    functions = native.library(Path(__file__).with_name("decoding.c"))
    if functions is None:
        return None
    functions.panel_width.restype = Integer
    functions.linear.argtypes = [Pointer, Pointer, Integer, Integer, Pointer, Pointer, Pointer, Integer]
    block: list[Any] = [Pointer, Pointer, Integer]
    functions.attention_sublayer.argtypes = [*block, *[Pointer] * 4, Integer, Integer, Pointer, Integer]
    functions.feed_forward_sublayer.argtypes = [*block, Pointer, Integer]
    return functions


def huge(size: int) -> Tensor:
    """Bytes (size,) in huge pages where the system has them: they are read half as fast again."""
    pages = mmap.mmap(-1, size)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=torch.uint8)  # which keeps the pages


class PanelMemory:
    """Memory for the weights of many layers, one after the other."""

    def __init__(self, layers: list[nn.Linear]):
        self.free = huge(sum(map(panel_bytes, layers)))

    def place(self, panels: Tensor) -> Tensor:
        """A copy of a layer's panels."""
        size = panels.numel() * panels.element_size()
        taken, self.free = self.free[:size], self.free[size + -size % ALIGNMENT :]
        return taken.view(panels.dtype).view(panels.shape).copy_(panels)


def panel_bytes(layer: nn.Linear) -> int:
    """Bytes that the panels of a layer take, to the end of a cache line."""
    width = kernels().panel_width()
    size = -(-layer.out_features // width) * width * layer.in_features * (1 if isinstance(layer, Int8Linear) else 4)
    return size + -size % ALIGNMENT


def panels_of(weight: Tensor) -> Tensor:
    """Panels (N / P, K, P) of a weight (N, K): for each input, P outputs beside each other; zeros beyond the last."""
    width = kernels().panel_width()
    padded = F.pad(weight, (0, 0, 0, -len(weight) % width))
    return padded.view(-1, width, weight.size(1)).transpose(1, 2)


def has_kernel(layer: nn.Module) -> bool:
    """Whether compiled C computes a layer: of float32 or int8 weights, on a CPU."""
    if type(layer) not in (nn.Linear, Int8Linear) or kernels() is None:
        return False
    weight: Tensor = layer.weight  # type: ignore[assignment]
    return weight.device.type == "cpu" and weight.dtype == torch.float32


class NativeLinear(nn.Linear):
    """Inference-only linear layer in compiled C; shares the original's parameters, but not later updates.

    A row has the same product alone and beside others, to the bit. An activation that follows can be fused into it.
    """

    def __init__(self, plain: nn.Linear, memory: PanelMemory, activation: str = "none"):
        nn.Module.__init__(self)
        self.in_features, self.out_features = plain.in_features, plain.out_features
        self.weight, self.bias = plain.weight, plain.bias
        self.activation = ACTIVATIONS.index(activation)
        int8 = plain.get_buffer("int8") if isinstance(plain, Int8Linear) else None
        scale = None if int8 is None else plain.get_buffer("scale").float()
        bias = None if plain.bias is None else plain.bias.detach().contiguous()
        self.panels = memory.place(panels_of(plain.weight.detach() if int8 is None else int8))
        self.kept = scale, bias  # as long as C points to them
        self.fields = LinearFields(
            address(self.panels), address(scale), address(bias), plain.in_features, self.out_features
        )

    def forward(self, input: Tensor) -> Tensor:
        if input.dtype != torch.float32:  # autocast
            return F.linear(input, self.weight, self.bias)
        rows = input.contiguous()
        out = rows.new_empty(*rows.shape[:-1], self.out_features)
        kernels().linear(
            ctypes.addressof(self.fields),
            rows.data_ptr(),
            rows.numel() // self.in_features,
            self.activation,
            None,
            None,
            out.data_ptr(),
            torch.get_num_threads(),
        )
        return out


def address(tensor: Tensor | None) -> int | None:
    """Where a tensor lies; None, C's null, for none."""
    return None if tensor is None else tensor.data_ptr()
