"""Mixture of softmaxes (Yang et al. 2018): log-probabilities of a higher rank than the model width."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqwright.core.batch import IGNORE
from seqwright.layers.cross_entropy import token_log_probs, upcast


class MixtureOfSoftmaxes(nn.Module):
    """Language modeling head p(x) = Σₖ πₖ softmax(W tanh(Uₖ h))ₓ with priors π = softmax(V h) over K softmaxes that
    share the output weights W, which may be tied to the embedding."""

    def __init__(self, width: int, vocabulary: int, softmaxes: int, *, bias: bool = True, dropout: float = 0.0):
        super().__init__()
        self.softmaxes = softmaxes
        self.prior = nn.Linear(width, softmaxes, bias=False)
        self.latent = nn.Linear(width, softmaxes * width)
        self.dropout = nn.Dropout(dropout)
        self.readout = nn.Linear(width, vocabulary, bias=bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """Log-probabilities (..., V), which are logits of themselves."""
        return self.log_probs(hidden)

    def log_probs(self, hidden: Tensor) -> Tensor:
        """Log-probabilities (..., V), natural log, at least float32."""
        log_prior, latent = self._components(hidden)
        of_each = upcast(self.readout(latent)).log_softmax(-1)  # (..., K, V)
        return torch.logsumexp(log_prior.unsqueeze(-1) + of_each, -2)

    def score(self, hidden: Tensor, target: Tensor) -> Tensor:
        """log p(target), shaped like target; 0 for IGNORE."""
        log_prior, latent = self._components(hidden)
        targets = target.unsqueeze(-1).expand(*target.shape, self.softmaxes)
        of_each = token_log_probs(latent, self.readout.weight, self.readout.bias, targets)  # (..., K)
        return torch.logsumexp(log_prior + of_each, -1).masked_fill(target == IGNORE, 0.0)

    def loss(self, hidden: Tensor, target: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        real = target != IGNORE
        total = -self.score(hidden, target).sum()
        if smoothing:
            uniform = -self.log_probs(hidden).mean(-1)
            total = (1 - smoothing) * total + smoothing * (uniform * real).sum()
        return total, real.sum()

    def predict(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        return self.log_probs(hidden).argmax(-1)

    def _components(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Log-priors (..., K) and latent states (..., K, D)."""
        latent = self.dropout(torch.tanh(self.latent(hidden)))
        return upcast(self.prior(hidden)).log_softmax(-1), latent.view(
            *hidden.shape[:-1], self.softmaxes, hidden.size(-1)
        )
