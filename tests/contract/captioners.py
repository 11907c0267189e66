"""Small captioners of every kind; a kind of `build.py` without a row here fails the suite."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from seqwright import build
from seqwright.core.batch import Batch, Source, Vocabularies

from .kinds import CONTEXT, VOCABULARY
from .translators import pairs

NUMBERS, PATCHES = 12, 6

CAPTIONERS: dict[str, dict[str, object]] = {
    "transformer": {"kind": "transformer", "width": 8, "layers": 2, "heads": 2, "context": CONTEXT},
    "rnn": {"kind": "rnn", "width": 6},
    "lstm": {"kind": "lstm", "width": 6, "layers": 2, "embedding": 5},
    "gru": {"kind": "gru", "width": 6, "attention": "none", "bidirectional": False},
}


def captioner(name: str) -> Any:
    """The model of a row, in float64 and evaluation mode, with weights far from symmetric."""
    torch.manual_seed(7)
    sizes = Vocabularies(source=None, target=VOCABULARY, features=NUMBERS)
    model = build.model(build.model_config(dict(CAPTIONERS[name]), task="captions"), sizes, task="captions")
    for parameter in model.parameters():  # fresh weights are so small that mistakes would hide
        torch.nn.init.normal_(parameter, std=0.4)
    return model.double().eval()


def captioned(rows: int = 3, seed: int = 0) -> Batch:
    """Images of as many patches, each with a caption."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.rand(rows, PATCHES, NUMBERS, generator=generator, dtype=torch.float64) * 2 - 1
    source = Source(mask=torch.ones(rows, PATCHES, dtype=torch.bool), features=features)
    return replace(pairs(rows), source=source)
