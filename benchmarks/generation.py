"""Generation against transformers' `generate`: the same GPT-2-shaped weights, prompts and lengths, in one run.

Our side is the path of `seqwright generate`: `decoding.generate.generate` with a callback, on a GPU through captured
steps. The peer runs eagerly and with its static cache, which it compiles. Medians of whole calls, prefill included;
the floor is the time to read the weights and the mean KV cache once a step at the bandwidth of a measured copy, on a
CPU also that of the products. Calls alternate; on a CPU its seconds count, and our int8 weights and both sides in bf16
are measured, too.

    python benchmarks/generation.py --device cuda --dtype bf16 --batch 1 64 --profile --json generation.json
    python benchmarks/generation.py --device cuda --dtype bf16 --batch     (prefill and beam search only)
    python benchmarks/generation.py --device cuda --check
    python benchmarks/generation.py --device cpu --parameters 10M --batch 1 16
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from beam import models
from peers.peak import cpu_name, cpu_peak
from seqwright import build
from seqwright.core.batch import Batch, Source, Vocabularies, Vocabulary
from seqwright.core.cuda_graph import Captured
from seqwright.core.huge_pages import huge
from seqwright.decoding import beam, decoding_step
from seqwright.decoding.generate import generate
from seqwright.decoding.options import Hypothesis, SamplingOptions, SearchOptions
from seqwright.decoding.prefill import prefill as read_prompts
from seqwright.decoding.search import search
from seqwright.layers.inference.availability import BEAM_KERNELS
from seqwright.layers.inference.int8_linear import quantize_weights_
from seqwright.layers.inference.optimize import optimize_for_inference
from seqwright.training.machine import DTYPES

SIZES = {
    "124M": {"layers": 12, "width": 768, "vocabulary": 50257, "context": 1024},
    "10M": {"layers": 6, "width": 320, "vocabulary": 8000, "context": 512},
    "tiny": {"layers": 2, "width": 64, "vocabulary": 300, "context": 512},
}


class Timer:
    """Median seconds of calls: by the clock on a GPU, of the process on a CPU, which others may use as well."""

    def __init__(self, device: str, repeats: int):
        self.device, self.repeats = device, repeats
        self.clock = time.process_time if device == "cpu" else time.perf_counter

    def __call__(self, work: Callable[[], Any], warmups: int = 1) -> tuple[float, Any]:
        return self.in_turns({"": work}, warmups)[""]

    def in_turns(self, works: dict[str, Callable[[], Any]], warmups: int = 1) -> dict[str, tuple[float, Any]]:
        """Seconds and output of each, all of them in every round; one that fails is left out with a sentence."""
        seconds: dict[str, list[float]] = {name: [] for name in works}
        outputs: dict[str, Any] = {}
        for n in range(warmups + self.repeats):
            for name in [*seconds]:
                begun = self.clock()
                try:
                    outputs[name] = works[name]()
                except Exception as error:
                    print(f"{name} failed: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
                    del seconds[name]
                    continue
                if self.device == "cuda":
                    torch.cuda.synchronize()
                if n >= warmups:
                    seconds[name].append(self.clock() - begun)
        return {name: (statistics.median(times), outputs[name]) for name, times in seconds.items()}


def bandwidth(timer: Timer) -> float:
    """Bytes a second that a copy reads and writes; on a CPU that a sum reads, at its best: many read at once."""
    if timer.device == "cpu":
        tensor = huge(1 << 28).view(torch.float32).zero_()
        rounds = [timer(tensor.sum)[0] for _ in range(5)]
        return 4 * tensor.numel() / min(rounds)
    tensor = torch.empty(1 << 30, dtype=torch.int8, device=timer.device)
    target = torch.empty_like(tensor)
    return 2 * tensor.numel() / timer(lambda: target.copy_(tensor))[0]


def floor(model: Any, batch: int, prompt: int, tokens: int, rate: float) -> float:
    """Seconds in which `tokens` steps of `batch` rows read the weights and keys and values at `rate` bytes a second; on
    a CPU as long as their products take at least, and those of the prompts besides."""
    sizes = model.encoder
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    width = 2 * len(sizes.blocks) * sizes.kv_heads * sizes.head_size * model.embedding.weight.element_size()
    step = (weights + batch * (prompt + tokens / 2) * width) / rate
    if model.embedding.weight.device.type == "cuda":
        return tokens * step
    product = 2 * batch * sum(p.numel() for p in model.parameters()) / cpu_peak(torch.float32)
    return tokens * max(step, product) + prompt * product


def sampled(model: Any, ids: Tensor, asked: argparse.Namespace, **options: Any) -> list[list[int]]:
    """Our continuations of prompts (B, T)."""
    wanted = SamplingOptions(**{"max_tokens": asked.tokens, "temperature": 0.0} | options)
    device, prompts = asked.device, ids.tolist()
    seeds = [wanted.seed + n for n in range(len(prompts))]
    rows = generate(model, prompts, wanted, seeds=seeds, device=device, on_token=lambda row, id: False)
    return [row.ids for row in rows]


def generation(
    ours: dict[str, Any], theirs: dict[str, Any], asked: argparse.Namespace, batch: int, rate: float
) -> dict[str, Any]:
    """Tokens a second of both sides at one batch size."""
    ids = prompts_of(asked, batch)
    total = batch * asked.tokens

    def continued(peer: Any, **more: Any) -> list[list[int]]:
        given = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "pad_token_id": 0, "do_sample": False}
        with torch.inference_mode():
            return peer.generate(**given, max_new_tokens=asked.tokens, **more)[:, asked.prompt :].tolist()

    works: dict[str, Callable[[], Any]] = {name: partial(sampled, model, ids, asked) for name, model in ours.items()}
    works["seqwright sampled"] = partial(sampled, ours["seqwright"], ids, asked, temperature=0.8, top_k=50)
    peers = [*theirs, *([] if asked.no_static else ["transformers static"])]
    works |= {name: partial(continued, peer) for name, peer in theirs.items()}
    if not asked.no_static:
        works["transformers static"] = partial(continued, theirs["transformers"], cache_implementation="static")
    timed = Timer(asked.device, asked.repeats).in_turns(works, warmups=3)
    result: dict[str, Any] = {"batch": batch} | {name: total / seconds for name, (seconds, _) in timed.items()}
    result["floor"] = total / floor(ours["seqwright"], batch, asked.prompt, asked.tokens, rate)
    outputs = timed["seqwright"][1]
    for name in [name for name in peers if name in timed]:
        result |= {f"ratio to {name}": result["seqwright"] / result[name]}
        result[f"equal to {name}"] = sum(one == other for one, other in zip(outputs, timed[name][1], strict=True))
    if "transformers" in timed:
        more = {name: result[name] / result["transformers"] for name in ours if name != "seqwright"}
        result |= {f"ratio of {name}": ratio for name, ratio in more.items()}
    return result


def beam_search(mine: Any, peer: Any, asked: argparse.Namespace) -> dict[str, Any]:
    """Output tokens a second of beam search on both sides."""
    timer, batch, length = Timer(asked.device, asked.repeats), asked.beam_batch, asked.beam_tokens
    ids = prompts_of(asked, batch)
    options = SearchOptions(
        beam_size=5,
        max_tokens=length,
        length_penalty="power",
        length_alpha=1.0,
        rank_unfinished="among",
    )

    def ours() -> list[list[int]]:
        found = search(mine, Source.empty(batch, asked.device), options, sos=None, eos=None, prompts=ids.tolist())
        return [own[0].ids for own in found]

    def theirs() -> list[list[int]]:
        given = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "pad_token_id": 0, "do_sample": False}
        more = {"num_beams": 5, "max_new_tokens": length, "length_penalty": 1.0}
        with torch.inference_mode():
            return peer.generate(**given, **more, early_stopping=True)[:, asked.prompt :].tolist()

    works: dict[str, Callable[[], Any]] = {"seqwright": ours, "transformers": theirs}
    if asked.device == "cuda":
        works["seqwright without beam kernels"] = partial(without_beam_kernels, ours)
    timed = timer.in_turns(works, warmups=4)
    if "seqwright" not in timed:
        print("the kernels that choose beams failed: measured without them", file=sys.stderr)
        timed["seqwright"] = timed["seqwright without beam kernels"]
    (seconds, mine_ids), (peer_seconds, peer_ids) = timed["seqwright"], timed["transformers"]
    if asked.profile:
        for name in works.keys() & timed.keys() - {"transformers"}:
            profile(works[name], f"beam 5, batch {batch}, {name}", length)
    equal = sum(one == other for one, other in zip(mine_ids, peer_ids, strict=True))
    rates = {name: batch * length / taken for name, (taken, _) in timed.items()}
    return {"beam": 5, "batch": batch, "tokens": length, **rates, "ratio": peer_seconds / seconds, "equal": equal}


def without_beam_kernels(work: Callable[[], Any]) -> Any:
    """What `work` returns where PyTorch's operations choose beams."""
    devices = set(BEAM_KERNELS)
    BEAM_KERNELS.clear()
    try:
        return work()
    finally:
        BEAM_KERNELS.update(devices)


@torch.inference_mode()
def prefill(mine: Any, asked: argparse.Namespace) -> dict[str, Any]:
    """Tokens a second of reading prompts as long as the context, as the engine does, and of the forward pass that
    training makes; both captured on a GPU."""
    timer, rows, length = Timer(asked.device, 4 * asked.repeats), 8 if asked.device == "cuda" else 1, mine.context
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(3, mine.embedding.num_embeddings, (rows, length), generator=generator).to(asked.device)
    batch, captures = Batch.of_text(ids, ids), asked.device == "cuda"
    forward = Captured(lambda: mine.hidden(batch), torch.device(asked.device))
    works: dict[str, Callable[[], Any]] = {
        "read": lambda: read_prompts(mine, ids, None, capacity=length, captures=captures),
        "forward": forward,
    }
    timed = timer.in_turns(works, warmups=4)
    read, seconds = timed["read"][0], timed["forward"][0]
    count = rows * length
    if asked.profile:
        profile(works["read"], f"prefill of {count} tokens", 1)
        profile(works["forward"], f"forward pass of {count} tokens", 1)
    return {"prefill": count / read, "forward": count / seconds, "ratio": seconds / read}


def profile(work: Callable[[], Any], name: str, steps: int) -> None:
    """Prints the kernels of a call, most expensive first."""
    work()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as recorded:
        work()
    events = recorded.key_averages()
    count = sum(event.count for event in events)
    print(f"{name}: {count / steps:.0f} device operations a step")
    print(events.table(sort_by="self_cuda_time_total", row_limit=25, max_name_column_width=70))


def checked_models(device: str) -> Iterator[tuple[str, Any, list[list[int]], Source | None]]:
    """Small models with made-up prompts, a translator's with sources: those that captured steps are compared on."""
    tables: dict[str, dict[str, Any]] = {
        "gpt": {"kind": "gpt", "layers": 4, "width": 128, "heads": 4, "context": 96},
        "gpt as llama": {
            "kind": "gpt", "layers": 3, "width": 128, "heads": 4, "kv_heads": 2, "context": 96, "positions": "rope",
            "norm": "rmsnorm", "activation": "swiglu", "bias": False,
        },
        "gpt alibi": {"kind": "gpt", "layers": 3, "width": 128, "heads": 4, "context": 96, "positions": "alibi"},
        "lstm": {"kind": "lstm", "layers": 2, "width": 128},
        "gru": {"kind": "gru", "layers": 2, "width": 128},
        "transformer": {"kind": "transformer", "layers": 3, "width": 128, "heads": 4, "context": 96},
    }  # fmt: skip
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randint(1, 40, (9,), generator=generator).tolist()
    prompts = [[1, *torch.randint(3, 500, (n,), generator=generator).tolist()] for n in lengths]
    for name, table in tables.items():
        torch.manual_seed(0)
        source = None
        # Of 9,000 tokens log-probabilities and their maxima are shared by several programs.
        vocabulary = Vocabulary(size=9000 if table["kind"] == "gpt" else 500, sos=1, eos=2, pad=0)
        if table["kind"] == "transformer":
            sizes = Vocabularies(source=vocabulary, target=vocabulary, joint=True)
            model: Any = build.model(build.model_config(table, task="pairs"), sizes, task="pairs")
            ids = torch.randint(3, 500, (9, 30), generator=generator).to(device)
            source = Source(mask=torch.ones_like(ids, dtype=torch.bool), ids=ids)
        else:
            model = build.model(build.model_config(table), vocabulary)
        model = model.to(device).eval()
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.data.mul_(2)  # sharper, so that rounding does not decide
        yield name, model, prompts, source


def check(asked: argparse.Namespace) -> None:
    """Captured steps generate the ids of plain ones in float32, greedily and sampled, alone and beside others."""
    cases = {
        "greedy": SamplingOptions(temperature=0, max_tokens=90),
        "seeded": SamplingOptions(temperature=0.9, top_k=40, max_tokens=90),
        "processors": SamplingOptions(top_p=0.9, repetition_penalty=1.2, no_repeat_ngram=3, min_tokens=60),
    }
    for name, model, prompts, source in checked_models(asked.device):
        fast = optimize_for_inference(model)
        for case, options in cases.items():
            captured = continuations(fast, prompts, options, range(9), source, asked.device)
            alone = [continuations(fast, prompts, options, [n], source, asked.device)[0] for n in range(9)]
            decoding_step.CAPTURED.clear()
            plain = continuations(model, prompts, options, range(9), source, asked.device)
            decoding_step.CAPTURED.add("cuda")
            equal = [sum(a[0] == b[0] for a, b in zip(plain, other, strict=True)) for other in (captured, alone)]
            worst = max(abs(a[1] - b[1]) for a, b in zip(plain, captured, strict=True))
            print(
                f"{name:13} {case:11} equal to plain: {equal[0]} of 9, alone {equal[1]} of 9; log p within {worst:.1e}"
            )


def check_beams(asked: argparse.Namespace) -> None:
    """Beams chosen by kernels in captured steps are those of PyTorch's operations, captured and step by step, in
    float32; a second search replays the step of the first."""
    cases: dict[str, dict[str, Any]] = {
        "finished": {"n_best": 5},
        "bound": {"n_best": 2, "stopping": "bound", "length_penalty": "power", "length_alpha": 1.0},
        "now": {"n_best": 3, "stopping": "now", "length_penalty": "average"},
        "unfinished": {"min_tokens": 12, "length_penalty": "none", "rank_unfinished": "among"},
    }  # one size of the beam: each has kernels of its own, which take a second to compile
    for name, model, prompts, source in checked_models(asked.device):
        given = source or Source.empty(len(prompts), asked.device)
        fast = optimize_for_inference(model)
        free = search(model, given, SearchOptions(max_tokens=30), sos=None, eos=None, prompts=prompts)
        eos = statistics.mode(id for (best,) in free for id in best.ids)  # ends hypotheses at many lengths
        for case, table in cases.items():
            options = SearchOptions(beam_size=5, max_tokens=40, **table)
            one = partial(search, source=given, options=options, sos=None, eos=eos, banned=(0, 1), prompts=prompts)
            captured = [one(fast) for _ in range(2)]
            operations = without_beam_kernels(partial(one, fast))
            beam.CAPTURED.clear()
            plain = without_beam_kernels(partial(one, model))
            beam.CAPTURED.add("cuda")
            others = [*captured, operations]
            equal = [sum(map(same_ids, plain, other)) for other in others]
            worst = max(
                abs(a.score - b.score)
                for other in captured
                for pair in zip(plain, other, strict=True)
                for a, b in zip(*pair, strict=False)
            )
            print(f"{name:13} {case:11} kernels equal to plain: {equal[0]} of 9, replayed {equal[1]} of 9,", end=" ")
            print(f"captured operations {equal[2]} of 9; scores within {worst:.1e}", flush=True)


def same_ids(one: Sequence[Hypothesis], other: Sequence[Hypothesis]) -> bool:
    return [(h.ids, h.reason) for h in one] == [(h.ids, h.reason) for h in other]


def continuations(
    model: Any,
    prompts: Sequence[Sequence[int]],
    options: SamplingOptions,
    rows: Sequence[int],
    source: Source | None,
    device: str,
) -> list[tuple[list[int], float]]:
    """Ids and log-probabilities of some rows, each with a seed of its own."""
    taken = None if source is None else source.select(torch.tensor(rows, device=device))
    prefixes = [prompts[n] for n in rows]
    out = generate(model, prefixes, options, end=2, seeds=rows, source=taken, device=device)
    return [(row.ids, row.log_prob) for row in out]


def prompts_of(asked: argparse.Namespace, batch: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    size = (batch, asked.prompt)
    return torch.randint(3, SIZES[asked.parameters]["vocabulary"], size, generator=generator).to(asked.device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dtype", default="fp32", choices=[*DTYPES], help="of both sides")
    parser.add_argument("--parameters", default="124M", choices=[*SIZES])
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 64], help="of generation; none: left out")
    parser.add_argument("--beam-batch", type=int, default=16, help="0: no beam search")
    parser.add_argument("--beam-tokens", type=int, default=128, help="output tokens of each beam search")
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="of a CPU")
    parser.add_argument("--no-static", action="store_true", help="leave out transformers' compiled static cache")
    parser.add_argument("--profile", action="store_true", help="print the kernels of our steps")
    parser.add_argument(
        "--check",
        nargs="*",
        choices=["generation", "beams"],
        help="compare captured with plain steps instead, by default of both",
    )
    parser.add_argument("--json", help="file for the results")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    if asked.check is not None:
        torch.backends.cuda.matmul.allow_tf32 = False
        for name in asked.check or ["generation", "beams"]:
            {"generation": check, "beams": check_beams}[name](asked)
        return
    mine, peer = (model.to(asked.device, DTYPES[asked.dtype]) for model in models(**SIZES[asked.parameters]))
    ours = {"seqwright": optimize_for_inference(mine)}  # as an opened run does, once
    if asked.device == "cpu":
        ours["seqwright int8"] = optimize_for_inference(quantize_weights_(copy.deepcopy(mine)))
        ours["seqwright bf16"] = optimize_for_inference(copy.deepcopy(mine).to(torch.bfloat16))
    mine = ours["seqwright"]
    peer.generation_config.eos_token_id = None  # outputs of the same length on both sides
    theirs = {"transformers": peer}
    if asked.device == "cpu":
        theirs["transformers bf16"] = copy.deepcopy(peer).to(torch.bfloat16)
    timer = Timer(asked.device, asked.repeats)
    rate = bandwidth(timer)
    name = torch.cuda.get_device_name() if asked.device == "cuda" else cpu_name(asked.threads)
    results: dict[str, Any] = {
        "device": name,
        "torch": torch.__version__,
        "dtype": asked.dtype,
        "parameters": asked.parameters,
        "bandwidth": rate,
    }
    print(json.dumps(results), flush=True)
    results["generation"] = []
    for batch in asked.batch:
        results["generation"].append(generation(ours, theirs, asked, batch, rate))
        print(json.dumps(results["generation"][-1]), flush=True)
    results["prefill"] = prefill(mine, asked)
    print(json.dumps(results["prefill"]), flush=True)
    if asked.beam_batch:
        results["beam"] = beam_search(mine, peer, asked)
        print(json.dumps(results["beam"]), flush=True)
    if asked.json:
        Path(asked.json).write_text(json.dumps(results, indent=1), encoding="utf-8")
    if asked.profile:
        for batch in asked.batch:
            ids = prompts_of(asked, batch)
            profile(partial(sampled, mine, ids, asked), f"batch {batch}", asked.tokens)


if __name__ == "__main__":
    main()
