"""The live hypotheses of a beam search: tensors that its steps replace or write."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqwright.core.state import State, per_source


@dataclass
class Beams(State):
    """The live hypotheses: Q groups of K beams that compete, all beams of a source or, in diverse search, some."""

    group: Tensor  # (Q,) numbers
    limit: Tensor  # (Q,) maximum length
    totals: Tensor  # (Q, K) log-probabilities of the live hypotheses
    rows: Tensor  # (Q, K) rows of the model's state that they continue, and have yet to take
    ids: Tensor  # (Q, K) the last id of each
    pool: Tensor  # (Q, N) the best scores of finished hypotheses
    done: Tensor  # (Q,)
    tokens: Tensor  # (Q, K, T) prompt and output, right-padded; T = 0 where no processor needs them
    covered: Tensor  # (Q, K, S) cumulative attention to each source position; S = 0 without a coverage penalty
    progress: Tensor  # (Q, K, 1 + C) automaton states of forbidden and required phrases; no column without any
    prompt: Tensor  # (Q,) length of the prompt
    mask: Tensor = per_source()  # (B, S)

    @property
    def first_rows(self) -> Tensor:
        """(Q, 1): the row of the model's state of each group's first beam."""
        beams = self.ids.size(1)
        return torch.arange(0, self.ids.numel(), beams, device=self.ids.device).unsqueeze(1)
