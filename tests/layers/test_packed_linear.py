"""Prepacked models answer as they did, share their parameters, and leave the model they were made from alone."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from seqwright import build
from seqwright.core.batch import Source, Vocabularies, Vocabulary
from seqwright.layers import packed_linear as prepacking
from seqwright.layers.packed_linear import PackedLinear, prepack
from seqwright.layers.transformer_block import Block, BlockConfig
from seqwright.models.mixture import Mixture
from tests.contract.kinds import small

SIZES = Vocabulary(size=40, unk=0, pad=1, sos=2, eos=3)
JOINT = Vocabularies(source=SIZES, target=SIZES, joint=True)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> torch.nn.Module:
    monkeypatch.setattr(prepacking, "MIN_WEIGHTS", 1)
    torch.manual_seed(0)
    table = {"kind": "transformer", "layers": 2, "width": 16, "heads": 2}
    return build.model(build.model_config(table, task="pairs"), JOINT, task="pairs").eval()


@pytest.mark.skipif(not prepacking.available(), reason="this CPU has no packed products")
@torch.inference_mode()
def test_a_packed_model_answers_alike(model: torch.nn.Module) -> None:
    quick = prepack(model)
    maps = [type(part) for part in quick.modules() if isinstance(part, torch.nn.Linear)]
    assert maps == [PackedLinear] * len(maps)
    assert not any(isinstance(part, PackedLinear) for part in model.modules())
    assert {id(p) for p in quick.parameters()} == {id(p) for p in model.parameters()}
    source = Source(mask=torch.ones(3, 5, dtype=torch.bool), ids=torch.arange(15).view(3, 5))
    answers = []
    for one in (model, quick):
        state = one.start(source, capacity=4)
        first, state = one.step(torch.tensor([[2, 7], [2, 8], [2, 9]]), state)
        second, _ = one.step(torch.tensor([[4], [5], [6]]), state)
        answers.append(torch.stack([first, second]))
    assert_close(*answers, rtol=0, atol=1e-5)


@pytest.mark.skipif(not prepacking.available(), reason="this CPU has no packed products")
@torch.inference_mode()
def test_halves_are_packed_where_they_are_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepacking, "MIN_WEIGHTS", 1)
    plain = torch.nn.Sequential(torch.nn.Linear(16, 8)).to(torch.bfloat16)
    quick = prepack(plain)
    assert isinstance(quick[0], PackedLinear) == prepacking.has_kernel(torch.bfloat16)
    x = torch.randn(4, 16, dtype=torch.bfloat16)
    assert_close(quick(x), plain(x))
    assert type(prepack(plain.double())[0]) is torch.nn.Linear


@pytest.mark.skipif(not prepacking.available(), reason="this CPU has no packed products")
@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu-tanh", "swiglu"])
@torch.inference_mode()
def test_nonlinearities_become_part_of_the_product_before_them(
    activation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepacking, "MIN_WEIGHTS", 1)
    config = BlockConfig(width=16, heads=2, activation=activation)  # type: ignore[arg-type]
    block = Block(config).eval()
    quick = prepack(block)
    left = [part for part in quick.feed_forward.modules() if isinstance(part, torch.nn.ReLU | torch.nn.GELU)]
    assert left == []
    x = 3 * torch.randn(4, 5, 16)
    assert_close(quick.feed_forward(x), block.feed_forward(x), rtol=0, atol=1e-5)


@pytest.mark.skipif(not prepacking.available(), reason="this CPU has no packed products")
@torch.inference_mode()
def test_a_mixture_is_packed_part_by_part(model: torch.nn.Module) -> None:
    mixture = Mixture([model, model], [0.5, 0.5])
    quick = prepack(mixture)
    assert quick is not mixture
    assert [any(isinstance(m, PackedLinear) for m in part.modules()) for part in quick.models] == [True, True]
    assert mixture.models == [model, model]
    source = Source(mask=torch.ones(2, 3, dtype=torch.bool), ids=torch.arange(6).view(2, 3))
    said = [one.step(torch.tensor([[2], [2]]), one.start(source, capacity=2))[0] for one in (mixture, quick)]
    assert_close(*said, rtol=0, atol=1e-5)


def test_nothing_is_packed_where_nothing_is_won() -> None:
    counted = small("ngram")
    assert prepack(counted) is counted
    assert not any(isinstance(part, PackedLinear) for part in prepack(small("gpt")).modules())  # float64, and small
