"""Sampling: uniforms that depend on (seed, position) alone, and draws that follow the distribution."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from seqwright.core.config import UserError
from seqwright.decoding.options import SamplingOptions
from seqwright.decoding.processors import LogitsProcessors, RowOptions
from seqwright.decoding.sampling import draw, uniform

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(x: int) -> int:
    """The finalizer of splitmix64, in Python integers."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def expected(seed: int, position: int) -> float:
    """The uniform at `position` of the splitmix64 stream that starts at the first output of the seed's stream."""
    state = mix((seed + GOLDEN) & MASK)
    return (mix((state + (position + 1) * GOLDEN) & MASK) >> 12) / (1 << 52)


def test_reference_is_splitmix64() -> None:
    assert mix(GOLDEN) == 0xE220A8397B1DCDAF  # the published first numbers of seed 0
    assert mix(2 * GOLDEN & MASK) == 0x6E789E6AA1B965F4


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 1 << 20))
def test_uniforms_equal_the_splitmix64_reference(seed: int, position: int) -> None:
    assert uniform(torch.tensor([seed]), torch.tensor([position])).tolist() == [expected(seed, position)]


def grid(seeds: int, positions: int) -> Tensor:
    """Uniforms (seeds, positions)."""
    rows = torch.arange(seeds).unsqueeze(1).expand(seeds, positions)
    columns = torch.arange(positions).expand(seeds, positions)
    return uniform(rows, columns)


def test_uniforms_are_uniform() -> None:
    u = grid(300, 300)
    assert (u >= 0).all()
    assert (u < 1).all()
    assert len(set(u.flatten().tolist())) == u.numel()
    # Standard errors of mean and variance over 90,000 numbers are 0.00096 and 0.00025.
    assert u.mean().item() == pytest.approx(1 / 2, abs=0.004)
    assert u.var().item() == pytest.approx(1 / 12, abs=0.001)
    counts = torch.histc(u, bins=100, min=0, max=1)
    assert ((counts - 900).square() / 900).sum() < 150  # χ² with 99 degrees of freedom: p = 0.0007


@pytest.mark.parametrize("axis", [0, 1], ids=["seed", "position"])
def test_uniforms_of_neighboring_seeds_and_positions_are_uncorrelated(axis: int) -> None:
    u = grid(300, 300) - 0.5
    one, other = u.narrow(axis, 0, 299), u.narrow(axis, 1, 299)
    correlation = (one * other).mean() * 12
    assert correlation.abs() < 4 / math.sqrt(one.numel())
    first, second = u.select(axis, 0), u.select(axis, 1)
    assert ((first * second).mean() * 12).abs() < 4 / math.sqrt(300)


def test_first_uniform_of_seed_0_is_not_extreme() -> None:
    assert 0.01 < uniform(torch.tensor([0]), torch.tensor([0])).item() < 0.99


edges = st.sampled_from([0.0, math.nextafter(1, 0), 1 - 2**-52, 0.5])


@given(
    st.lists(st.one_of(st.just(0.0), st.floats(1e-300, 1.0)), min_size=1, max_size=8).filter(any),
    st.one_of(edges, st.floats(0, 1, exclude_max=True)),
)
def test_tokens_of_probability_0_are_never_drawn(weights: list[float], u: float) -> None:
    u = math.floor(u * 2**52) / 2**52  # the grid that `uniform` draws from
    log_probs = torch.tensor([weights], dtype=torch.float64).log()
    drawn = draw(log_probs, torch.tensor([u], dtype=torch.float64)).item()
    assert weights[int(drawn)] > 0


def test_draw_inverts_the_cdf() -> None:
    log_probs = torch.tensor([0.25, 0.0, 0.5, 0.25]).log().expand(6, 4)
    points = torch.tensor([0.0, 0.2499, 0.2501, 0.7499, 0.7501, 0.9999], dtype=torch.float64)
    assert draw(log_probs, points).tolist() == [0, 0, 2, 2, 3, 3]


def sampled(log_probs: Tensor, options: SamplingOptions, positions: Tensor) -> Tensor:
    """One id for each row of log-probabilities, at these positions of the output."""
    rows = RowOptions.of([options] * len(log_probs), log_probs.size(1), "cpu", [options.seed] * len(log_probs))
    return LogitsProcessors.of([options], eos=None, banned=[], device="cpu").sample(log_probs, rows, positions, None)


def test_draws_follow_the_distribution() -> None:
    # What follows "cows eat" in the lectures' corpus (worked example 2), and one word that never does.
    counts = torch.tensor([4, 3, 2, 0, 1, 1]) / 11
    draws = 11_000
    drawn = sampled(counts.log().expand(draws, 6), SamplingOptions(seed=1), torch.arange(draws))
    observed = drawn.bincount(minlength=6)
    possible = counts > 0
    assert observed[~possible].sum() == 0
    expected = counts[possible] * draws
    assert ((observed[possible] - expected).square() / expected).sum() < 18.5  # χ², 4 degrees of freedom: p = 0.001


def test_temperature_0_is_greedy() -> None:
    log_probs = torch.randn(20, 7).log_softmax(-1)
    assert torch.equal(sampled(log_probs, SamplingOptions(temperature=0), torch.arange(20)), log_probs.argmax(-1))


def test_filters_are_applied_in_order() -> None:
    log_probs = torch.tensor([0.4, 0.3, 0.2, 0.1]).log().expand(500, 4)
    positions = torch.arange(500)
    two = sampled(log_probs, SamplingOptions(top_k=2), positions)
    assert set(two.tolist()) == {0, 1}
    three = sampled(log_probs, SamplingOptions(top_p=0.75), positions)
    assert set(three.tolist()) == {0, 1, 2}
    # Tempered to the fourth power 0.4 holds 72 % of the mass, so it alone is the nucleus of 70 %.
    one = sampled(log_probs, SamplingOptions(temperature=0.25, top_p=0.7), positions)
    assert set(one.tolist()) == {0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 0}, "tokens must be at least 1"),
        ({"temperature": -0.1}, r"temperature must be 0 \(greedy\) or more"),
        ({"top_k": 0}, "top_k must be at least 1"),
        ({"top_p": 0.0}, "above 0 and at most 1"),
        ({"top_p": 1.5}, "above 0 and at most 1"),
        ({"stop": ("\n", "")}, "empty string"),
    ],
)
def test_invalid_sampling_options_are_rejected(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        SamplingOptions(**options)  # type: ignore[arg-type]
