"""GPT's switches: each does what its paper says, and together they are Llama and GPT-2."""

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
from seqwright.core.config import UserError, describe
from seqwright.layers.attention import SelfAttention
from seqwright.models.encoders.gpt import GPTConfig
from seqwright.models.language_model import LanguageModel
from tests.contract.kinds import SMALL

V, D, H, T = 23, 24, 4, 12

SIZES = {"width": 32, "heads": 2, "layers": 3, "ffn_width": 40, "context": 20}
SWITCHES: dict[str, Any] = {
    "kv_heads": 2,
    "rope_base": 50.0,
    "qk_norm": True,
    "norm_position": "post",
    "norm": "rmsnorm",
    "norm_eps": 0.1,
    "activation": "swiglu",
    "bias": False,
    "dropout": 0.2,
    "attention_dropout": 0.2,
    "embedding_dropout": 0.2,
    "positions": "alibi",
    "attention_window": 3,
    "tied": False,
    "readout": "flatten",
}
"""Another value of every key; one that is not among them fails the first test below."""
NEEDED: dict[str, dict[str, Any]] = {"rope_base": {"positions": "rope"}, "readout": {"tied": False}}
OUR_OWN = {"norm_eps", "readout"}
"""A number every implementation has, and the lectures' second way: no paper is theirs."""


LAWFUL = [row for row in SMALL.values() if row["kind"] == "gpt"]


def built(**options: Any) -> LanguageModel:
    """A small GPT with weights far from symmetric, in evaluation mode."""
    torch.manual_seed(0)
    sizes = {"layers": 2, "width": D, "heads": H, "context": 16}
    model: LanguageModel = build.model(GPTConfig(**(sizes | options)), Vocabulary(size=V))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.eval()


def some_ids(rows: int = 3) -> Tensor:
    return torch.randint(V, (rows, T), generator=torch.Generator().manual_seed(1))


def logits_of(model: LanguageModel, ids: Tensor) -> Tensor:
    with torch.no_grad():
        return model(Batch.of_text(ids, ids))


def trained_on(model: LanguageModel) -> Tensor:
    torch.manual_seed(2)  # dropout
    return logits_of(model.train(), some_ids())


def test_every_key_is_here() -> None:
    assert SIZES.keys() | SWITCHES.keys() == {key.name for key in describe(GPTConfig)}


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_changes_what_is_trained(name: str) -> None:
    needed = NEEDED.get(name, {})
    plain, switched = (trained_on(built(**needed, **given)) for given in ({}, {name: SWITCHES[name]}))
    assert (plain - switched).abs().max() > 1e-3


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_has_a_paper_and_the_laws(name: str) -> None:
    [key] = [key for key in describe(GPTConfig) if key.name == name]
    assert name in OUR_OWN or re.search(r"[A-Z]\w+ (et al\. |& [A-Z]\w+ )?20\d\d", key.help), key.help
    # Dropout and epsilon change no path through a model in evaluation, where the laws hold.
    assert "dropout" in name or name == "norm_eps" or any(row.get(name, key.default) != key.default for row in LAWFUL)


def numbered(their: nn.Module, n: int) -> dict[str, Tensor]:
    """The tensors of their layer n by their names inside it."""
    mark = f".{n}."
    return {name.split(mark, 1)[1]: p.detach() for name, p in their.named_parameters() if mark in name}


def fill(mine: nn.Module, tensors: dict[str, Tensor]) -> None:
    assert {name for name, _ in mine.named_parameters()} == tensors.keys()
    mine.load_state_dict(tensors, strict=False)  # rotation tables are buffers that are not saved


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_the_llama_layout_is_llama(kv_heads: int) -> None:
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
        held = numbered(theirs, n)
        fill(
            ours.get_submodule(f"encoder.blocks.{n}"),
            {
                "attention.query_key_value.weight": torch.cat([held[f"self_attn.{k}_proj.weight"] for k in "qkv"]),
                "attention.output.weight": held["self_attn.o_proj.weight"],
                "feed_forward.gate.weight": held["mlp.gate_proj.weight"],
                "feed_forward.up.weight": held["mlp.up_proj.weight"],
                "feed_forward.down.weight": held["mlp.down_proj.weight"],
                "attention_norm.weight": held["input_layernorm.weight"],
                "feed_forward_norm.weight": held["post_attention_layernorm.weight"],
            },
        )
    fill(ours.embedding, {"weight": theirs.model.embed_tokens.weight.detach()})
    fill(ours.get_submodule("encoder.norm"), {"weight": theirs.model.norm.weight.detach()})
    fill(ours.head.readout, {"weight": theirs.lm_head.weight.detach()})
    with torch.no_grad():
        expected = theirs(some_ids()).logits
    assert_close(logits_of(ours, some_ids()), expected, rtol=0, atol=4e-6 * expected.abs().max().item())


def test_the_gpt_2_layout_is_gpt_2() -> None:
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
        held = numbered(theirs, n)
        block = {
            f"{mine}.weight": held[f"{their}.weight"].T for mine, their in names.items()
        }  # theirs lie on their side
        block |= {f"{mine}.bias": held[f"{their}.bias"] for mine, their in names.items()}
        for mine, their in {"attention_norm": "ln_1", "feed_forward_norm": "ln_2"}.items():
            block |= {f"{mine}.{part}": held[f"{their}.{part}"] for part in ("weight", "bias")}
        fill(ours.get_submodule(f"encoder.blocks.{n}"), block)
    fill(ours.embedding, {"weight": theirs.transformer.wte.weight.detach()})
    fill(ours.get_submodule("encoder.positions.table"), {"weight": theirs.transformer.wpe.weight.detach()})
    fill(ours.get_submodule("encoder.norm"), dict(theirs.transformer.ln_f.state_dict()))
    with torch.no_grad():
        expected = theirs(some_ids()).logits
    assert_close(logits_of(ours, some_ids()), expected, rtol=0, atol=4e-6 * expected.abs().max().item())


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_shared_keys_are_the_same_keys_for_several_heads(kv_heads: int) -> None:
    torch.manual_seed(0)
    shared = SelfAttention(D, H, kv_heads=kv_heads).double()
    whole = SelfAttention(D, H).double()
    fresh = shared.state_dict()
    for part in ("weight", "bias"):
        held = fresh[f"query_key_value.{part}"].unflatten(0, (H + 2 * kv_heads, -1))
        query, key, value = held.split([H, kv_heads, kv_heads])
        repeated = [kept.repeat_interleave(H // kv_heads, 0) for kept in (key, value)]
        fresh[f"query_key_value.{part}"] = torch.cat([query, *repeated]).flatten(0, 1)
    whole.load_state_dict(fresh)
    x = torch.randn(2, T, D, dtype=torch.float64)
    assert_close(shared(x, torch.arange(T).unsqueeze(0)), whole(x, torch.arange(T).unsqueeze(0)))


def test_fewer_heads_of_keys_are_remembered() -> None:
    model = built(kv_heads=2)
    state = model.start(Batch.of_text(some_ids(), some_ids()).source, capacity=T)
    assert dict(state.named_tensors())["key"].shape == (3, 2, T, 2, D // H)


@pytest.mark.parametrize("positions", ["learned", "rope", "alibi", "t5", "none"])
def test_a_window_hides_what_is_farther_back(positions: str) -> None:
    """Through L layers, a token hears of what is at most L (window - 1) behind, and of everything nearer."""
    model = built(positions=positions, attention_window=3)
    ids = some_ids(1)
    reach = 2 * (3 - 1)
    before = logits_of(model, ids)
    for t in range(T):
        changed = ids.clone()
        changed[0, t] = (changed[0, t] + 1) % V
        moved = (logits_of(model, changed) != before).any(-1)[0]
        assert moved.nonzero().flatten().tolist() == list(range(t, min(T, t + reach + 1)))


@pytest.mark.parametrize("positions", ["learned", "alibi"])
def test_a_window_as_long_as_the_text_hides_nothing(positions: str) -> None:
    assert_close(
        logits_of(built(positions=positions, attention_window=T), some_ids()),
        logits_of(built(positions=positions), some_ids()),
    )


def test_normalized_queries_and_keys_do_not_care_how_long_they_were() -> None:
    model = built(qk_norm=True, bias=False).double()
    before = logits_of(model, some_ids())
    with torch.no_grad():
        for block in model.get_submodule("encoder.blocks").children():
            block.get_submodule("attention.query_key_value").weight[: 2 * D] *= 50
    assert_close(logits_of(model, some_ids()), before, rtol=1e-4, atol=1e-4)  # but for the epsilon


def test_rms_norm_divides_by_the_root_mean_square_and_nothing_else() -> None:
    norm = built(norm="rmsnorm", norm_eps=0.0).get_submodule("encoder.norm")
    x = torch.randn(5, D)
    assert_close(norm(x), x / x.square().mean(-1, keepdim=True).sqrt() * norm.weight)


def test_a_gate_costs_no_parameters() -> None:
    plain, gated = (
        sum(p.numel() for p in built(width=96, activation=kind, bias=False).parameters()) for kind in ("gelu", "swiglu")
    )
    assert gated == plain


@pytest.mark.parametrize("name", ["attention_dropout", "embedding_dropout"])
def test_dropout_of_one_kind_is_of_that_kind(name: str) -> None:
    model = built(dropout=0.2, **{name: 0.0}).train()
    attend = model.get_submodule("encoder.blocks.0.attention.attend")
    shares = {"attention_dropout": attend.dropout, "embedding_dropout": model.get_submodule("encoder.dropout").p}
    assert shares.pop(name) == 0
    assert set(shares.values()) == {0.2}
    assert model.get_submodule("encoder.blocks.0.dropout").p == 0.2


@pytest.mark.parametrize(
    ("options", "message"), [({"rope_base": 0.0}, "above 0"), ({"norm_eps": -1.0}, "not be below 0")]
)
def test_numbers_under_which_nothing_is_finite_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        GPTConfig(**options)
