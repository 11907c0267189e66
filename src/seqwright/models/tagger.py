"""Tagger: token and character embedding, any encoder, a tag for each word, independently or by a CRF."""

from __future__ import annotations

from collections.abc import Callable
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
from seqwright.layers.encoder import EncoderConfig
from seqwright.layers.heads import ClassHead, HeadConfig
from seqwright.layers.pooling import FirstSubword
from seqwright.models.encoder_model import TOKEN_STD, EncoderModel, Tokens, body


@dataclass(frozen=True, kw_only=True)
class TaggerHeadConfig(HeadConfig):
    """Options of a tagging head, and of the character features that go with it."""

    name: ClassVar[str] = "tagged"

    crf: bool = False
    """Linear-chain CRF (Lafferty et al. 2001) over the tags of a sentence; otherwise each tag independently."""
    char_features: int = 64
    """Filters of each width of a character CNN (Ma & Hovy 2016); with affixes and word shape, its output is added to
    the word's embedding. 0 for none of them."""

    def __post_init__(self) -> None:
        if self.char_features < 0:
            raise UserError(f"char_features must not be below 0, but is {self.char_features}.")

    def check(self, encoder: EncoderConfig) -> None:
        """Refuses encoders whose output is not aligned with their input."""
        if not encoder.aligned:
            raise UserError("a tagger needs a hidden state for each token: set stride = 1 and leave length out.")


class CharTokenEmbedding(Tokens):
    """Token embedding plus, at the first token of a word, features of its characters."""

    def __init__(self, vocabulary: int, width: int, *, char_features: int):
        super().__init__(vocabulary, width)
        # Word embeddings start small: at first the characters, which words share, should decide.
        nn.init.normal_(self.weight, std=TOKEN_STD)
        self.spelling = CharCNN(width, char_features)

    def forward(self, source: Source) -> Tensor:  # type: ignore[override]
        assert source.spelling is not None
        return super().forward(source) + self.spelling(source.spelling)  # (B, S, D)


class TagHead(ClassHead):
    """Softmax classifier of each word, independently."""

    def probabilities(self, hidden: Tensor, real: Tensor) -> Tensor:
        """(B, W, C)."""
        return upcast(self.readout(hidden)).softmax(-1)


class Tagger(EncoderModel):
    """Encoder model with an output for each word."""

    def hidden(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        """(B, W, D), zero-padded to the words of the target: part of a batch may have shorter rows."""
        hidden = self.body(self.pooled(batch.source))
        return F.pad(hidden, (0, 0, 0, batch.target.size(1) - hidden.size(1))), None

    def tag(self, source: Source) -> tuple[Tensor, Tensor]:
        """(B, W) tags and their probabilities; entries behind a row's words are undefined."""
        return self.decode(self.body(self.pooled(source)), source)

    def decode(self, hidden: Tensor, source: Source) -> tuple[Tensor, Tensor]:
        """Tags and their probabilities from the hidden states (B, W, D) of words."""
        assert source.word_starts is not None
        real = torch.arange(hidden.size(1), device=hidden.device) < source.word_starts.sum(1, keepdim=True)
        tags = self.head.predict(hidden, real)
        probabilities = self.head.probabilities(hidden, real)  # type: ignore[attr-defined]
        return tags, probabilities.gather(-1, tags.unsqueeze(-1)).squeeze(-1)


def tagger(
    config: EncoderConfig,
    head: TaggerHeadConfig,
    make_encoder: Callable[[EncoderConfig], nn.Module],
    sizes: EncoderSizes,
) -> Tagger:
    """A newly initialized tagger: BiLSTM-CRF (Huang et al. 2015), BERT (Devlin et al. 2019, section 5.3), …"""
    assert sizes.vocabulary is not None
    vocabulary, count = sizes.vocabulary.size, sizes.answers.count
    encoder = make_encoder(config)
    tokens = (
        CharTokenEmbedding(vocabulary, config.input_width, char_features=head.char_features)
        if head.char_features
        else Tokens(vocabulary, config.input_width)
    )
    layers, width = body(config.output_width, ())
    output = CRFHead(width, count) if head.crf else TagHead(width, count)
    model = Tagger(tokens, encoder, FirstSubword(width), layers, output, causal=config.causal)
    config.initialize(tokens)
    return model
