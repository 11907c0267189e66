"""Candidates of a beam step: the best continuations of each group, in the order in which they fill the beam.

A group is K beams that compete: all beams of a source or, in diverse beam search, some of them. Every function works on
all groups of a batch at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqwright.decoding.constraints import Constraints
from seqwright.decoding.processors import NOTHING
from seqwright.layers.inference.top_k import largest

CHUNK = 64
"""Ids whose maximum is taken together in the top-k of a large vocabulary on a CPU."""


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """C continuations of each group, at least K, in the order in which they fill the beam."""

    log_probs: Tensor
    """(Q, C) of the whole hypothesis, -inf for none."""
    parents: Tensor
    """(Q, C) beams of the group that they continue."""
    ids: Tensor
    """(Q, C)"""


def best_candidates(log_probs: Tensor, totals: Tensor, never: Tensor) -> Candidates:
    """The 2K best continuations of each group: log_probs (Q · K, V) after hypotheses of totals (Q, K), without ids that
    are `never` generated.

    Each hypothesis has one <eos>, so at least K of them continue (Wolf et al. 2020 keep as many).
    """
    beams = totals.size(1)
    found = _top(log_probs.view(*totals.shape, -1), totals, 2 * beams, spare=len(never))
    if not len(never):
        return found
    banned = (found.ids.unsqueeze(-1) == never).any(-1)
    values, order = found.log_probs.masked_fill(banned, -torch.inf).topk(min(2 * beams, banned.size(1)))
    return Candidates(log_probs=values, parents=found.parents.gather(1, order), ids=found.ids.gather(1, order))


def _top(log_probs: Tensor, totals: Tensor, many: int, *, spare: int = 0) -> Candidates:
    """The `many` best continuations of each group, or all there are, plus `spare` of each beam that may be dropped:
    log_probs (Q, K, V) after totals (Q, K)."""
    each, many, size = many + spare, many + spare * totals.size(1), log_probs.size(-1)
    if log_probs.device.type == "cpu" and size >= 4 * many * CHUNK:
        return _top_by_chunks(log_probs, totals, many)
    values, ids = largest(log_probs, min(each, size))  # (Q, K, M)
    spread = (totals.unsqueeze(-1) + values).flatten(1)
    found, places = spread.topk(min(many, spread.size(1)))
    return Candidates(log_probs=found, parents=places // values.size(-1), ids=ids.flatten(1).gather(1, places))


def _top_by_chunks(log_probs: Tensor, totals: Tensor, many: int) -> Candidates:
    """The top few lie in the chunks with the greatest maxima: one pass over the rows instead of partial sorts."""
    queues, beams, size = log_probs.shape
    whole = size - size % CHUNK
    greatest = log_probs[..., :whole].view(queues, beams, -1, CHUNK).amax(-1)  # (Q, K, N)
    if whole < size:
        greatest = torch.cat([greatest, log_probs[..., whole:].amax(-1, keepdim=True)], -1)
    chunk = (greatest + totals.unsqueeze(-1)).flatten(1).topk(many).indices  # (Q, M)
    parents, first = chunk // greatest.size(-1), chunk % greatest.size(-1) * CHUNK
    inside = torch.arange(CHUNK)
    row = torch.arange(queues).unsqueeze(1) * beams + parents
    at = (row * size + first).unsqueeze(-1) + inside  # (Q, M, C)
    values = log_probs.flatten()[at.clamp(max=log_probs.numel() - 1)] + totals.gather(1, parents).unsqueeze(-1)
    beyond = inside >= size - first.unsqueeze(-1)  # of the last chunk of a row
    found, places = values.masked_fill(beyond, -torch.inf).flatten(1).topk(many)
    taken = places // CHUNK
    ids = first.gather(1, taken) + places % CHUNK
    return Candidates(log_probs=found, parents=parents.gather(1, taken), ids=ids)


def diverse_candidates(log_probs: Tensor, totals: Tensor, never: Tensor, groups: int, diversity: float) -> Candidates:
    """Diverse beam search: the groups of a source choose in turn, with a penalty on tokens chosen before (Vijayakumar
    et al. 2018)."""
    if groups == 1:
        return best_candidates(log_probs, totals, never)
    beams = totals.size(1)
    by_group = log_probs.view(-1, groups, beams, log_probs.size(-1))  # (B, G, K, V)
    taken = torch.zeros_like(by_group[:, 0, 0])  # (B, V): the penalty of each token so far
    parts = []
    for group in range(groups):
        penalized = (by_group[:, group] - taken.unsqueeze(1)).flatten(0, 1)
        part = best_candidates(penalized, totals.view(-1, groups, beams)[:, group], never)
        cost = taken.gather(1, part.ids)
        parts.append(Candidates(log_probs=part.log_probs + cost, parents=part.parents, ids=part.ids))
        chosen = part.ids[:, :beams]
        taken = taken.scatter_add(1, chosen, torch.full_like(cost[:, :beams], diversity))
    return Candidates(
        **{
            name: torch.stack([getattr(part, name) for part in parts], 1).flatten(0, 1)
            for name in ("log_probs", "parents", "ids")
        }
    )


def required_candidates(
    log_probs: Tensor, totals: Tensor, states: Tensor, constraints: Constraints, never: Tensor, eos: int
) -> Candidates:
    """Dynamic beam allocation: candidates are taken in turn from banks of equal progress towards the required phrases,
    fullest bank first (Post & Vilar 2018).

    `states` (Q, K, 1 + C) are the automaton states of each beam. Beside the best continuations stand, for every unmet
    phrase, the most probable id that advances it most, and each beam's best id and <eos>. The fullest bank always keeps
    a beam.
    """
    queues, beams = totals.shape
    plain = best_candidates(log_probs, totals, never)
    own = log_probs.index_fill(-1, never, -torch.inf)
    likeliest, end = own.argmax(-1, keepdim=True), own.new_full((len(own), 1), eos, dtype=torch.long)
    extra = torch.cat([constraints.advancing(own, states.flatten(0, 1)), likeliest, end], -1)  # (Q · K, C + 2)
    gained = own.gather(-1, extra.clamp(min=0)).masked_fill(extra == NOTHING, -torch.inf)
    parents = torch.arange(beams, device=totals.device).view(1, -1, 1).expand(queues, -1, extra.size(-1))
    together = Candidates(
        log_probs=torch.cat([plain.log_probs, (totals.unsqueeze(-1) + gained.view_as(parents)).flatten(1)], 1),
        parents=torch.cat([plain.parents, parents.flatten(1)], 1),
        ids=torch.cat([plain.ids, extra.view_as(parents).flatten(1)], 1),
    )
    return _in_turn(together, states, constraints)


def _in_turn(found: Candidates, states: Tensor, constraints: Constraints) -> Candidates:
    same = (found.parents.unsqueeze(2) == found.parents.unsqueeze(1)) & (
        found.ids.unsqueeze(2) == found.ids.unsqueeze(1)
    )
    log_probs = found.log_probs.masked_fill(same.tril(-1).any(-1), -torch.inf)  # each continuation once
    before = states.gather(1, found.parents.unsqueeze(-1).expand(-1, -1, states.size(-1)))
    banks = constraints.bank(constraints.after(before, found.ids.clamp(min=0)))  # (Q, C)
    above = (banks.unsqueeze(2) == banks.unsqueeze(1)) & (log_probs.unsqueeze(2) < log_probs.unsqueeze(1))
    turn = above.sum(-1).masked_fill(log_probs == -torch.inf, log_probs.size(1))
    order = (turn * (constraints.largest_bank + 1) - banks).argsort(dim=-1, stable=True)
    return Candidates(
        log_probs=log_probs.gather(1, order), parents=found.parents.gather(1, order), ids=found.ids.gather(1, order)
    )
