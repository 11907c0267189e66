"""Beam search on a Marian-shaped translator beside transformers' `generate` and, on a CPU, CTranslate2's and JoeyNMT's
searches where they are installed: the same weights and sources in one run.

Without `--ends` both sides say `--length` tokens for every source. With it the end is made likely, sources finish at
different times, and we drop those that are done while the peer carries them to the end. With `--run RUN --sources FILE`
the weights are those of a trained run (a post-LN Transformer with one vocabulary) and the sources the lines of a file
in their order, `--batch` at a time for both sides: outputs end where the model ends them, which is the use that users
see.

    python benchmarks/beam_translation.py [--ends] [--device cuda] [--static] [--precision bf16] [--tf32]
        [--batch 16] [--beam 5] [--length 64] [--run RUN --sources FILE]
"""

from __future__ import annotations

import argparse
import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import MarianConfig, MarianMTModel

import seqwright
import translation_peers
from beam import placed, timed
from seqwright import build
from seqwright.core.batch import Source, Vocabularies, Vocabulary
from seqwright.data.files import resolve
from seqwright.data.lines import lines_of
from seqwright.data.parallel.buckets import encode_sources
from seqwright.decoding.options import SearchOptions
from seqwright.decoding.search import search
from seqwright.layers.inference.optimize import optimize_for_inference
from seqwright.tasks.translation.translate import banned
from seqwright.training.machine import DTYPES
from translation_peers import EOS, PAD, SOS, UNK, ended

NAMES = {
    "self_attn.out_proj": "attention.output",
    "self_attn_layer_norm": "attention_norm",
    "encoder_attn.q_proj": "cross.query",
    "encoder_attn.out_proj": "cross.output",
    "encoder_attn_layer_norm": "cross_norm",
    "fc1": "feed_forward.up",
    "fc2": "feed_forward.down",
    "final_layer_norm": "feed_forward_norm",
}
Batches = list[tuple[Tensor, Tensor]]
"""Ids and mask of sources that are searched together."""


def made_up(layers: int, width: int, size: int, context: int) -> tuple[Any, Any, Vocabulary]:
    """A Transformer without training, its settings and its vocabulary."""
    torch.manual_seed(0)
    table = {"kind": "transformer", "layers": layers, "width": width, "heads": width // 64 or 1, "norm": "post"}
    vocabulary = Vocabulary(size=size, unk=UNK, pad=PAD, sos=SOS, eos=EOS)
    config = build.model_config(table | {"context": context}, task="pairs")
    model = build.model(config, Vocabularies(source=vocabulary, target=vocabulary, joint=True), task="pairs").eval()
    with torch.no_grad():
        model.source_embedding.weight[EOS] *= 9  # the end competes, so that `--ends` has an effect
    return model, config, vocabulary


def marian(mine: Any, settings: Any, vocabulary: Vocabulary) -> Any:
    """Their Marian with the weights of our Transformer."""
    common = {"ffn_dim": settings.inner_width, "attention_heads": settings.heads}
    sides = {f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in common.items()}
    config = MarianConfig(
        vocab_size=vocabulary.size, d_model=settings.width, **sides, activation_function=settings.activation,
        encoder_layers=len(mine.reader.blocks), decoder_layers=len(mine.decoder.blocks), scale_embedding=True,
        max_position_embeddings=settings.context, pad_token_id=vocabulary.pad, eos_token_id=vocabulary.eos,
        decoder_start_token_id=vocabulary.sos, forced_eos_token_id=None,
    )  # fmt: skip
    peer = MarianMTModel(config).eval()
    copy_weights(mine, peer)
    return peer


@torch.no_grad()
def copy_weights(mine: Any, peer: Any) -> None:
    """Layer by layer; keys and values of the memory are one map in ours."""
    peer.model.shared.weight.copy_(mine.source_embedding.weight)
    named = dict(mine.named_parameters())
    width = mine.source_embedding.weight.size(1)
    for side, ours in ((peer.model.encoder, "reader"), (peer.model.decoder, "decoder")):
        side.embed_positions.weight.copy_(getattr(mine, ours).positions.table)
        for layer, block in enumerate(side.layers):
            for kind in ("weight", "bias"):
                for theirs, name in NAMES.items():
                    if f"{ours}.blocks.{layer}.{name}.{kind}" in named:
                        getattr(block.get_submodule(theirs), kind).copy_(named[f"{ours}.blocks.{layer}.{name}.{kind}"])
                fused = named[f"{ours}.blocks.{layer}.attention.query_key_value.{kind}"].split(width)
                parts = {f"self_attn.{n}_proj": part for n, part in zip("qkv", fused, strict=True)}
                if ours == "decoder":
                    memory = named[f"decoder.keys_values.{kind}"].split(width)[2 * layer : 2 * layer + 2]
                    parts |= {f"encoder_attn.{n}_proj": part for n, part in zip("kv", memory, strict=True)}
                for theirs, part in parts.items():
                    getattr(block.get_submodule(theirs), kind).copy_(part)


def made_up_sources(batch: int, size: int) -> Batches:
    """Sentences of 8 to 32 tokens."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(8, 33, (batch, 1), generator=generator)
    ids = torch.randint(EOS + 1, size, (batch, 32), generator=generator)
    mask = torch.arange(32) < lengths
    return [(ids.masked_fill(~mask, PAD), mask)]


def lines_in_order(file: str, run: Any, batch: int) -> Batches:
    """The lines of a file as a run reads them, so many at a time."""
    side = encode_sources([((line,), None) for line in lines_of(resolve(file))], run.tokenizers.source)
    rows = [np.arange(n, min(n + batch, len(side.lengths))) for n in range(0, len(side.lengths), batch)]
    padded = (side.padded(some, run.tokenizers.source.vocabulary.pad or 0) for some in rows)
    return [(torch.from_numpy(ids), torch.from_numpy(mask)) for ids, mask in padded]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32", choices=[*DTYPES], help="of both sides")
    parser.add_argument("--tf32", action="store_true", help="let a GPU round what float32 products read")
    parser.add_argument("--static", action="store_true", help="measure transformers with its static cache too")
    parser.add_argument("--ends", action="store_true", help="let outputs end where they will")
    parser.add_argument("--run", help="a trained run instead of made-up weights")
    parser.add_argument("--sources", help="its sources: the lines of a file")
    for name, value in {"layers": 6, "width": 512, "vocabulary": 32_000, "batch": 16, "beam": 5, "length": 64}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--repeats", type=int, default=2)
    return parser.parse_args()


def main() -> None:
    asked = options()
    device, batch, length = asked.device, asked.batch, asked.length
    shortest = 0 if asked.ends or asked.run else length
    if asked.run:
        run: Any = seqwright.open(asked.run, device="cpu")
        plain, settings, vocabulary = run.model, run.settings.model, run.tokenizers.target.vocabulary
        batches, never = lines_in_order(asked.sources, run, batch), banned(run.tokenizers.target)
    else:
        plain, settings, vocabulary = made_up(asked.layers, asked.width, asked.vocabulary, max(64, length + 1))
        batches, never = made_up_sources(batch, asked.vocabulary), [PAD]
    peer = placed(marian(plain, settings, vocabulary), asked)
    mine = optimize_for_inference(placed(plain, asked))  # once for all searches, as `translate` does
    batches = [(ids.to(device), mask.to(device)) for ids, mask in batches]
    wanted = SearchOptions(
        beam_size=asked.beam,
        max_tokens=length,
        min_tokens=shortest,
        length_penalty="power",
        length_alpha=1.0,
        rank_unfinished="among",
    )

    def ours() -> list[list[int]]:
        facts: dict[str, Any] = {"sos": vocabulary.sos, "eos": vocabulary.eos, "banned": never}
        found = [search(mine, Source(mask=mask, ids=ids), wanted, **facts) for ids, mask in batches]
        return [several[0].ids for some in found for several in some]

    def theirs(cache: str | None) -> list[list[int]]:
        how = {"num_beams": asked.beam, "max_new_tokens": length, "min_new_tokens": shortest, "do_sample": False}
        how |= {"bad_words_ids": [[id] for id in never], "length_penalty": 1.0, "early_stopping": True}
        out: list[list[int]] = []
        for ids, mask in batches:
            out += peer.generate(input_ids=ids, attention_mask=mask.long(), cache_implementation=cache, **how).tolist()
        return [ended(row[1:], vocabulary.eos)[:length] for row in out]

    our_seconds, our_ids = timed(ours, asked.repeats, device)
    said = sum(map(len, our_ids))
    print(f"torch {torch.__version__} on {device} in {asked.precision}{' (tf32)' * asked.tf32};", end=" ")
    print(f"{len(plain.decoder.blocks)} layers of width {settings.width}, {vocabulary.size:,} words;", end=" ")
    print(f"{len(our_ids)} sources, batch {batch}, beam {asked.beam}; {said / len(our_ids):.1f} tokens each")

    def show(name: str, seconds: float, found: list[list[int]]) -> None:
        equal = sum(one == other for one, other in zip(our_ids, found, strict=True))
        print(f"{name:14}{seconds:7.2f} s {said / seconds:8.0f} tokens/s", end="")
        print(
            f"   ours is {seconds / our_seconds:.2f} times as fast; {equal} of {len(found)} outputs equal", flush=True
        )

    show("seqwright", our_seconds, our_ids)
    for cache in (None, "static") if asked.static else (None,):
        with torch.inference_mode():
            name = "transformers" if cache is None else f"  {cache} cache"
            show(name, *timed(functools.partial(theirs, cache), asked.repeats, device))
    others = device == "cpu" and asked.precision == "fp32" and not asked.run
    for name in ("ctranslate2", "joeynmt") if others else ():
        try:
            other = getattr(translation_peers, name)(plain, beam=asked.beam, length=length, shortest=shortest)
        except ImportError:
            print(f"{name} is not installed: pip install {name}")
            continue
        rows = [row[real].tolist() for ids, mask in batches for row, real in zip(ids, mask, strict=True)]
        with torch.inference_mode():
            show(name, *timed(functools.partial(other, rows), asked.repeats, device))


if __name__ == "__main__":
    main()
