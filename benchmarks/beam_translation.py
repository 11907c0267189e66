"""Beam search on a Marian-shaped translator beside transformers' `generate` and, on a CPU, CTranslate2's and JoeyNMT's
searches where they are installed: the same weights and sources in one run.

Without `--ends` both sides say `--length` tokens for every source. With it the end is made likely, sources finish at
different times, and we drop those that are done while the peer carries them to the end.

    python benchmarks/beam_translation.py [--ends] [--device cuda] [--static] [--batch 16] [--beam 5] [--length 64]
"""

from __future__ import annotations

import argparse
import functools
from typing import Any

import torch
import translation_peers
from beam import timed
from torch import Tensor
from transformers import MarianConfig, MarianMTModel
from translation_peers import EOS, PAD, SOS, UNK, ended

from seqwright import build
from seqwright.batch import Source, Vocabularies, Vocabulary
from seqwright.decoding.options import SearchOptions
from seqwright.decoding.search import search
from seqwright.layers.prepacked import prepacked

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


def models(layers: int, width: int, size: int, context: int) -> tuple[Any, Any]:
    """Our Transformer and their Marian with the same weights."""
    torch.manual_seed(0)
    table = {"kind": "transformer", "layers": layers, "width": width, "heads": width // 64 or 1, "norm": "post"}
    vocabulary = Vocabulary(size=size, unk=UNK, pad=PAD, sos=SOS, eos=EOS)
    sizes = Vocabularies(source=vocabulary, target=vocabulary, joint=True)
    mine = build.model(build.model_config(table | {"context": context}, task="pairs"), sizes, task="pairs").eval()
    common = {"layers": layers, "ffn_dim": 4 * width, "attention_heads": width // 64 or 1}
    sides = {f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in common.items()}
    config = MarianConfig(
        vocab_size=size, d_model=width, **sides, activation_function="relu", scale_embedding=True,
        max_position_embeddings=context, pad_token_id=PAD, eos_token_id=EOS, decoder_start_token_id=SOS,
        forced_eos_token_id=None,
    )  # fmt: skip
    peer = MarianMTModel(config).eval()
    copy_weights(mine, peer)
    return mine, peer


@torch.no_grad()
def copy_weights(mine: Any, peer: Any) -> None:
    """Layer by layer; keys and values of the memory are one map in ours."""
    mine.source_embedding.weight[EOS] *= 9  # the end competes, so that `--ends` has an effect
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


def sources(batch: int, size: int) -> tuple[Tensor, Tensor]:
    """Ids and mask of sentences of 8 to 32 tokens."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(8, 33, (batch, 1), generator=generator)
    ids = torch.randint(EOS + 1, size, (batch, 32), generator=generator)
    mask = torch.arange(32) < lengths
    return ids.masked_fill(~mask, PAD), mask


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--static", action="store_true", help="measure transformers with its static cache too")
    parser.add_argument("--ends", action="store_true", help="let outputs end where they will")
    for name, value in {"layers": 6, "width": 512, "vocabulary": 32_000, "batch": 16, "beam": 5, "length": 64}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--repeats", type=int, default=2)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    device, batch, length = asked.device, asked.batch, asked.length
    shortest = 0 if asked.ends else length
    pair = models(asked.layers, asked.width, asked.vocabulary, max(64, length + 1))
    mine, peer = (model.to(device) for model in pair)
    mine = prepacked(mine)  # once for all searches, as `translate` does
    ids, mask = (x.to(device) for x in sources(batch, asked.vocabulary))
    options = SearchOptions(
        width=asked.beam, length=length, shortest=shortest, normalisation="power", alpha=1.0, unended="among"
    )

    def ours() -> list[list[int]]:
        found = search(mine, Source(mask=mask, ids=ids), options, sos=SOS, eos=EOS, banned=[PAD])
        return [own[0].ids for own in found]

    def theirs(cache: str | None) -> list[list[int]]:
        wanted = {"num_beams": asked.beam, "max_new_tokens": length, "min_new_tokens": shortest, "do_sample": False}
        given = {"input_ids": ids, "attention_mask": mask.long(), "bad_words_ids": [[PAD]]}
        more = {"cache_implementation": cache, "length_penalty": 1.0, "early_stopping": True}
        out = peer.generate(**given, **wanted, **more)[:, 1:].tolist()
        return [ended(row)[:length] for row in out]

    our_seconds, our_ids = timed(ours, asked.repeats, device)
    said = sum(map(len, our_ids))
    print(f"torch {torch.__version__} on {device}; {asked.layers} layers of width {asked.width}, ", end="")
    print(f"{asked.vocabulary:,} words; batch {batch}, beam {asked.beam}; {said / batch:.1f} tokens each")

    def show(name: str, seconds: float, found: list[list[int]]) -> None:
        equal = sum(one == other for one, other in zip(our_ids, found, strict=True))
        print(f"{name:14}{seconds:7.2f} s {said / seconds:8.0f} tokens/s", end="")
        print(f"   ours is {seconds / our_seconds:.2f} times as fast; {equal} of {batch} outputs equal", flush=True)

    show("seqwright", our_seconds, our_ids)
    for cache in (None, "static") if asked.static else (None,):
        with torch.inference_mode():
            name = "transformers" if cache is None else f"  {cache} cache"
            show(name, *timed(functools.partial(theirs, cache), asked.repeats, device))
    for name in ("ctranslate2", "joeynmt") if device == "cpu" else ():
        try:
            other = getattr(translation_peers, name)(pair[0], beam=asked.beam, length=length, shortest=shortest)
        except ImportError:
            print(f"{name} is not installed: pip install {name}")
            continue
        rows = [row[real].tolist() for row, real in zip(ids, mask, strict=True)]
        with torch.inference_mode():
            show(name, *timed(functools.partial(other, rows), asked.repeats, device))


if __name__ == "__main__":
    main()
