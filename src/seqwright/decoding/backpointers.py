"""The trail of a beam search: who continued whom, so that hypotheses are written out once, when the search is over.

A step writes a few small tables; no row of ids is copied while the beam reorders itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from seqwright.decoding.length_penalty import normalize
from seqwright.decoding.options import Hypothesis, SearchOptions


class BackPointers:
    """Back-pointers of B sources with G queues of K beams each."""

    def __init__(self, most: Sequence[int], groups: int, beams: int, like: Tensor):
        self.most, self.groups = most, groups
        shape = (max(most), len(most) * groups, beams)
        self.parents = torch.zeros(shape, dtype=torch.long, device=like.device)
        self.ids = torch.zeros_like(self.parents)
        self.heirs = torch.zeros_like(self.parents)
        """The beam that an ended hypothesis continued."""
        self.ended = torch.full(shape, -torch.inf, dtype=like.dtype, device=like.device)
        self.scores = torch.full_like(self.ended, -torch.inf)
        self.live = torch.full_like(self.ended[0], -torch.inf)
        """Log-probabilities of the hypotheses that a source was cut off with."""

    def end(self, queues: Tensor, length: Tensor, log_probs: Tensor, scores: Tensor, parents: Tensor) -> None:
        """Hypotheses whose end is the id at this place, counted from 1, minus infinity for none: all (Q, K)."""
        at = self._at(queues, length)
        self.ended[at], self.scores[at], self.heirs[at] = log_probs, scores, parents

    def grow(self, queues: Tensor, length: Tensor, parents: Tensor, ids: Tensor) -> None:
        """Hypotheses that go on with these ids: all (Q, K)."""
        at = self._at(queues, length)
        self.parents[at], self.ids[at] = parents, ids

    def _at(self, queues: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        """An index without axes would be fetched from its device; this one stays there."""
        return (length.long() - 1).expand_as(queues), queues

    def cut(self, queues: Tensor, log_probs: Tensor, where: Tensor) -> None:
        """What was alive (Q, K) in queues (Q,) that reached their cut-off at this step."""
        self.live[queues] = torch.where(where.unsqueeze(1), log_probs, self.live[queues])

    def hypotheses(self, options: SearchOptions) -> list[list[Hypothesis]]:
        """The best of each source, best first; fewer where the search found fewer."""
        for name in ("parents", "ids", "heirs", "ended", "scores", "live"):
            setattr(self, name, getattr(self, name).cpu())
        complete, cut = self._complete(options.n_best), self._cut(options)
        found = []
        for one, other in zip(complete, cut, strict=True):
            both = one + other
            if options.rank_unfinished == "among":
                both.sort(key=lambda hypothesis: -hypothesis.score)
            # Groups may have found the same words.
            distinct = {(*hypothesis.ids, hypothesis.reason): hypothesis for hypothesis in reversed(both)}
            found.append(list(reversed(distinct.values()))[: options.n_best])
        return found

    def _complete(self, many: int) -> list[list[Hypothesis]]:
        """The best that ended."""
        steps, _, beams = self.scores.shape
        sources = len(self.most)
        # (B, G · T · K): queues of a source beside each other
        flat = self.scores.view(steps, sources, self.groups, beams).permute(1, 2, 0, 3).flatten(1)
        scores, places = flat.topk(min(many * self.groups, flat.size(1)))  # the same words may end every group
        group, step, beam = places // (steps * beams), places // beams % steps, places % beams
        queue = torch.arange(sources).unsqueeze(1) * self.groups + group
        log_probs = self.ended[step, queue, beam]
        texts = self._written(step - 1, queue, self.heirs[step, queue, beam])
        return _gathered(texts, log_probs, scores, "end")

    def _cut(self, options: SearchOptions) -> list[list[Hypothesis]]:
        """Those cut off before their end."""
        beams = self.live.size(1)
        flat = self.live.view(len(self.most), -1)  # (B, G · K)
        log_probs, places = flat.sort(dim=1, descending=True, stable=True)
        most = torch.tensor(self.most).unsqueeze(1)
        queue = torch.arange(len(self.most)).unsqueeze(1) * self.groups + places // beams
        texts = self._written((most - 1).expand_as(places), queue, places % beams)
        return _gathered(texts, log_probs, normalize(log_probs, most, options), "length")

    def _written(self, step: Tensor, queue: Tensor, beam: Tensor) -> list[list[list[int]]]:
        """The ids (B, N) of hypotheses whose last id was said at a step, by a beam of a queue: walked back together."""
        lengths = (step + 1).tolist()
        ids = torch.zeros(*step.shape, max(1, int(step.max()) + 1), dtype=torch.long)
        for t in range(int(step.max()), -1, -1):
            said = t <= step
            ids[..., t] = torch.where(said, self.ids[t, queue, beam], 0)
            beam = torch.where(said, self.parents[t, queue, beam], beam)
        return [
            [text[:length] for text, length in zip(texts, own, strict=True)]
            for texts, own in zip(ids.tolist(), lengths, strict=True)
        ]


def _gathered(texts: list[list[list[int]]], log_probs: Tensor, scores: Tensor, reason: str) -> list[list[Hypothesis]]:
    """One list a source, without the places that nothing filled."""
    return [
        [
            Hypothesis(ids=ids, log_prob=log_prob, score=score, reason=reason)
            for ids, log_prob, score in zip(*own, strict=True)
            if log_prob > -torch.inf
        ]
        for own in zip(texts, log_probs.tolist(), scores.tolist(), strict=True)
    ]
