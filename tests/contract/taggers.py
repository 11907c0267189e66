"""Small taggers of every kind; a kind of `build.py` without a row here fails the suite."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from seqwright import build
from seqwright.core.batch import Batch, EncoderSizes, OutputSpec
from seqwright.data.tagged.formats import Sentence
from seqwright.data.tagged.sentences import EncodedSentences, encode_sentences
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig, train

CONTEXT = 32

LSTM: dict[str, object] = {"kind": "lstm", "width": 6, "layers": 2, "embedding": 5, "char_features": 3}
TRANSFORMER: dict[str, object] = {"kind": "transformer", "width": 8, "layers": 2, "heads": 2, "context": CONTEXT}

TAGGERS: dict[str, dict[str, object]] = {
    "rnn": {"kind": "rnn", "width": 6, "bidirectional": False, "char_features": 0},
    "lstm": LSTM,
    "lstm chain": LSTM | {"crf": True},
    "gru": {"kind": "gru", "width": 6, "char_features": 2},
    "transformer": TRANSFORMER | {"char_features": 0},
    "transformer chain": TRANSFORMER | {"char_features": 2, "crf": True, "positions": "rope"},
    "gpt": {"kind": "gpt", "width": 8, "layers": 2, "heads": 2, "context": CONTEXT, "char_features": 2},
    "bert": TRANSFORMER | {"kind": "bert", "char_features": 2},
    "perceptron": {"kind": "perceptron", "epochs": 3},
}
NAMES = ["n", "v", "p", "d"]
WORKED = (
    "time/n flies/v like/p an/d arrow/n",
    "time/n flies/n like/v an/d arrow/n",
    "flies/n fly/v with/p their/n wings/n",
    "with/p time/n you/n will/v see/v",
)
"""Worked example 10: two sentences of the same words, one of which is wrong for any tagger that does not guess."""


def worked(*lines: str) -> list[Sentence]:
    split = [[word.split("/") for word in line.split()] for line in lines or WORKED]
    return [Sentence(tuple(word for word, _ in line), tuple(tag for _, tag in line)) for line in split]


def tokenizer(kind: Any = "byte-bpe") -> Tokenizer:
    """Cuts some words in several: `flies` and `wings`, and whatever it has not learned."""
    size = 270 if kind == "byte-bpe" else None
    return train(TokenizerConfig(kind=kind, size=size), [" ".join(sentence.words) for sentence in worked()])


def encoded() -> EncodedSentences:
    """Sentences of five, two and one words."""
    sentences = worked(*WORKED[:2], "fly/v arrow/n", "wings/n")
    return encode_sentences(sentences, tokenizer(), {name: n for n, name in enumerate(NAMES)})


def sentences() -> Batch:
    return encoded().batch(np.arange(4))


def fresh(name: str) -> Any:
    """The model of a row as it is built."""
    sizes = EncoderSizes(answers=OutputSpec(kind="tags", count=len(NAMES)), vocabulary=tokenizer().vocabulary)
    return build.model(build.model_config(dict(TAGGERS[name]), task="tagged"), sizes, task="tagged")


def tagger(name: str) -> Any:
    """The model of a row, in float64 and evaluation mode, with weights far from symmetric; a counted one fitted."""
    torch.manual_seed(7)
    model = fresh(name)
    if TAGGERS[name]["kind"] in build.COUNTED:
        model.fit(encoded())
        return model
    for parameter in model.parameters():  # fresh weights are so small that mistakes would hide
        torch.nn.init.normal_(parameter, std=0.4)
    return model.double().eval()
