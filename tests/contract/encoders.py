"""Small readers of every kind; a kind of `build.py` without a row here fails the suite."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from seqwright import build
from seqwright.core.batch import IGNORE, Batch, EncoderSizes, OutputSpec, Source
from seqwright.models.bag.unpadded import Unpadded

from .kinds import CONTEXT, VOCABULARY

TRANSFORMER: dict[str, object] = {"kind": "transformer", "width": 8, "layers": 2, "heads": 2, "context": CONTEXT}
GPT: dict[str, object] = {"kind": "gpt", "width": 8, "layers": 2, "heads": 2, "context": CONTEXT}
LSTM: dict[str, object] = {"kind": "lstm", "width": 6, "layers": 2, "embedding": 5}
CNN: dict[str, object] = {"kind": "cnn", "embedding": 5, "channels": [4]}

CLASSIFIERS: dict[str, dict[str, object]] = {
    "mlp": {"kind": "mlp", "embedding": 5, "length": CONTEXT, "hidden": [7, 4]},
    "cnn": CNN,
    "cnn of two layers": CNN | {"channels": [4, 3], "kernels": [3], "stride": 2, "pooling": "mean"},
    "cnn pooled": CNN | {"channels": [4, 3], "kernels": [2, 3], "pool_size": 2},
    "cnn pooled flatten": CNN | {"kernels": [3], "pool_size": 2, "pooling": "flatten", "length": CONTEXT},
    "cnn attentive": CNN | {"kernels": [2, 5], "pooling": ["max", "attention"]},
    "cnn flatten": CNN | {"kernels": [3], "stride": 2, "pooling": "flatten", "length": CONTEXT, "hidden": [6]},
    "rnn": {"kind": "rnn", "width": 6, "bidirectional": False, "pooling": "last"},
    "lstm": LSTM,
    "lstm backward": LSTM | {"pooling": "backward"},
    "lstm pooled": LSTM | {"pooling": ["last", "max", "mean", "attention"], "hidden": [5]},
    "gru": {"kind": "gru", "width": 6, "pooling": "final"},
    "transformer": TRANSFORMER,
    "transformer first": TRANSFORMER | {"pooling": "first", "norm_position": "post", "positions": "learned"},
    "transformer rotary": TRANSFORMER | {"pooling": ["mean", "attention"], "positions": "rope"},
    "gpt": GPT,
    "gpt pooled": GPT | {"pooling": ["final", "max"], "positions": "alibi"},
}

BERT: dict[str, object] = {"kind": "bert", "width": 8, "layers": 2, "heads": 2, "context": CONTEXT}
CLASSIFIERS["bert"] = BERT
CLASSIFIERS["bert pooled"] = BERT | {"pooling": ["mean", "max"], "norm_position": "pre", "positions": "rope"}

MASKED: dict[str, dict[str, object]] = {
    "bert": BERT,
    "bert pre": BERT | {"norm_position": "pre", "activation": "swiglu", "norm": "rmsnorm"},
    "bert rotary": BERT | {"positions": "rope", "kv_heads": 1},
    "rnn": {"kind": "rnn", "width": 6},
    "lstm": LSTM,
    "gru": {"kind": "gru", "width": 6},
    "transformer": TRANSFORMER,
}

ANSWERS = {"class": 3, "multilabel": 4, "regression": 1}


def classifier(name: str, kind: Any = "class", segments: int = 1) -> Any:
    """The model of a row, in float64 and evaluation mode, with weights far from symmetric."""
    torch.manual_seed(7)
    sizes = EncoderSizes(answers=OutputSpec(kind=kind, count=ANSWERS[kind]), vocabulary=VOCABULARY, segments=segments)
    return _far(build.model(build.model_config(dict(CLASSIFIERS[name]), task="labeled"), sizes, task="labeled"))


def filler(name: str) -> Any:
    """The masked language model of a row, likewise."""
    torch.manual_seed(7)
    sizes = EncoderSizes(answers=OutputSpec(kind="tokens", count=VOCABULARY.size), vocabulary=VOCABULARY)
    return _far(build.model(build.model_config(dict(MASKED[name]), task="masked"), sizes, task="masked"))


def _far(model: Any) -> Any:
    for parameter in model.parameters():  # fresh weights are so small that mistakes would hide
        torch.nn.init.normal_(parameter, std=0.4)
    return model.double().eval()


class LabeledCorpus:
    """Labeled texts for a counted model, as concatenated ids."""

    def __init__(self) -> None:
        batches = [texts(rows=1, seed=seed) for seed in range(60)]
        ids, segments = (
            torch.cat([getattr(batch.source, name)[0] for batch in batches]).numpy() for name in ("ids", "segments")
        )
        self.sources = Unpadded(ids, np.full(60, CONTEXT), segments, None)
        self.row_targets = torch.cat([batch.target for batch in batches])


def bag(segments: int = 2) -> Any:
    """The counted kind, counted."""
    sizes = EncoderSizes(answers=OutputSpec(kind="class", count=3), vocabulary=VOCABULARY, segments=segments)
    model = build.model(build.model_config({"kind": "bag", "order": 2}, task="labeled"), sizes, task="labeled")
    model.fit(LabeledCorpus())
    return model


def mixture() -> Any:
    """The kind that is made: a network and the bag."""
    part = {"vocabulary": {"size": VOCABULARY.size}, "data": {}}
    parts = {"1": part | {"model": LSTM}, "2": part | {"model": {"kind": "bag", "order": 2}}}
    table = {"kind": "mixture", "weights": [0.7, 0.5], "mean": "geometric", "parts": parts}
    sizes = EncoderSizes(answers=OutputSpec(kind="class", count=3), vocabulary=VOCABULARY, segments=2)
    model = build.model(build.model_config(table, task="labeled"), sizes, task="labeled")
    model.models = [classifier("lstm", segments=2), bag()]
    return model


def texts(kind: str = "class", rows: int = 4, seed: int = 0) -> Batch:
    """Sources of different lengths, pairs of texts, and what to answer."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([CONTEXT - 2 * row for row in range(rows)]).clamp(min=1)
    mask = torch.arange(CONTEXT) < lengths.unsqueeze(1)
    ids = torch.randint(3, VOCABULARY.size, (rows, CONTEXT), generator=generator)
    segments = (torch.arange(CONTEXT) >= 3).long().expand(rows, -1).contiguous()
    target = torch.randint(0, ANSWERS[kind], (rows,), generator=generator)
    if kind != "class":
        target = torch.rand(rows, ANSWERS[kind], generator=generator).double()
        target = target.round() if kind == "multilabel" else target
    return Batch.of_source(Source(mask=mask, ids=ids, segments=segments), target)


def blanks() -> Batch:
    """The same texts, with some of their tokens to guess."""
    given = texts()
    assert given.source.ids is not None
    target = torch.where(given.source.mask & (given.source.ids % 2 == 0), given.source.ids, IGNORE)
    return Batch.of_source(given.source, target)
