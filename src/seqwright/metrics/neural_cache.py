"""Neural cache (Grave et al. 2017): a recurrent language model interpolated with a pointer to its recent hidden states.

p(w) = (1 - λ) p_model(w) + λ Σ_i [w_(i+1) = w] softmax_i(θ h_t · h_i), over the last `size` positions i < t.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqwright.core.batch import IGNORE, Batch
from seqwright.core.config import UserError
from seqwright.core.protocols import HasActivations
from seqwright.core.state import State
from seqwright.metrics.likelihood import ScoredText, over_text, targets_of

CHUNK = 512
"""Positions whose similarities to the cache are computed at a time."""


class NeuralCache:
    """Scores consecutive chunks of one text; hidden states and the tokens after them are kept between chunks."""

    def __init__(self, model: Any, size: int, theta: float, weight: float):
        self.model, self.size, self.theta, self.weight = model, size, theta, weight
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def score(self, batch: Batch, state: State | None) -> tuple[Tensor, State | None]:
        """log p(target) (1, T) of the next chunk, and the state after it."""
        hidden, after = self.model.hidden(batch, state)
        log_probs, target = self.model.head.score(hidden, batch.target), batch.target[0]
        queries = hidden[0].float()  # (T, D)
        if self.keys is None or self.values is None:
            self.keys, self.values = queries[:0], target[:0]
        held = len(self.values)
        keys, values = torch.cat([self.keys, queries]), torch.cat([self.values, target])  # (K, D), (K,)
        now = held + torch.arange(len(target), device=target.device).unsqueeze(1)  # (T, 1)
        place = torch.arange(len(values), device=target.device)  # (K,)
        # <sos> is given, never predicted: what comes before it points to no token.
        seen = (place < now) & (place >= now - self.size) & (values != IGNORE)  # (T, K)
        similarity = (self.theta * queries @ keys.T).masked_fill(~seen, -math.inf)
        pointers = similarity.softmax(-1).nan_to_num()  # NaN where the cache is empty
        cached = (pointers * (values == target.unsqueeze(1))).sum(-1)  # (T,)
        weight = torch.where(seen.any(-1), self.weight, 0.0)
        mixed = torch.logaddexp((1 - weight).log() + log_probs[0], weight.log() + cached.log())
        self.keys, self.values = keys[-self.size :], values[-self.size :]
        return mixed.masked_fill(target == IGNORE, 0.0).unsqueeze(0), after


@torch.inference_mode()
def score_with_cache(
    model: Any, ids: Tensor, *, sos: int | None, size: int, theta: float, weight: float, device: torch.device | str
) -> ScoredText:
    """Log-probability of every token of a text (N,) with a neural cache."""
    check_recurrent(model, "evaluation.cache_size")
    target = targets_of(ids, sos)
    log_probs = np.zeros(target.numel())
    for first, part in over_text(
        model,
        NeuralCache(model, size, theta, weight).score,
        ids,
        target,
        stride=None,
        batch_size=1,
        rows=1,
        chunk=CHUNK,
        document_start=None,
        device=device,
    ):
        log_probs[first : first + len(part)] = part
    return ScoredText(log_probs=log_probs, mask=(target != IGNORE).numpy())


def check_recurrent(model: Any, key: str) -> None:
    """Refuses models without a recurrent state."""
    if not (isinstance(model, HasActivations) and model.has_activations):
        raise UserError(f"{key} is for recurrent language models: rnn, lstm and gru; leave it out.")
