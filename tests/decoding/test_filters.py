"""Filters: for any distribution, the result is normalized over exactly the tokens that are kept."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from seqwright.decoding.filters import (
    counts_of,
    epsilon_cutoff,
    min_p,
    penalize_counts,
    penalize_repetition,
    repeated_ngrams,
    temper,
    top_k,
    top_p,
    typical,
)
from seqwright.decoding.options import SamplingOptions
from seqwright.decoding.processors import LogitsProcessors, RowOptions


@st.composite
def distributions(draw: st.DrawFn) -> Tensor:
    """Log-probabilities (B, V) in float64, ties and impossible tokens included."""
    rows, size = draw(st.integers(1, 3)), draw(st.integers(2, 9))
    steps = st.one_of(st.integers(-8, 8).map(float), st.just(-math.inf))
    logits = torch.tensor(draw(st.lists(st.lists(steps, min_size=size, max_size=size), min_size=rows, max_size=rows)))
    logits[:, 0] = logits[:, 0].clamp(min=-8)  # at least one token has probability
    return logits.double().log_softmax(-1)


def assert_normalized(log_probs: Tensor) -> None:
    assert not log_probs.isnan().any()
    assert_close(log_probs.exp().sum(-1), torch.ones(len(log_probs), dtype=torch.float64))


def assert_proportional(filtered: Tensor, log_probs: Tensor) -> None:
    """The probabilities that are kept have the same ratios as before."""
    for after, before in zip(filtered, log_probs, strict=True):
        kept = after > -math.inf
        shift = (after - before)[kept]
        assert_close(shift, shift[:1].expand_as(shift))
        assert (before[kept] > -math.inf).all()


@given(distributions(), st.integers(1, 12))
def test_top_k_keeps_the_k_most_probable_tokens(log_probs: Tensor, k: int) -> None:
    filtered = top_k(log_probs, k)
    assert_normalized(filtered)
    assert_proportional(filtered, log_probs)
    for after, before in zip(filtered, log_probs, strict=True):
        kept = after > -math.inf
        last = before.sort(descending=True).values[min(k, len(before)) - 1]
        assert torch.equal(kept, (before >= last) & (before > -math.inf))
        if len(set(before.tolist())) == len(before):
            assert kept.sum() == min(k, int((before > -math.inf).sum()))


@given(distributions(), st.integers(1, 12))
def test_top_k_is_idempotent(log_probs: Tensor, k: int) -> None:
    once = top_k(log_probs, k)
    assert_close(top_k(once, k), once)


@given(distributions(), st.floats(0.01, 1.0))
def test_top_p_keeps_the_smallest_nucleus_of_mass_p(log_probs: Tensor, p: float) -> None:
    filtered = top_p(log_probs, p)
    assert_normalized(filtered)
    assert_proportional(filtered, log_probs)
    for after, before in zip(filtered, log_probs.exp(), strict=True):
        kept = after > -math.inf
        assert before[kept].sum() >= p - 1e-9
        assert before[kept].sum() - before[kept].min() < p + 1e-9  # without the least probable it is below p
        if (~kept).any():
            assert before[kept].min() >= before[~kept].max()  # the most probable tokens: no other nucleus is smaller


@given(distributions(), st.floats(0.01, 1.0))
def test_top_p_keeps_the_most_probable_token(log_probs: Tensor, p: float) -> None:
    assert torch.equal(top_p(log_probs, p).argmax(-1), log_probs.argmax(-1))


def processed(log_probs: Tensor, options: list[SamplingOptions], banned: list[int] | None = None) -> Tensor:
    """Log-probabilities at the first position of the output, each row with its options."""
    rows = RowOptions.of(options, log_probs.size(1), "cpu", [0] * len(options))
    processors = LogitsProcessors.of(options, eos=None, banned=banned or [], device="cpu")
    return processors.process(log_probs, rows, torch.zeros(len(options), dtype=torch.long), None)


@given(distributions(), st.data())
def test_banned_ids_get_probability_0_and_the_rest_is_renormalized(log_probs: Tensor, data: st.DataObject) -> None:
    banned = sorted(data.draw(st.sets(st.integers(1, log_probs.size(-1) - 1))))
    allowed = log_probs > -math.inf
    allowed[:, banned] = False
    for of_row, shared in ((banned, []), ([], banned)):
        filtered = processed(log_probs, [SamplingOptions(banned_ids=tuple(of_row))] * len(log_probs), shared)
        assert_normalized(filtered)
        assert_proportional(filtered, log_probs)
        assert torch.equal(filtered > -math.inf, allowed)


@given(distributions(), st.floats(0.1, 10.0))
def test_temperature_divides_logit_differences(log_probs: Tensor, temperature: float) -> None:
    tempered = temper(log_probs, temperature)
    assert_normalized(tempered)
    first = log_probs[:, :1]
    assert_close(tempered - tempered[:, :1], (log_probs - first) / temperature)
    assert_close(temper(log_probs, 1.0), log_probs)


@given(distributions(), st.floats(0.01, 1.0))
def test_min_p_keeps_tokens_above_a_share_of_the_maximum(log_probs: Tensor, p: float) -> None:
    filtered = min_p(log_probs, p)
    assert_normalized(filtered)
    assert_proportional(filtered, log_probs)
    probs = log_probs.exp()
    threshold = p * probs.amax(-1, keepdim=True)
    on_threshold = (probs / threshold - 1).abs() < 1e-9  # rounding decides
    assert ((filtered > -math.inf) == (probs >= threshold))[~on_threshold].all()


@given(distributions(), st.floats(0.01, 1.0))
def test_epsilon_cutoff_keeps_the_most_probable_token_and_all_above_epsilon(log_probs: Tensor, epsilon: float) -> None:
    filtered = epsilon_cutoff(log_probs, epsilon)
    assert_normalized(filtered)
    assert_proportional(filtered, log_probs)
    kept = (log_probs >= math.log(epsilon)) | (log_probs == log_probs.amax(-1, keepdim=True))
    assert torch.equal(filtered > -math.inf, kept)


@given(distributions(), st.floats(0.01, 1.0))
def test_typical_p_keeps_the_tokens_closest_to_the_entropy(log_probs: Tensor, p: float) -> None:
    filtered = typical(log_probs, p)
    assert_normalized(filtered)
    assert_proportional(filtered, log_probs)
    for after, before in zip(filtered, log_probs, strict=True):
        possible = before > -math.inf
        entropy = -(before.exp() * before)[possible].sum()
        distance = (-before - entropy).abs()
        kept = after > -math.inf
        assert before.exp()[kept].sum() >= p - 1e-9
        if (possible & ~kept).any():
            assert distance[kept].max() <= distance[possible & ~kept].min() + 1e-9
            farthest = distance.masked_fill(~kept, -math.inf).argmax()
            assert before.exp()[kept].sum() - before[farthest].exp() < p + 1e-9


@st.composite
def histories(draw: st.DrawFn, size: int, rows: int) -> Tensor:
    """Ids (B, T), rows of different lengths right-padded with -1."""
    width = draw(st.integers(0, 9))
    lengths = [draw(st.integers(0, width)) for _ in range(rows)]
    ids = [draw(st.lists(st.integers(0, size - 1), min_size=n, max_size=n)) + [-1] * (width - n) for n in lengths]
    return torch.tensor(ids, dtype=torch.long).view(rows, width)


@given(distributions(), st.data(), st.floats(0.1, 4.0), st.floats(-2.0, 2.0), st.floats(-2.0, 2.0))
def test_repetition_presence_and_frequency_penalties_follow_the_counts(
    log_probs: Tensor, data: st.DataObject, repetition: float, presence: float, frequency: float
) -> None:
    history = data.draw(histories(log_probs.size(1), log_probs.size(0)))
    counts = counts_of(history, log_probs.size(1))
    assert counts.tolist() == [[row.count(id) for id in range(log_probs.size(1))] for row in history.tolist()]
    repetition_penalized = penalize_repetition(log_probs, counts, repetition)
    count_penalized = penalize_counts(log_probs, counts, presence=presence, frequency=frequency)
    for filtered in (repetition_penalized, count_penalized):
        assert_normalized(filtered)
    for row, before in enumerate(log_probs):
        possible = before > -math.inf
        expected = torch.where(counts[row] > 0, repetition * before, before).log_softmax(-1)
        assert_close(repetition_penalized[row], expected)
        count = counts[row].double()
        penalty = frequency * count + presence * (count > 0)
        assert_close(count_penalized[row][possible], (before - penalty).log_softmax(-1)[possible])
    no_counts = torch.zeros_like(counts)
    assert_close(penalize_repetition(log_probs, no_counts, repetition), log_probs)
    assert_close(penalize_counts(log_probs, no_counts, presence=presence, frequency=frequency), log_probs)


@given(distributions(), st.data(), st.integers(1, 4))
def test_repeated_ngrams_are_the_ngrams_of_the_history(log_probs: Tensor, data: st.DataObject, n: int) -> None:
    size = log_probs.size(1)
    history = data.draw(histories(size, log_probs.size(0)))
    blocked = repeated_ngrams(history, (history >= 0).sum(1), n, size)
    for row, padded in enumerate(history.tolist()):
        ids = [id for id in padded if id >= 0]
        ngrams = {tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)}
        assert blocked[row].tolist() == [len(ids) + 1 >= n and tuple([*ids, id][-n:]) in ngrams for id in range(size)]


@given(distributions(), st.data())
def test_logit_bias_multiplies_odds(log_probs: Tensor, data: st.DataObject) -> None:
    numbers = st.lists(st.floats(-5, 5), min_size=log_probs.size(1), max_size=log_probs.size(1))
    biases = data.draw(numbers)
    options = SamplingOptions(logit_bias=tuple(enumerate(biases)))
    filtered = processed(log_probs, [options] * len(log_probs))
    assert_normalized(filtered)
    bias = torch.tensor(biases, dtype=torch.float64)
    assert_close(filtered - filtered[:, :1], log_probs - log_probs[:, :1] + bias - bias[0])


@given(distributions(), st.data())
def test_forced_ids_get_probability_1_and_other_rows_are_unchanged(log_probs: Tensor, data: st.DataObject) -> None:
    ids = st.lists(st.integers(-1, log_probs.size(1) - 1), min_size=len(log_probs), max_size=len(log_probs))
    forced = torch.tensor(data.draw(ids))
    filtered = processed(log_probs, [SamplingOptions(forced_ids=(id,) if id >= 0 else ()) for id in forced.tolist()])
    assert_normalized(filtered)
    assert torch.equal(filtered.argmax(-1)[forced >= 0], forced[forced >= 0])
    assert torch.equal(filtered[forced < 0], log_probs[forced < 0])


@given(distributions(), st.integers(1, 12), st.floats(0.01, 1.0))
def test_filters_are_batch_invariant(log_probs: Tensor, k: int, p: float) -> None:
    for row in range(len(log_probs)):
        alone = slice(row, row + 1)
        assert torch.equal(top_k(log_probs, k)[alone], top_k(log_probs[alone], k))
        for filtered in (top_p, min_p, typical, epsilon_cutoff):
            assert torch.equal(filtered(log_probs, p)[alone], filtered(log_probs[alone], p))
