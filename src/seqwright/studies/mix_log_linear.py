"""Log-linear mixtures of language models, p ∝ Π p_i^weight (decision 260)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqwright.core.batch import Batch
from seqwright.data.text.stream import Stream
from seqwright.metrics.interpolation import geometric_weights
from seqwright.metrics.likelihood import targets_of
from seqwright.metrics.score import Floats
from seqwright.runs.run import Run

MAX_LOG_PROBS = 1 << 24
"""Log-probabilities held in memory to tune the weights: the normalizer needs whole distributions."""
WINDOW = 256
"""Tokens of a window, at most."""
IMPOSSIBLE = -50.0
"""log p of ids that a model excludes, for tuning."""


def log_linear_weights(runs: Sequence[Run], stream: Stream) -> Floats:
    """Weights of the log-linear mixture under which a sample of a text is most probable."""
    return geometric_weights(*_sample(runs, stream))


@torch.inference_mode()
def _sample(runs: Sequence[Run], stream: Stream) -> tuple[Floats, NDArray[np.int64]]:
    """Log-probabilities (M, N, V) of the ids after N positions of a text, and the ids there: the second halves of
    windows spread evenly over it, as many as fit in memory."""
    ids = torch.from_numpy(stream.ids.astype(np.int64))
    target = targets_of(ids, stream.sos)
    contexts = [run.model.context for run in runs if run.model.context is not None]
    length = min(WINDOW, len(target), *contexts)
    seen = length // 2
    room = MAX_LOG_PROBS // (len(runs) * runs[0].tokenizer.vocabulary.size)
    count = max(1, min(room, len(target) - seen) // (length - seen))
    firsts = np.linspace(0, len(target) - length, count).astype(int)
    distributions: list[Tensor] = []
    targets: list[Tensor] = []
    for first in firsts:
        batch = Batch.of_text(ids[None, first : first + length], target[None, first : first + length])
        if runs[0].settings.data.mask_documents:
            batch = batch.with_documents(stream.sos)
        scored = batch.target[0, seen:] >= 0
        of_runs = [run.model(batch.to(run.device)).log_softmax(-1)[0, seen:].cpu()[scored] for run in runs]
        distributions.append(torch.stack(of_runs))
        targets.append(batch.target[0, seen:][scored])
    log_probs = torch.cat(distributions, 1).double().clamp(min=IMPOSSIBLE)
    return log_probs.numpy(), torch.cat(targets).numpy()
