"""Models without memory, which get it block by block: the same values, ties and buffers."""

from __future__ import annotations

import torch

from seqwright.core.ranks import SINGLE
from seqwright.training.machine import transformer_blocks
from seqwright.training.meta_weights import MetaWeights

from .test_trainer import fresh, gpt


def test_a_model_is_filled_block_by_block_with_the_values_of_rank_0() -> None:
    full = fresh(gpt(positions="sinusoidal"))
    blocks = transformer_blocks(full)
    next(blocks[0].parameters()).requires_grad_(False)
    meta = MetaWeights(full, SINGLE, torch.device("cpu"))
    assert all(tensor.is_meta for tensor in (*meta.model.parameters(), *meta.model.buffers()))
    first, second = transformer_blocks(meta.model)
    meta.fill(first)
    assert not any(tensor.is_meta for tensor in first.parameters())
    assert all(tensor.is_meta for tensor in second.parameters())
    meta.fill(meta.model)
    ours, theirs = ([*model.named_parameters(), *model.named_buffers()] for model in (meta.model, full))
    assert len(ours) == len(theirs)  # tied weights are one parameter
    for (name, tensor), (other, value) in zip(ours, theirs, strict=True):
        assert name == other
        assert torch.equal(tensor, value)
        assert tensor.requires_grad == value.requires_grad
        assert tensor.data_ptr() != value.data_ptr()
