"""Readers of whole texts: any encoder, what is pooled of it, layers of its own and an answer.

The lectures' five classifiers of film reviews are combinations of these; their parameter counts are tested.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from seqwright.core.batch import EncoderSizes
from seqwright.core.config import UserError, check_shares, check_sizes
from seqwright.layers.encoder import EncoderOutput
from seqwright.layers.pooling import POOLINGS, ConcatPooling, Flatten, Pooling
from seqwright.layers.transformer_stack import StackConfig
from seqwright.models.encoder_model import EncoderModel, Tokens, body, head_of
from seqwright.models.encoders.bert import BertConfig, bert_encoder
from seqwright.models.encoders.bert import initialize as initialize_bert
from seqwright.models.encoders.bidirectional import BidirectionalConfig, BidirectionalEncoder
from seqwright.models.encoders.cnn import CNNConfig, CNNEncoder
from seqwright.models.encoders.gpt import GPTEncoder
from seqwright.models.encoders.gpt import initialize as initialize_gpt
from seqwright.models.encoders.recurrent import ElmanConfig, GRUConfig, LSTMConfig, RecurrentConfig
from seqwright.models.transformer import TransformerEncoder, TransformerEncoderConfig, initialize

SPREAD = 0.1
"""Deviation of fresh token vectors, near enough that a few epochs move them anywhere: PyTorch's 1.0 costs 7 points of
accuracy on SST-2."""


@dataclass(frozen=True, kw_only=True)
class ClassifierHeadConfig:
    """What follows the encoder of a classifier."""

    hidden: tuple[int, ...] = ()
    """Widths of fully connected layers between pooling and answer."""
    head_dropout: float = 0.0
    """Share dropped of what is pooled and of each layer after it."""

    def check_answer(self) -> None:
        check_shares(self, "head_dropout")
        if any(size < 1 for size in self.hidden):
            raise UserError(f"hidden lists the widths of layers, at least 1 each, not {list(self.hidden)}.")


@dataclass(frozen=True, kw_only=True)
class MLPConfig(ClassifierHeadConfig):
    embedding: int = 128
    """Size of the token vectors."""
    length: int = 128
    """Tokens of a text; all their vectors, zeros behind, are one input."""
    hidden: tuple[int, ...] = (256,)
    """Widths of fully connected layers between pooling and answer."""

    def __post_init__(self) -> None:
        check_sizes(self, "embedding", "length")
        self.check_answer()


@dataclass(frozen=True, kw_only=True)
class CNNClassifierConfig(ClassifierHeadConfig, CNNConfig):
    pooling: Literal["max", "mean", "attention", "flatten"] | tuple[Literal["max", "mean", "attention"], ...] = "max"
    """What is made of all positions, one or several side by side; flatten keeps every one and needs length."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_answer()
        if (self.pooling == "flatten") != (self.length is not None):
            raise UserError('pooling = "flatten" and length go together; give both or neither.')


Recurrent = Literal["last", "backward", "final", "max", "mean", "attention"]


@dataclass(frozen=True, kw_only=True)
class RecurrentClassifierConfig(ClassifierHeadConfig, BidirectionalConfig):
    pooling: Recurrent | tuple[Recurrent, ...] = "max"
    """What is made of all positions, one or several side by side: last is where each direction ended, backward where
    the backward one did, final the vector of the last token."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_answer()
        if "backward" in self.pooling and not self.bidirectional:
            raise UserError('pooling = "backward" reads the backward direction; set bidirectional = true.')


@dataclass(frozen=True, kw_only=True)
class ElmanClassifierConfig(RecurrentClassifierConfig):
    cell: ClassVar[type[RecurrentConfig]] = ElmanConfig


@dataclass(frozen=True, kw_only=True)
class LSTMClassifierConfig(RecurrentClassifierConfig):
    cell: ClassVar[type[RecurrentConfig]] = LSTMConfig


@dataclass(frozen=True, kw_only=True)
class GRUClassifierConfig(RecurrentClassifierConfig):
    cell: ClassVar[type[RecurrentConfig]] = GRUConfig


Attentive = Literal["first", "mean", "max", "attention"]


@dataclass(frozen=True, kw_only=True)
class TransformerClassifierConfig(ClassifierHeadConfig, TransformerEncoderConfig):
    pooling: Attentive | tuple[Attentive, ...] = "mean"
    """What is made of all positions, one or several side by side; first is <sos>, which stands for the text."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_answer()


Causal = Literal["final", "mean", "max", "attention"]


@dataclass(frozen=True, kw_only=True)
class GPTClassifierConfig(ClassifierHeadConfig, StackConfig):
    pooling: Causal | tuple[Causal, ...] = "final"
    """What is made of all positions, one or several side by side; final is the last token, which has seen all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_answer()


@dataclass(frozen=True, kw_only=True)
class BertClassifierConfig(ClassifierHeadConfig, BertConfig):
    pooling: Attentive | tuple[Attentive, ...] = "first"
    """What is made of all positions, one or several side by side; first is <sos>, which stands for the text."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_answer()


class Unread(nn.Module):
    """Token vectors as they are: the reader of a network that flattens them."""

    def __init__(self, width: int, length: int):
        super().__init__()
        self.width, self.context = width, length

    def forward(self, x: Tensor, mask: Tensor) -> EncoderOutput:
        return EncoderOutput(x, mask)


class GPTSourceEncoder(GPTEncoder):
    """A causal encoder as a reader: what stands behind a text is never seen by it."""

    causal = True

    def forward(self, x: Tensor, mask: Tensor) -> EncoderOutput:  # type: ignore[override]
        return EncoderOutput(super().forward(x)[0], mask)


def mlp(config: MLPConfig, sizes: EncoderSizes) -> EncoderModel:
    """All token vectors as one, then fully connected layers."""
    encoder = Unread(config.embedding, config.length)
    return answering(config, sizes, encoder, config.embedding, Flatten(config.embedding, config.length))


def cnn(config: CNNClassifierConfig, sizes: EncoderSizes) -> EncoderModel:
    """Convolutions, then what is pooled of them."""
    encoder = CNNEncoder(config)
    flat = Flatten(encoder.width, config.positions) if config.pooling == "flatten" else None
    return answering(config, sizes, encoder, config.embedding, flat)


def recurrent(config: RecurrentClassifierConfig, sizes: EncoderSizes) -> EncoderModel:
    """A recurrent network, then what is pooled of it."""
    return answering(config, sizes, BidirectionalEncoder(config), config.embedding or config.width)


def transformer(config: TransformerClassifierConfig, sizes: EncoderSizes) -> EncoderModel:
    """A Transformer's encoder, then what is pooled of it."""
    encoder = TransformerEncoder(config)
    initialize(encoder, config.width)
    return answering(config, sizes, encoder, config.width)


def bert(config: BertClassifierConfig, sizes: EncoderSizes) -> EncoderModel:
    """A BERT, read at its first token (Devlin et al. 2019)."""
    model = answering(config, sizes, bert_encoder(config), config.width)
    initialize_bert(model.embedding)
    return model


def gpt(config: GPTClassifierConfig, sizes: EncoderSizes) -> EncoderModel:
    """A GPT, read at its last token (Radford et al. 2018)."""
    encoder = GPTSourceEncoder(config)
    initialize_gpt(encoder, config.layers)
    model = answering(config, sizes, encoder, config.width)
    initialize_gpt(model.embedding, config.layers)
    return model


def answering(
    config: Any, sizes: EncoderSizes, encoder: nn.Module, embedding: int, pooling: Pooling | None = None
) -> EncoderModel:
    """Embedding, encoder, pooling as the configuration names it, layers and head."""
    assert sizes.vocabulary is not None
    if pooling is None:
        names = (config.pooling,) if isinstance(config.pooling, str) else config.pooling
        parts = [POOLINGS[name](encoder.width) for name in names]  # type: ignore[arg-type]
        pooling = parts[0] if len(parts) == 1 else ConcatPooling(*parts)
    layers, width = body(pooling.width, config.hidden, config.head_dropout)
    tokens = Tokens(sizes.vocabulary.size, embedding, segments=sizes.segments)
    for table in tokens.modules():
        nn.init.normal_(table.weight, std=SPREAD)  # type: ignore[arg-type]
    return EncoderModel(tokens, encoder, pooling, layers, head_of(sizes.answers, width))
