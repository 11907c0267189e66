"""Next-token accuracy of a language model: how often the arg max of its distribution is the next token of a text."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqwright.core.batch import Batch
from seqwright.core.protocols import Autoregressive
from seqwright.core.state import State
from seqwright.metrics.likelihood import over_text, targets_of

MAX_LOGITS = 1 << 26
"""Logits of a text, tokens × vocabulary, up to which accuracy is reported without being requested."""
CHUNK_LOGITS = 1 << 24
"""Logits in memory at a time of models with carried state."""


@torch.inference_mode()
def next_token_correct(
    model: Autoregressive,
    ids: Tensor,
    vocabulary: int,
    *,
    sos: int | None,
    stride: int | None = None,
    mask_documents: bool = False,
    device: torch.device | str = "cpu",
) -> NDArray[np.bool_]:
    """(N - 1,): whether the most probable token after each position is the next one, with the context that its
    likelihood has (`score_text`)."""

    def correct(batch: Batch, state: State | None) -> tuple[Tensor, State | None]:
        if state is None:
            return model(batch).argmax(-1) == batch.target, None
        log_probs, after = model.step(batch.input, state, all_positions=True)
        return log_probs.argmax(-1) == batch.target, after

    target = targets_of(ids, sos)
    hits = np.zeros(target.numel(), bool)
    for first, part in over_text(
        model,
        correct,
        ids,
        target,
        stride=stride,
        batch_size=1,
        rows=1,
        chunk=max(1, CHUNK_LOGITS // vocabulary),
        document_start=sos if mask_documents else None,
        device=device,
    ):
        hits[first : first + len(part)] = part > 0
    return hits
