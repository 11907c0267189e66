"""Layer-wise learning-rate decay, freezing and gradual unfreezing; the auxiliary language modeling loss."""

from __future__ import annotations

import pytest
import torch

from seqwright import build
from seqwright.core.batch import Batch, EncoderSizes, OutputSpec, Source, Vocabulary
from seqwright.core.config import UserError
from seqwright.studies.training_laws import _MemoryStore as Kept
from seqwright.studies.training_laws import _RotatedFeed as Rotated
from seqwright.training.config import TrainingConfig
from seqwright.training.layer_freezing import LayerFreezing, depths, lr_scales
from seqwright.training.objective import Objective
from seqwright.training.optimizer import optimizer
from seqwright.training.trainer import Trainer
from seqwright.training.weights import weights

VOCABULARY = Vocabulary(size=11, unk=0, pad=1, sos=2, eos=3)
KINDS: dict[str, dict[str, object]] = {
    "gpt": {"kind": "gpt", "width": 8, "heads": 2, "layers": 3, "context": 8, "hidden": [5]},
    "lstm": {"kind": "lstm", "width": 8, "layers": 3, "bidirectional": False},
    "bert": {"kind": "bert", "width": 8, "heads": 2, "layers": 3, "context": 8, "pooling": "attention"},
}


def classifier(kind: str):
    torch.manual_seed(1)
    sizes = EncoderSizes(answers=OutputSpec(kind="class", count=3), vocabulary=VOCABULARY)
    model = build.model(build.model_config(KINDS[kind], task="labeled"), sizes, task="labeled")
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model.double().eval()


def batch() -> Batch:
    ids = torch.randint(4, 11, (4, 8), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(8) < torch.tensor([8, 5, 3, 1]).unsqueeze(1)
    return Batch.of_source(Source(mask=mask, ids=ids), torch.tensor([0, 1, 2, 1]))


@pytest.mark.parametrize("kind", KINDS)
def test_depth_of_every_parameter(kind: str) -> None:
    by_name = depths(classifier(kind))
    assert set(by_name.values()) == {0, 1, 2, 3, 4}
    for name, depth in by_name.items():
        if name.startswith(("head.", "body.", "pooling.")):
            assert depth == 4
        elif name.startswith("embedding."):
            assert depth == 0
        elif name.startswith("encoder.norm."):
            assert depth == 3  # with the last layer
    layers = {"gpt": "encoder.blocks.{}.", "bert": "encoder.blocks.{}.", "lstm": "_l{}"}[kind]
    for layer in range(3):
        assert {depth for name, depth in by_name.items() if layers.format(layer) in name} == {layer + 1}


def test_depth_of_head_without_layers() -> None:
    sizes = EncoderSizes(answers=OutputSpec(kind="class", count=3), vocabulary=VOCABULARY)
    config = build.model_config({"kind": "mlp", "length": 8, "hidden": [4]}, task="labeled")
    by_name = depths(build.model(config, sizes, task="labeled"))
    assert {name.split(".")[0]: depth for name, depth in by_name.items()} == {"embedding": 0, "body": 1, "head": 1}


def test_learning_rate_decays_from_layer_to_layer() -> None:
    model, config = classifier("lstm"), TrainingConfig(layer_decay=0.5)
    scale = lr_scales(model, 0.5)
    assert scale["head.readout.weight"] == 1
    assert [scale[f"encoder.network.weight_hh_l{n}"] for n in (2, 1, 0)] == [0.5, 0.25, 0.125]
    assert scale["embedding.weight"] == 0.0625
    by_parameter = {p: group["lr_scale"] for group in optimizer(model, config).param_groups for p in group["params"]}
    assert {name: by_parameter[p] for name, p in model.named_parameters()} == scale
    assert {group["lr_scale"] for group in optimizer(model, TrainingConfig()).param_groups} == {1.0}


@pytest.mark.parametrize(
    ("options", "frozen"),
    [
        ({}, [0, 0, 0]),
        ({"freeze": 0}, [1, 1, 1]),
        ({"freeze": 2}, [3, 3, 3]),
        ({"freeze": "all"}, [4, 4, 4]),
        ({"unfreeze_every": 1.0}, [4, 3, 0]),
        ({"unfreeze_every": 1.0, "freeze": 1}, [4, 3, 2]),
    ],
)
def test_frozen_layers_are_a_function_of_the_step(options: dict[str, object], frozen: list[int]) -> None:
    model = classifier("gpt")
    freezing = LayerFreezing(model, TrainingConfig(**options), steps_per_epoch=10)  # type: ignore[arg-type]
    assert [freezing.frozen(step) for step in (0, 10, 40)] == frozen
    for step, first_trainable in ((0, frozen[0]), (40, frozen[2]), (0, frozen[0])):
        freezing(step)
        by_name = depths(model)
        assert all(p.requires_grad == (by_name[name] >= first_trainable) for name, p in model.named_parameters())


def test_parameters_without_gradient_are_not_unfrozen() -> None:
    model = classifier("gpt")
    model.embedding.weight.requires_grad_(False)
    LayerFreezing(model, TrainingConfig(), steps_per_epoch=1)(0)
    assert not model.embedding.weight.requires_grad


@pytest.mark.parametrize(
    "options", [{"unfreeze_every": 0.5}, {"freeze": 1, "layer_decay": 0.5}, {"auxiliary_loss_weight": 0.5}], ids=str
)
def test_resume_with_layer_freezing_is_uninterrupted(options: dict[str, object]) -> None:
    config = TrainingConfig(steps=4, checkpoint_every=2, warmup_steps=0, device="cpu", **options)  # type: ignore[arg-type]

    def trainer(model) -> Trainer:
        return Trainer(model, Rotated(batch()), config, Kept())

    uninterrupted, interrupted, resumed = (trainer(classifier("gpt")) for _ in range(3))
    uninterrupted.fit()
    interrupted.steps = 2
    interrupted.fit()
    resumed.restore(*interrupted.store.last)  # type: ignore[attr-defined]
    resumed.fit()
    for name, tensor in weights(uninterrupted.model).items():
        assert torch.equal(tensor, weights(resumed.model)[name]), name


def test_freezing_more_layers_than_there_are_is_refused() -> None:
    with pytest.raises(UserError, match="there are 3 layers"):
        LayerFreezing(classifier("gpt"), TrainingConfig(freeze=4), steps_per_epoch=1)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["gpt", "lstm"])
def test_auxiliary_loss_is_the_mean_nll_of_each_row(kind: str) -> None:
    model, inputs = classifier(kind), batch()
    plain, _, _ = Objective(model)(inputs)
    both, count, _ = Objective(model, auxiliary=0.5)(inputs)
    assert count == 4
    expected = 0.0
    for row, length in enumerate(inputs.source.mask.sum(1).tolist()):
        ids = inputs.source.ids[row : row + 1, :length]
        vectors = model.encoded(Source(mask=torch.ones_like(ids, dtype=torch.bool), ids=ids)).vectors[0]
        log_probs = (vectors @ model.embedding.weight.T).log_softmax(-1)[:-1]
        if length > 1:
            expected -= float(log_probs.gather(1, ids[0, 1:, None]).mean())
    assert float(both - plain) == pytest.approx(0.5 * expected, abs=1e-9)


def test_auxiliary_loss_refuses_a_bidirectional_encoder() -> None:
    with pytest.raises(UserError, match="a causal encoder"):
        Objective(classifier("bert"), auxiliary=0.5)


@torch.no_grad()
def test_auxiliary_loss_of_a_batch_is_the_sum_over_rows() -> None:
    model, inputs = classifier("gpt"), batch()
    objective = Objective(model, auxiliary=0.5)
    parts = sum(objective(inputs.rows_of(torch.tensor([row])))[0] for row in range(4))
    assert float(objective(inputs)[0]) == pytest.approx(float(parts), abs=1e-9)
