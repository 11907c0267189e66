"""Small encoder-decoders of every kind; a kind of `build.py` without a row here fails the suite."""

from __future__ import annotations

import torch

from seqwright import build
from seqwright.core.batch import Batch, Source, Vocabularies, Vocabulary

from .kinds import CONTEXT, VOCABULARY, batch, trained

OTHER = Vocabulary(size=9, unk=0, pad=1, sos=2, eos=3)

TRANSFORMER: dict[str, object] = {"kind": "transformer", "width": 8, "layers": 2, "heads": 2, "context": CONTEXT}
GRU: dict[str, object] = {"kind": "gru", "width": 6}

TRANSLATORS: dict[str, dict[str, object]] = {
    "transformer": TRANSFORMER,
    "transformer post": TRANSFORMER | {"norm_position": "post", "activation": "gelu", "tied": "none"},
    "transformer learned": TRANSFORMER | {"positions": "learned", "decoder_layers": 1},
    "transformer rotary": TRANSFORMER | {"positions": "rope", "bias": False, "tied": "two-way"},
    "transformer unplaced": TRANSFORMER | {"positions": "none"},
    "gpt": {"kind": "gpt", "width": 8, "layers": 2, "heads": 2, "context": 2 * CONTEXT},
    "gpt rotary": {
        "kind": "gpt",
        "width": 8,
        "heads": 4,
        "kv_heads": 2,
        "context": 2 * CONTEXT,
        "positions": "rope",
    },
    "transformer alibi": TRANSFORMER | {"positions": "alibi", "attention_window": 3},
    "transformer relative": TRANSFORMER | {"positions": "t5", "norm_position": "post"},
    "transformer llama": TRANSFORMER
    | {"positions": "rope", "norm": "rmsnorm", "activation": "swiglu", "kv_heads": 1, "qk_norm": True},
    "transformer window": TRANSFORMER | {"attention_window": 2},
    "rnn": {"kind": "rnn", "width": 6},
    "lstm": {"kind": "lstm", "width": 6, "layers": 2, "embedding": 5},
    "lstm fed": {"kind": "lstm", "width": 6, "layers": 2, "input_feeding": True},
    "gru bottleneck": GRU | {"attention": "none"},
    "gru parameter-free": GRU | {"attention": "parameter-free", "bidirectional": False},
    "gru dot": GRU | {"attention": "dot"},
    "gru scaled-dot": GRU | {"attention": "scaled-dot", "layers": 2},
    "gru general": GRU | {"attention": "general", "input_feeding": True},
    "gru concat": GRU | {"attention": "concat"},
    "gru additive": GRU | {"attention": "additive", "tied": "none"},
}

PARTS = {"1": TRANSLATORS["transformer post"], "2": TRANSLATORS["gru additive"], "3": TRANSLATORS["lstm fed"]}
MIXED: dict[str, dict[str, object]] = {
    "mixture": {"kind": "mixture", "weights": [0.5, 0.3, 0.2], "parts": PARTS},
    "product": {"kind": "mixture", "weights": [0.6, 0.5, 0.2], "mean": "geometric", "parts": PARTS},
}
"""Made of what was trained: no laws of training."""


def sizes(*, joint: bool = True) -> Vocabularies:
    return Vocabularies(source=VOCABULARY if joint else OTHER, target=VOCABULARY, joint=joint)


def translator(name: str, *, joint: bool = True):
    """The model of a row, in float64 and evaluation mode, with weights far from symmetric."""
    torch.manual_seed(7)
    table = dict((TRANSLATORS | MIXED)[name])
    return trained(
        build.model(build.model_config(table, task="pairs"), sizes(joint=joint), task="pairs"), torch.float64
    )


def pairs(rows: int = 3, steps: int = CONTEXT, seed: int = 0) -> Batch:
    """Targets without padding, each with a source of another length."""
    given = batch(rows, steps, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    lengths = torch.tensor([CONTEXT - 3 * row for row in range(rows)]).clamp(min=1)
    ids = torch.randint(3, OTHER.size, (rows, CONTEXT), generator=generator)
    mask = torch.arange(CONTEXT) < lengths.unsqueeze(1)
    source = Source(mask=mask, ids=ids.masked_fill(~mask, 1))
    return Batch(source=source, input=given.input, target=given.target)
