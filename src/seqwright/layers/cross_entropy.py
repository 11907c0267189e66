"""Cross-entropy from hidden states with bounded memory for logits: large vocabularies are processed in chunks."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seqwright.core.batch import IGNORE

MAX_LOGITS = 1 << 26
"""Maximum elements of a logits tensor (256 MiB in float32); larger ones are computed chunk by chunk."""


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
        logits = upcast(F.linear(hidden, weight, bias))
        total = F.cross_entropy(logits, target, ignore_index=IGNORE, reduction="sum", label_smoothing=smoothing)
        return total, count
    rows = max(1, max_logits // weight.size(0))
    total = _Chunked.apply(hidden, weight, bias, target, smoothing, rows)  # type: ignore[no-untyped-call]
    return total, count


def token_log_probs(hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor) -> Tensor:
    """log p(target), shaped like target, 0 where IGNOREd; at most MAX_LOGITS logits at a time where autograd is off."""
    flat_hidden, flat_target = hidden.flatten(0, -2), target.flatten()
    rows = max(1, MAX_LOGITS // weight.size(0))
    parts = [
        -F.cross_entropy(upcast(F.linear(h, weight, bias)), t, ignore_index=IGNORE, reduction="none")
        for h, t in zip(torch.split(flat_hidden, rows), torch.split(flat_target, rows), strict=True)
    ]
    return torch.cat(parts).view_as(target)


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
        total = upcast(hidden.new_zeros(()))
        hidden_gradient = torch.empty_like(hidden)
        weight_gradient = upcast(torch.zeros_like(weight))
        bias_gradient = None if bias is None else upcast(torch.zeros_like(bias))
        spread = smoothing / weight.size(0)
        with torch.autocast(hidden.device.type, enabled=False):
            for start in range(0, hidden.size(0), rows):
                chunk, chunk_target = hidden[start : start + rows], target[start : start + rows]
                real = chunk_target != IGNORE
                logits = upcast(F.linear(chunk, cast_weight, None if bias is None else bias.to(cast_weight.dtype)))
                total += F.cross_entropy(
                    logits, chunk_target, ignore_index=IGNORE, reduction="sum", label_smoothing=smoothing
                )
                # d loss / d logits = softmax - target distribution.
                gradient = logits.softmax(-1)
                gradient -= spread
                gradient.scatter_add_(
                    1, chunk_target.clamp(min=0).unsqueeze(1), gradient.new_full((len(chunk_target), 1), smoothing - 1)
                )
                gradient *= real.unsqueeze(1)
                if bias_gradient is not None:
                    bias_gradient += gradient.sum(0)
                gradient = gradient.to(cast_weight.dtype)
                hidden_gradient[start : start + rows] = gradient @ cast_weight
                weight_gradient += gradient.T @ chunk
        context.save_for_backward(hidden_gradient, weight_gradient, bias_gradient)
        context.dtypes = weight.dtype, None if bias is None else bias.dtype
        return total

    @staticmethod
    def backward(context: Any, upstream: Tensor) -> Any:
        hidden, weight, bias = context.saved_tensors
        weight_type, bias_type = context.dtypes
        return (
            hidden * upstream.to(hidden.dtype),
            (weight * upstream).to(weight_type),
            None if bias is None else (bias * upstream).to(bias_type),
            None,
            None,
            None,
        )
