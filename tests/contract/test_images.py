"""The laws on every kind that sees."""

from __future__ import annotations

import pytest
import torch

from seqwright import build
from seqwright.studies.training_laws import TRAINING_LAWS
from seqwright.training.accumulation import select_rows

from .images import ANSWERS, IMAGE_ENCODERS, seeing


def test_every_kind_has_a_row() -> None:
    assert set(build.task_spec("images").models) == {str(row["kind"]) for row in IMAGE_ENCODERS.values()}


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("name", IMAGE_ENCODERS)
def test_batched_is_alone(name: str, answer: str) -> None:
    model, batch = seeing(name, answer)
    with torch.no_grad():
        together = model(batch)
        alone = torch.cat([model(select_rows(batch, torch.tensor([row]))) for row in range(batch.rows)])
    assert torch.allclose(together, alone, atol=1e-12)
    assert together.shape[: batch.target.dim()] == batch.target.shape


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("law", TRAINING_LAWS)
def test_training_law(law: str, answer: str) -> None:
    assert TRAINING_LAWS[law](*seeing("vit", answer)) <= 1e-9


def test_hidden_patches_are_not_seen() -> None:
    """Whatever stands where a patch is hidden changes no answer."""
    model, batch = seeing("vit", "inpaint")
    with torch.no_grad():
        before = model(batch)
        batch.source.features[batch.source.segments == 1] += 5.0
        assert torch.equal(model(batch), before)


@torch.no_grad()
def test_only_a_class_token_stands_in_front() -> None:
    for name, answer, more in (("vit", "class", 1), ("vit", "frames", 0), ("vit mean", "class", 0)):
        model, given = seeing(name, answer)
        assert model.encoded(given.source).vectors.size(1) == given.source.mask.size(1) + more
    model, given = seeing("vit")
    before = model(given)
    model.encoder.token[0] += 1
    assert (model(given) - before).abs().max() > 1e-3
