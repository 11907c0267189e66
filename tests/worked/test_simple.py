"""Worked example 1: a neural bigram model cannot predict which of two tokens follows, and learns their frequencies."""

from __future__ import annotations

import math

import torch

from seqwright import build
from seqwright.core.batch import Batch, Vocabulary
from seqwright.training.config import TrainingConfig
from seqwright.training.trainer import Trainer
from tests.contract.kinds import configured
from tests.training.tiny import MemoryStore, Same

from .golden import near

CÓ, LÀM, MỚI, ĂN = range(4)


def test_neural_bigram_reaches_its_entropy_bound() -> None:
    batch = Batch.of_text(torch.tensor([[CÓ, LÀM, MỚI, CÓ]]), torch.tensor([[LÀM, MỚI, CÓ, ĂN]]))
    torch.manual_seed(1)
    model = build.model(configured("neural-bigram", width=8), Vocabulary(size=4))
    config = TrainingConfig(steps=400, learning_rate=0.1, warmup_steps=0, weight_decay=0.0, device="cpu")
    Trainer(model, Same(batch), config, MemoryStore()).fit()
    model.eval()
    with torch.no_grad():
        scored, _ = model.score(batch)
        predictions = model(batch).argmax(-1)
    near(-scored.mean(), 0.3466)
    near(-scored.mean(), math.log(2) / 2, 3)
    assert (predictions == batch.target).double().mean() == 3 / 4
