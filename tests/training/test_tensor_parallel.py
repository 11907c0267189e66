"""Tensor parallelism: which rows and models are split; that two ranks equal one process is in test_ranks.py."""

from __future__ import annotations

import pytest
import torch

from seqwright.core.config import UserError
from seqwright.core.ranks import Ranks
from seqwright.layers.attention import SelfAttention
from seqwright.training.tensor_parallel import head_rows, refuse_unsplit
from tests.contract.translators import translator

from .test_trainer import fresh, gpt, lstm


def test_rows_of_heads_are_those_of_each_rank_in_turn() -> None:
    rows = head_rows(SelfAttention(8, 4, kv_heads=2), 2)  # heads of 2 rows: queries 0 to 7, keys 8 to 11, values to 15
    assert rows.tolist() == [0, 1, 2, 3, 8, 9, 12, 13, 4, 5, 6, 7, 10, 11, 14, 15]
    assert torch.equal(rows.sort().values, torch.arange(16))


def test_groups_of_ranks_share_batches_as_single_ranks_do() -> None:
    assert [Ranks(rank, 4, 2).rows(6) for rank in range(4)] == [range(3), range(3), range(3, 6), range(3, 6)]
    assert [Ranks(rank, 2, 2).rows(5) for rank in range(2)] == [range(5), range(5)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"positions": "alibi"}, "have a bias for each head"),
        ({"qk_norm": True}, "gains that all heads share"),
        ({"kv_heads": 1}, "model.kv_heads is 1, which training.tensor_parallel = 2 cannot split"),
        ({"ffn_width": 9}, "model.ffn_width is 9"),
    ],
)
def test_models_that_cannot_be_split_are_refused(options: dict[str, object], message: str) -> None:
    refuse_unsplit(fresh(gpt()), 2)
    with pytest.raises(UserError, match=message):
        refuse_unsplit(fresh(gpt(**options)), 2)


def test_recurrent_networks_and_decoders_are_refused() -> None:
    with pytest.raises(UserError, match="has no Transformer blocks; leave it out"):
        refuse_unsplit(fresh(lstm()), 2)
    with pytest.raises(UserError, match="decoders with cross-attention are not split"):
        refuse_unsplit(translator("transformer"), 2)
