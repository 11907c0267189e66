"""BERT: post-LN bidirectional Transformer encoder (Devlin et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import nn

from seqwright.models.encoders.transformer import TransformerEncoder, TransformerEncoderConfig


@dataclass(frozen=True, kw_only=True)
class BertConfig(TransformerEncoderConfig):
    layers: int = 4
    """Number of Transformer blocks."""
    context: int = 128
    """Context length: maximum input length in tokens."""
    positions: Literal["learned", "sinusoidal", "rope", "alibi", "t5", "none"] = "learned"
    """Positional encoding: added to embeddings (learned, sinusoidal), rotary (rope), or a bias of attention scores by
    distance (alibi: linear; t5: learned by bucket)."""
    activation: Literal["gelu", "gelu-tanh", "relu", "relu2", "swiglu"] = "gelu"
    """Activation of the feed-forward networks; gelu-tanh is GPT-2's approximation, swiglu is gated."""
    norm_position: Literal["pre", "post"] = "post"
    """Normalize the input of each sublayer (pre), or the residual sums and the embedding (post, as in the paper)."""
    norm_eps: float = 1e-12
    """Epsilon of the normalizations, added to the variance."""
    dropout: float = 0.1
    """Dropout rate of embeddings, sublayer outputs and attention weights."""

    poolings: ClassVar[tuple[str, ...]] = ("first", "mean", "max", "attention")
    token_std: ClassVar[float | None] = 0.02

    def initialize(self, module: nn.Module) -> None:
        """The paper's initialization: normal with standard deviation 0.02, biases 0."""
        for part in module.modules():
            if isinstance(part, nn.Linear | nn.Embedding):
                nn.init.normal_(part.weight, std=0.02)
            if isinstance(part, nn.Linear) and part.bias is not None:
                nn.init.zeros_(part.bias)


def bert_encoder(config: BertConfig) -> TransformerEncoder:
    """A newly initialized BERT encoder."""
    encoder = TransformerEncoder(config, embedding_norm=config.norm_position == "post")
    config.initialize(encoder)
    return encoder
