"""Back-pointers of a beam search: hypotheses are backtraced once, when the search is over.

A step writes a few small tables; no row of ids is copied while the beam is reordered.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from seqwright.decoding.length_penalty import normalize
from seqwright.decoding.options import Hypothesis, SearchOptions


class BackPointers:
    """Back-pointers of B sources with G groups of K beams each."""

    def __init__(self, limits: Sequence[int], groups: int, beams: int, like: Tensor):
        self.limits, self.groups = limits, groups
        shape = (max(limits), len(limits) * groups, beams)
        self.parents = torch.zeros(shape, dtype=torch.long, device=like.device)
        self.ids = torch.zeros_like(self.parents)
        self.finished_parents = torch.zeros_like(self.parents)
        """The beam that a finished hypothesis continues."""
        self.finished_log_probs = torch.full(shape, -torch.inf, dtype=like.dtype, device=like.device)
        self.scores = torch.full_like(self.finished_log_probs, -torch.inf)
        self.unfinished_log_probs = torch.full_like(self.finished_log_probs[0], -torch.inf)
        """Log-probabilities of the hypotheses that were cut off."""

    def finish(self, group: Tensor, length: Tensor, log_probs: Tensor, scores: Tensor, parents: Tensor) -> None:
        """Records hypotheses whose <eos> is their id number `length`, -inf for none: all (Q, K)."""
        at = self._at(group, length)
        self.finished_log_probs[at], self.scores[at], self.finished_parents[at] = log_probs, scores, parents

    def grow(self, group: Tensor, length: Tensor, parents: Tensor, ids: Tensor) -> None:
        """Records the next id of the unfinished_log_probs hypotheses: all (Q, K)."""
        at = self._at(group, length)
        self.parents[at], self.ids[at] = parents, ids

    def _at(self, group: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        """An index without axes would be fetched from its device; this one stays there."""
        return (length.long() - 1).expand_as(group), group

    def cut(self, group: Tensor, log_probs: Tensor, where: Tensor) -> None:
        """Records the unfinished_log_probs hypotheses (Q, K) of groups (Q,) that reach their limit at this step."""
        self.unfinished_log_probs[group] = torch.where(where.unsqueeze(1), log_probs, self.unfinished_log_probs[group])

    def hypotheses(self, options: SearchOptions) -> list[list[Hypothesis]]:
        """The best of each source, best first; fewer where the search found fewer."""
        for name in ("parents", "ids", "finished_parents", "finished_log_probs", "scores", "unfinished_log_probs"):
            setattr(self, name, getattr(self, name).cpu())
        outputs = []
        for finished, unfinished in zip(self._finished(options.n_best), self._unfinished(options), strict=True):
            both = finished + unfinished
            if options.rank_unfinished == "among":
                both.sort(key=lambda hypothesis: -hypothesis.score)
            # Groups may have found the same output.
            distinct = {(*hypothesis.ids, hypothesis.reason): hypothesis for hypothesis in reversed(both)}
            outputs.append(list(reversed(distinct.values()))[: options.n_best])
        return outputs

    def _finished(self, many: int) -> list[list[Hypothesis]]:
        """The best hypotheses that end in <eos>."""
        steps, _, beams = self.scores.shape
        sources = len(self.limits)
        # (B, G · T · K): the groups of a source beside each other
        flat = self.scores.view(steps, sources, self.groups, beams).permute(1, 2, 0, 3).flatten(1)
        scores, places = flat.topk(min(many * self.groups, flat.size(1)))  # every group may have found the same output
        own, step, beam = places // (steps * beams), places // beams % steps, places % beams
        group = torch.arange(sources).unsqueeze(1) * self.groups + own
        log_probs = self.finished_log_probs[step, group, beam]
        texts = self._backtrace(step - 1, group, self.finished_parents[step, group, beam])
        return _by_source(texts, log_probs, scores, "end")

    def _unfinished(self, options: SearchOptions) -> list[list[Hypothesis]]:
        """The hypotheses cut off before <eos>."""
        beams = self.unfinished_log_probs.size(1)
        flat = self.unfinished_log_probs.view(len(self.limits), -1)  # (B, G · K)
        log_probs, places = flat.sort(dim=1, descending=True, stable=True)
        limits = torch.tensor(self.limits).unsqueeze(1)
        group = torch.arange(len(self.limits)).unsqueeze(1) * self.groups + places // beams
        texts = self._backtrace((limits - 1).expand_as(places), group, places % beams)
        return _by_source(texts, log_probs, normalize(log_probs, limits, options), "length")

    def _backtrace(self, step: Tensor, group: Tensor, beam: Tensor) -> list[list[list[int]]]:
        """The ids of hypotheses (B, N) whose last id a beam of a group chose at a step, all backtraced together."""
        lengths = (step + 1).tolist()
        ids = torch.zeros(*step.shape, max(1, int(step.max()) + 1), dtype=torch.long)
        for t in range(int(step.max()), -1, -1):
            reached = t <= step
            ids[..., t] = torch.where(reached, self.ids[t, group, beam], 0)
            beam = torch.where(reached, self.parents[t, group, beam], beam)
        return [
            [text[:length] for text, length in zip(texts, own, strict=True)]
            for texts, own in zip(ids.tolist(), lengths, strict=True)
        ]


def _by_source(texts: list[list[list[int]]], log_probs: Tensor, scores: Tensor, reason: str) -> list[list[Hypothesis]]:
    """One list for each source, without empty places."""
    return [
        [
            Hypothesis(ids=ids, log_prob=log_prob, score=score, reason=reason)
            for ids, log_prob, score in zip(*own, strict=True)
            if log_prob > -torch.inf
        ]
        for own in zip(texts, log_probs.tolist(), scores.tolist(), strict=True)
    ]
