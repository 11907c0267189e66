"""Worked example 6: self-, causal and cross-attention by hand, without parameters, and wrong ways of masking."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from seqwright.layers.attention import Attend

from .golden import near


def matrix(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


X = matrix([-0.1, 0.1, 0.3], [0.4, -1.1, -0.3])
C = matrix([-0.6, 0.3, -0.4], [0.5, 0.9, -0.5])
W_Q = matrix([-0.35, 0.51, 0.50], [0.36, -0.47, -0.29], [-0.51, -0.14, -0.56])
W_K = matrix([-0.49, -0.68, 0.18], [-0.44, -0.46, 0.18], [0.07, -0.10, 0.44])
W_V = matrix([-0.41, 0.39, -0.65], [-0.40, -0.07, -0.34], [-0.55, -0.13, -0.29])
W_O = matrix([-0.36, -0.08, 0.32], [0.27, 0.05, 0.15], [-0.05, -0.28, 0.05])


def attention_weights(query: Tensor, key: Tensor, *, causal: bool = False) -> Tensor:
    """Attention weights (T, K) of one row and one head."""
    return Attend().weights(query[None, None], key[None, None], causal=causal)[0, 0]


def attend(query: Tensor, key: Tensor, value: Tensor, *, causal: bool = False) -> Tensor:
    """Attention outputs (T, E) of one row and one head."""
    return Attend()(query[None, None], key[None, None], value[None, None], causal=causal)[0, 0]


def test_query_key_and_value_projections() -> None:
    near(X @ W_Q, [[-0.082, -0.140, -0.247], [-0.383, 0.763, 0.687]], 3)
    near(X @ W_K, [[0.026, -0.008, 0.132], [0.267, 0.264, -0.258]], 3)
    near(X @ W_V, [[-0.164, -0.085, -0.056], [0.441, 0.272, 0.201]], 3)


ONE = ([[1.0]], [[-0.164, -0.085, -0.056]], [[0.0389, 0.0246, -0.0680]])
SELF = (
    [[0.4944, 0.5056], [0.5220, 0.4780]],
    [[0.1419, 0.0955, 0.0739], [0.1252, 0.0856, 0.0668]],
    [[-0.0290, -0.0273, 0.0634], [-0.0253, -0.0244, 0.0562]],
)
CAUSAL = (
    [[1.0, 0.0], [0.5220, 0.4780]],
    [[-0.164, -0.085, -0.056], [0.1252, 0.0856, 0.0668]],
    [[0.0389, 0.0246, -0.0680], [-0.0253, -0.0244, 0.0562]],
)
CROSS = (
    [[0.4880, 0.5120], [0.5049, 0.4951]],
    [[0.1457, 0.0978, 0.0756], [0.1355, 0.0917, 0.0712]],
    [[-0.0298, -0.0279, 0.0651], [-0.0276, -0.0262, 0.0607]],
)


@pytest.mark.parametrize(
    ("x", "memory", "causal", "expected"),
    [(X[:1], X[:1], False, ONE), (X, X, False, SELF), (X, X, True, CAUSAL), (C, X, False, CROSS)],
    ids=["one token", "self", "causal", "cross"],
)
def test_self_causal_and_cross_attention(
    x: Tensor, memory: Tensor, causal: bool, expected: tuple[object, object, object]
) -> None:
    query, key, value = x @ W_Q, memory @ W_K, memory @ W_V
    weights, means, outputs = expected
    near(attention_weights(query, key, causal=causal), weights)
    # The means of a single token are printed with three decimals.
    near(attend(query, key, value, causal=causal), means, 3)
    near(attend(query, key, value, causal=causal) @ W_O, outputs)


def test_attention_without_parameters() -> None:
    near(attention_weights(X, X), [[0.5503, 0.4497], [0.2726, 0.7274]])
    near(attend(X, X, X), [[0.1248, -0.4396, 0.0302], [0.2637, -0.7729, -0.1364]])


def test_masking_before_the_softmax_with_minus_infinity_is_right() -> None:
    query, key = X @ W_Q, X @ W_K
    scores = (query @ key.T / 3**0.5)[0]  # scores of the first token
    mask = torch.tensor([1.0, 0.0], dtype=torch.float64)
    near(scores.softmax(-1) * mask, [0.4944, 0])  # does not sum to one
    near((scores * mask).softmax(-1), [0.4951, 0.5049])  # does not mask
    near(attention_weights(query, key, causal=True)[0], [1, 0], 12)


def test_attention_scores_are_scaled_by_the_square_root_of_the_head_size() -> None:
    query, key = torch.zeros(1, 64), torch.zeros(2, 64)
    query[0, 0], key[0, 0], key[1, 0] = 1, 112, 96
    near(attention_weights(query, key)[0], [0.88, 0.12], 2)
    near(attention_weights(matrix([1, 2]), matrix([1, 0], [0, 1], [1, 1]))[0], [0.140, 0.284, 0.576], 3)


def test_attention_without_positions_is_permutation_invariant() -> None:
    x = torch.diag(torch.tensor([1.0, 1, 2, 1], dtype=torch.float64))
    weights = torch.tensor([0.1, 0.2, 0.6, 0.1], dtype=torch.float64)
    # Scores are the logarithms of these weights: a query of E ones over keys log(w) / √E, E = 4.
    query, key = torch.ones(1, 4, dtype=torch.float64), weights.log().unsqueeze(1).expand(4, 4) / 2
    near(attention_weights(query, key)[0], weights, 12)
    near(attend(query, key, x)[0], [0.1, 0.2, 1.2, 0.1], 12)
    permutation = [0, 2, 1, 3]
    near(attend(query, key[permutation], x[permutation])[0], [0.1, 0.2, 1.2, 0.1], 12)
