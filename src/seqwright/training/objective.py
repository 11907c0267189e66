"""The objective: a batch to a loss that adds up. This module is what compilation and data parallelism wrap."""

from __future__ import annotations

from torch import Tensor, nn

from seqwright.core.batch import IGNORE, Batch
from seqwright.core.config import UserError
from seqwright.core.protocols import Head, State, TellsTokens, Trainable
from seqwright.layers.cross_entropy import exact


class Objective(nn.Module):
    """Negative log-likelihood of the targets, with label smoothing, R-Drop or an auxiliary likelihood where asked for.

    Sums cross this boundary, never means: micro-batches and ranks are added up and divided once by the token count of
    the whole step, so that accumulated = one batch.
    """

    def __init__(self, model: Trainable, *, smoothing: float = 0.0, r_drop: float = 0.0, auxiliary: float = 0.0):
        super().__init__()
        self.model = model
        self.smoothing = smoothing
        self.r_drop = r_drop
        self.auxiliary = auxiliary
        if auxiliary and not (isinstance(model, TellsTokens) and model.tells_tokens):
            raise UserError(
                "training.auxiliary_loss_weight needs a classifier whose encoder reads from left to right: gpt, or rnn, lstm and"
                " gru with bidirectional = false and embedding = width."
            )

    def forward(self, batch: Batch, state: State | None = None) -> tuple[Tensor, Tensor, State | None]:
        """(loss sum, token count, state after)."""
        if self.auxiliary:
            assert isinstance(self.model, TellsTokens)
            hidden, surprise = self.model.hidden_and_surprise(batch)
            total, count = self.model.head.loss(hidden, batch.target, self.smoothing)
            return total + self.auxiliary * surprise, count, None
        hidden, after = self.model.hidden(batch, state)
        total, count = self.model.head.loss(hidden, batch.target, self.smoothing)
        if self.r_drop:
            # The same batch under another dropout (Liang et al. 2021), whose loss this is halved: the mean of both
            # likelihoods, and half of alpha times their divergence.
            again, _ = self.model.hidden(batch, state)
            other, _ = self.model.head.loss(again, batch.target, self.smoothing)
            total = (total + other + self.r_drop * divergence(self.model.head, hidden, again, batch.target)) / 2
        return total, count, after


def divergence(head: Head, one: Tensor, other: Tensor, target: Tensor) -> Tensor:
    """The mean of KL(p ‖ q) and KL(q ‖ p), summed over real targets, for the distributions that a head makes."""
    real = target != IGNORE
    p, q = (exact(head(hidden[real])).log_softmax(-1) for hidden in (one, other))
    return ((p.exp() - q.exp()) * (p - q)).sum() / 2
