"""A linear-chain conditional random field: the tags of a row are learned and found together (Lafferty et al. 2001)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqwright.core.batch import IGNORE
from seqwright.layers.cross_entropy import exact


class CRFHead(nn.Module):
    """One of C tags for each hidden vector, and a score for each tag after each other (Lample et al. 2016).

    The real vectors of a row stand before its padding. Sums over all paths are taken in log space, position by
    position, all rows at once.
    """

    def __init__(self, width: int, tags: int):
        super().__init__()
        self.readout = nn.Linear(width, tags)
        self.transitions = nn.Parameter(torch.zeros(tags, tags))  # from a tag (row) to the next (column)
        self.first = nn.Parameter(torch.zeros(tags))
        self.last = nn.Parameter(torch.zeros(tags))

    def forward(self, hidden: Tensor) -> Tensor:
        """Scores (B, W, C) of each vector's own tag, before what its neighbors say."""
        return self.readout(hidden)

    def loss(self, hidden: Tensor, target: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """-log p(tags) of each row, summed, and the number of words; label smoothing has no meaning here."""
        real = target != IGNORE
        scores = exact(self.readout(hidden))
        return (self.log_partition(scores, real) - self.path_score(scores, target, real)).sum(), real.sum()

    def path_score(self, scores: Tensor, target: Tensor, real: Tensor) -> Tensor:
        """(B,): what the tags of a row are worth together."""
        if not real.size(1):
            return scores.new_zeros(len(scores))
        tags = target.masked_fill(~real, 0)
        own = scores.gather(-1, tags.unsqueeze(-1)).squeeze(-1) * real  # (B, W)
        moved = self.transitions[tags[:, :-1], tags[:, 1:]] * real[:, 1:]  # (B, W - 1)
        end = tags.gather(1, (real.sum(1, keepdim=True) - 1).clamp(min=0)).squeeze(1)  # (B,)
        return own.sum(1) + moved.sum(1) + (self.first[tags[:, 0]] + self.last[end]) * real.any(1)

    def log_partition(self, scores: Tensor, real: Tensor) -> Tensor:
        """(B,): log of the sum of exp(score) over all paths, 0 where a row has no words."""
        if not real.size(1):
            return scores.new_zeros(len(scores))
        sums = self.first + scores[:, 0]  # (B, C): over all paths that end in each tag
        for t in range(1, scores.size(1)):
            further = (sums.unsqueeze(2) + self.transitions).logsumexp(1) + scores[:, t]
            sums = torch.where(real[:, t : t + 1], further, sums)
        return (sums + self.last).logsumexp(1) * real.any(1)

    def predict(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        """(B, W): the best path of each row (Viterbi 1967); 0 where it has no words."""
        scores = exact(self.readout(hidden))
        rows, words, tags = scores.shape
        if real is None:
            real = torch.ones(rows, words, dtype=torch.bool, device=scores.device)
        if not words:
            return torch.zeros(rows, 0, dtype=torch.long, device=scores.device)
        best = self.first + scores[:, 0]  # (B, C)
        stay = torch.arange(tags, device=scores.device).expand(rows, tags)
        back = []  # at each word, from which tag the best path comes
        for t in range(1, words):
            further, origin = (best.unsqueeze(2) + self.transitions).max(1)
            best = torch.where(real[:, t : t + 1], further + scores[:, t], best)
            back.append(torch.where(real[:, t : t + 1], origin, stay))
        path = [(best + self.last).argmax(1)]  # padding passes a row's last tag on, so all rows end together
        for origin in reversed(back):
            path.append(origin.gather(1, path[-1].unsqueeze(1)).squeeze(1))
        return torch.stack(path[::-1], 1).masked_fill(~real, 0)

    @torch.enable_grad()
    def probabilities(self, hidden: Tensor, real: Tensor) -> Tensor:
        """(B, W, C): the probability of each tag of each word, whatever the others are.

        They are the gradient of the log partition function, so no backward recursion is written out.
        """
        scores = exact(self.readout(hidden)).detach().requires_grad_()
        return torch.autograd.grad(self.log_partition(scores, real).sum(), scores)[0]
