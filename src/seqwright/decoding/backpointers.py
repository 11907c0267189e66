"""Back-pointers of a beam search: hypotheses are backtraced once, when the search is over (decision 55).

A step writes a few small tables; no row of ids is copied while the beam is reordered.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
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
        finished, unfinished = self._finished(options.n_best), self._unfinished(options)
        ends = finished[0].size(1)
        step, group, beam, log_probs, scores = (torch.cat(pair, 1) for pair in zip(finished, unfinished, strict=True))
        found = log_probs > -torch.inf  # the others are empty slots
        rank = scores.masked_fill(~found, -torch.inf) if options.rank_unfinished == "among" else found.to(scores)
        order = rank.argsort(dim=1, descending=True, stable=True)
        if self.groups == 1:  # whose hypotheses are distinct
            order = order[:, : options.n_best]
        step, group, beam, log_probs, scores, found = (
            column.gather(1, order) for column in (step, group, beam, log_probs, scores, found)
        )
        ranked: list[list[Hypothesis]] = [[] for _ in self.limits]
        columns = (found.nonzero()[:, 0], order[found] < ends, log_probs[found], scores[found])
        for ids, n, ended, log_prob, score in zip(
            self._backtrace(step[found], group[found], beam[found]),
            *(column.tolist() for column in columns),
            strict=True,
        ):
            reason = "end" if ended else "length"
            ranked[n].append(Hypothesis(ids=ids, log_prob=log_prob, score=score, reason=reason))
        if self.groups == 1:
            return ranked
        outputs = []
        for hypotheses in ranked:  # groups of a diverse beam search may have some in common
            distinct = {(*hypothesis.ids, hypothesis.reason): hypothesis for hypothesis in reversed(hypotheses)}
            outputs.append(list(reversed(distinct.values()))[: options.n_best])
        return outputs

    def _finished(self, n_best: int) -> tuple[Tensor, ...]:
        """The best hypotheses that end in <eos>: the step, group and beam of their last ids, log-probabilities and
        scores, all (B, N)."""
        steps, _, beams = self.scores.shape
        sources = len(self.limits)
        # (B, G · T · K): the groups of a source side by side
        flat = self.scores.view(steps, sources, self.groups, beams).permute(1, 2, 0, 3).flatten(1)
        # Every group may have the same hypotheses: n_best distinct ones are among the first n_best · G.
        scores, indices = flat.topk(min(n_best * self.groups, flat.size(1)))
        group_index, step, beam = indices // (steps * beams), indices // beams % steps, indices % beams
        group = torch.arange(sources).unsqueeze(1) * self.groups + group_index
        log_probs = self.finished_log_probs[step, group, beam]
        return step - 1, group, self.finished_parents[step, group, beam], log_probs, scores

    def _unfinished(self, options: SearchOptions) -> tuple[Tensor, ...]:
        """The same of those without <eos>, most probable first."""
        beams = self.unfinished_log_probs.size(1)
        flat = self.unfinished_log_probs.view(len(self.limits), -1)  # (B, G · K)
        log_probs, indices = flat.sort(dim=1, descending=True, stable=True)
        group = torch.arange(len(self.limits)).unsqueeze(1) * self.groups + indices // beams
        lengths = self.unfinished_lengths[group]
        scores = normalize(log_probs, lengths.clamp(min=1), options)
        return lengths - 1, group, indices % beams, log_probs, scores

    def _backtrace(self, step: Tensor, group: Tensor, beam: Tensor) -> list[list[int]]:
        """The ids of hypotheses (N,) from the step, group and beam of their last ids, all backtraced together."""
        # NumPy: operations on a few dozen numbers take PyTorch several times as long.
        last, first = step.numpy(), (group * self.ids.size(2)).numpy()
        place = first + beam.numpy()
        tables = [table.flatten(1).numpy() for table in (self.ids, self.parents)]
        ids = np.zeros((int(last.max(initial=-1)) + 1, len(last)), dtype=np.int64)
        for t in range(len(ids) - 1, -1, -1):
            row, parents = (table[t].take(place) for table in tables)
            ids[t] = row
            place = np.where(t <= last, first + parents, place)
        return [row[: length + 1] for row, length in zip(ids.T.tolist(), last.tolist(), strict=True)]
