"""Small models of every kind, built as users build them; a kind of `build.py` without a row here fails the suite."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from seqwright import build
from seqwright.core.batch import IGNORE, Batch, Vocabulary
from seqwright.core.protocols import Counted
from seqwright.models.config import ModelConfig

VOCABULARY = Vocabulary(size=11, unk=0, pad=1, sos=2, eos=3)
CONTEXT = 8

GPT: dict[str, object] = {"kind": "gpt", "width": 8, "layers": 2, "heads": 2, "context": CONTEXT}

LLAMA: dict[str, object] = GPT | {
    "positions": "rope",
    "rope_base": 500.0,
    "norm": "rmsnorm",
    "activation": "swiglu",
    "heads": 4,
    "kv_heads": 2,
    "bias": False,
    "tied": False,
}

SMALL: dict[str, dict[str, object]] = {
    "ngram": {"kind": "ngram", "order": 3, "smoothing": "add-k", "k": 0.1},
    "ngram kneser-ney": {"kind": "ngram", "order": 4},
    "ngram witten-bell": {"kind": "ngram", "order": 3, "smoothing": "witten-bell", "running": True},
    "ngram absolute": {"kind": "ngram", "order": 2, "smoothing": "absolute", "unknown": False},
    "ngram mle": {"kind": "ngram", "order": 2, "smoothing": "mle"},
    "ngram stupid back-off": {"kind": "ngram", "order": 3, "smoothing": "stupid-backoff"},
    "ngram adaptive": {"kind": "ngram", "order": 3, "adaptive": {"shortest": 1, "longest": 3, "strength": 2.0}},
    "arpa": {"kind": "arpa", "order": 2},
    "neural-bigram": {"kind": "neural-bigram", "width": 6},
    "feedforward": {"kind": "feedforward", "context_size": 3, "width": 7, "embedding": 5},
    "rnn": {"kind": "rnn", "width": 6, "layers": 2},
    "rnn relu": {"kind": "rnn", "width": 6, "activation": "relu"},
    "rnn sigmoid": {"kind": "rnn", "width": 6, "layers": 2, "activation": "sigmoid"},
    "rnn linear": {"kind": "rnn", "width": 6, "activation": "linear"},
    "rnn flatten": {"kind": "rnn", "width": 6, "readout": "flatten", "length": CONTEXT},
    "rnn without readout": {"kind": "rnn", "width": VOCABULARY.size, "embedding": 5, "readout": "none"},
    "lstm": {"kind": "lstm", "width": 6, "layers": 2, "embedding": 4},
    "lstm mogrifier": {"kind": "lstm", "width": 6, "layers": 2, "embedding": 4, "mogrifier_rounds": 3},
    "lstm tied": {"kind": "lstm", "width": 6, "tied": True},
    "lstm narrower tied": {"kind": "lstm", "width": 6, "layers": 3, "embedding": 4, "last_width": 4, "tied": True},
    "gru": {"kind": "gru", "width": 6, "layers": 2},
    "gpt": GPT,
    "gpt post": GPT | {"norm_position": "post", "activation": "relu"},
    "gpt sinusoidal": GPT | {"positions": "sinusoidal"},
    "gpt rotary": GPT | {"positions": "rope", "bias": False},
    "gpt unplaced": GPT | {"positions": "none", "tied": False},
    "gpt rms": GPT | {"norm": "rmsnorm"},
    "gpt swiglu": GPT | {"activation": "swiglu"},
    "gpt softmaxes": GPT | {"softmaxes": 3, "activation": "relu2"},
    "gpt grouped": GPT | {"heads": 4, "kv_heads": 2},
    "gpt multi-query": GPT | {"kv_heads": 1, "attention_window": 3},
    "gpt alibi": GPT | {"positions": "alibi"},
    "gpt relative": GPT | {"positions": "t5"},
    "gpt window": GPT | {"attention_window": 3},
    "gpt window alibi": GPT | {"attention_window": 3, "positions": "alibi", "norm_position": "post"},
    "gpt query-key norm": GPT | {"qk_norm": True, "positions": "rope"},
    "gpt plain": GPT | {"residual": False, "norm": "none", "scale_attention": False, "positions": "none"},
    "gpt as llama": LLAMA,
    "gpt flatten": GPT | {"tied": False, "readout": "flatten"},
}
SMALL["mixture"] = {
    "kind": "mixture",
    "weights": [0.5, 0.3, 0.2],
    "parts": {"1": SMALL["ngram adaptive"], "2": SMALL["gpt rotary"], "3": SMALL["lstm tied"]},
}


def configured(kind: str, *, task: str = "text", **options: object) -> ModelConfig:
    """The configuration of a [model] table."""
    return build.model_config({"kind": kind} | options, task=task)


def small(name: str, *, dtype: torch.dtype = torch.float64):
    """The model of a row, with weights far from symmetric, in evaluation mode."""
    torch.manual_seed(7)
    return trained(build.model(build.model_config(dict(SMALL[name])), VOCABULARY), dtype)


def trained(model, dtype: torch.dtype):
    if isinstance(model, torch.nn.Module):
        for parameter in model.parameters():  # fresh weights are so small that mistakes would hide
            torch.nn.init.normal_(parameter, std=0.4)
        return model.to(dtype).eval()
    if isinstance(model, Counted):
        model.fit(corpus())
    else:
        model.models = [trained(part, dtype) for part in model.models]
    return model


def corpus():
    """A stream of a few framed documents, for counted kinds."""
    generator = torch.Generator().manual_seed(3)
    ids: list[int] = []
    for length in (5, 9, 1, 7, 12):
        body = torch.randint(4, VOCABULARY.size, (length,), generator=generator).tolist()
        ids += [VOCABULARY.sos, *body, VOCABULARY.eos]
    return SimpleNamespace(ids=np.array(ids, np.uint16))


def batch(rows: int = 3, steps: int = CONTEXT, seed: int = 0) -> Batch:
    """Rows that begin with <sos>, every target real."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, VOCABULARY.size, (rows, steps + 1), generator=generator)
    ids[:, 0] = VOCABULARY.sos
    return Batch.of_text(ids[:, :-1], ids[:, 1:].contiguous())


def ragged(seed: int = 0) -> tuple[Batch, list[int]]:
    """A right-padded batch and the real length of each row."""
    counts = [CONTEXT, 2, 5]
    whole = batch(len(counts), CONTEXT, seed)
    input, target = whole.input.clone(), whole.target.clone()
    for row, count in enumerate(counts):
        input[row, count:] = VOCABULARY.pad
        target[row, count:] = IGNORE
    return Batch.of_text(input, target), counts
