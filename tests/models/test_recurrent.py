"""Recurrent language models: initialization, dropout, activations, and invalid options."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from seqwright import build
from seqwright.core.batch import Batch, Source, Vocabulary
from seqwright.core.config import UserError
from seqwright.layers.recurrent import dropout
from seqwright.models.config import ModelConfig
from seqwright.models.language_model import LanguageModel
from tests.contract.kinds import configured

BATCH = Batch.of_text(torch.tensor([[1, 2, 3, 4]]), torch.tensor([[2, 3, 4, 5]]))


def fresh(config: ModelConfig) -> LanguageModel:
    torch.manual_seed(0)
    return build.model(config, Vocabulary(size=9))


def test_forget_bias_initializes_the_forget_gates() -> None:
    model = fresh(configured("lstm", width=4, layers=2, forget_bias=1.5))
    for layer in range(2):
        biases = [model.get_parameter(f"encoder.network.{name}_l{layer}") for name in ("bias_ih", "bias_hh")]
        assert_close(sum(bias[4:8] for bias in biases), torch.full((4,), 1.5))


def test_embedding_size_may_differ_from_width() -> None:
    model = fresh(configured("gru", width=6, embedding=3))
    assert model.embedding.weight.shape == (9, 3)
    assert model(BATCH).shape == (1, 4, 9)


def test_flatten_readout_may_step_beyond_the_context() -> None:
    """On a GPU, finished rows of a search are stepped along with the others."""
    model = fresh(configured("rnn", width=4, readout="flatten", length=3)).eval()
    state = model.start(Source.empty(2), capacity=8)
    for _ in range(3):
        _, state = model.step(torch.ones(2, 1, dtype=torch.long), state)
    seen = state.seen.clone()
    for _ in range(2):
        _, state = model.step(torch.ones(2, 1, dtype=torch.long), state)
    assert torch.equal(state.seen, seen)


def test_tied_model_has_small_initial_logits() -> None:
    model = fresh(configured("lstm", width=64, tied=True))
    assert model.head.readout.weight is model.embedding.weight
    assert model(BATCH).std() < 1


@pytest.mark.parametrize("tied", [False, True])
def test_token_std_is_that_of_the_embedding_and_of_the_output_layer(tied: bool) -> None:
    torch.manual_seed(0)
    config = configured("lstm", width=64, tied=tied, token_std=0.058)
    model: LanguageModel = build.model(config, Vocabulary(size=500))
    assert model.embedding.weight.std().item() == pytest.approx(0.058, rel=0.05)
    assert model.head.readout.weight.std().item() == pytest.approx(0.058, rel=0.05)
    assert model.encoder.network.weight_hh_l0.std().item() == pytest.approx(64**-0.5 / 3**0.5, rel=0.05)  # PyTorch's
    with pytest.raises(UserError, match="token_std must not be below 0"):
        configured("lstm", token_std=-0.1)


@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
def test_dropout_is_active_in_training_only(kind: str) -> None:
    model = fresh(configured(kind, width=6, layers=2, dropout=0.5))
    assert not torch.equal(model(BATCH), model(BATCH))
    model.eval()
    assert torch.equal(model(BATCH), model(BATCH))


def test_dropout_is_never_applied_to_recurrent_connections() -> None:
    """With all inputs dropped, the hidden state is deterministic and not zero."""
    model = fresh(configured("lstm", width=6))
    model.encoder.input_dropout = 1.0
    initial = model.start(Source.empty(1), capacity=4)
    after = []
    for _ in range(2):
        _, state = model.hidden(BATCH, initial)
        assert state is not None
        after.append(dict(state.named_tensors()))
    assert_close(after[0], after[1], atol=0, rtol=0)
    assert (after[0]["hidden"] != 0).any()


@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
def test_weight_dropout_masks_hidden_to_hidden_weights_once_per_batch(kind: str) -> None:
    """Equal to the plain network with the masked and rescaled weights, drawn in the order of the layers."""
    sizes = {"width": 6, "last_width": 4, "layers": 2}
    dropped, plain = fresh(configured(kind, weight_dropout=0.5, **sizes)), fresh(configured(kind, **sizes))
    torch.manual_seed(5)
    masks = [F.dropout(torch.ones_like(p), 0.5) for name, p in plain.named_parameters() if "weight_hh" in name]
    torch.manual_seed(5)
    logits = dropped(BATCH)
    weights = [p for name, p in plain.named_parameters() if "weight_hh" in name]
    with torch.no_grad():
        for weight, mask in zip(weights, masks, strict=True):
            weight *= mask
    assert_close(logits, plain(BATCH))
    assert not torch.equal(logits, dropped(BATCH))
    logits.sum().backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad for name, p in dropped.named_parameters() if "weight_hh" in name]
    for gradient, mask in zip(gradients, masks, strict=True):
        assert gradient is not None
        assert not gradient[mask == 0].any()


def test_locked_dropout_has_one_mask_for_all_positions_of_a_row() -> None:
    x = torch.ones(3, 5, 40)
    dropped = dropout(x, 0.5, training=True, locked=True)
    assert torch.equal(dropped, dropped[:, :1].expand_as(x))
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert not torch.equal(dropped[0], dropped[1])
    assert torch.equal(dropout(x, 0.5, training=False, locked=True), x)
    model = fresh(configured("lstm", width=30, dropout=0.5, locked_dropout=True, output_dropout=0.25))
    hidden, activations, _ = model.hidden_and_activations(BATCH)
    kept = (hidden != 0).squeeze(0)
    assert torch.equal(kept, kept[:1].expand_as(kept))
    assert_close(hidden[0][kept], activations[0][kept] / 0.75)


def test_embedding_dropout_drops_token_types_wherever_they_occur() -> None:
    model = fresh(configured("lstm", width=6, embedding_dropout=0.5))
    inputs: list[torch.Tensor] = []
    model.encoder.network.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    ids = torch.arange(9).repeat(2, 3)
    model.hidden(Batch.of_text(ids, ids))
    expected = model.embedding(ids)
    scale = (inputs[0] / expected).round(decimals=4)
    assert torch.equal(scale, scale[:1, :9, :1].repeat(2, 3, 6))  # one factor for each of the nine types
    assert set(scale.unique().tolist()) == {0.0, 2.0}
    model.eval()
    model.hidden(Batch.of_text(ids, ids))
    assert torch.equal(inputs[1], expected)


def test_elman_cells_without_a_fused_kernel_refuse_weight_dropout() -> None:
    with pytest.raises(UserError, match="activation tanh or relu, not sigmoid"):
        configured("rnn", activation="sigmoid", weight_dropout=0.5)


@pytest.mark.parametrize("activation", ["tanh", "relu", "sigmoid", "linear"])
def test_elman_recurrence_with_each_activation(activation: str) -> None:
    model = fresh(configured("rnn", width=3, activation=activation)).double()  # type: ignore[arg-type]
    function = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid, "linear": lambda x: x}[activation]
    w = {name.removesuffix("_l0"): p for name, p in model.get_submodule("encoder.network").named_parameters()}
    hidden, _ = model.hidden(BATCH)
    h = torch.zeros(3, dtype=torch.float64)
    for t, x in enumerate(model.embedding(BATCH.input[0])):
        h = function(w["weight_ih"] @ x + w["bias_ih"] + w["weight_hh"] @ h + w["bias_hh"])
        assert_close(hidden[0, t], h)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "width must be at least 1"),
        ({"layers": 0}, "layers must be at least 1"),
        ({"readout": "flatten", "length": -1}, "length must be at least 1"),
        ({"tied": True, "embedding": 5}, "they are 5 and 256"),
        ({"tied": True, "readout": "flatten", "length": 4}, "set tied = false"),
        ({"readout": "flatten"}, "give both or neither"),
        ({"length": 4}, "give both or neither"),
        ({"weight_dropout": 1.0}, "weight_dropout must be at least 0 and below 1"),
        ({"width": 4, "last_width": 5}, "more than width 4"),
    ],
)
def test_invalid_recurrent_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        configured("lstm", **options)  # type: ignore[arg-type]
