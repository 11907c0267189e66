"""Attention scores of worked example 6 (dot, general, additive, concat), and global attention with them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from seqwright.layers.attention_scores import SCORES, Additive, Concat, General, GlobalAttention

QUERY = torch.tensor([[[1.0, 2.0]]])
MEMORY = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]])
EYE = torch.eye(2)


def scores_and_weights(kind: str, parameters: dict[str, Tensor]) -> tuple[list[float], list[float]]:
    """Attention scores and weights of the example."""
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
def test_attention_scores_of_worked_example(
    kind: str, parameters: dict[str, Tensor], scores: list[float], weights: list[float]
) -> None:
    actual_scores, actual_weights = scores_and_weights(kind, parameters)
    assert actual_scores == pytest.approx(scores, abs=6e-5)
    assert actual_weights == pytest.approx(weights, abs=6e-4)


def test_general_score_is_query_times_matrix_times_memory() -> None:
    score = General(2)
    expected = QUERY[0, 0] @ score.map.weight @ MEMORY[0].T
    assert_close(score(QUERY, score.keys(MEMORY)).flatten(), expected)


def test_concat_score_is_additive_score_with_concatenated_projections() -> None:
    torch.manual_seed(0)
    additive, concat = Additive(2), Concat(2)
    with torch.no_grad():
        concat.map.weight.copy_(torch.cat([additive.query.weight, additive.memory.weight], 1))
        concat.energy.weight.copy_(additive.energy.weight)
    query, memory = torch.randn(3, 4, 2), torch.randn(3, 5, 2)
    assert_close(concat(query, concat.keys(memory)), additive(query, additive.keys(memory)))


def test_masked_positions_have_zero_attention_weight() -> None:
    attention = GlobalAttention(SCORES["dot"](2))
    mask = torch.tensor([[True, False, True]])
    weights = attention.weights(QUERY, MEMORY, mask=mask)
    assert weights[0, 0, 1] == 0
    assert_close(weights.sum(-1), torch.ones(1, 1))
    assert_close(attention(QUERY, MEMORY, MEMORY, mask=mask), weights @ MEMORY)
