"""Dynamic evaluation (Krause et al. 2018): a recurrent language model that learns from the text it is scored on.

After each segment is scored, θ ← θ - η ∇ nll + λ (θ₀ - θ): a step of SGD, and a decay towards the trained weights θ₀.
No token is scored by weights that have seen it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqwright.core.batch import IGNORE, Batch, Source
from seqwright.core.config import UserError
from seqwright.core.progress import SILENT, Progress
from seqwright.metrics.likelihood import ScoredText, targets_of
from seqwright.metrics.neural_cache import check_recurrent


def score_dynamically(
    model: Any,
    ids: Tensor,
    *,
    sos: int | None,
    rate: float,
    decay: float,
    segment: int,
    device: torch.device | str,
    progress: Progress = SILENT,
) -> ScoredText:
    """Log-probability of every token of a text (N,) under dynamic evaluation; the model's weights are as before
    afterwards."""
    check_recurrent(model, "evaluation.dynamic_rate")
    target = targets_of(ids, sos)
    log_probs = np.zeros(target.numel())
    with _trainable(model) as parameters:
        trained = [parameter.detach().clone() for parameter in parameters]
        state = model.start(Source.empty(1, device), capacity=0)
        for start in range(0, target.numel(), segment):
            span = slice(start, start + segment)
            batch = Batch.of_text(ids[:-1][span].unsqueeze(0), target[span].unsqueeze(0)).to(device)
            scored, after = model.score(batch, state)
            state = after.detach()
            log_probs[span] = scored.detach().cpu().double().numpy()[0]
            if batch.count:
                gradients = torch.autograd.grad(-scored.sum() / batch.count, parameters)
                _update(parameters, gradients, trained, rate, decay)
            progress.advance(min(start + segment, target.numel()), target.numel())
    return ScoredText(log_probs=log_probs, mask=(target != IGNORE).numpy())


@torch.no_grad()
def _update(
    parameters: list[Tensor], gradients: tuple[Tensor, ...], trained: list[Tensor], rate: float, decay: float
) -> None:
    torch._foreach_add_(parameters, gradients, alpha=-rate)
    if decay:
        torch._foreach_lerp_(parameters, trained, decay)


@contextmanager
def _trainable(model: nn.Module) -> Iterator[list[Tensor]]:
    """The parameters with gradients enabled; restores values and flags afterwards."""
    parameters: list[Tensor] = list(model.parameters())
    if any(parameter.dtype != torch.float32 for parameter in parameters):
        raise UserError("dynamic evaluation changes the weights, which needs float32: leave --precision out.")
    saved = [(parameter.detach().clone(), parameter.requires_grad) for parameter in parameters]
    # cuDNN computes no gradients of a recurrent network in evaluation mode; PyTorch's kernels do.
    with torch.inference_mode(False), torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        try:
            for parameter in parameters:
                parameter.requires_grad_(True)
            yield parameters
        finally:
            for parameter, (value, flag) in zip(parameters, saved, strict=True):
                parameter.requires_grad_(False).copy_(value)
                parameter.requires_grad_(flag)
