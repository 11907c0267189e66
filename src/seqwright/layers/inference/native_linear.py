"""Linear layers in compiled C, for inference on a CPU: float32, bfloat16 or int8 weights in the order in which they are
read."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.core import native
from seqwright.core.huge_pages import huge
from seqwright.layers.heads import TokenHead
from seqwright.layers.inference import packed_linear
from seqwright.layers.inference.int8_linear import Int8Linear
from seqwright.layers.transformer_block import ACTIVATIONS as MODULES

ACTIVATIONS = ("none", "relu", "relu2", "gelu", "gelu-tanh", "silu")
"""As decoding.c numbers them."""
TYPES = {torch.float32: 0, torch.int8: 1, torch.bfloat16: 2}
"""Dtypes of weights, as decoding.c numbers them."""
MANY_ROWS = 256
"""Rows above which PyTorch's products of bfloat16 are faster, where the processor has them: 1,024 take 4.4 ms instead
of 6.1 (320 outputs of 1,280 inputs), 80 as long."""
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
        ("type", Integer),
    )


@functools.cache
def kernels() -> Any:
    """The functions of decoding.c; None where this machine cannot compile them."""
    functions = native.library(Path(__file__).with_name("decoding.c"))
    if functions is None:
        return None
    functions.panel_width.restype = Integer
    functions.linear.argtypes = [Pointer, Pointer, Integer, Integer, Pointer, Pointer, Pointer, Integer]
    functions.log_probs.argtypes = [Pointer, Pointer, Integer, Pointer, Integer]
    functions.attention_sublayer.argtypes = [Pointer, Pointer, Integer, *[Pointer] * 4, Integer]
    functions.feed_forward_sublayer.argtypes = [Pointer, Pointer, Integer, Pointer, Integer]
    functions.run_stack.argtypes = [Pointer, Pointer, Integer, *[Pointer] * 3, Integer, Integer]
    for name in ("linear", "log_probs", "attention_sublayer", "feed_forward_sublayer", "run_stack"):
        function = getattr(functions, name)
        function.restype, function.errcheck = Integer, _check_memory
    return functions


def _check_memory(failed: int, function: Any, arguments: Any) -> None:
    """What ctypes calls after those functions of decoding.c that need memory."""
    if failed:
        raise MemoryError(f"no memory for what {function.__name__} computes; decode fewer rows, or shorter ones")


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
    size = -(-layer.out_features // width) * width * layer.in_features * _weight(layer).element_size()
    return size + -size % ALIGNMENT


def panels_of(weight: Tensor) -> Tensor:
    """Panels (N / P, K, P) of a weight (N, K): for each input, P outputs beside each other; zeros beyond the last.
    Inputs of bfloat16 lie two by two, (N / P, K / 2, P, 2), as the processor's dot products take them."""
    width, together = kernels().panel_width(), 2 if weight.dtype == torch.bfloat16 else 1
    padded = F.pad(weight, (0, 0, 0, -len(weight) % width))
    return padded.view(-1, width, weight.size(1) // together, together).transpose(1, 2)


def has_kernel(layer: nn.Module) -> bool:
    """Whether compiled C computes a layer: of float32, bfloat16 or int8 weights, on a CPU."""
    if type(layer) not in (nn.Linear, Int8Linear) or kernels() is None:
        return False
    weight: Tensor = layer.weight  # type: ignore[assignment]
    paired = weight.dtype == torch.bfloat16 and weight.size(1) % 2 == 0
    return weight.device.type == "cpu" and (weight.dtype == torch.float32 or paired)


class NativeLinear(nn.Linear):
    """Inference-only linear layer in compiled C; shares the original's parameters, but not later updates.

    A row has the same product alone and beside others, to the bit; in bfloat16 up to `MANY_ROWS`. An activation that
    follows can be fused into it.
    """

    def __init__(self, plain: nn.Linear, memory: PanelMemory, activation: str = "none"):
        nn.Module.__init__(self)
        self.in_features, self.out_features = plain.in_features, plain.out_features
        self.weight, self.bias = plain.weight, plain.bias
        self.activation = ACTIVATIONS.index(activation)
        weight = _weight(plain)
        scale = plain.get_buffer("scale").float() if isinstance(plain, Int8Linear) else None
        bias = None if plain.bias is None else plain.bias.detach().float().contiguous()
        self.panels = memory.place(panels_of(weight))
        self.kept = scale, bias  # as long as C points to them
        self.fields = LinearFields(
            address(self.panels),
            address(scale),
            address(bias),
            self.in_features,
            self.out_features,
            TYPES[weight.dtype],
        )

    def forward(self, input: Tensor) -> Tensor:
        many = input.dtype == torch.bfloat16 and input.numel() > MANY_ROWS * self.in_features
        if input.dtype != self.weight.dtype or (many and packed_linear.has_kernel(input.dtype)):  # autocast, or many
            out = F.linear(input, self.weight, self.bias)
            return MODULES[ACTIVATIONS[self.activation]]()(out) if self.activation else out
        rows = input.float().contiguous()
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
        return out.to(input.dtype)


class NativeTokenHead(TokenHead):
    """Inference-only language modeling head with a compiled output layer; log-probabilities are not rounded to a
    shorter dtype in between."""

    def __init__(self, plain: TokenHead):
        nn.Module.__init__(self)
        self.readout = plain.readout

    def log_probs(self, hidden: Tensor) -> Tensor:
        readout = self.readout
        if not isinstance(readout, NativeLinear) or hidden.dtype != readout.weight.dtype:
            return super().log_probs(hidden)
        rows = hidden.float().contiguous()
        out = rows.new_empty(*rows.shape[:-1], readout.out_features)
        count, threads = rows.numel() // readout.in_features, torch.get_num_threads()
        kernels().log_probs(ctypes.addressof(readout.fields), rows.data_ptr(), count, out.data_ptr(), threads)
        return out


def _weight(layer: nn.Linear) -> Tensor:
    """The weight as C reads it: that of int8 layers in int8."""
    return layer.get_buffer("int8") if isinstance(layer, Int8Linear) else layer.weight.detach()


def address(tensor: Tensor | None) -> int | None:
    """Where a tensor lies; None, C's null, for none."""
    return None if tensor is None else tensor.data_ptr()
