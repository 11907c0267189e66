"""Masked language models with bidirectional recurrent encoders: BERT's objective for Elman, LSTM and GRU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from seqwright.core.batch import EncoderSizes
from seqwright.layers.heads import MLMHead
from seqwright.layers.pooling import NoPooling
from seqwright.models.classifiers import SPREAD
from seqwright.models.encoder_model import EncoderModel, Tokens
from seqwright.models.encoders.bidirectional import BidirectionalConfig, BidirectionalEncoder
from seqwright.models.encoders.recurrent import ElmanConfig, GRUConfig, LSTMConfig, RecurrentConfig


@dataclass(frozen=True, kw_only=True)
class ElmanMLMConfig(BidirectionalConfig):
    cell: ClassVar[type[RecurrentConfig]] = ElmanConfig


@dataclass(frozen=True, kw_only=True)
class LSTMMLMConfig(BidirectionalConfig):
    cell: ClassVar[type[RecurrentConfig]] = LSTMConfig


@dataclass(frozen=True, kw_only=True)
class GRUMLMConfig(BidirectionalConfig):
    cell: ClassVar[type[RecurrentConfig]] = GRUConfig


def recurrent_mlm(config: BidirectionalConfig, sizes: EncoderSizes) -> EncoderModel:
    """A newly initialized recurrent masked language model, its head tied to the embedding."""
    assert sizes.vocabulary is not None
    width = config.embedding or config.width
    embedding = Tokens(sizes.vocabulary.size, width)
    nn.init.normal_(embedding.weight, std=SPREAD)
    head = MLMHead(config.width, sizes.answers.count, embedding=width)
    head.readout.weight = embedding.weight
    return EncoderModel(embedding, BidirectionalEncoder(config), NoPooling(config.width), nn.Identity(), head)
