"""Filters: whatever the distribution, what comes back is one, over exactly the tokens that may be said."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from seqwright.decoding.filters import ban, temper, top_k, top_p


@st.composite
def distributions(draw: st.DrawFn) -> Tensor:
    """Log-probabilities (B, V) in float64, ties and impossible tokens included."""
    rows, size = draw(st.integers(1, 3)), draw(st.integers(2, 9))
    steps = st.one_of(st.integers(-8, 8).map(float), st.just(-math.inf))
    logits = torch.tensor(draw(st.lists(st.lists(steps, min_size=size, max_size=size), min_size=rows, max_size=rows)))
    logits[:, 0] = logits[:, 0].clamp(min=-8)  # something must be possible
    return logits.double().log_softmax(-1)


def is_normalised(log_probs: Tensor) -> None:
    assert not log_probs.isnan().any()
    assert_close(log_probs.exp().sum(-1), torch.ones(len(log_probs), dtype=torch.float64))


def keeps_proportions(filtered: Tensor, log_probs: Tensor) -> None:
    """Survivors stand to each other as before."""
    for after, before in zip(filtered, log_probs, strict=True):
        kept = after > -math.inf
        shift = (after - before)[kept]
        assert_close(shift, shift[:1].expand_as(shift))
        assert (before[kept] > -math.inf).all()


@given(distributions(), st.integers(1, 12))
def test_top_k_keeps_the_k_best(log_probs: Tensor, k: int) -> None:
    filtered = top_k(log_probs, k)
    is_normalised(filtered)
    keeps_proportions(filtered, log_probs)
    for after, before in zip(filtered, log_probs, strict=True):
        kept = after > -math.inf
        last = before.sort(descending=True).values[min(k, len(before)) - 1]
        assert torch.equal(kept, (before >= last) & (before > -math.inf))
        if len(set(before.tolist())) == len(before):
            assert kept.sum() == min(k, int((before > -math.inf).sum()))


@given(distributions(), st.integers(1, 12))
def test_top_k_again_changes_nothing(log_probs: Tensor, k: int) -> None:
    once = top_k(log_probs, k)
    assert_close(top_k(once, k), once)


@given(distributions(), st.floats(0.01, 1.0))
def test_top_p_keeps_the_smallest_set_that_holds_p(log_probs: Tensor, p: float) -> None:
    filtered = top_p(log_probs, p)
    is_normalised(filtered)
    keeps_proportions(filtered, log_probs)
    for after, before in zip(filtered, log_probs.exp(), strict=True):
        kept = after > -math.inf
        assert before[kept].sum() >= p - 1e-9
        assert before[kept].sum() - before[kept].min() < p + 1e-9  # one fewer would not do
        if (~kept).any():
            assert before[kept].min() >= before[~kept].max()  # and no other set is smaller


@given(distributions(), st.floats(0.01, 1.0))
def test_top_p_always_leaves_the_best(log_probs: Tensor, p: float) -> None:
    assert torch.equal(top_p(log_probs, p).argmax(-1), log_probs.argmax(-1))


@given(distributions(), st.data())
def test_banned_tokens_are_gone_and_the_rest_as_before(log_probs: Tensor, data: st.DataObject) -> None:
    banned = data.draw(st.sets(st.integers(1, log_probs.size(-1) - 1)))
    ids = torch.tensor(sorted(banned), dtype=torch.long)
    filtered = ban(log_probs, ids)
    is_normalised(filtered)
    keeps_proportions(filtered, log_probs)
    allowed = log_probs > -math.inf
    allowed[:, ids] = False
    assert torch.equal(filtered > -math.inf, allowed)
    assert_close(ban(filtered, ids), filtered)


@given(distributions(), st.floats(0.1, 10.0))
def test_temperature_divides_differences(log_probs: Tensor, temperature: float) -> None:
    tempered = temper(log_probs, temperature)
    is_normalised(tempered)
    first = log_probs[:, :1]
    assert_close(tempered - tempered[:, :1], (log_probs - first) / temperature)
    assert_close(temper(log_probs, 1.0), log_probs)


@given(distributions(), st.integers(1, 12), st.floats(0.01, 1.0))
def test_rows_do_not_know_each_other(log_probs: Tensor, k: int, p: float) -> None:
    for row in range(len(log_probs)):
        alone = slice(row, row + 1)
        assert torch.equal(top_k(log_probs, k)[alone], top_k(log_probs[alone], k))
        assert torch.equal(top_p(log_probs, p)[alone], top_p(log_probs[alone], p))
