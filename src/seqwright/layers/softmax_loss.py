"""Softmax cross-entropy in compiled C, for training on a CPU (softmax_loss.c)."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqwright.core import native
from seqwright.core.batch import IGNORE

Pointer, Integer, Real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
DTYPES = (torch.float32, torch.bfloat16)


@functools.cache
def kernels() -> Any:
    """The functions of softmax_loss.c; None where this machine cannot compile them."""
    functions = native.library(Path(__file__).with_name("softmax_loss.c"))
    if functions is None:
        return None
    common: list[Any] = [Pointer, Integer, Pointer, Integer, Integer, Real, Integer]
    functions.softmax_loss.argtypes = [*common, Pointer, Pointer, Integer]
    functions.softmax_loss.restype = Integer
    functions.softmax_gradient.argtypes = [*common, Pointer, Real, Pointer, Integer]
    return functions


def has_kernel(logits: Tensor, target: Tensor) -> bool:
    """Whether compiled C computes loss and gradient of these logits (N, V) and targets (N,). PyTorch refuses targets of
    another dtype or number; C would read beside them."""
    trained = logits.requires_grad and logits.device.type == "cpu" and logits.dtype in DTYPES
    fitting = target.dtype == torch.long and target.shape == logits.shape[:1]
    return trained and fitting and not torch.compiler.is_compiling() and kernels() is not None


class SoftmaxLoss(torch.autograd.Function):
    """Summed cross-entropy in float32 of logits (N, V) and targets (N,), without those that are IGNOREd."""

    @staticmethod
    def forward(context: Any, logits: Tensor, target: Tensor, smoothing: float) -> Tensor:
        logits, target = logits.contiguous(), target.contiguous()
        loss = logits.new_empty(len(target), dtype=torch.float32)
        normalizer = logits.new_empty(len(target), 2, dtype=torch.float32)  # greatest logit and log-total of each row
        arguments = _arguments(logits, target, smoothing)
        wrong = kernels().softmax_loss(*arguments, loss.data_ptr(), normalizer.data_ptr(), torch.get_num_threads())
        if wrong >= 0:
            raise IndexError(f"Target {int(target[wrong])} is out of bounds.")  # as PyTorch has it
        context.save_for_backward(logits, target, normalizer)
        context.smoothing = smoothing
        return loss.sum()

    @staticmethod
    @once_differentiable
    def backward(context: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        logits, target, normalizer = context.saved_tensors
        gradient = torch.empty_like(logits)
        arguments = _arguments(logits, target, context.smoothing)
        pointers = normalizer.data_ptr(), float(upstream), gradient.data_ptr()
        kernels().softmax_gradient(*arguments, *pointers, torch.get_num_threads())
        return gradient, None, None


def _arguments(logits: Tensor, target: Tensor, smoothing: float) -> tuple[Any, ...]:
    half = logits.dtype == torch.bfloat16
    return logits.data_ptr(), half, target.data_ptr(), *logits.shape, smoothing, IGNORE
