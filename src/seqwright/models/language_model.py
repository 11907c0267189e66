"""Language model: token embedding, any causal encoder, language modeling head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.core.batch import Batch, Source, Vocabulary
from seqwright.core.config import UserError, check_not_negative, check_shares, check_sizes
from seqwright.core.state import State
from seqwright.layers.encoder import CausalEncoder, EncoderConfig, RecurrentActivations, SegmentEncoder, last_real
from seqwright.layers.flatten import PrefixFlatten
from seqwright.layers.heads import HeadConfig, HiddenHead, TokenHead
from seqwright.layers.mixture_of_softmaxes import MixtureOfSoftmaxes
from seqwright.layers.recompute import Recompute


@dataclass(frozen=True, kw_only=True)
class LMHeadConfig(HeadConfig):
    """Options of a language modeling head."""

    name: ClassVar[str] = "text"

    tied: bool = False
    """Tie the output layer to the embedding (Press & Wolf 2017); needs an embedding as wide as the hidden states."""
    readout: Literal["each", "flatten", "none"] = "each"
    """Input of the output layer: each position's hidden state (each), or all so far, flattened and zero-padded to
    `length`, or to the context (flatten, the lectures' way 2); none: hidden states, as wide as the vocabulary, are the
    logits."""
    length: int | None = None
    """Fixed number of positions of readout = "flatten"."""
    softmaxes: int = 1
    """Mixture of softmaxes (Yang et al. 2018): number of softmaxes, each of a latent state of its own; 15 suits the
    Penn Treebank. Costs as many times the output layer."""
    latent_dropout: float = 0.0
    """Dropout rate of the latent states of a mixture of softmaxes (Yang et al. 2018, who use 0.29)."""
    token_std: float | None = None
    """Standard deviation of the initial embedding, and of the output layer where it is not tied (Zaremba et al. 2014:
    uniform in ±0.1, so 0.058). By default the encoder's; of recurrent networks 1, or embedding^-0.5 where tied."""

    def __post_init__(self) -> None:
        check_sizes(self, "length", "softmaxes")
        check_shares(self, "latent_dropout")
        check_not_negative(self, "token_std")
        if self.latent_dropout and self.softmaxes == 1:
            raise UserError("latent_dropout is of a mixture of softmaxes: set softmaxes above 1, or leave it out.")
        if self.softmaxes > 1 and self.readout != "each":
            raise UserError('softmaxes read each position\'s hidden state: set readout = "each", or softmaxes = 1.')
        if self.tied and self.readout == "flatten":
            raise UserError('readout = "flatten" has length × width inputs and cannot be tied: set tied = false.')
        if self.tied and self.readout == "none":
            raise UserError('readout = "none" has no output layer to tie: set tied = false.')

    def check(self, encoder: EncoderConfig) -> None:
        """Refuses options that do not fit the encoder's."""
        if self.tied and encoder.input_width != encoder.output_width:
            raise UserError(
                f"tied = true needs embedding = width (or = last_width of rnn, lstm and gru); they are"
                f" {encoder.input_width} and {encoder.output_width}."
            )
        bounded = "length" in encoder.head_fixed.get(self.name, {})  # by the encoder's context
        if not bounded and (self.readout == "flatten") != (self.length is not None):
            raise UserError('readout = "flatten" and length go together; give both or neither.')


class LanguageModel(nn.Module):
    """Embed → encode → linear; the encoder makes it a GPT, an LSTM, a feed-forward model …"""

    def __init__(
        self,
        vocabulary: int,
        embedding: int,
        encoder: nn.Module,
        *,
        tied: bool = False,
        readout: bool = True,
        readout_bias: bool = True,
        softmaxes: int = 1,
        latent_dropout: float = 0.0,
        token_dropout: float = 0.0,
    ):
        super().__init__()
        self.token_dropout = token_dropout
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.encoder: Any = encoder
        self.stateful = isinstance(encoder, CausalEncoder)
        self.head: TokenHead | MixtureOfSoftmaxes | HiddenHead = HiddenHead()
        if readout:
            width: int = encoder.width  # type: ignore[assignment]
            self.head = (
                TokenHead(width, vocabulary, bias=readout_bias)
                if softmaxes == 1
                else MixtureOfSoftmaxes(width, vocabulary, softmaxes, bias=readout_bias, dropout=latent_dropout)
            )
            if tied:
                self.head.readout.weight = self.embedding.weight

    @property
    def context(self) -> int | None:
        """Context length of the encoder; None where unlimited."""
        return self.encoder.context

    @property
    def masks_documents(self) -> bool:
        """Whether attention can be masked to the documents of a packed row."""
        return self._causal.masks_documents

    def hidden(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        """Hidden states (B, T, D) and, where a state was passed, the state after."""
        x = self._embed(batch.input)
        return self._causal(x, state) if batch.documents is None else self._causal(x, documents=batch.documents)

    @property
    def has_activations(self) -> bool:
        """Whether the encoder is recurrent, so that its activations can be regularized."""
        return isinstance(self.encoder, RecurrentActivations)

    def hidden_and_activations(self, batch: Batch, state: State | None = None) -> tuple[Tensor, Tensor, State | None]:
        """Hidden states, those of the last layer before dropout, and, where a state was passed, the state after."""
        activations, after = self.encoder.activations(self._embed(batch.input), state)
        return self.encoder.drop_output(activations), activations, after

    def _embed(self, ids: Tensor) -> Tensor:
        """Embeddings (B, T, D); in training, those of dropped token types are zero wherever they occur."""
        x = self.embedding(ids)
        if not (self.token_dropout and self.training):
            return x
        mask = F.dropout(x.new_ones(self.embedding.num_embeddings, 1), self.token_dropout)  # (V, 1)
        return x * F.embedding(ids, mask)

    def encode(self, source: Source) -> Tensor:
        """Hidden states (B, S, D) of a complete text. No mask is needed: a causal encoder never sees right padding."""
        return self._causal(self.embedding(source.ids))[0]

    def forward(self, batch: Batch) -> Tensor:
        """Logits (B, T, V)."""
        return self.head(self.hidden(batch)[0])

    def start(self, source: Source, *, capacity: int) -> State:
        """The initial decoding state."""
        return self._causal.start(source.rows, capacity, self.embedding.weight)

    def check_carried(self, length: int) -> None:
        """Refuses models whose state cannot be carried from one segment of `length` tokens to the next."""
        if self.context is None:
            return
        advice = 'use data.examples = "windows"'
        if not isinstance(self.encoder, SegmentEncoder):
            raise UserError(
                f'examples = "bptt" carries a state from step to step, but this model sees at most {self.context}'
                f" tokens at a time; {advice}."
            )
        if not self.encoder.has_relative_positions:
            raise UserError(
                'examples = "bptt" carries a segment memory, whose tokens have no fixed positions: set model.positions'
                f" to rope, alibi, t5 or none, or {advice}."
            )
        if length >= self.context:
            raise UserError(
                'examples = "bptt" carries a segment memory of as many tokens as model.context has beside'
                f" training.sequence_length, but they are {self.context} and {length}: lower"
                f" training.sequence_length, or {advice}."
            )

    def start_carried(self, rows: int, length: int) -> State:
        """The state that training carries from one segment of `length` tokens to the next, before the first: that of
        decoding, or the segment memory of a Transformer."""
        if self.context is None:
            return self._causal.start(rows, 0, self.embedding.weight)
        assert isinstance(self.encoder, SegmentEncoder)
        return self.encoder.segment_memory(rows, length, self.embedding.weight)

    def step(
        self, ids: Tensor, state: State, count: Tensor | None = None, *, all_positions: bool = False
    ) -> tuple[Tensor, State]:
        """Log-probabilities (B, V) of the next token after ids (B, T), or (B, T, V) after each, and the state after."""
        hidden, after = self._causal(self.embedding(ids), state, count)
        assert after is not None
        return self.head.log_probs(hidden if all_positions else last_real(hidden, count)), after

    def score(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        """log p(target) (B, T) by teacher forcing, and the state after where one was passed."""
        hidden, after = self.hidden(batch, state)
        return self.head.score(hidden, batch.target), after

    @property
    def _causal(self) -> CausalEncoder:
        """The encoder with a state: its own, or recomputation."""
        return self.encoder if self.stateful else Recompute(self.encoder)


def language_model(
    config: EncoderConfig,
    head: LMHeadConfig,
    make_encoder: Callable[[EncoderConfig], nn.Module],
    vocabulary: Vocabulary,
) -> LanguageModel:
    """A newly initialized language model."""
    encoder = make_encoder(config)
    if not isinstance(encoder, CausalEncoder) and encoder.context is None:
        raise UserError(
            f"{type(encoder).__name__} has no decoding state, so a language model encodes its input again at every"
            " step: give it a `context`, the longest input."
        )
    if flatten := head.readout == "flatten":
        if not isinstance(encoder, CausalEncoder):
            raise UserError('readout = "flatten" needs an encoder with a decoding state: leave readout out.')
        encoder = PrefixFlatten(encoder, config.output_width, head.length or encoder.context)  # type: ignore[arg-type]
    readout = head.readout != "none"
    if not readout and config.output_width != vocabulary.size:
        raise UserError(
            f'readout = "none" takes hidden states of {config.output_width} for logits of {vocabulary.size} tokens: set'
            f" model.width to {vocabulary.size}, or tokenizer.size to {config.output_width}."
        )
    bias = config.readout_bias or flatten
    model = LanguageModel(
        vocabulary.size,
        config.input_width,
        encoder,
        tied=head.tied,
        readout=readout,
        readout_bias=bias,
        softmaxes=head.softmaxes,
        latent_dropout=head.latent_dropout,
        token_dropout=config.token_dropout,
    )
    std = config.token_std if head.token_std is None else head.token_std
    if std is not None:
        nn.init.normal_(model.embedding.weight, std=std)
        if not isinstance(model.head, HiddenHead) and not head.tied:
            nn.init.normal_(model.head.readout.weight, std=std)
    elif head.tied:  # nn.Embedding's unit normals would give initial logits of size √D
        nn.init.normal_(model.embedding.weight, std=config.input_width**-0.5)
    return model
