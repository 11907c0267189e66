"""Worked example 9: a table of next words on which greedy, beam and exhaustive search differ."""

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
class Nothing(State):
    rows: Tensor


class Toy:
    """The next word depends on the last one alone."""

    context = None

    def start(self, source: Source, *, capacity: int) -> Nothing:
        return Nothing(torch.zeros(source.rows))

    def step(self, ids: Tensor, state: Nothing, count: Tensor | None = None) -> tuple[Tensor, Nothing]:
        return TABLE[ids[:, -1]].log(), state


def found(**options: object) -> list[Hypothesis]:
    wanted = SearchOptions(**{"max_tokens": 4, "length_penalty": "none"} | options)  # type: ignore[arg-type]
    (hypotheses,) = search(Toy(), Source.empty(1), wanted, sos=START, eos=END)
    return hypotheses


def test_greedy_takes_the_best_word_each_time() -> None:
    (best,) = found(kind="greedy")
    assert (best.ids, best.reason) == ([A, B, C], "end")
    assert best.log_prob == pytest.approx(-3.0366, abs=5e-5)


def test_a_beam_of_two_finds_better() -> None:
    (best,) = found(beam_size=2)
    assert best.ids == [B, C]
    assert best.score == pytest.approx(-2.3434, abs=5e-5)


@pytest.mark.parametrize("options", [{"beam_size": 3}, {"kind": "exact"}])
def test_a_beam_of_three_finds_what_looking_at_everything_finds(options: dict[str, object]) -> None:
    (best,) = found(**options)
    assert best.ids == [A]
    assert best.log_prob == pytest.approx(-1.8971, abs=5e-5)


def test_there_are_39_outputs() -> None:
    every = [h for h in found(kind="exact", n_best=1000) if h.reason == "end"]
    assert len(every) == len({tuple(h.ids) for h in every}) == 39
    assert [h.score for h in every] == sorted((h.score for h in every), reverse=True)


@pytest.mark.parametrize("options", [{"beam_size": 2}, {"kind": "exact"}])
@pytest.mark.parametrize("rule", [{"length_penalty": "power", "length_alpha": 1.0}, {"length_penalty": "average"}])
def test_dividing_by_length_prefers_the_longest(options: dict[str, object], rule: dict[str, object]) -> None:
    (best,) = found(**options, **rule)
    assert best.ids == [A, B, C]
    assert best.score == pytest.approx(-0.7591, abs=5e-5)
    assert best.log_prob == pytest.approx(4 * best.score)
    assert math.exp(best.log_prob) == pytest.approx(0.5 * 0.4 * 0.4 * 0.6)
