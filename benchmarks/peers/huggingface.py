"""Models of transformers under a plain loop: GPT-2, Marian's Transformer as translator, BERT as masked LM."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from peers.loop import Options, Step, adamw, plain_step
from seqwright.core.batch import IGNORE, Batch


def language_model(
    batches: Sequence[Batch], *, vocabulary: int, layers: int, width: int, heads: int, context: int, options: Options
) -> tuple[nn.Module, Step]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=vocabulary, n_embd=width, n_layer=layers, n_head=heads, n_positions=context, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, attn_implementation="sdpa",
    )  # fmt: skip
    return _step(GPT2LMHeadModel(config), batches, lambda batch: {"input_ids": batch.input}, options)


def translator(
    batches: Sequence[Batch], *, vocabulary: int, layers: int, width: int, heads: int, ffn_width: int, options: Options
) -> tuple[nn.Module, Step]:
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=vocabulary, d_model=width, encoder_layers=layers, decoder_layers=layers, dropout=0.1,
        encoder_attention_heads=heads, decoder_attention_heads=heads, encoder_ffn_dim=ffn_width,
        decoder_ffn_dim=ffn_width, activation_function="relu", attention_dropout=0.1, scale_embedding=True,
        pad_token_id=0, eos_token_id=2, decoder_start_token_id=1, use_cache=False, attn_implementation="sdpa",
    )  # fmt: skip

    def inputs(batch: Batch) -> dict[str, Tensor]:
        assert batch.source.ids is not None
        return {"input_ids": batch.source.ids, "attention_mask": batch.source.mask, "decoder_input_ids": batch.input}

    return _step(MarianMTModel(config), batches, inputs, options, smoothing=0.1)


def masked_lm(
    batches: Sequence[Batch], *, vocabulary: int, layers: int, width: int, heads: int, context: int, options: Options
) -> tuple[nn.Module, Step]:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=vocabulary, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=4 * width, max_position_embeddings=context, attn_implementation="sdpa",
    )  # fmt: skip

    def inputs(batch: Batch) -> dict[str, Tensor]:
        assert batch.source.ids is not None
        return {"input_ids": batch.source.ids, "attention_mask": batch.source.mask}

    return _step(BertForMaskedLM(config), batches, inputs, options)


def _step(
    model: nn.Module, batches: Sequence[Batch], inputs: Any, options: Options, *, smoothing: float = 0.0
) -> tuple[nn.Module, Step]:
    if options.device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = True
    model = model.to(options.device).train()
    run: Any = torch.compile(model) if options.compile else model
    optimizer = adamw(model, options, learning_rate=5e-4, betas=(0.9, 0.98))
    source = itertools.cycle(batches)

    def next_loss() -> Tensor:
        batch = next(source)
        names, tensors = zip(*inputs(batch).items(), strict=True)
        *moved, target = options.move(*tensors, batch.target)
        logits = run(**dict(zip(names, moved, strict=True))).logits
        return F.cross_entropy(
            logits.flatten(0, 1).float(), target.flatten(), ignore_index=IGNORE, label_smoothing=smoothing
        )

    return model, plain_step(model, optimizer, next_loss, options)
