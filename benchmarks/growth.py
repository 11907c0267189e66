"""How time and memory grow, beside what arithmetic predicts: one size at a time, from one base.

    python benchmarks/growth.py [--device cuda] [--axes context rows] [--json FILE]

Training: a step of the Trainer for a GPT-2 of 124 million parameters (on a CPU of 0.8 million), over its context at the
same number of tokens in a batch, batch, vocabulary, layers and width. Generation: tokens a second of the decoding
engine over rows in flight and over the length of the prompt. Predictions start from the base: time grows with
floating-point operations (`Workload.operations`), memory with 16 bytes a parameter (weight, gradient, two moments) and
with layers · width of every token. Of decoding steps the bytes that they read are shown.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from beam import models
from peers.loop import Options
from peers.workloads import Workload, gpt, ours
from seqwright.decoding.generate import generate
from seqwright.decoding.options import SamplingOptions
from seqwright.layers.inference.optimize import optimize_for_inference
from seqwright.training import machine
from training import Side

BYTES_PER_PARAMETER = 16
GPT2 = {"layers": 12, "width": 768, "heads": 12, "rows": 32, "length": 1024, "vocabulary": 50304}
SMALL = {"layers": 4, "width": 128, "heads": 4, "rows": 32, "length": 64, "vocabulary": 2048}


def axes(base: dict[str, int]) -> dict[str, list[dict[str, int]]]:
    """Sizes to train at along each axis; `context` keeps the tokens of a batch."""
    tokens, length, gpu = base["rows"] * base["length"], base["length"], base is GPT2
    contexts = [length // 4 * 2**n for n in range(7)] if gpu else [length // 2 * 2**n for n in range(6)]
    return {
        "context": [{"length": size, "rows": tokens // size} for size in contexts],
        "batch": [{"rows": base["rows"] // 4 * 2**n} for n in range(5)],
        "vocabulary": [{"vocabulary": base["vocabulary"] // 4 * 2**n} for n in range(4)],
        "layers": [{"layers": base["layers"] // 4 * 2**n} for n in range(5)],
        "width": [{"width": base["width"] // 2 * 2**n, "heads": base["heads"] // 2 * 2**n} for n in range(4)],
    }


def workload(sizes: dict[str, int], device: str) -> Workload:
    size = dict(sizes)
    return gpt(size.pop("layers"), size.pop("width"), size.pop("heads"), name="growth", device=device, **size)


def trained(sizes: dict[str, int], options: Options, seconds: float) -> dict[str, float]:
    """Milliseconds and peak bytes of a training step."""
    work = workload(sizes, options.device.type)
    side = Side.begin(lambda: ours(work, options, []), options.device, 6)
    for n in range(4):
        side.round(max(1, round(seconds / side.seconds[0])) if n else 2, options.device)
    parameters = sum(p.numel() for p in side.model.parameters())
    found = {"milliseconds": 1e3 * statistics.median(side.seconds[1:]), "bytes": side.peak, "parameters": parameters}
    # Causal attention computes half of what `Workload.operations` counts, by convention, for MFU.
    operations = work.operations - 6 * work.attention * work.length * work.rows * work.length
    return found | {"operations": operations, "cells": work.rows * work.length * sizes["layers"] * sizes["width"]}


def predicted(found: dict[str, float], base: dict[str, float]) -> dict[str, float]:
    """What arithmetic says from the base, as ratios of the measured to it."""
    held = BYTES_PER_PARAMETER * base["parameters"]
    bytes = BYTES_PER_PARAMETER * found["parameters"] + (base["bytes"] - held) * found["cells"] / base["cells"]
    milliseconds = base["milliseconds"] * found["operations"] / base["operations"]
    ratios = {"time": found["milliseconds"] / milliseconds}
    return ratios | ({"memory": found["bytes"] / bytes} if found["bytes"] else {})


def training(options: Options, wanted: list[str], seconds: float) -> Iterator[dict[str, Any]]:
    sizes = GPT2 if options.device.type == "cuda" else SMALL
    base = trained(sizes, options, seconds)
    for axis, points in axes(sizes).items():
        for point in points if axis in wanted or not wanted else []:
            gc.collect()
            if options.device.type == "cuda":
                torch.cuda.empty_cache()
            try:
                found = trained(sizes | point, options, seconds)
            except torch.OutOfMemoryError:
                yield {"axis": axis, **point, "error": "out of memory"}
                continue
            yield {"axis": axis, **point, **found, "measured to predicted": predicted(found, base)}


@torch.inference_mode()
def decoding(device: str, wanted: list[str]) -> Iterator[dict[str, Any]]:
    """Tokens a second over rows in flight, and over the length of the prompt."""
    sizes = (12, 768, 50257, 1024) if device == "cuda" else (4, 128, 2048, 512)
    layers, width, vocabulary, context = sizes
    model, _ = models(layers=layers, width=width, vocabulary=vocabulary, context=context)
    model = optimize_for_inference(model.to(device, torch.bfloat16 if device == "cuda" else torch.float32))
    weight_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
    steps = 64
    points = [("rows", rows, 64) for rows in (1, 4, 16, 64, 256)]
    points += [("prompt", 16, prompt) for prompt in (32, 128, 448, 896) if prompt + steps <= context]
    for axis, rows, prompt in points:
        if wanted and axis not in wanted:
            continue
        ids = torch.randint(3, vocabulary, (rows, prompt), generator=torch.Generator().manual_seed(1)).tolist()
        rates = []
        for n in range(4):
            seconds = []
            for count in (1, steps + 1):  # the difference is that of the steps after the first
                start = time.perf_counter()
                generate(model, ids, SamplingOptions(max_tokens=count, temperature=0.0), device=device)
                machine.synchronize(torch.device(device))
                seconds.append(time.perf_counter() - start)
            if n:
                rates.append(rows * steps / max(1e-9, seconds[1] - seconds[0]))
        element = next(model.parameters()).element_size()
        read = weight_bytes + 2 * rows * (prompt + steps / 2) * layers * width * element
        yield {
            "axis": axis,
            axis: rows if axis == "rows" else prompt,
            "tokens_per_second": statistics.median(rates),
            "bytes_a_step": read,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--axes", nargs="+", default=[], help="all by default")
    parser.add_argument("--seconds", type=float, default=0.7, help="of a round, about")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    device = machine.device(given.device, option="--device")
    gpu = device.type == "cuda"
    options = Options(device=device, dtype=torch.bfloat16 if gpu else torch.float32, compile=False)
    about = {
        "machine": torch.cuda.get_device_name() if gpu else f"{torch.get_num_threads()} CPU threads",
        "torch": torch.__version__,
    }
    points = []
    for point in itertools.chain(training(options, given.axes, given.seconds), decoding(device.type, given.axes)):
        points.append(point)
        print(json.dumps(point), flush=True)
        if given.json:
            given.json.write_text(json.dumps(about | {"points": points}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
