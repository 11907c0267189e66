"""Back-pointers of a beam search: hypotheses are backtraced once, when the search is over (decision 55).

A step writes a few small tables; no row of ids is copied while the beam is reordered.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from seqwright.decoding.length_penalty import normalize
from seqwright.decoding.options import Hypothesis, SearchOptions

FIRST_STEPS = 1024
"""Steps that the tables have room for at first: the limit may be any number of tokens. Tables double beyond."""
TABLES = ("parents", "ids", "finished_parents", "finished_log_probs", "scores")


class BackPointers:
    """Back-pointers of B sources with G groups of K beams each; tables are (T, B · G, K)."""

    def __init__(self, limits: Sequence[int], groups: int, beams: int, like: Tensor):
        self.limits, self.groups = limits, groups
        shape = (min(max(limits), FIRST_STEPS), len(limits) * groups, beams)
        self.parents = torch.zeros(shape, dtype=torch.long, device=like.device)
        self.ids = torch.zeros_like(self.parents)
        self.finished_parents = torch.zeros_like(self.parents)
        """The beam that a finished hypothesis continues."""
        self.finished_log_probs = torch.full(shape, -torch.inf, dtype=like.dtype, device=like.device)
        self.scores = torch.full_like(self.finished_log_probs, -torch.inf)
        self.unfinished_log_probs = torch.full_like(self.finished_log_probs[0], -torch.inf)
        """(B · G, K) log-probabilities of the hypotheses that are cut off without <eos>."""
        self.unfinished_lengths = torch.ones(shape[1], dtype=torch.long, device=like.device)
        """(B · G,) where they are cut off: at the maximum length, or where no continuation is left."""

    def tables(self) -> list[tuple[str, Tensor]]:
        """Every tensor with its name."""
        return [(name, getattr(self, name)) for name in (*TABLES, "unfinished_log_probs", "unfinished_lengths")]

    def reserve(self, length: int) -> bool:
        """Makes room for hypotheses of `length` ids; True where the tables were replaced by larger ones."""
        steps = len(self.ids)
        if length <= steps:
            return False
        more = min(2 * length, max(self.limits)) - steps
        for name in TABLES:
            table = getattr(self, name)
            empty = -torch.inf if table.is_floating_point() else 0
            setattr(self, name, torch.cat([table, table.new_full((more, *table.shape[1:]), empty)]))
        return True

    def finish(self, group: Tensor, length: Tensor, log_probs: Tensor, scores: Tensor, parents: Tensor) -> None:
        """Records finished hypotheses of `length` ids, <eos> included, with -inf where there is none: all (Q, K)."""
        at = self._at(group, length)
        self.finished_log_probs[at], self.scores[at], self.finished_parents[at] = log_probs, scores, parents

    def grow(self, group: Tensor, length: Tensor, parents: Tensor, ids: Tensor) -> None:
        """Records the next ids of the live hypotheses and their parents: all (Q, K)."""
        at = self._at(group, length)
        self.parents[at], self.ids[at] = parents, ids

    def _at(self, group: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        """(step, group) as index tensors: a zero-dimensional index would be copied to the host, a synchronization."""
        return (length.long() - 1).expand_as(group), group

    def cut(self, group: Tensor, length: Tensor, log_probs: Tensor, where: Tensor) -> None:
        """Records hypotheses (Q, K) of `length` ids of the groups (Q,) that are cut off at this step."""
        if len(group) == len(self.unfinished_lengths):  # all of them, in order
            kept_log_probs, kept_lengths = self.unfinished_log_probs, self.unfinished_lengths
            kept_log_probs.copy_(torch.where(where.unsqueeze(1), log_probs, kept_log_probs))
            kept_lengths.copy_(torch.where(where, length.long(), kept_lengths))
            return
        self.unfinished_log_probs[group] = torch.where(where.unsqueeze(1), log_probs, self.unfinished_log_probs[group])
        self.unfinished_lengths[group] = torch.where(where, length.long(), self.unfinished_lengths[group])

    def hypotheses(self, options: SearchOptions) -> list[list[Hypothesis]]:
        """The n-best list of each source, best first; shorter where the search has fewer hypotheses."""
        for name, table in self.tables():
            setattr(self, name, table.cpu())
        outputs = []
        for finished, unfinished in zip(self._finished(options.n_best), self._unfinished(options), strict=True):
            ranked = finished + unfinished
            if options.rank_unfinished == "among":
                ranked.sort(key=lambda hypothesis: -hypothesis.score)
            # Groups of a diverse beam search may have hypotheses in common.
            distinct = {(*hypothesis.ids, hypothesis.reason): hypothesis for hypothesis in reversed(ranked)}
            outputs.append(list(reversed(distinct.values()))[: options.n_best])
        return outputs

    def _finished(self, n_best: int) -> list[list[Hypothesis]]:
        """The best hypotheses that end in <eos>."""
        steps, _, beams = self.scores.shape
        sources = len(self.limits)
        # (B, G · T · K): the groups of a source side by side
        flat = self.scores.view(steps, sources, self.groups, beams).permute(1, 2, 0, 3).flatten(1)
        # Every group may have the same hypotheses: n_best distinct ones are among the first n_best · G.
        scores, indices = flat.topk(min(n_best * self.groups, flat.size(1)))
        group_index, step, beam = indices // (steps * beams), indices // beams % steps, indices % beams
        group = torch.arange(sources).unsqueeze(1) * self.groups + group_index
        log_probs = self.finished_log_probs[step, group, beam]
        ids = self._backtrace(step - 1, group, self.finished_parents[step, group, beam])
        return _by_source(ids, log_probs, scores, "end")

    def _unfinished(self, options: SearchOptions) -> list[list[Hypothesis]]:
        """The hypotheses without <eos>, most probable first."""
        beams = self.unfinished_log_probs.size(1)
        flat = self.unfinished_log_probs.view(len(self.limits), -1)  # (B, G · K)
        log_probs, indices = flat.sort(dim=1, descending=True, stable=True)
        group = torch.arange(len(self.limits)).unsqueeze(1) * self.groups + indices // beams
        lengths = self.unfinished_lengths[group]
        ids = self._backtrace(lengths - 1, group, indices % beams)
        return _by_source(ids, log_probs, normalize(log_probs, lengths.clamp(min=1), options), "length")

    def _backtrace(self, step: Tensor, group: Tensor, beam: Tensor) -> list[list[list[int]]]:
        """The ids of hypotheses (B, N) from the step, group and beam of their last ids, all backtraced together."""
        lengths = (step + 1).tolist()
        ids = torch.zeros(*step.shape, max(1, int(step.max()) + 1), dtype=torch.long)
        for t in range(int(step.max()), -1, -1):
            reached = t <= step
            ids[..., t] = torch.where(reached, self.ids[t, group, beam], 0)
            beam = torch.where(reached, self.parents[t, group, beam], beam)
        return [
            [row[:length] for row, length in zip(source_ids, source_lengths, strict=True)]
            for source_ids, source_lengths in zip(ids.tolist(), lengths, strict=True)
        ]


def _by_source(ids: list[list[list[int]]], log_probs: Tensor, scores: Tensor, reason: str) -> list[list[Hypothesis]]:
    """The hypotheses of each source, without those of probability 0 (empty slots)."""
    return [
        [
            Hypothesis(ids=row, log_prob=log_prob, score=score, reason=reason)
            for row, log_prob, score in zip(*columns, strict=True)
            if log_prob > -torch.inf
        ]
        for columns in zip(ids, log_probs.tolist(), scores.tolist(), strict=True)
    ]
