"""A Triton kernel that chooses the beams of a search: one program for each group of hypotheses.

PyTorch takes some 60 kernels for what is here one, and tensors are a few dozen numbers: launches are all of the time.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl
from torch import Tensor

from seqwright.layers.inference.decoding_kernels import launch_options, wait

PENALTIES = {"none": 0, "power": 1, "gnmt": 2, "average": 3, "reward": 4}
STOPPING = {"finished": 0, "bound": 1, "now": 2}


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _normalize(log_prob, length, alpha, penalty: tl.constexpr):  # type: ignore[no-untyped-def]
    """`length_penalty.normalize`: the length is a float64, what divides or is added a float32."""
    score = log_prob
    if penalty == 1:
        score = tl.div_rn(log_prob, tl.exp(alpha * tl.log(length)).to(tl.float32))
    elif penalty == 2:
        score = tl.div_rn(log_prob, tl.exp(alpha * tl.log((5 + length) / 6)).to(tl.float32))
    elif penalty == 3:
        score = tl.div_rn(log_prob, length.to(tl.float32))
    elif penalty == 4:
        score = log_prob + (alpha * length).to(tl.float32)
    return score


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _choose(  # type: ignore[no-untyped-def]
    values, indices, each, never, never_count, eos, alpha, place, group, limit,
    totals, rows, ids, pool, done,
    parents_table, ids_table, finished_parents, finished_log_probs, scores_table, unfinished_log_probs,
    unfinished_lengths, groups, enough,
    beams: tl.constexpr, width: tl.constexpr, wide: tl.constexpr, pooled: tl.constexpr,
    penalty: tl.constexpr, stopping: tl.constexpr, overlap: tl.constexpr,
):  # fmt: skip
    one = tl.program_id(0)
    at = tl.arange(0, width)
    candidate, slot = tl.arange(0, wide), tl.arange(0, pooled)
    inside, first, kept = at < beams * each, candidate < beams, slot < enough
    values += one * beams * each
    indices += one * beams * each
    totals += one * beams
    pool += one * enough
    wait(overlap)
    length = tl.load(place)
    step = length.to(tl.int64) - 1
    most = tl.load(limit + one)
    under_way = tl.load(done + one) == 0
    row = tl.load(group + one)
    best_scores = tl.load(pool + slot, mask=kept, other=float("-inf"))
    # The best 2K continuations of the group, best first; of equal ones that of the first beam, then of the first id.
    left = tl.load(values + at, mask=inside, other=float("-inf"))
    left += tl.load(totals + at // each, mask=inside, other=float("-inf"))
    token = tl.load(indices + at, mask=inside, other=0)
    for n in range(never_count):
        left = tl.where(token == tl.load(never + n), float("-inf"), left)
    log_probs = tl.full([wide], float("-inf"), tl.float32)
    where = tl.zeros([wide], tl.int32)
    for n in range(2 * beams):
        value, index = tl.max(left, 0, return_indices=True)
        log_probs = tl.where(candidate == n, value, log_probs)
        where = tl.where(candidate == n, tl.minimum(index, beams * each - 1).to(tl.int32), where)
        left = tl.where(at == index, float("-inf"), left)
    real = candidate < 2 * beams
    parent = where // each
    token = tl.load(indices + where, mask=real, other=0)
    tl.debug_barrier()  # what was read above is written below
    # Those of the first K that end are finished hypotheses.
    ends = real & (token == eos)
    finished = ends & first & (log_probs > float("-inf")) & under_way
    ended = tl.where(finished, log_probs, float("-inf"))
    scores = _normalize(ended, length, alpha, penalty)
    table = (step * groups + row) * beams
    tl.store(finished_log_probs + table + candidate, ended, mask=first)
    tl.store(scores_table + table + candidate, scores, mask=first)
    tl.store(finished_parents + table + candidate, parent.to(tl.int64), mask=first)
    # The pool keeps the best scores: a score's place is the number of those before it, the pool's before new ones.
    pool_first = (best_scores[None, :] > best_scores[:, None]) | (
        (best_scores[None, :] == best_scores[:, None]) & (slot[None, :] < slot[:, None])
    )
    better_new = (scores[None, :] > best_scores[:, None]) & first[None, :]
    pool_rank = tl.sum((pool_first & kept[None, :]).to(tl.int32), 1) + tl.sum(better_new.to(tl.int32), 1)
    new_first = (scores[None, :] > scores[:, None]) | (
        (scores[None, :] == scores[:, None]) & (candidate[None, :] < candidate[:, None])
    )
    better_old = (best_scores[None, :] >= scores[:, None]) & kept[None, :]
    new_rank = tl.sum((new_first & first[None, :]).to(tl.int32), 1) + tl.sum(better_old.to(tl.int32), 1)
    tl.store(pool + pool_rank, best_scores, mask=kept & (pool_rank < enough))
    tl.store(pool + new_rank, scores, mask=first & (new_rank < enough))
    worst = tl.maximum(
        tl.max(tl.where(kept & (pool_rank == enough - 1), best_scores, float("-inf")), 0),
        tl.max(tl.where(first & (new_rank == enough - 1), scores, float("-inf")), 0),
    )
    # The first K of the others are the new beams, in this order; ends fill up where there are fewer.
    goes = (real & (token != eos)).to(tl.int32)
    order = tl.where(goes > 0, tl.cumsum(goes, 0), tl.sum(goes, 0) + tl.cumsum(ends.to(tl.int32), 0)) - 1
    survives = real & (order < beams)
    reached = tl.where(ends, float("-inf"), log_probs)
    tl.store(totals + order, reached, mask=survives)
    tl.store(rows + one * beams + order, (one * beams + parent).to(tl.int64), mask=survives)
    tl.store(ids + one * beams + order, token, mask=survives)
    tl.store(parents_table + table + order, parent.to(tl.int64), mask=survives)
    tl.store(ids_table + table + order, token, mask=survives)
    if (most == step + 1) & under_way:  # they are cut off here
        tl.store(unfinished_log_probs + row * beams + order, reached, mask=survives)
        tl.store(unfinished_lengths + row, most)
    best = tl.max(tl.where(survives, reached, float("-inf")), 0)
    over = worst > float("-inf")
    if stopping == 1:
        next_best = _normalize(best, length + 1, alpha, penalty)
        over = tl.maximum(next_best, _normalize(best, most.to(tl.float64), alpha, penalty)) <= worst
    elif stopping == 2:
        over = _normalize(best, length, alpha, penalty) <= worst
    over = over | (best == float("-inf")) | (most <= step + 1)
    tl.store(done + one, (over | (under_way == 0)).to(tl.uint8))


def choose_(
    values: Tensor,
    indices: Tensor,
    never: Tensor,
    place: Tensor,
    live: Mapping[str, Tensor],
    tables: Mapping[str, Tensor],
    *,
    eos: int,
    penalty: str,
    alpha: float,
    stopping: str,
) -> None:
    """Writes the beams that follow to the live ones, and what a step records to the tables of back-pointers.

    Values and indices (Q · K, M) are the best log-probabilities and ids of each beam, and `place` () the length of
    hypotheses that end in them.
    """
    groups, beams = live["totals"].shape
    each, enough = values.size(1), live["pool"].size(1)
    width = _padded(beams * each)
    _choose[(groups,)](
        values, indices, each, never, len(never), eos, alpha, place, live["group"], live["limit"],
        live["totals"], live["rows"], live["ids"], live["pool"], live["done"].view(torch.uint8),
        *(tables[name] for name in (
            "parents", "ids", "finished_parents", "finished_log_probs", "scores", "unfinished_log_probs",
            "unfinished_lengths",
        )),
        tables["ids"].size(1), enough,
        beams=beams, width=width, wide=_padded(2 * beams), pooled=_padded(enough),
        penalty=PENALTIES[penalty], stopping=STOPPING[stopping],
        num_warps=4 if width <= 2048 else 8, **launch_options(values.device),
    )  # fmt: skip


def _padded(size: int) -> int:
    """Elements of a kernel's vector for so many."""
    return max(16, triton.next_power_of_2(size))
