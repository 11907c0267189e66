"""Worked example 9: a bigram table on which greedy, beam and exact search differ."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from seqwright.core.batch import Source
from seqwright.core.state import State
from seqwright.decoding.options import Hypothesis, SearchOptions
from seqwright.decoding.search import search

A, B, C, END, START = range(5)
TABLE = torch.tensor(
    [
        [0.2, 0.4, 0.1, 0.3, 0],
        [0.2, 0.1, 0.4, 0.3, 0],
        [0.1, 0.1, 0.2, 0.6, 0],
        [0, 0, 0, 0, 0],
        [0.5, 0.4, 0.1, 0, 0],
    ],
    dtype=torch.float64,
)


@dataclass
class NoState(State):
    rows: Tensor


class Toy:
    """A bigram model: the next token depends on the last one."""

    context = None

    def start(self, source: Source, *, capacity: int) -> NoState:
        return NoState(torch.zeros(source.rows))

    def step(self, ids: Tensor, state: NoState, count: Tensor | None = None) -> tuple[Tensor, NoState]:
        return TABLE[ids[:, -1]].log(), state


def run_search(**options: object) -> list[Hypothesis]:
    search_options = SearchOptions(**{"max_tokens": 4, "length_penalty": "none"} | options)  # type: ignore[arg-type]
    (hypotheses,) = search(Toy(), Source.empty(1), search_options, sos=START, eos=END)
    return hypotheses


def test_greedy_search_takes_the_argmax_at_every_step() -> None:
    (best,) = run_search(kind="greedy")
    assert (best.ids, best.reason) == ([A, B, C], "end")
    assert best.log_prob == pytest.approx(-3.0366, abs=5e-5)


def test_a_beam_of_two_improves_on_greedy_search() -> None:
    (best,) = run_search(beam_size=2)
    assert best.ids == [B, C]
    assert best.score == pytest.approx(-2.3434, abs=5e-5)


@pytest.mark.parametrize("options", [{"beam_size": 3}, {"kind": "exact"}])
def test_a_beam_of_three_equals_exact_search(options: dict[str, object]) -> None:
    (best,) = run_search(**options)
    assert best.ids == [A]
    assert best.log_prob == pytest.approx(-1.8971, abs=5e-5)


def test_exact_search_enumerates_all_39_outputs() -> None:
    outputs = [h for h in run_search(kind="exact", n_best=1000) if h.reason == "end"]
    assert len(outputs) == len({tuple(h.ids) for h in outputs}) == 39
    assert [h.score for h in outputs] == sorted((h.score for h in outputs), reverse=True)


@pytest.mark.parametrize("options", [{"beam_size": 2}, {"kind": "exact"}])
@pytest.mark.parametrize("rule", [{"length_penalty": "power", "length_alpha": 1.0}, {"length_penalty": "average"}])
def test_length_normalization_prefers_the_longest_output(options: dict[str, object], rule: dict[str, object]) -> None:
    (best,) = run_search(**options, **rule)
    assert best.ids == [A, B, C]
    assert best.score == pytest.approx(-0.7591, abs=5e-5)
    assert best.log_prob == pytest.approx(4 * best.score)
    assert math.exp(best.log_prob) == pytest.approx(0.5 * 0.4 * 0.4 * 0.6)
