"""Attention biases: ALiBi equals BLOOM's, relative position buckets equal T5's, and both depend on distance alone."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

from seqwright.layers.attention_bias import ALiBi, RelativePositionBias


@pytest.mark.parametrize("heads", [1, 2, 3, 8, 12])
def test_alibi_equals_bloom(heads: int) -> None:
    keys = 7
    theirs = build_alibi_tensor(torch.ones(1, keys), heads, torch.float32).view(heads, keys)
    ours = ALiBi(heads)(torch.tensor([[keys - 1]]), torch.arange(keys))[0, :, 0]  # (H, K)
    assert_close(ours - ours[:, :1], theirs - theirs[:, :1])  # softmax is invariant to a constant
    assert (ours[:, -1] == 0).all()


@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (8, 20)])
def test_relative_position_buckets_equal_t5(num_buckets: int, max_distance: int) -> None:
    distance = torch.arange(3 * max_distance)
    theirs = T5Attention._relative_position_bucket(
        -distance, bidirectional=False, num_buckets=num_buckets, max_distance=max_distance
    )
    ours = RelativePositionBias(2, num_buckets, max_distance).bucket(distance)
    assert torch.equal(ours, theirs)
    assert ours.max() == num_buckets - 1
    assert (ours.diff() >= 0).all()


def test_bidirectional_relative_position_buckets_equal_t5() -> None:
    distance = torch.arange(-300, 300)
    theirs = T5Attention._relative_position_bucket(-distance, bidirectional=True, num_buckets=32, max_distance=128)
    assert torch.equal(RelativePositionBias(2, bidirectional=True).bucket(distance), theirs)


@pytest.mark.parametrize("bias", [ALiBi(3), RelativePositionBias(3)], ids=["alibi", "t5"])
def test_attention_bias_depends_on_distance_alone(bias: ALiBi | RelativePositionBias) -> None:
    query = torch.tensor([[3, 4, 5], [9, 10, 11]])
    one, other = bias(query, torch.arange(12))  # (H, T, K)
    assert one.shape == (3, 3, 12)
    assert_close(one[..., 0:6], other[..., 6:12])
    for t in range(3):
        assert_close(one[:, t, 3 + t], one[:, 0, 3])  # distance 0
