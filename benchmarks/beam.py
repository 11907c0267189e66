"""Beam search against transformers' `generate`: the same GPT-2-shaped weights, prompts, widths and lengths in one run.

Both sides search `--length` tokens without an early end (the end is never probable under random weights, and both are
told to go on), so the work is the same, and says how many outputs are equal.

    python benchmarks/beam.py [--device cuda] [--static] [--precision bf16] [--tf32]
        [--batch 16] [--beam 5] [--length 64]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from seqwright import build
from seqwright.core.batch import Source, Vocabulary
from seqwright.decoding.options import SearchOptions
from seqwright.decoding.search import search
from seqwright.layers.inference.optimize import optimize_for_inference
from seqwright.training.machine import DTYPES

PROMPT = 8


def models(layers: int, width: int, vocabulary: int, context: int) -> tuple[Any, Any]:
    """Our GPT and theirs with the same weights."""
    torch.manual_seed(0)
    table = {"kind": "gpt", "layers": layers, "width": width, "heads": width // 64 or 1, "context": context}
    mine = build.model(build.model_config(table), Vocabulary(size=vocabulary)).eval()
    config = GPT2Config(
        vocab_size=vocabulary,
        n_positions=context,
        n_embd=width,
        n_layer=layers,
        n_head=width // 64 or 1,
        activation_function="gelu",
        bos_token_id=1,
        eos_token_id=2,
    )
    peer = GPT2LMHeadModel(config).eval()
    named = dict(mine.named_parameters())
    with torch.no_grad():
        named["embedding.weight"].mul_(20)  # sharper, so that rounding does not decide
        peer.transformer.wte.weight.copy_(named["embedding.weight"])
        peer.transformer.wpe.weight.copy_(named["encoder.positions.table.weight"])
        for layer, block in enumerate(peer.transformer.h):
            ours = f"encoder.blocks.{layer}."
            for theirs, name in {
                "ln_1": "attention_norm",
                "attn.c_attn": "attention.query_key_value",
                "attn.c_proj": "attention.output",
                "ln_2": "feed_forward_norm",
                "mlp.c_fc": "feed_forward.up",
                "mlp.c_proj": "feed_forward.down",
            }.items():
                module = block.get_submodule(theirs)
                weight = named[f"{ours}{name}.weight"]
                module.weight.copy_(weight if "ln" in theirs else weight.T)
                module.bias.copy_(named[f"{ours}{name}.bias"])
        peer.transformer.ln_f.weight.copy_(named["encoder.norm.weight"])
        peer.transformer.ln_f.bias.copy_(named["encoder.norm.bias"])
    return mine, peer


def placed(model: Any, asked: argparse.Namespace) -> Any:
    """A model on the device and in the precision that were asked for."""
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = asked.tf32
    return model.to(asked.device, DTYPES[asked.precision])


def timed(work: Callable[[], Any], repeats: int, device: str) -> tuple[float, Any]:
    """Seconds (of the CPU, or by the clock on a GPU) of the quickest of several runs, and what came out."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    out = work()
    best = float("inf")
    for _ in range(repeats):
        begun = clock()
        out = work()
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, clock() - begun)
    return best, out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32", choices=[*DTYPES], help="of both sides")
    parser.add_argument("--tf32", action="store_true", help="let a GPU round what float32 products read")
    parser.add_argument("--static", action="store_true", help="give the peer its static cache")
    for name, value in {"layers": 6, "width": 512, "vocabulary": 32_000, "batch": 16, "beam": 5, "length": 64}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--repeats", type=int, default=2)
    asked = parser.parse_args()
    device, batch, length = asked.device, asked.batch, asked.length
    pair = models(asked.layers, asked.width, asked.vocabulary, PROMPT + length)
    mine, peer = (placed(model, asked) for model in pair)
    mine = optimize_for_inference(mine)  # once for all searches
    generator = torch.Generator().manual_seed(1)
    prompts = torch.randint(3, asked.vocabulary, (batch, PROMPT), generator=generator).to(device)
    options = SearchOptions(
        beam_size=asked.beam,
        max_tokens=length,
        min_tokens=length,
        length_penalty="power",
        length_alpha=1.0,
        rank_unfinished="among",
    )

    def ours() -> list[list[int]]:
        source = Source.empty(batch, device)
        found = search(mine, source, options, sos=None, eos=2, prompts=prompts.tolist())
        return [own[0].ids for own in found]

    def theirs() -> list[list[int]]:
        wanted = {"num_beams": asked.beam, "max_new_tokens": length, "min_new_tokens": length, "do_sample": False}
        more = {"cache_implementation": "static"} if asked.static else {}
        given = {"input_ids": prompts, "attention_mask": torch.ones_like(prompts), "pad_token_id": 0}
        out = peer.generate(**given, **wanted, **more, length_penalty=1.0, early_stopping=True)
        return out[:, PROMPT:].tolist()

    our_seconds, our_ids = timed(ours, asked.repeats, device)
    with torch.inference_mode():
        peer_seconds, peer_ids = timed(theirs, asked.repeats, device)
    equal = sum(one == other for one, other in zip(our_ids, peer_ids, strict=True))
    print(f"torch {torch.__version__} on {device} in {asked.precision}{' (tf32)' * asked.tf32};", end=" ")
    print(f"{asked.layers} layers of width {asked.width}, ", end="")
    print(f"{asked.vocabulary:,} words; batch {batch}, beam {asked.beam}, {length} tokens:", end=" ")
    print(f"{equal} of {batch} outputs equal")
    print(f"seqwright    {our_seconds:7.2f} s  {batch * length / our_seconds:8.0f} tokens/s")
    print(f"transformers {peer_seconds:7.2f} s  {batch * length / peer_seconds:8.0f} tokens/s")
    print(f"ratio: {peer_seconds / our_seconds:.2f}")


if __name__ == "__main__":
    main()
