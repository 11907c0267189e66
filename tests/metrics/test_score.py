"""Bootstrap confidence intervals: nominal coverage, and none with too few units."""

from __future__ import annotations

import numpy as np
import pytest

from seqwright.metrics import score
from seqwright.metrics.score import MIN_UNITS, Floats, Score, bootstrap


def ratio(sums: Floats) -> Floats:
    return sums[:, 0] / sums[:, 1]


def test_bootstrap_interval_coverage_of_a_known_mean() -> None:
    generator = np.random.default_rng(0)
    covered = 0
    for trial in range(200):
        tokens = generator.integers(5, 30, 60).astype(float)
        nll = tokens * 2.0 + generator.normal(0, 3, 60) * np.sqrt(tokens)  # 2 nats a token in the long run
        [(low, high)] = bootstrap([(np.stack([nll, tokens], 1), ratio)], resamples=200, seed=trial)
        assert low is not None
        assert high is not None
        covered += low <= 2.0 <= high
    assert 0.88 <= covered / 200 <= 0.99


def test_bootstrap_interval_is_95_percent_of_a_normal() -> None:
    values = np.random.default_rng(1).normal(0, 1, 400)
    ((low, high),) = bootstrap([(np.stack([values, np.ones(400)], 1), ratio)], resamples=4000, seed=1)
    error = values.std() / 20
    assert [(end - values.mean()) / error for end in (low, high)] == pytest.approx([-1.96, 1.96], abs=0.08)  # type: ignore[operator]


@pytest.mark.parametrize("unit", [0, 11])
def test_bootstrap_draws_every_unit(unit: int) -> None:
    counts = np.stack([np.arange(12) == unit, np.ones(12)], 1).astype(float)
    ((low, high),) = bootstrap([(counts, ratio)], resamples=200, seed=1)
    assert low == 0
    assert high is not None
    assert high > 0


def test_bootstrap_resamples_whole_units() -> None:
    alike = np.tile([[6.0, 3.0]], (20, 1))
    assert bootstrap([(alike, ratio)], resamples=50, seed=1) == [(2.0, 2.0)]


def test_bootstrap_is_a_function_of_the_seed() -> None:
    counts = np.stack([np.arange(1.0, 41), np.ones(40)], 1)
    first = bootstrap([(counts, ratio)], resamples=100, seed=1)
    assert bootstrap([(counts, ratio)], resamples=100, seed=1) == first
    assert bootstrap([(counts, ratio)], resamples=100, seed=2) != first


def test_bootstrap_of_several_metrics_and_blocks_equals_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics share resamples: each has the interval that it has alone, whatever the block size."""
    generator = np.random.default_rng(0)
    metrics = [(generator.random((50, 2)), ratio), (generator.random((50, 3)), lambda sums: sums[:, 2])]
    alone = [bootstrap([metric], resamples=30, seed=1)[0] for metric in metrics]
    assert np.allclose(bootstrap(metrics, resamples=30, seed=1), alone, rtol=1e-12)
    monkeypatch.setattr(score, "BLOCK_UNITS", 7 * 50)
    assert np.allclose(bootstrap(metrics, resamples=30, seed=1), alone, rtol=1e-12)


def test_no_bootstrap_interval_with_too_few_units_or_no_resamples() -> None:
    few = np.ones((MIN_UNITS - 1, 2))
    assert bootstrap([(few, ratio)], resamples=100, seed=1) == [(None, None)]
    assert bootstrap([(np.ones((50, 2)), ratio)], resamples=0, seed=1) == [(None, None)]


def test_score_as_json() -> None:
    score = Score(value=1.5, low=1.0, high=2.0, signature="nll|text")
    assert score.as_json() == {"value": 1.5, "low": 1.0, "high": 2.0, "signature": "nll|text"}


def test_signature_states_facts_in_order() -> None:
    facts = score.signature("nll", tokens=0, adaptive=True, rows=None, permuted=False, seed=1)
    assert facts == "nll|tokens:0|adaptive|seed:1"
