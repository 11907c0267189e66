"""Cross-entropy from hidden states with bounded memory for logits: large vocabularies are processed in chunks."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seqwright.core.batch import IGNORE
from seqwright.layers import softmax_loss
from seqwright.layers.linear import linear

MAX_LOGITS = 1 << 26
"""Maximum elements of a logits tensor (256 MiB in float32); larger ones are computed chunk by chunk."""
MAX_LOGITS_CUDA = 1 << 30
"""The same of a chunk on a GPU (2 GiB in bf16), whose matrix products are faster the larger they are."""
ROWS = 4096
"""Chunks of more rows are multiples of this."""
ALIGNMENT = 64
"""Matrix products on a GPU are faster where the vocabulary is a multiple of this: chunks of logits are padded to it."""


def upcast(x: Tensor) -> Tensor:
    """Half precision cast to float32, in which log-probabilities are computed; float32 and float64 unchanged."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    *,
    smoothing: float = 0.0,
    max_logits: int = MAX_LOGITS,
) -> tuple[Tensor, Tensor]:
    """(sum, count) of -log p(target) over targets that are not IGNORE, for logits = hidden · weightᵀ + bias.

    Label smoothing s: the target distribution is 1 - s on the target plus s / V on every token (Szegedy et al. 2016).
    """
    target = target.flatten()
    hidden = hidden.flatten(0, -2)
    real = target != IGNORE
    count = real.sum()
    if hidden.device.type == "cpu" and count < len(real):  # on a GPU the shape would need a synchronization
        hidden, target = hidden[real], target[real]
    if hidden.size(0) * weight.size(0) <= max_logits:
        logits = linear(hidden, weight, bias)
        if softmax_loss.has_kernel(logits, target):
            return softmax_loss.SoftmaxLoss.apply(logits, target, smoothing), count  # type: ignore[no-untyped-call]
        total = F.cross_entropy(upcast(logits), target, ignore_index=IGNORE, reduction="sum", label_smoothing=smoothing)
        return total, count
    total = _chunked["call"](hidden, weight, bias, target, smoothing, max_logits)
    return total, count


def chunked_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float, max_logits: int
) -> Tensor:
    """Summed loss, at most `max_logits` logits at a time (more on a GPU)."""
    if max_logits == MAX_LOGITS and hidden.is_cuda:
        max_logits = MAX_LOGITS_CUDA
    rows = chunk_rows(weight.size(0), max_logits)
    total: Tensor = _Chunked.apply(hidden, weight, bias, target, smoothing, rows)  # type: ignore[no-untyped-call]
    return total


def chunk_rows(vocabulary: int, max_logits: int) -> int:
    """Rows of a chunk of at most `max_logits` logits."""
    rows = max(1, max_logits // vocabulary)
    return rows - rows % ROWS if rows > ROWS else rows  # whole tiles of a matrix product


_chunked: dict[str, Callable[..., Tensor]] = {"call": chunked_cross_entropy}


def keep_chunks_out_of_graphs() -> None:
    """Has torch.compile call the chunked loss instead of compiling it, since its loop would be unrolled. As a decorator
    it would import the compiler."""
    _chunked["call"] = torch.compiler.disable(chunked_cross_entropy)  # type: ignore[no-untyped-call]


def token_log_probs(hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor) -> Tensor:
    """log p(target), shaped like target, 0 where IGNOREd; at most MAX_LOGITS logits at a time where autograd is off."""
    flat_hidden, flat_target = hidden.flatten(0, -2), target.flatten()
    rows = max(1, MAX_LOGITS // weight.size(0))
    parts = [
        -F.cross_entropy(upcast(F.linear(h, weight, bias)), t, ignore_index=IGNORE, reduction="none")
        for h, t in zip(torch.split(flat_hidden, rows), torch.split(flat_target, rows), strict=True)
    ]
    return torch.cat(parts).view_as(target)


def _loss_and_gradient(device: torch.device) -> Callable[[Tensor, Tensor, int, float], tuple[Tensor, Tensor | None]]:
    """The Triton kernel on a GPU, PyTorch's operations elsewhere: the same function."""
    if device.type == "cuda" and importlib.util.find_spec("triton"):
        from seqwright.layers import softmax_gradient

        return softmax_gradient.loss_and_gradient_
    return loss_and_gradient_


def loss_and_gradient_(logits: Tensor, target: Tensor, size: int, smoothing: float) -> tuple[Tensor, Tensor | None]:
    """Summed -log p(target) of logits (N, V or more), of which `size` columns are the vocabulary; afterwards `logits`
    holds its gradient, which is to be multiplied by the factors (N,), if there are any."""
    wide = upcast(logits[:, :size])
    total = F.cross_entropy(wide, target, ignore_index=IGNORE, reduction="sum", label_smoothing=smoothing)
    # d loss / d logits = softmax - target distribution.
    gradient = wide.softmax(-1)
    gradient -= smoothing / size
    gradient.scatter_add_(1, target.clamp(min=0).unsqueeze(1), gradient.new_full((len(target), 1), smoothing - 1))
    gradient *= (target != IGNORE).unsqueeze(1)
    logits.zero_()[:, :size] = gradient
    return total, None


def _rows_times(x: Tensor, factor: Tensor | None) -> Tensor:
    """Rows of x (N, D) times their factors (N,), rounded once; x itself without factors."""
    return x if factor is None else torch.mul(x, factor.unsqueeze(1), out=torch.empty_like(x))


def _plus_product(total: Tensor | None, a: Tensor, b: Tensor) -> Tensor:
    """total + a · b in float32 (float64 stays), over the total. In half precision on a GPU the product itself adds: the
    fewer passes over a matrix as large as the output layer."""
    if a.is_cuda and a.dtype in (torch.float16, torch.bfloat16):
        if total is None:
            return torch.mm(a, b, out_dtype=torch.float32)
        return torch.addmm(total, a, b, out_dtype=torch.float32, out=total)
    product = upcast(a @ b)
    return product if total is None else total.add_(product)


class _Chunked(torch.autograd.Function):
    """Summed loss over chunks of rows. Gradients are computed in the forward pass while a chunk's logits exist, so that
    no logits are stored or computed twice."""

    @staticmethod
    def forward(
        context: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float, rows: int
    ) -> Tensor:
        if torch.is_autocast_enabled(hidden.device.type):
            dtype = torch.get_autocast_dtype(hidden.device.type)
            hidden, cast_weight = hidden.to(dtype), weight.to(dtype)
        else:
            cast_weight = weight
        padding = -weight.size(0) % ALIGNMENT if hidden.is_cuda else 0
        cast_bias = None if bias is None else bias.to(cast_weight.dtype)
        if padding:  # F.pad copies even where there is none
            cast_weight = F.pad(cast_weight, (0, 0, 0, padding))
            cast_bias = None if cast_bias is None else F.pad(cast_bias, (0, padding))
        total = upcast(hidden.new_zeros(()))
        hidden_gradient = torch.empty_like(hidden)
        weight_gradient: Tensor | None = None
        factors: list[Tensor] = []
        bias_gradient = None if bias is None else upcast(torch.zeros_like(bias))
        loss_and_gradient_ = _loss_and_gradient(hidden.device)
        with torch.autocast(hidden.device.type, enabled=False):
            for start in range(0, hidden.size(0), rows):
                chunk = hidden[start : start + rows]
                logits = F.linear(chunk, cast_weight, cast_bias)
                loss, factor = loss_and_gradient_(logits, target[start : start + rows], weight.size(0), smoothing)
                total += loss
                if factor is not None:
                    factors.append(factor)
                # The logits are overwritten by their gradient, whose factors are those of smaller matrices as well.
                gradient = logits[:, : weight.size(0)].T
                torch.mm(logits, cast_weight, out=hidden_gradient[start : start + rows])
                weight_gradient = _plus_product(weight_gradient, gradient, _rows_times(chunk, factor))
                if bias_gradient is None:
                    continue
                if factor is None:
                    bias_gradient += gradient.sum(1, dtype=bias_gradient.dtype)
                else:
                    _plus_product(bias_gradient.unsqueeze(1), gradient, factor.to(gradient.dtype).unsqueeze(1))
        context.save_for_backward(
            hidden_gradient, weight_gradient, bias_gradient, torch.cat(factors) if factors else None
        )
        context.dtypes = weight.dtype, None if bias is None else bias.dtype
        return total

    @staticmethod
    def backward(context: Any, upstream: Tensor) -> Any:
        hidden, weight, bias, factor = context.saved_tensors
        weight_type, bias_type = context.dtypes
        return (
            hidden * upstream.to(hidden.dtype) if factor is None else _rows_times(hidden, factor * upstream),
            (weight * upstream).to(weight_type),
            None if bias is None else (bias * upstream).to(bias_type),
            None,
            None,
            None,
        )
