"""Prepacked models have the same outputs, share parameters, and leave the original model unchanged."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from seqwright import build
from seqwright.core.batch import Source, Vocabularies, Vocabulary
from seqwright.layers.inference import native_linear
from seqwright.layers.inference import packed_linear as prepacking
from seqwright.layers.inference.optimize import optimize_for_inference
from seqwright.layers.inference.packed_linear import PackedLinear
from seqwright.layers.transformer_block import Block, BlockConfig
from seqwright.models.mixture import Mixture
from tests.contract.kinds import small

SIZES = Vocabulary(size=40, unk=0, pad=1, sos=2, eos=3)
JOINT = Vocabularies(source=SIZES, target=SIZES, joint=True)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> torch.nn.Module:
    monkeypatch.setattr(native_linear, "kernels", lambda: None)  # as without a compiler
    monkeypatch.setattr(prepacking, "MIN_WEIGHTS", 1)
    torch.manual_seed(0)
    table = {"kind": "transformer", "layers": 2, "width": 16, "heads": 2}
    return build.model(build.model_config(table, task="pairs"), JOINT, task="pairs").eval()


@pytest.mark.skipif(not prepacking.available(), reason="this CPU has no packed kernels")
@torch.inference_mode()
def test_prepacked_model_has_the_same_log_probs(model: torch.nn.Module) -> None:
    fast = optimize_for_inference(model)
    kinds = [type(part) for part in fast.modules() if isinstance(part, torch.nn.Linear)]
    assert kinds == [PackedLinear] * len(kinds)
    assert not any(isinstance(part, PackedLinear) for part in model.modules())
    assert {id(p) for p in fast.parameters()} == {id(p) for p in model.parameters()}
    source = Source(mask=torch.ones(3, 5, dtype=torch.bool), ids=torch.arange(15).view(3, 5))
    log_probs = []
    for one in (model, fast):
        state = one.start(source, capacity=4)
        first, state = one.step(torch.tensor([[2, 7], [2, 8], [2, 9]]), state)
        second, _ = one.step(torch.tensor([[4], [5], [6]]), state)
        log_probs.append(torch.stack([first, second]))
    assert_close(*log_probs, rtol=0, atol=1e-5)


@pytest.mark.skipif(not prepacking.available(), reason="this CPU has no packed kernels")
@torch.inference_mode()
def test_bfloat16_is_prepacked_where_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_linear, "kernels", lambda: None)  # as without a compiler
    monkeypatch.setattr(prepacking, "MIN_WEIGHTS", 1)
    plain = torch.nn.Sequential(torch.nn.Linear(16, 8)).to(torch.bfloat16)
    fast = optimize_for_inference(plain)
    assert isinstance(fast[0], PackedLinear) == prepacking.has_kernel(torch.bfloat16)
    x = torch.randn(4, 16, dtype=torch.bfloat16)
    assert_close(fast(x), plain(x))
    assert type(optimize_for_inference(plain.double())[0]) is torch.nn.Linear


@pytest.mark.skipif(not prepacking.available(), reason="this CPU has no packed kernels")
@pytest.mark.parametrize("activation", ["relu", "relu2", "gelu", "gelu-tanh", "swiglu"])
@torch.inference_mode()
def test_prepack_fuses_activations(activation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepacking, "MIN_WEIGHTS", 1)
    config = BlockConfig(width=16, heads=2, activation=activation)  # type: ignore[arg-type]
    block = Block(config).eval()
    fast = optimize_for_inference(block)
    remaining = [part for part in fast.feed_forward.modules() if isinstance(part, torch.nn.ReLU | torch.nn.GELU)]
    assert remaining == []
    x = 3 * torch.randn(4, 5, 16)
    assert_close(fast.feed_forward(x), block.feed_forward(x), rtol=0, atol=1e-5)


@pytest.mark.skipif(not prepacking.available(), reason="this CPU has no packed kernels")
@torch.inference_mode()
def test_prepack_packs_each_model_of_a_mixture(model: torch.nn.Module) -> None:
    mixture = Mixture([model, model], [0.5, 0.5])
    fast = optimize_for_inference(mixture)
    assert fast is not mixture
    assert [any(isinstance(m, PackedLinear) for m in part.modules()) for part in fast.models] == [True, True]
    assert mixture.models == [model, model]
    source = Source(mask=torch.ones(2, 3, dtype=torch.bool), ids=torch.arange(6).view(2, 3))
    log_probs = [one.step(torch.tensor([[2], [2]]), one.start(source, capacity=2))[0] for one in (mixture, fast)]
    assert_close(*log_probs, rtol=0, atol=1e-5)


def test_prepack_leaves_small_and_counted_models() -> None:
    counted = small("ngram")
    assert optimize_for_inference(counted) is counted
    assert not any(
        isinstance(part, PackedLinear) for part in optimize_for_inference(small("gpt")).modules()
    )  # float64, and small
