"""GPT: blocks equal torch.nn's Transformer layers, initialization follows GPT-2, invalid sizes are refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqwright import build
from seqwright.core.batch import Batch, Vocabulary
from seqwright.core.config import UserError
from seqwright.layers.transformer_block import Block, BlockConfig
from seqwright.models.language_model import LanguageModel
from tests.contract.kinds import configured

WIDTH, HEADS, INNER = 12, 3, 20


def fresh(vocabulary: int = 50, **options: object) -> LanguageModel:
    torch.manual_seed(0)
    return build.model(configured("gpt", **options), Vocabulary(size=vocabulary))  # type: ignore[arg-type]


@pytest.mark.parametrize("norm_position", ["pre", "post"])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize("bias", [True, False])
def test_block_equals_torch_transformer_layer(norm_position: str, activation: str, bias: bool) -> None:
    torch.manual_seed(0)
    theirs = nn.TransformerEncoderLayer(
        WIDTH, HEADS, INNER, dropout=0.0, activation=activation, norm_first=norm_position == "pre", batch_first=True
    ).double()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter)
    config = BlockConfig(
        width=WIDTH, heads=HEADS, ffn_width=INNER, norm_position=norm_position, activation=activation, bias=bias
    )  # type: ignore[arg-type]
    ours = Block(config).double()
    pairs: list[tuple[nn.Module, torch.Tensor, torch.Tensor]] = [
        (ours.attention.query_key_value, theirs.self_attn.in_proj_weight, theirs.self_attn.in_proj_bias),
        (ours.attention.output, theirs.self_attn.out_proj.weight, theirs.self_attn.out_proj.bias),
        (ours.feed_forward.up, theirs.linear1.weight, theirs.linear1.bias),
        (ours.feed_forward.down, theirs.linear2.weight, theirs.linear2.bias),
    ]
    for mine, weight, offset in pairs:
        if not bias:
            nn.init.zeros_(offset)
        mine.load_state_dict({"weight": weight} | ({"bias": offset} if bias else {}))
    ours.attention_norm.load_state_dict(theirs.norm1.state_dict())
    ours.feed_forward_norm.load_state_dict(theirs.norm2.state_dict())
    x = torch.randn(2, 5, WIDTH, dtype=torch.float64)
    mask = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    assert_close(ours(x, torch.arange(5).unsqueeze(0)), theirs(x, src_mask=mask, is_causal=True))


def test_initialization_has_gpt_2_standard_deviations() -> None:
    model = fresh(vocabulary=500, layers=8, width=64)
    sizes = {name: parameter.std().item() for name, parameter in model.named_parameters() if parameter.dim() > 1}
    assert sizes["embedding.weight"] == pytest.approx(0.02, rel=0.1)
    assert sizes["encoder.positions.table.weight"] == pytest.approx(0.02, rel=0.1)
    assert sizes["encoder.blocks.3.attention.query_key_value.weight"] == pytest.approx(0.02, rel=0.1)
    for last in ("attention.output", "feed_forward.down"):  # 16 residual branches add up
        assert sizes[f"encoder.blocks.3.{last}.weight"] == pytest.approx(0.02 / 4, rel=0.1)
    assert all((p == 0).all() for name, p in model.named_parameters() if name.endswith("bias"))


@pytest.mark.parametrize(
    "options", [{}, {"positions": "rope"}, {"positions": "none", "norm_position": "post"}, {"tied": False}]
)
def test_initial_predictions_are_nearly_uniform(options: dict[str, object]) -> None:
    model = fresh(width=64, **options).eval()
    ids = torch.randint(50, (4, 9))
    with torch.no_grad():
        log_probs, _ = model.score(Batch.of_text(ids[:, :-1], ids[:, 1:].contiguous()))
    assert -log_probs.mean().item() == pytest.approx(torch.tensor(50.0).log().item(), abs=0.35)


def test_final_normalization_of_pre_and_post_norm() -> None:
    batch = Batch.of_text(torch.tensor([[1, 2, 3]]), torch.tensor([[2, 3, 4]]))
    for norm in ("pre", "post"):
        hidden, _ = fresh(norm_position=norm).hidden(batch)
        assert_close(hidden.mean(-1), torch.zeros(1, 3), atol=1e-5, rtol=0)
        assert_close(hidden.std(-1, unbiased=False), torch.ones(1, 3), atol=1e-2, rtol=0)
    assert isinstance(fresh(norm_position="pre").get_submodule("encoder.norm"), nn.LayerNorm)
    assert isinstance(fresh(norm_position="post").get_submodule("encoder.norm"), nn.Identity)


def test_rope_depends_on_relative_positions_alone() -> None:
    """Shifting all positions leaves the outputs unchanged."""
    model = fresh(positions="rope", layers=2, width=16, heads=2, context=16).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    blocks = model.get_submodule("encoder.blocks")
    x = torch.randn(1, 5, 16, dtype=torch.float64)
    results = []
    for shift in (0, 7):
        out = x
        for block in blocks.children():
            out = block(out, torch.arange(shift, shift + 5).unsqueeze(0))
        results.append(out)
    assert_close(results[0], results[1], atol=1e-5, rtol=0)  # rotation tables are float32


def test_without_positions_the_order_of_the_context_is_lost() -> None:
    model = fresh(positions="none", layers=1).double().eval()
    orders = [torch.tensor([[5, 6, 7, 8]]), torch.tensor([[7, 5, 6, 8]])]
    with torch.no_grad():
        one, other = (model(Batch.of_text(ids, ids))[0, -1] for ids in orders)
    assert_close(one, other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 100, "heads": 8}, "width 100 cannot be split over 8 heads; try 96 or 104."),
        ({"width": 3, "heads": 8}, "width 3 cannot be split over 8 heads; try 8."),
        ({"layers": 0}, "layers must be at least 1, not 0."),
        ({"width": 12, "heads": 4, "positions": "rope"}, "width / heads must be even, not 3"),
        ({"heads": 4, "kv_heads": 3}, "4 heads cannot share 3 key-value heads; try 1 or 2 or 4."),
        ({"attention_window": 0}, "window must be at least 1"),
        ({"attention_dropout": 1.0}, "attention_dropout must be at least 0 and below 1"),
        ({"readout": "flatten"}, "set tied = false"),
    ],
)
def test_invalid_gpt_sizes_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError) as caught:
        configured("gpt", **options)  # type: ignore[arg-type]
    assert message in str(caught.value)
