"""Mixtures: weighted means, the laws of autoregressive models, saving and loading of the parts."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from seqwright.core.batch import Source
from seqwright.core.config import UserError
from seqwright.core.protocols import Autoregressive
from seqwright.decoding.options import SearchOptions
from seqwright.decoding.search import search
from seqwright.models.mixture import Mixture, Product
from seqwright.models.ngram.model import NGram
from tests.contract.kinds import VOCABULARY
from tests.contract.translators import pairs, translator
from tests.models.test_ngram import Cows


@pytest.fixture(scope="module")
def cows() -> list[Cows]:
    return [Cows(order=3), Cows(order=2, smoothing="add-k"), Cows(order=1, smoothing="mle")]


@pytest.fixture
def mixture(cows: list[Cows]) -> Mixture:
    return Mixture([each.model for each in cows], [0.5, 0.3, 0.2])


def test_mixture_is_the_weighted_average(cows: list[Cows], mixture: Mixture) -> None:
    batch = cows[0].batch("<sos> do cows eat corn or hay <eos>")
    parts = [each.model(batch).exp() for each in cows]
    expected = 0.5 * parts[0] + 0.3 * parts[1] + 0.2 * parts[2]
    assert_close(mixture(batch).exp(), expected)
    assert_close(mixture.score(batch)[0].exp(), expected.gather(-1, batch.target[..., None])[..., 0])
    assert isinstance(mixture, Autoregressive)


def test_step_select_and_cat_act_on_every_part(cows: list[Cows], mixture: Mixture) -> None:
    batch = cows[0].batch("<sos> do cows eat corn or hay <eos>")
    expected = mixture(batch)
    state = mixture.start(batch.source, capacity=9)
    for t in range(batch.input.size(1)):
        stepped, state = mixture.step(batch.input[:, t : t + 1], state.select(torch.tensor([0])))
        assert_close(stepped, expected[:, t])
    doubled = state.cat([mixture.start(Source.empty(1), capacity=9)])
    log_probs, _ = mixture.step(torch.tensor([[4], [2]]), doubled)
    assert_close(log_probs[1], expected[0, 0])


def test_carried_states_equal_one_long_window(cows: list[Cows], mixture: Mixture) -> None:
    batch = cows[0].batch("<sos> do cows eat corn or hay <eos>")
    state = mixture.start(batch.source, capacity=9)
    parts = []
    for text in ("<sos> do cows eat", "eat corn or hay <eos>"):
        part, state = mixture.score(cows[0].batch(text), state)
        parts.append(part)
    assert_close(torch.cat(parts, 1), mixture.score(batch)[0])


def test_a_product_is_the_geometric_mean(cows: list[Cows]) -> None:
    product = Product([each.model for each in cows], [0.5, 0.3, 0.2])
    batch = cows[0].batch("<sos> do cows eat corn or hay <eos>")
    parts = [each.model(batch).log_softmax(-1) for each in cows]
    expected = (0.5 * parts[0] + 0.3 * parts[1] + 0.2 * parts[2]).log_softmax(-1)
    assert_close(product(batch), expected)
    state = product.start(batch.source, capacity=9)
    for t in range(batch.input.size(1)):
        stepped, state = product.step(batch.input[:, t : t + 1], state)
        assert_close(stepped, expected[:, t])
    scored, after = product.score(batch)
    assert after is None
    assert_close(scored, expected.gather(-1, batch.target[..., None])[..., 0])
    _, state = product.score(cows[0].batch("<sos> do cows eat"), product.start(batch.source, capacity=9))
    rest, _ = product.score(cows[0].batch("eat corn or hay <eos>"), state)
    assert_close(rest, scored[:, 3:])
    vetoed = product._mix([torch.tensor([[0.0, -torch.inf]]), torch.tensor([[-torch.inf, 0.0]]), torch.zeros(1, 2)])
    assert vetoed.tolist() == [[-torch.inf, -torch.inf]]


def test_invalid_weights_are_refused(cows: list[Cows]) -> None:
    models = [each.model for each in cows]
    for weights in ([0.5, 0.5], [0.5, 0.6, 0.2], [1.5, -0.3, -0.2]):
        with pytest.raises(UserError, match="weight"):
            Mixture(models, weights)


def test_state_dict_holds_all_parts(cows: list[Cows], mixture: Mixture) -> None:
    batch = cows[0].batch("<sos> do cows eat corn or hay <eos>")
    fresh = Mixture([NGram(each.model.config, each.model.vocabulary) for each in cows], mixture.weights)
    assert not torch.equal(fresh(batch), mixture(batch))
    fresh.load_state_dict(mixture.state_dict())
    assert torch.equal(fresh(batch), mixture(batch))


@pytest.mark.parametrize("mean", [Mixture, Product])
@pytest.mark.parametrize("weights", [[1.0], [0.3, 0.7]])
@pytest.mark.parametrize("name", ["transformer", "gru additive"])
def test_a_model_alone_or_with_itself_is_the_model(name: str, weights: list[float], mean: type[Mixture]) -> None:
    model, batch = translator(name), pairs()
    together = mean([model] * len(weights), weights)
    with torch.no_grad():
        assert_close(together(batch), model(batch).log_softmax(-1))
        assert_close(together.score(batch)[0], model.score(batch)[0])
        facts = {"sos": VOCABULARY.sos, "eos": VOCABULARY.eos, "banned": [0, 1, 2]}
        mixed, alone = (search(one, batch.source, SearchOptions(max_tokens=8), **facts) for one in (together, model))
    assert [beam[0].ids for beam in mixed] == [beam[0].ids for beam in alone]


def test_tied_weights_are_saved_once() -> None:
    model = translator("transformer")
    mixture = Mixture([model, translator("gru dot")], [0.5, 0.5])
    first = [tensor for name, tensor in mixture.state_dict().items() if name.startswith("1.")]
    assert sum(tensor.numel() for tensor in first) == sum(parameter.numel() for parameter in model.parameters())
    fresh = Mixture([translator("transformer").apply(_blank), translator("gru dot").apply(_blank)], [0.5, 0.5])
    fresh.load_state_dict(mixture.state_dict())
    with torch.no_grad():
        assert torch.equal(fresh(pairs()), mixture(pairs()))


def _blank(module: torch.nn.Module) -> None:
    for parameter in module.parameters(recurse=False):
        torch.nn.init.zeros_(parameter)
