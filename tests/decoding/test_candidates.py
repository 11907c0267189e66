"""Candidates of a beam step against a plain top-k; bounds of length penalties."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from seqwright.decoding.candidates import _top, best_candidates, diverse_candidates
from seqwright.decoding.length_penalty import best_possible, normalize
from seqwright.decoding.options import SearchOptions


@pytest.mark.parametrize("size", [3, 40, 5000, 5120, 70_001])
def test_top_candidates_of_any_vocabulary_size(size: int) -> None:
    log_probs = torch.randn(2, 3, size, generator=torch.Generator().manual_seed(size))
    log_probs[0, 1, -1] = 9.0  # the last id of a partial chunk
    totals = torch.randn(2, 3, generator=torch.Generator().manual_seed(1))
    candidates = _top(log_probs, totals, 10)
    values, indices = (log_probs + totals.unsqueeze(-1)).flatten(1).topk(min(10, 3 * size))
    assert_close(candidates.log_probs, values)
    assert torch.equal(candidates.parents * size + candidates.ids, indices)


def test_candidates_are_the_top_k_of_all_beams() -> None:
    log_probs = torch.randn(3 * 4, 50, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    totals = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    never = torch.tensor([7, 20])
    candidates = best_candidates(log_probs, totals, never)
    continuations = (totals.unsqueeze(-1) + log_probs.index_fill(1, never, -torch.inf).view(3, 4, 50)).flatten(1)
    values, indices = continuations.topk(8)
    assert_close(candidates.log_probs, values)
    assert torch.equal(candidates.parents * 50 + candidates.ids, indices)


def test_diverse_beam_search_penalizes_tokens_of_earlier_groups() -> None:
    log_probs = torch.tensor([0.4, 0.3, 0.2, 0.1]).log().expand(2, 4)  # one source, two groups of one beam
    candidates = diverse_candidates(log_probs, torch.zeros(2, 1), torch.tensor([], dtype=torch.long), 2, diversity=0.5)
    # 0.4 / e^0.5 is less than 0.3: the second group takes the second id, with its unpenalized probability.
    assert candidates.ids[:, 0].tolist() == [0, 1]
    assert_close(candidates.log_probs[:, 0].exp(), torch.tensor([0.4, 0.3]))
    assert diverse_candidates(log_probs, torch.zeros(2, 1), torch.tensor([], dtype=torch.long), 2, diversity=0.1).ids[
        :, 0
    ].tolist() == [0, 0]


@given(
    st.sampled_from(["none", "power", "gnmt", "average", "reward"]),
    st.floats(-2, 2),
    st.floats(-30, 0),
    st.floats(0, 10),
    st.integers(1, 9),
    st.integers(0, 9),
)
def test_length_penalty_bound_is_never_exceeded(
    rule: str, alpha: float, log_prob: float, fall: float, length: int, more: int
) -> None:
    options = SearchOptions(length_penalty=rule, length_alpha=alpha)  # type: ignore[arg-type]
    max_length = length + 1 + more
    bound = best_possible(torch.tensor(log_prob, dtype=torch.float64), length, max_length, options)
    for ended in range(length + 1, max_length + 1):
        lower = torch.tensor(log_prob - fall, dtype=torch.float64)
        assert normalize(lower, ended, options) <= bound + 1e-9
