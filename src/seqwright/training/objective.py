"""The training objective: batch to loss sum and token count. This module is what `machine.prepare` compiles."""

from __future__ import annotations

from torch import Tensor, nn

from seqwright.core.batch import IGNORE, Batch
from seqwright.core.config import UserError
from seqwright.core.protocols import HasActivations, Head, ModelsSource, Trainable
from seqwright.core.state import State
from seqwright.layers.cross_entropy import upcast
from seqwright.layers.heads import MLMHead


class Objective(nn.Module):
    """Negative log-likelihood of the targets, optionally with label smoothing, R-Drop, an auxiliary LM loss or
    activation regularization.

    Returns sums, never means: micro-batches and ranks are summed and divided once by the token count of the whole step,
    so that accumulated = one batch.
    """

    def __init__(
        self,
        model: Trainable,
        *,
        smoothing: float = 0.0,
        r_drop: float = 0.0,
        auxiliary: float = 0.0,
        activation_l2: float = 0.0,
        temporal_activation_l2: float = 0.0,
    ):
        super().__init__()
        self.activation_l2, self.temporal_activation_l2 = activation_l2, temporal_activation_l2
        self.model = model
        self.smoothing = smoothing
        self.r_drop = r_drop
        self.auxiliary = auxiliary
        if auxiliary and not (isinstance(model, ModelsSource) and model.models_source):
            raise UserError(
                "training.auxiliary_loss_weight needs a classifier with a causal encoder: gpt, or rnn, lstm or gru with"
                " bidirectional = false and embedding = width."
            )

        if (activation_l2 or temporal_activation_l2) and not (
            isinstance(model, HasActivations) and model.has_activations
        ):
            raise UserError(
                "training.activation_l2 and temporal_activation_l2 regularize recurrent language models: rnn, lstm or"
                " gru; leave them out."
            )

    def forward(self, batch: Batch, state: State | None = None) -> tuple[Tensor, Tensor, State | None]:
        """(loss sum, token count, state after)."""
        if self.auxiliary:
            assert isinstance(self.model, ModelsSource)
            hidden, lm_loss = self.model.hidden_and_lm_loss(batch)
            total, count = self.model.head.loss(hidden, batch.target, self.smoothing)
            return total + self.auxiliary * lm_loss, count, None
        penalty = None
        if self.activation_l2 or self.temporal_activation_l2:
            assert isinstance(self.model, HasActivations)
            hidden, activations, after = self.model.hidden_and_activations(batch, state)
            real = batch.target != IGNORE
            penalty = self.activation_l2 * activation_l2(hidden, real)
            penalty = penalty + self.temporal_activation_l2 * temporal_activation_l2(activations, real)
        else:
            hidden, after = self.model.hidden(batch, state)
        total, count = self.model.head.loss(hidden, batch.target, self.smoothing)
        if self.r_drop:
            # A second forward pass with another dropout mask. Half of the paper's loss (Liang et al. 2021): the mean of
            # both nlls, plus half of alpha times the symmetric KL.
            hidden2, _ = self.model.hidden(batch, state)
            total2, _ = self.model.head.loss(hidden2, batch.target, self.smoothing)
            total = (total + total2 + self.r_drop * symmetric_kl(self.model.head, hidden, hidden2, batch.target)) / 2
        return total if penalty is None else total + penalty, count, after


def activation_l2(hidden: Tensor, real: Tensor) -> Tensor:
    """Activation regularization (AR): the mean square of hidden states (B, T, D) after dropout, summed over real
    positions (B, T)."""
    return (upcast(hidden).square().mean(-1) * real).sum()


def temporal_activation_l2(activations: Tensor, real: Tensor) -> Tensor:
    """Temporal activation regularization (TAR): the mean square of the change of hidden states before dropout from one
    position to the next, summed over real positions. A row has one change fewer than positions: divided by the number
    of targets it is (T - 1) / T of the mean that Merity et al. (2018) take."""
    changes = upcast(activations).diff(dim=1).square().mean(-1)
    return (changes * real[:, 1:]).sum()


def symmetric_kl(head: Head, hidden1: Tensor, hidden2: Tensor, target: Tensor) -> Tensor:
    """The mean of KL(p ‖ q) and KL(q ‖ p), summed over real targets; p and q are a head's two predictions."""
    real = target != IGNORE
    if hidden1.device.type == "cpu" or isinstance(head, MLMHead):  # else on a GPU a selection would synchronize
        hidden1, hidden2, real = hidden1[real], hidden2[real], real[real]
    return (position_kl(head, hidden1, hidden2) * real).sum()


def position_kl(head: Head, hidden1: Tensor, hidden2: Tensor) -> Tensor:
    """The same at each position."""
    p, q = (upcast(head(hidden)).log_softmax(-1) for hidden in (hidden1, hidden2))
    return ((p.exp() - q.exp()) * (p - q)).sum(-1) / 2
