"""GPT options: each does what its paper says, and together they reproduce Llama and GPT-2."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from seqwright import build
from seqwright.core.batch import Batch, Vocabulary
from seqwright.core.config import UserError
from seqwright.layers.attention import SelfAttention
from seqwright.models.language_model import LanguageModel
from tests.contract.kinds import SMALL, configured

V, D, H, T = 23, 24, 4, 12

SIZES = {"width": 32, "heads": 2, "layers": 3, "ffn_width": 40, "context": 20}
SWITCHES: dict[str, Any] = {
    "kv_heads": 2,
    "rope_base": 50.0,
    "qk_norm": True,
    "norm_position": "post",
    "norm": "rmsnorm",
    "norm_eps": 0.1,
    "residual": False,
    "scale_attention": False,
    "activation": "swiglu",
    "bias": False,
    "dropout": 0.2,
    "attention_dropout": 0.2,
    "embedding_dropout": 0.2,
    "stochastic_depth": 0.2,
    "positions": "alibi",
    "attention_window": 3,
    "tied": False,
    "readout": "flatten",
    "softmaxes": 3,
    "latent_dropout": 0.2,
}
"""A non-default value of every option; an option missing here fails the first test below."""
INITIAL = {"token_std"}
"""Options of initialization alone, which no computation reads (tests/models/test_recurrent.py)."""
NEEDED: dict[str, dict[str, Any]] = {
    "rope_base": {"positions": "rope"},
    "readout": {"tied": False},
    "latent_dropout": {"softmaxes": 3},
}
WITHOUT_PAPER = {"norm_eps", "readout"}
"""Options without a paper: the epsilon that every implementation has, and the lectures' second way."""


TESTED_BY_LAWS = [row for row in SMALL.values() if row["kind"] == "gpt"]


def built(**options: Any) -> LanguageModel:
    """A small GPT with large random weights, in evaluation mode."""
    torch.manual_seed(0)
    sizes = {"layers": 2, "width": D, "heads": H, "context": 16}
    model: LanguageModel = build.model(configured("gpt", **(sizes | options)), Vocabulary(size=V))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.eval()


def random_ids(rows: int = 3) -> Tensor:
    return torch.randint(V, (rows, T), generator=torch.Generator().manual_seed(1))


def logits_of(model: LanguageModel, ids: Tensor) -> Tensor:
    with torch.no_grad():
        return model(Batch.of_text(ids, ids))


def training_logits(model: LanguageModel) -> Tensor:
    torch.manual_seed(2)  # dropout
    return logits_of(model.train(), random_ids())


def test_every_gpt_option_is_tested() -> None:
    assert SIZES.keys() | SWITCHES.keys() | INITIAL == {key.name for key in build.model_keys("gpt", task="text")}


@pytest.mark.parametrize("name", SWITCHES)
def test_gpt_option_changes_training(name: str) -> None:
    needed = NEEDED.get(name, {})
    plain, switched = (training_logits(built(**needed, **changed)) for changed in ({}, {name: SWITCHES[name]}))
    assert (plain - switched).abs().max() > 1e-3


@pytest.mark.parametrize("name", SWITCHES)
def test_gpt_option_cites_a_paper_and_is_covered_by_the_laws(name: str) -> None:
    [key] = [key for key in build.model_keys("gpt", task="text") if key.name == name]
    assert name in WITHOUT_PAPER or re.search(r"[A-Z]\w+ (et al\. |& [A-Z]\w+ )?20\d\d", key.help), key.help
    # Dropout, stochastic depth and epsilon change no code path in evaluation mode, where the laws are tested.
    assert (
        "dropout" in name
        or name in ("norm_eps", "stochastic_depth")
        or any(row.get(name, key.default) != key.default for row in TESTED_BY_LAWS)
    )


def test_stochastic_depth_skips_sublayers_by_row() -> None:
    model = built(stochastic_depth=0.5)
    assert [block.stochastic_depth for block in model.encoder.blocks] == [0.25, 0.5]
    block, x = model.encoder.blocks[1], torch.randn(64, T, D)
    nn.init.zeros_(block.feed_forward.down.weight)
    nn.init.zeros_(block.feed_forward.down.bias)
    positions = torch.arange(T).unsqueeze(0)
    with torch.no_grad():
        attended, changed = block(x, positions) - x, block.train()(x, positions) - x
    kept = changed.abs().amax((1, 2)) > 0
    assert 16 < kept.sum() < 48
    assert_close(changed[kept], 2 * attended[kept], rtol=0, atol=1e-4)


def test_squared_relu() -> None:
    model = built(activation="relu2")
    feed_forward, x = model.encoder.blocks[0].feed_forward, torch.randn(5, D)
    inner = feed_forward.up(x)
    assert_close(feed_forward(x), feed_forward.down(torch.where(inner > 0, inner * inner, 0.0)))


def layer_weights(their: nn.Module, n: int) -> dict[str, Tensor]:
    """The weights of their layer n by name within the layer."""
    mark = f".{n}."
    return {name.split(mark, 1)[1]: p.detach() for name, p in their.named_parameters() if mark in name}


def fill(mine: nn.Module, tensors: dict[str, Tensor]) -> None:
    assert {name for name, _ in mine.named_parameters()} == tensors.keys()
    mine.load_state_dict(tensors, strict=False)  # rotary tables are non-persistent buffers


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_llama_options_equal_transformers_llama(kv_heads: int) -> None:
    torch.manual_seed(0)
    theirs = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=V,
            hidden_size=D,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=H,
            num_key_value_heads=kv_heads,
            max_position_embeddings=16,
            rms_norm_eps=1e-6,
            rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
        )
    ).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    ours = built(
        positions="rope",
        rope_base=5000.0,
        norm="rmsnorm",
        norm_eps=1e-6,
        activation="swiglu",
        ffn_width=40,
        kv_heads=kv_heads,
        bias=False,
        tied=False,
    )
    for n in range(2):
        layer = layer_weights(theirs, n)
        fill(
            ours.get_submodule(f"encoder.blocks.{n}"),
            {
                "attention.query_key_value.weight": torch.cat([layer[f"self_attn.{k}_proj.weight"] for k in "qkv"]),
                "attention.output.weight": layer["self_attn.o_proj.weight"],
                "feed_forward.gate.weight": layer["mlp.gate_proj.weight"],
                "feed_forward.up.weight": layer["mlp.up_proj.weight"],
                "feed_forward.down.weight": layer["mlp.down_proj.weight"],
                "attention_norm.weight": layer["input_layernorm.weight"],
                "feed_forward_norm.weight": layer["post_attention_layernorm.weight"],
            },
        )
    fill(ours.embedding, {"weight": theirs.model.embed_tokens.weight.detach()})
    fill(ours.get_submodule("encoder.norm"), {"weight": theirs.model.norm.weight.detach()})
    fill(ours.head.readout, {"weight": theirs.lm_head.weight.detach()})
    with torch.no_grad():
        expected = theirs(random_ids()).logits
    assert_close(logits_of(ours, random_ids()), expected, rtol=0, atol=4e-6 * expected.abs().max().item())


def test_gpt_2_options_equal_transformers_gpt_2() -> None:
    torch.manual_seed(0)
    theirs = GPT2LMHeadModel(
        GPT2Config(vocab_size=V, n_positions=16, n_embd=D, n_layer=2, n_head=H, bos_token_id=0, eos_token_id=0)
    ).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    ours = built(activation="gelu-tanh")
    names = {
        "attention.query_key_value": "attn.c_attn",
        "attention.output": "attn.c_proj",
        "feed_forward.up": "mlp.c_fc",
        "feed_forward.down": "mlp.c_proj",
    }
    for n in range(2):
        layer = layer_weights(theirs, n)
        block = {
            f"{mine}.weight": layer[f"{their}.weight"].T for mine, their in names.items()
        }  # their Conv1D stores transposed weights
        block |= {f"{mine}.bias": layer[f"{their}.bias"] for mine, their in names.items()}
        for mine, their in {"attention_norm": "ln_1", "feed_forward_norm": "ln_2"}.items():
            block |= {f"{mine}.{part}": layer[f"{their}.{part}"] for part in ("weight", "bias")}
        fill(ours.get_submodule(f"encoder.blocks.{n}"), block)
    fill(ours.embedding, {"weight": theirs.transformer.wte.weight.detach()})
    fill(ours.get_submodule("encoder.positions.table"), {"weight": theirs.transformer.wpe.weight.detach()})
    fill(ours.get_submodule("encoder.norm"), dict(theirs.transformer.ln_f.state_dict()))
    with torch.no_grad():
        expected = theirs(random_ids()).logits
    assert_close(logits_of(ours, random_ids()), expected, rtol=0, atol=4e-6 * expected.abs().max().item())


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_grouped_query_attention_equals_repeated_key_value_heads(kv_heads: int) -> None:
    torch.manual_seed(0)
    shared = SelfAttention(D, H, kv_heads=kv_heads).double()
    full = SelfAttention(D, H).double()
    tensors = shared.state_dict()
    for part in ("weight", "bias"):
        projections = tensors[f"query_key_value.{part}"].unflatten(0, (H + 2 * kv_heads, -1))
        query, key, value = projections.split([H, kv_heads, kv_heads])
        repeated = [heads.repeat_interleave(H // kv_heads, 0) for heads in (key, value)]
        tensors[f"query_key_value.{part}"] = torch.cat([query, *repeated]).flatten(0, 1)
    full.load_state_dict(tensors)
    x = torch.randn(2, T, D, dtype=torch.float64)
    assert_close(shared(x, torch.arange(T).unsqueeze(0)), full(x, torch.arange(T).unsqueeze(0)))


def test_kv_cache_has_kv_heads() -> None:
    model = built(kv_heads=2)
    state = model.start(Batch.of_text(random_ids(), random_ids()).source, capacity=T)
    assert dict(state.named_tensors())["key"].shape == (3, 2, T + 1, 2, D // H)


@pytest.mark.parametrize("positions", ["learned", "rope", "alibi", "t5", "none"])
def test_attention_window_limits_the_receptive_field(positions: str) -> None:
    """Through L layers, a token depends on the L (window - 1) tokens before it, and on no others."""
    model = built(positions=positions, attention_window=3)
    ids = random_ids(1)
    reach = 2 * (3 - 1)
    before = logits_of(model, ids)
    for t in range(T):
        changed = ids.clone()
        changed[0, t] = (changed[0, t] + 1) % V
        moved = (logits_of(model, changed) != before).any(-1)[0]
        assert moved.nonzero().flatten().tolist() == list(range(t, min(T, t + reach + 1)))


@pytest.mark.parametrize("positions", ["learned", "alibi"])
def test_attention_window_as_long_as_the_text_changes_nothing(positions: str) -> None:
    assert_close(
        logits_of(built(positions=positions, attention_window=T), random_ids()),
        logits_of(built(positions=positions), random_ids()),
    )


def test_qk_norm_is_invariant_to_the_scale_of_queries_and_keys() -> None:
    model = built(qk_norm=True, bias=False).double()
    before = logits_of(model, random_ids())
    with torch.no_grad():
        for block in model.get_submodule("encoder.blocks").children():
            block.get_submodule("attention.query_key_value").weight[: 2 * D] *= 50
    assert_close(logits_of(model, random_ids()), before, rtol=1e-4, atol=1e-4)  # but for the epsilon


def test_rmsnorm_divides_by_the_root_mean_square() -> None:
    norm = built(norm="rmsnorm", norm_eps=0.0).get_submodule("encoder.norm")
    x = torch.randn(5, D)
    assert_close(norm(x), x / x.square().mean(-1, keepdim=True).sqrt() * norm.weight)


def test_swiglu_has_as_many_parameters_as_gelu() -> None:
    plain, gated = (
        sum(p.numel() for p in built(width=96, activation=kind, bias=False).parameters()) for kind in ("gelu", "swiglu")
    )
    assert gated == plain


@pytest.mark.parametrize("name", ["attention_dropout", "embedding_dropout"])
def test_attention_and_embedding_dropout_override_dropout(name: str) -> None:
    model = built(dropout=0.2, **{name: 0.0}).train()
    attend = model.get_submodule("encoder.blocks.0.attention.attend")
    rates = {"attention_dropout": attend.dropout, "embedding_dropout": model.get_submodule("encoder.dropout").p}
    assert rates.pop(name) == 0
    assert set(rates.values()) == {0.2}
    assert model.get_submodule("encoder.blocks.0.dropout").p == 0.2


@pytest.mark.parametrize(
    ("options", "message"), [({"rope_base": 0.0}, "above 0"), ({"norm_eps": -1.0}, "not be below 0")]
)
def test_invalid_rope_base_and_norm_eps_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        configured("gpt", **options)
