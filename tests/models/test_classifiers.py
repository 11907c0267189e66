"""Classifiers and other encoder models: convolution windows, initialization, mixtures, invalid options."""

from __future__ import annotations

import warnings

import pytest
import torch

from seqwright import build
from seqwright.core.batch import EncoderSizes, OutputSpec, Vocabulary
from seqwright.core.config import UserError
from seqwright.models.encoder_mixture import EncoderMixture, EncoderMixtureConfig, weighted_mean
from seqwright.models.encoder_model import TOKEN_STD, body
from seqwright.models.encoders.cnn import CNNConfig, CNNEncoder
from seqwright.models.encoders.recurrent import BidirectionalConfig, BidirectionalEncoder


@pytest.mark.parametrize("kernel", [2, 3, 7])
def test_convolution_windows_are_centered_with_zero_padding(kernel: int) -> None:
    torch.manual_seed(1)
    encoder = CNNEncoder(CNNConfig(embedding=3, channels=(4,), kernels=(kernel,))).double()
    x, layer = torch.randn(1, 5, 3, dtype=torch.double), encoder.towers[0][0]  # type: ignore[index]
    vectors = encoder(x, torch.ones(1, 5, dtype=torch.bool)).vectors
    for position in range(5):
        window = torch.zeros(kernel, 3, dtype=torch.double)
        for offset in range(kernel):
            at = position + offset - (kernel - 1) // 2
            if 0 <= at < 5:
                window[offset] = x[0, at]
        expected = torch.einsum("ock,kc->o", layer.weight, window) + layer.bias
        torch.testing.assert_close(vectors[0, position], expected.relu())


def test_a_fixed_length_has_the_same_windows_for_every_text() -> None:
    """Padding is convolved like tokens, and no window is masked."""
    torch.manual_seed(1)
    config = CNNConfig(embedding=3, channels=(4,), kernels=(3,), stride=2, length=9)
    encoder = CNNEncoder(config).double()
    x = torch.randn(1, 5, 3, dtype=torch.double)
    encoded = encoder(x, torch.tensor([[True, True, True, False, False]]))
    alone = encoder(x[:, :3], torch.ones(1, 3, dtype=torch.bool))
    assert encoded.vectors.shape == (1, 4, 4)
    assert config.output_length == 4
    assert encoded.mask.all()
    torch.testing.assert_close(encoded.vectors, alone.vectors)


@pytest.mark.parametrize("layers", [1, 2])
def test_dropout_of_a_recurrent_encoder_is_on_input_output_and_between_layers(layers: int) -> None:
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder = BidirectionalEncoder("lstm", BidirectionalConfig(width=40, layers=layers, dropout=0.25))
    inputs: list[torch.Tensor] = []
    encoder.network.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    outputs = encoder(torch.ones(20, 10, 40), torch.ones(20, 10, dtype=torch.bool)).vectors
    for vectors in (inputs[0], outputs):
        assert (vectors == 0).float().mean().item() == pytest.approx(0.25, abs=0.03)
    assert encoder.network.dropout == (0.25 if layers > 1 else 0)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"kind": "cnn", "pooling": "flatten"}, "go together"),
        ({"kind": "cnn", "length": 20, "pooling": "flatten"}, "one kernel"),
        ({"kind": "cnn", "kernels": []}, "lists of sizes"),
        ({"kind": "cnn", "kernels": [3, 0]}, "lists of sizes"),
        ({"kind": "cnn", "kernels": [7], "channels": [4, 4], "stride": 3, "length": 20, "pooling": "flatten"}, "fits"),
        ({"kind": "lstm", "pooling": "backward", "bidirectional": False}, "bidirectional = true"),
        ({"kind": "gru", "width": 7}, "halves the width"),
        ({"kind": "mlp", "hidden": [0]}, "widths of layers"),
        ({"kind": "mlp", "embedding": 0}, "embedding"),
        ({"kind": "transformer", "pooling": "last"}, "pooling"),
    ],
)
def test_invalid_options_are_refused(table: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build.model_config(table, task="labeled")


@pytest.mark.parametrize("kind", ["lstm", "transformer", "gpt", "bert"])
def test_negative_char_features_are_refused(kind: str) -> None:
    build.model_config({"kind": kind, "char_features": 0}, task="tagged")
    with pytest.raises(UserError, match="char_features must not be below 0"):
        build.model_config({"kind": kind, "char_features": -1}, task="tagged")


def test_body_is_dropout_linear_and_relu() -> None:
    layers, width = body(8, (1, 4), 0.5)
    assert width == 4
    assert [type(part).__name__ for part in layers] == ["Dropout", *("Linear", "ReLU", "Dropout") * 2]
    assert len(body(8, ())[0]) == 0
    build.model_config({"kind": "mlp", "hidden": [1]}, task="labeled")


def fresh(kind: str, task: str) -> torch.nn.Module:
    torch.manual_seed(3)
    answers = {"labeled": OutputSpec(kind="class", count=3), "tagged": OutputSpec(kind="tags", count=3)}
    count = OutputSpec(kind="tokens", count=50)
    sizes = EncoderSizes(answers=answers.get(task, count), vocabulary=Vocabulary(size=50, sos=0, eos=1))
    options = {"kind": kind, "width": 64, "heads": 4, "layers": 2, "context": 16}
    return build.model(build.model_config(options, task=task), sizes, task=task)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "task"),
    [("bert", "masked"), ("bert", "labeled"), ("bert", "tagged"), ("gpt", "labeled"), ("gpt", "tagged")],
)
def test_initialization_is_that_of_the_papers(kind: str, task: str) -> None:
    """Normal with standard deviation 0.02, biases 0; GPT-2's residual output projections divided by √(2 · layers)."""
    model, checked = fresh(kind, task), 0
    for name, part in model.named_modules():
        if not isinstance(part, torch.nn.Linear | torch.nn.Embedding) or (name == "head.readout" and task != "masked"):
            continue
        residual = kind == "gpt" and name.endswith(("attention.output", "feed_forward.down"))
        if part.weight.numel() >= 1000:
            assert part.weight.std().item() == pytest.approx(0.01 if residual else 0.02, rel=0.1), name
            checked += 1
        if isinstance(part, torch.nn.Linear) and part.bias is not None:
            assert not part.bias.any(), name
    assert checked >= 10


def image_model() -> torch.nn.Module:
    torch.manual_seed(3)
    sizes = EncoderSizes(answers=OutputSpec(kind="class", count=3), features=12, length=6)
    config = build.model_config({"kind": "vit", "width": 64, "heads": 4, "layers": 2}, task="images")
    return build.model(config, sizes, task="images")


@pytest.mark.parametrize("task", ["labeled", "tagged", "images"])
def test_transformers_have_glorot_s_initialization(task: str) -> None:
    model = image_model() if task == "images" else fresh("transformer", task)
    parts = model.encoder.named_modules()  # type: ignore[union-attr,operator]
    maps = [part for name, part in parts if name.endswith(("feed_forward.up", "feed_forward.down"))]
    assert len(maps) == 4
    for part in maps:
        assert part.weight.abs().max().item() == pytest.approx((6 / sum(part.weight.shape)) ** 0.5, rel=0.01)
        assert not part.bias.any()


def test_norm_eps_of_a_bert_is_that_of_its_head_too() -> None:
    sizes = EncoderSizes(answers=OutputSpec(kind="tokens", count=50), vocabulary=Vocabulary(size=50))
    config = build.model_config({"kind": "bert", "width": 8, "heads": 2, "norm_eps": 0.25}, task="masked")
    model = build.model(config, sizes, task="masked")
    epsilons = {part.eps for part in model.modules() if isinstance(part, torch.nn.LayerNorm)}
    assert epsilons == {0.25}


@pytest.mark.parametrize("task", ["masked", "labeled"])
def test_token_embeddings_of_recurrent_encoders_are_initialized_small(task: str) -> None:
    answers = OutputSpec(kind="tokens", count=50) if task == "masked" else OutputSpec(kind="class", count=3)
    sizes = EncoderSizes(answers=answers, vocabulary=Vocabulary(size=50))
    model = build.model(build.model_config({"kind": "lstm", "width": 64}, task=task), sizes, task=task)  # type: ignore[arg-type]
    assert model.embedding.weight.std().item() == pytest.approx(TOKEN_STD, rel=0.1)


def test_arithmetic_and_geometric_means_of_distributions() -> None:
    probs = torch.tensor([[[0.8, 0.2], [0.5, 0.5]], [[0.2, 0.8], [0.9, 0.1]]], dtype=torch.float64)  # (M, B, C)
    weights = torch.tensor([0.75, 0.25])
    arithmetic = weighted_mean(probs.log(), weights, "arithmetic").exp()
    torch.testing.assert_close(arithmetic, torch.tensor([[0.65, 0.35], [0.6, 0.4]], dtype=torch.float64))
    geometric = weighted_mean(probs.log(), torch.tensor([0.5, 0.5]), "geometric").exp()
    torch.testing.assert_close(geometric, torch.tensor([[0.5, 0.5], [0.75, 0.25]], dtype=torch.float64))


def test_mixtures_need_parts_and_weights_for_each() -> None:
    with pytest.raises(UserError, match="parts are tables"):
        EncoderMixtureConfig(weights=(1.0,), parts=["a"])
    models = [fresh("bert", "labeled") for _ in range(2)]
    for parts, weights in ((models[:1], (1.0,)), (models, (1.0,)), (models, (0.5, 0.25, 0.25))):
        with pytest.raises(UserError, match="two or more parts and a weight for each"):
            EncoderMixture(parts, EncoderMixtureConfig(weights=weights, parts={}))
    with pytest.raises(UserError, match="no weight of a mixture is negative"):
        EncoderMixture(models, EncoderMixtureConfig(weights=(1.25, -0.25), parts={}))
    assert EncoderMixture(models, EncoderMixtureConfig(weights=(1.0, 0.0), parts={})).context == 16


@pytest.mark.parametrize("length", [None, 9])
def test_pooled_convolution_equals_max_pool_of_convolution(length: int | None) -> None:
    config = CNNConfig(embedding=5, channels=(4,), kernels=(3,), pool_size=2, length=length)
    encoder = CNNEncoder(config).double()
    x = torch.randn(2, 9, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    padding = 1 if length is None else 0
    convolved = torch.relu(encoder.towers[0][0](torch.nn.functional.pad(x.transpose(1, 2), (padding, padding))))
    pooled = torch.nn.functional.max_pool1d(convolved, 2, ceil_mode=length is None).transpose(1, 2)
    encoded = encoder(x, torch.ones(2, 9, dtype=torch.bool))
    torch.testing.assert_close(encoded.vectors, pooled)
    assert encoded.mask.shape == pooled.shape[:2]
    assert config.output_length in (None, pooled.size(1))
