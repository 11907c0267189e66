"""The Transformer: encoder, and causal decoder with cross-attention to the source (Vaswani et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from seqwright.core.batch import Vocabularies
from seqwright.core.config import check_sizes
from seqwright.core.state import State
from seqwright.layers.cross_attention import CrossKVCache
from seqwright.layers.encoder import EncoderOutput
from seqwright.layers.kv_cache import KVCache
from seqwright.layers.transformer_stack import Stack
from seqwright.models.encoder_decoder import EncoderDecoder, Tied, resolve_tied
from seqwright.models.encoders.transformer import TransformerEncoder, TransformerEncoderConfig, initialize


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(TransformerEncoderConfig):
    decoder_layers: int | None = None
    """Blocks of the decoder; as many as layers by default."""
    tied: Tied | None = None
    """Weight tying (Press & Wolf 2017): three-way (both embeddings and the output layer), two-way (target embedding and
    output layer) or none. Default: as much as the vocabularies allow."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self, "decoder_layers")


class TransformerDecoder(Stack):
    """Causal Transformer stack with cross-attention to the source in every block."""

    def __init__(self, config: TransformerConfig):
        super().__init__(config, config.decoder_layers or config.layers, cross=True)
        self.layout = (len(self.blocks), 2, config.heads, config.head_size)
        self.keys_values = nn.Linear(config.width, 2 * len(self.blocks) * config.width, bias=config.bias)

    def memory(self, encoded: EncoderOutput) -> CrossKVCache:
        key_value = self.keys_values(encoded.vectors).unflatten(-1, self.layout)  # (B, S, L, 2, H, E)
        return CrossKVCache(key_value.permute(0, 2, 3, 4, 1, 5).contiguous(), encoded.mask)

    def start(self, memory: State, capacity: int) -> KVCache:
        assert isinstance(memory, CrossKVCache)
        return self.empty_cache(memory.mask.size(0), capacity, memory.key_value)

    def forward(
        self, x: Tensor, memory: State, state: KVCache | None = None, count: Tensor | None = None
    ) -> tuple[Tensor, KVCache | None]:
        assert isinstance(memory, CrossKVCache)
        return self.run(x, state, count, memory=memory.layers())

    @property
    def source_attention(self) -> list[nn.Module]:
        return [block.get_submodule("cross.attend") for block in self.blocks]


def transformer(config: TransformerConfig, sizes: Vocabularies) -> EncoderDecoder:
    """A newly initialized Transformer encoder-decoder."""
    encoder, decoder = TransformerEncoder(config), TransformerDecoder(config)
    for stack in (encoder, decoder):
        initialize(stack, config.width)
    return EncoderDecoder(sizes, config.width, encoder, decoder, tied=resolve_tied(config.tied, sizes))
