"""From configurations to objects: the only place where kinds are listed, and where verbs and models meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from seqwright.batch import Vocabulary
from seqwright.config import Reader, UserError, did_you_mean
from seqwright.data.pairs import Documents, Prefixes
from seqwright.data.rows import Rows
from seqwright.data.stream import Stream
from seqwright.data.windows import Windows
from seqwright.interface import Feed
from seqwright.models.gpt import GPTConfig, gpt
from seqwright.models.ngram import NGram, NGramConfig
from seqwright.models.recurrent import ElmanConfig, GRUConfig, LSTMConfig, recurrent
from seqwright.models.window import SimpleConfig, WindowConfig, simple, window

MODELS: dict[str, tuple[type, Callable[[Any, Vocabulary], Any]]] = {
    "ngram": (NGramConfig, NGram),
    "simple": (SimpleConfig, simple),
    "window": (WindowConfig, window),
    "rnn": (ElmanConfig, recurrent),
    "lstm": (LSTMConfig, recurrent),
    "gru": (GRUConfig, recurrent),
    "gpt": (GPTConfig, gpt),
}

COUNTED = ("ngram",)
"""Kinds that are estimated by counting, without gradients."""

FEEDS: dict[str, Callable[..., Feed]] = {
    "windows": Windows,
    "rows": Rows,
    "prefixes": Prefixes,
    "documents": Documents,
}

DEFAULT_MODEL = "gpt"
DEFAULT_LENGTH = 128
"""Tokens that a step reads in each row, for models that see any length."""


def model_config(table: Mapping[str, Any], reader: Reader | None = None) -> Any:
    """The configuration that a [model] table describes; its `kind` picks the class."""
    own = reader or Reader("[model]")
    rest = {key: value for key, value in table.items() if key != "kind"}
    kind = table.get("kind", DEFAULT_MODEL)
    config = None
    if kind in MODELS:
        config = own.read(MODELS[kind][0], rest, "model")
    else:
        own.problem("model.kind", f"no model kind '{kind}'.{did_you_mean(str(kind), MODELS)}")
    if reader is None:
        own.finish()
    return config


def kind_of(config: Any) -> str:
    """The word that picks this configuration's class."""
    return next(kind for kind, (cls, _) in MODELS.items() if type(config) is cls)


def model(config: Any, vocabulary: Vocabulary) -> Any:
    """The model of a configuration, with fresh weights."""
    return MODELS[kind_of(config)][1](config, vocabulary)


def feed(
    stream: Stream, *, examples: str | None, context: int | None, length: int | None, batch: int, seed: int, kind: str
) -> Feed:
    """Training data for a model of this kind and context, cut into the examples that the recipe names."""
    if examples is None:
        examples = "rows" if kind in ("rnn", "lstm", "gru") and context is None else "windows"
    if examples == "rows" and context is not None:
        raise UserError(
            f'examples = "rows" carries a state from step to step, but {kind} sees at most {context} tokens at a time;'
            ' use data.examples = "windows".'
        )
    length = length or context or DEFAULT_LENGTH
    if context is not None and length > context:
        raise UserError(f"training.length is {length}, but the model sees at most {context} tokens; lower it.")
    if examples == "windows" and stream.positions < length:
        key = "training.length" if context is None else "model.context"
        raise UserError(
            f"the training text has {stream.positions:,} tokens, fewer than one window of {length}; "
            f"set {key} to {max(1, stream.positions // 4)} or so, or give more text."
        )
    return FEEDS[examples](stream, context=length, batch=batch, seed=seed)
