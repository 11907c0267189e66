"""Worked example 6's kinds of score, and the module that averages with them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from seqwright.layers.attention_scores import SCORES, Additive, Concat, General, GlobalAttention

QUERY = torch.tensor([[[1.0, 2.0]]])
MEMORY = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]])
EYE = torch.eye(2)


def weighed(kind: str, parameters: dict[str, Tensor]) -> tuple[list[float], list[float]]:
    """Scores and weights of the example."""
    score = SCORES[kind](2)
    score.load_state_dict(parameters)
    with torch.no_grad():
        keys = score.keys(MEMORY)
        return score(QUERY, keys).flatten().tolist(), GlobalAttention(score).weights(QUERY, keys).flatten().tolist()


@pytest.mark.parametrize(
    ("kind", "parameters", "scores", "weights"),
    [
        ("dot", {}, [1, 2, 3], [0.0900, 0.2447, 0.6652]),
        ("scaled-dot", {}, [0.7071, 1.4142, 2.1213], [0.140, 0.284, 0.576]),
        ("parameter-free", {}, [0.7071, 1.4142, 2.1213], [0.140, 0.284, 0.576]),
        ("general", {"map.weight": EYE.flip(0)}, [2, 1, 3], [0.2447, 0.0900, 0.6652]),
        (
            "additive",
            {"query.weight": EYE, "memory.weight": EYE, "energy.weight": torch.ones(1, 2)},
            [1.9281, 1.7566, 1.9591],
            [0.3479, 0.2931, 0.3589],
        ),
        (
            "concat",
            {"map.weight": torch.cat([EYE, EYE], 1), "energy.weight": torch.ones(1, 2)},
            [1.9281, 1.7566, 1.9591],
            [0.3479, 0.2931, 0.3589],
        ),
    ],
)
def test_the_lectures_numbers(
    kind: str, parameters: dict[str, Tensor], scores: list[float], weights: list[float]
) -> None:
    scored, weighted = weighed(kind, parameters)
    assert scored == pytest.approx(scores, abs=6e-5)
    assert weighted == pytest.approx(weights, abs=6e-4)


def test_general_is_query_times_map_times_memory() -> None:
    score = General(2)
    expected = QUERY[0, 0] @ score.map.weight @ MEMORY[0].T
    assert_close(score(QUERY, score.keys(MEMORY)).flatten(), expected)


def test_concat_is_additive_with_its_maps_side_by_side() -> None:
    torch.manual_seed(0)
    additive, concat = Additive(2), Concat(2)
    with torch.no_grad():
        concat.map.weight.copy_(torch.cat([additive.query.weight, additive.memory.weight], 1))
        concat.energy.weight.copy_(additive.energy.weight)
    query, memory = torch.randn(3, 4, 2), torch.randn(3, 5, 2)
    assert_close(concat(query, concat.keys(memory)), additive(query, additive.keys(memory)))


def test_masked_places_have_no_weight() -> None:
    ask = GlobalAttention(SCORES["dot"](2))
    mask = torch.tensor([[True, False, True]])
    weights = ask.weights(QUERY, MEMORY, mask=mask)
    assert weights[0, 0, 1] == 0
    assert_close(weights.sum(-1), torch.ones(1, 1))
    assert_close(ask(QUERY, MEMORY, MEMORY, mask=mask), weights @ MEMORY)
