"""Cross-entropy from hidden vectors, which never holds more logits than it was allowed."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seqwright.core.batch import IGNORE

LARGEST_LOGITS = 1 << 26
"""Elements of a logits array made at once (256 MiB in float32); a larger one is made and used up chunk by chunk."""


def exact(x: Tensor) -> Tensor:
    """Half precision widened to float32, where log-probabilities are taken; float32 and float64 as they are."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    *,
    smoothing: float = 0.0,
    largest: int = LARGEST_LOGITS,
) -> tuple[Tensor, Tensor]:
    """(sum, count) of -log p(target) over real targets, for logits = hidden · weightᵀ + bias.

    With smoothing s the target distribution is (1 - s) on the target and s spread evenly (Szegedy et al. 2016).
    """
    target = target.flatten()
    hidden = hidden.flatten(0, -2)
    real = target != IGNORE
    count = real.sum()
    if hidden.device.type == "cpu" and count < len(real):  # a GPU would have to stop and tell us how many are real
        hidden, target = hidden[real], target[real]
    if hidden.size(0) * weight.size(0) <= largest:
        logits = exact(F.linear(hidden, weight, bias))
        total = F.cross_entropy(logits, target, ignore_index=IGNORE, reduction="sum", label_smoothing=smoothing)
        return total, count
    rows = max(1, largest // weight.size(0))
    total = _Chunked.apply(hidden, weight, bias, target, smoothing, rows)  # type: ignore[no-untyped-call]
    return total, count


def token_log_probs(hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor) -> Tensor:
    """log p(target), shaped like target, 0 where IGNOREd; without gradients beyond the small case."""
    flat, wanted = hidden.flatten(0, -2), target.flatten()
    rows = max(1, LARGEST_LOGITS // weight.size(0))
    parts = [
        -F.cross_entropy(exact(F.linear(h, weight, bias)), t, ignore_index=IGNORE, reduction="none")
        for h, t in zip(torch.split(flat, rows), torch.split(wanted, rows), strict=True)
    ]
    return torch.cat(parts).view_as(target)


class _Chunked(torch.autograd.Function):
    """The sum over chunks of rows; gradients are taken while a chunk's logits exist, so nothing is computed twice."""

    @staticmethod
    def forward(
        context: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float, rows: int
    ) -> Tensor:
        if torch.is_autocast_enabled(hidden.device.type):
            dtype = torch.get_autocast_dtype(hidden.device.type)
            hidden, used = hidden.to(dtype), weight.to(dtype)
        else:
            used = weight
        total = exact(hidden.new_zeros(()))
        hidden_gradient = torch.empty_like(hidden)
        weight_gradient = exact(torch.zeros_like(weight))
        bias_gradient = None if bias is None else exact(torch.zeros_like(bias))
        spread = smoothing / weight.size(0)
        with torch.autocast(hidden.device.type, enabled=False):
            for start in range(0, hidden.size(0), rows):
                part, wanted = hidden[start : start + rows], target[start : start + rows]
                real = wanted != IGNORE
                logits = exact(F.linear(part, used, None if bias is None else bias.to(used.dtype)))
                total += F.cross_entropy(
                    logits, wanted, ignore_index=IGNORE, reduction="sum", label_smoothing=smoothing
                )
                # d loss / d logits = softmax - target distribution, written over the logits.
                gradient = logits.softmax(-1)
                gradient -= spread
                gradient.scatter_add_(
                    1, wanted.clamp(min=0).unsqueeze(1), gradient.new_full((len(wanted), 1), smoothing - 1)
                )
                gradient *= real.unsqueeze(1)
                if bias_gradient is not None:
                    bias_gradient += gradient.sum(0)
                gradient = gradient.to(used.dtype)
                hidden_gradient[start : start + rows] = gradient @ used
                weight_gradient += gradient.T @ part
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
