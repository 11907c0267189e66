"""Linear-chain conditional random field over the tags of a sentence (Lafferty et al. 2001)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqwright.core.batch import IGNORE
from seqwright.layers.cross_entropy import upcast


class CRFHead(nn.Module):
    """CRF head: emission scores of C tags from hidden states, and learned transition scores (Lample et al. 2016).

    Rows are right-padded. The forward algorithm runs in log space, one position at a time, all rows at once.
    """

    def __init__(self, width: int, tags: int):
        super().__init__()
        self.readout = nn.Linear(width, tags)
        self.transitions = nn.Parameter(torch.zeros(tags, tags))  # from a tag (row) to the next (column)
        self.first = nn.Parameter(torch.zeros(tags))
        self.last = nn.Parameter(torch.zeros(tags))

    def forward(self, hidden: Tensor) -> Tensor:
        """Emission scores (B, W, C), before transitions."""
        return self.readout(hidden)

    def loss(self, hidden: Tensor, target: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """-log p(tags) summed over rows, and the number of words; label smoothing is not defined here and ignored."""
        real = target != IGNORE
        scores = upcast(self.readout(hidden))
        return (self.log_partition(scores, real) - self.path_score(scores, target, real)).sum(), real.sum()

    def path_score(self, scores: Tensor, target: Tensor, real: Tensor) -> Tensor:
        """(B,): the unnormalized score of each row's tag path."""
        if not real.size(1):
            return scores.new_zeros(len(scores))
        tags = target.masked_fill(~real, 0)
        emissions = scores.gather(-1, tags.unsqueeze(-1)).squeeze(-1) * real  # (B, W)
        transitions = self.transitions[tags[:, :-1], tags[:, 1:]] * real[:, 1:]  # (B, W - 1)
        end = tags.gather(1, (real.sum(1, keepdim=True) - 1).clamp(min=0)).squeeze(1)  # (B,)
        return emissions.sum(1) + transitions.sum(1) + (self.first[tags[:, 0]] + self.last[end]) * real.any(1)

    def log_partition(self, scores: Tensor, real: Tensor) -> Tensor:
        """(B,): log Z, the log-sum-exp of path scores by the forward algorithm; 0 where a row has no words."""
        if not real.size(1):
            return scores.new_zeros(len(scores))
        alpha = self.first + scores[:, 0]  # (B, C): log-sum-exp of the paths that end in each tag
        for t in range(1, scores.size(1)):
            extended = (alpha.unsqueeze(2) + self.transitions).logsumexp(1) + scores[:, t]
            alpha = torch.where(real[:, t : t + 1], extended, alpha)
        return (alpha + self.last).logsumexp(1) * real.any(1)

    def predict(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        """(B, W): the best tag path of each row by Viterbi decoding (Viterbi 1967); 0 at padding."""
        scores = upcast(self.readout(hidden))
        rows, words, tags = scores.shape
        if real is None:
            real = torch.ones(rows, words, dtype=torch.bool, device=scores.device)
        if not words:
            return torch.zeros(rows, 0, dtype=torch.long, device=scores.device)
        best = self.first + scores[:, 0]  # (B, C)
        stay = torch.arange(tags, device=scores.device).expand(rows, tags)
        backpointers = []  # at each word, the previous tag on the best path to each tag
        for t in range(1, words):
            extended, previous = (best.unsqueeze(2) + self.transitions).max(1)
            best = torch.where(real[:, t : t + 1], extended + scores[:, t], best)
            backpointers.append(torch.where(real[:, t : t + 1], previous, stay))
        path = [(best + self.last).argmax(1)]  # at padding each tag points to itself, so all rows end together
        for previous in reversed(backpointers):
            path.append(previous.gather(1, path[-1].unsqueeze(1)).squeeze(1))
        return torch.stack(path[::-1], 1).masked_fill(~real, 0)

    @torch.enable_grad()
    def probabilities(self, hidden: Tensor, real: Tensor) -> Tensor:
        """(B, W, C): the marginal probability of each tag at each word.

        Marginals are the gradient of log Z with respect to the emission scores: autograd is the backward algorithm.
        """
        scores = upcast(self.readout(hidden)).detach().requires_grad_()
        return torch.autograd.grad(self.log_partition(scores, real).sum(), scores)[0]
