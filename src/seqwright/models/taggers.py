"""Readers of words: any encoder over tokens and their spelling, and a tag for each given word, alone or in a chain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.core.batch import Batch, EncoderSizes, Source
from seqwright.core.config import UserError
from seqwright.core.state import State
from seqwright.layers.char_cnn import CharCNN
from seqwright.layers.crf import CRFHead
from seqwright.layers.cross_entropy import upcast
from seqwright.layers.heads import ClassHead
from seqwright.layers.pooling import FirstSubword
from seqwright.layers.transformer_stack import StackConfig
from seqwright.models.classifiers import GPTSourceEncoder
from seqwright.models.encoder_model import EncoderModel, Tokens, body
from seqwright.models.encoders.bert import BertConfig, bert_encoder
from seqwright.models.encoders.bert import initialize as initialize_bert
from seqwright.models.encoders.bidirectional import BidirectionalConfig, BidirectionalEncoder
from seqwright.models.encoders.gpt import initialize as initialize_gpt
from seqwright.models.encoders.recurrent import ElmanConfig, GRUConfig, LSTMConfig, RecurrentConfig
from seqwright.models.transformer import TransformerEncoder, TransformerEncoderConfig, initialize


@dataclass(frozen=True, kw_only=True)
class TagConfig:
    """What a tagger has beside its encoder."""

    crf: bool = False
    """Whether the tags of a sentence are found together, each by its word and its neighbors (a conditional random
    field); otherwise each by itself."""
    char_features: int = 64
    """Filters of each width over the letters of a word; with its affixes and shape, they are added to its vector. 0 for
    none of them."""

    def check_tags(self) -> None:
        if self.char_features < 0:
            raise UserError(f"char_features must not be below 0, but is {self.char_features}.")


@dataclass(frozen=True, kw_only=True)
class RecurrentTaggerConfig(TagConfig, BidirectionalConfig):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_tags()


@dataclass(frozen=True, kw_only=True)
class ElmanTaggerConfig(RecurrentTaggerConfig):
    cell: ClassVar[type[RecurrentConfig]] = ElmanConfig


@dataclass(frozen=True, kw_only=True)
class LSTMTaggerConfig(RecurrentTaggerConfig):
    cell: ClassVar[type[RecurrentConfig]] = LSTMConfig


@dataclass(frozen=True, kw_only=True)
class GRUTaggerConfig(RecurrentTaggerConfig):
    cell: ClassVar[type[RecurrentConfig]] = GRUConfig


@dataclass(frozen=True, kw_only=True)
class TransformerTaggerConfig(TagConfig, TransformerEncoderConfig):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_tags()


@dataclass(frozen=True, kw_only=True)
class GPTTaggerConfig(TagConfig, StackConfig):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_tags()


@dataclass(frozen=True, kw_only=True)
class BertTaggerConfig(TagConfig, BertConfig):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_tags()


class CharTokenEmbedding(Tokens):
    """The vectors of ids and, where a word begins, of its letters."""

    def __init__(self, vocabulary: int, width: int, *, spelling: int):
        super().__init__(vocabulary, width)
        # A word's own vector begins small: at first its letters, which it shares with others, should speak for it.
        nn.init.normal_(self.weight, std=0.1)
        self.spelling = CharCNN(width, spelling)

    def forward(self, source: Source) -> Tensor:  # type: ignore[override]
        assert source.spelling is not None
        return super().forward(source) + self.spelling(source.spelling)  # (B, S, D)


class TagHead(ClassHead):
    """Each word's tag by itself."""

    def probabilities(self, hidden: Tensor, real: Tensor) -> Tensor:
        """(B, W, C)."""
        return upcast(self.readout(hidden)).softmax(-1)


class Tagger(EncoderModel):
    """A reader that answers for every given word."""

    def hidden(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        """(B, W, D), zeros where the target has more places than these rows have words: part of a batch is a batch."""
        hidden = self.body(self.pooled(batch.source))
        return F.pad(hidden, (0, 0, 0, batch.target.size(1) - hidden.size(1))), None

    def answer(self, source: Source) -> tuple[Tensor, Tensor]:
        """(B, W) tags and their probabilities; what stands behind a row's words means nothing."""
        return self.decide(self.body(self.pooled(source)), source)

    def decide(self, hidden: Tensor, source: Source) -> tuple[Tensor, Tensor]:
        """The answer that the vectors (B, W, D) of a source's words lead to."""
        assert source.word_starts is not None
        real = torch.arange(hidden.size(1), device=hidden.device) < source.word_starts.sum(1, keepdim=True)
        tags = self.head.predict(hidden, real)
        probabilities = self.head.probabilities(hidden, real)  # type: ignore[attr-defined]
        return tags, probabilities.gather(-1, tags.unsqueeze(-1)).squeeze(-1)


def recurrent_tagger(config: RecurrentTaggerConfig, sizes: EncoderSizes) -> Tagger:
    """A recurrent network in both directions (Huang et al. 2015; with letters, Ma & Hovy 2016)."""
    return tagging(config, sizes, BidirectionalEncoder(config), config.embedding or config.width)


def transformer_tagger(config: TransformerTaggerConfig, sizes: EncoderSizes) -> Tagger:
    """A Transformer's encoder."""
    encoder = TransformerEncoder(config)
    initialize(encoder, config.width)
    return tagging(config, sizes, encoder, config.width)


def gpt_tagger(config: GPTTaggerConfig, sizes: EncoderSizes) -> Tagger:
    """A GPT, which knows what stands before each word and not what follows."""
    encoder = GPTSourceEncoder(config)
    initialize_gpt(encoder, config.layers)
    model = tagging(config, sizes, encoder, config.width)
    initialize_gpt(model.embedding, config.layers)
    return model


def bert_tagger(config: BertTaggerConfig, sizes: EncoderSizes) -> Tagger:
    """A BERT, as it was pre-trained (Devlin et al. 2019, section 5.3)."""
    model = tagging(config, sizes, bert_encoder(config), config.width)
    initialize_bert(model.embedding)
    return model


def tagging(config: TagConfig, sizes: EncoderSizes, encoder: nn.Module, embedding: int) -> Tagger:
    """Embedding, encoder, the vector at which each word begins, and the head of its tag."""
    assert sizes.vocabulary is not None
    size = sizes.vocabulary.size
    tokens = (
        CharTokenEmbedding(size, embedding, spelling=config.char_features)
        if config.char_features
        else Tokens(size, embedding)
    )
    words = FirstSubword(encoder.width)  # type: ignore[arg-type]
    layers, width = body(words.width, ())
    head = CRFHead(width, sizes.answers.count) if config.crf else TagHead(width, sizes.answers.count)
    return Tagger(tokens, encoder, words, layers, head)
