"""Batches padded to few shapes: the same loss and gradients, shapes on the grid, and nothing beyond the context."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from seqwright.core.batch import Batch
from seqwright.training.config import TrainingConfig
from seqwright.training.objective import Objective
from seqwright.training.shapes import FirstBatches, few_shapes, lengths_vary, padding

from ..contract.encoders import CLASSIFIERS, blanks, classifier, filler, texts
from ..contract.kinds import batch, small
from ..contract.translators import TRANSLATORS, pairs, translator


def cut(whole: Batch, source: int, target: int) -> Batch:
    """The batch with shorter texts."""
    tensors = {name: tensor[:, :source] for name, tensor in whole.source.named_tensors()}
    return Batch(
        source=type(whole.source)(**tensors),
        input=whole.input[:, :target],
        target=whole.target[:, :target] if target else whole.target,
    )


def loss_and_gradients(model: Any, given: Batch) -> list[torch.Tensor]:
    model.zero_grad()
    total, count, _ = Objective(model)(given, None)
    total.backward()
    gradients = [torch.zeros(()) if p.grad is None else p.grad.clone() for p in model.parameters()]
    return [total.detach(), count, *gradients]


@pytest.mark.parametrize("name", TRANSLATORS)
def test_padding_changes_neither_loss_nor_gradients_of_a_translator(name: str) -> None:
    model, given = translator(name), cut(pairs(rows=17), 3, 3)
    padded = few_shapes(given, model.context)
    assert (padded.rows, padded.source.mask.size(1), padded.input.size(1)) == (20, 4, 4)
    assert_close(loss_and_gradients(model, padded), loss_and_gradients(model, given))


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_padding_changes_neither_loss_nor_gradients_of_a_classifier(name: str) -> None:
    model, given = classifier(name), cut(texts(rows=3), 6, 0)
    padded = few_shapes(given, None)
    assert (padded.rows, padded.source.mask.size(1)) == (3, 8)
    assert_close(loss_and_gradients(model, padded), loss_and_gradients(model, given))


def test_no_side_is_padded_beyond_the_context_and_few_rows_stay() -> None:
    padded = few_shapes(cut(pairs(rows=3), 5, 3), 6)
    assert (padded.source.mask.size(1), padded.input.shape) == (6, (3, 4))


def test_shapes_are_few() -> None:
    mask = torch.ones(1, 200, dtype=torch.bool)
    whole = Batch.of_source(type(pairs().source)(mask=mask, ids=mask.long()), torch.zeros(1).long())
    lengths = {few_shapes(cut(whole, n, 0), None).source.mask.size(1) for n in range(1, 201)}
    assert sorted(lengths) == [*range(4, 33, 4), *range(40, 65, 8), *range(80, 129, 16), *range(160, 225, 32)]


def test_targets_by_position_and_texts_without_a_source_are_left_alone() -> None:
    for given in (blanks(), batch()):
        assert few_shapes(given, None) is given


def test_compiled_steps_of_windows_have_as_many_rows_in_the_last_batch_of_an_epoch() -> None:
    for model, whole in ((small("gpt"), batch(5)), (filler("bert"), blanks())):
        short = whole.mapped(lambda tensor: tensor[:2])
        padded = padding(model, TrainingConfig(batch_size=whole.rows, compile="inductor"))(short)
        assert [tensor.shape for _, tensor in padded.named_tensors()] == [t.shape for _, t in whole.named_tensors()]
        assert padded.count == short.count
        assert_close(loss_and_gradients(model, padded), loss_and_gradients(model, short))
        assert padding(model, TrainingConfig(batch_size=whole.rows))(short) is short  # captured besides
    lengths = cut(pairs(rows=3), 3, 3)  # those of translators stay on their grid
    assert few_shapes(lengths, None, rows=5).input.shape == (3, 4)


class Growing:
    """A feed whose batches have 1, 2, 3, … targets."""

    steps_per_epoch, carried = 6, False

    def batch(self, step: int) -> Batch:
        return cut(pairs(rows=3), 3, 1 + step)


def test_the_first_batches_stand_for_a_feed_of_varying_lengths() -> None:
    assert lengths_vary(Growing())
    first = FirstBatches(Growing())
    assert [first.batch(step).input.size(1) for step in range(6)] == [1, 2, 3, 4, 1, 2]
    assert not lengths_vary(SimpleNamespace(steps_per_epoch=6, carried=False, batch=lambda step: batch()))
