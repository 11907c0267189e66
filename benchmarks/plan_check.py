"""`seqwright plan` against measured trainings: parameters, memory and the time of a step.

    python benchmarks/plan_check.py [--device cuda] [--json FILE]

Every case has a process of its own, in which the plan is made and then steps are taken on rows of its shape. On a GPU
each is measured kernel by kernel, captured as a CUDA graph and, in some cases, compiled; memory is what PyTorch
allocates: of the model, with the optimizer's state, and at most. On a CPU memory is by how much the process grows. The
lines of JSON are for fitting: the speed of matrix products, attention and copies on this machine, and the kernels of a
step.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from seqwright import build
from seqwright.core.batch import Batch
from seqwright.pipeline import recipe
from seqwright.pipeline.budget import Discarded
from seqwright.studies.plan import _peak_bytes, _synthetic, plan
from seqwright.training import machine
from seqwright.training.accumulation import select_rows
from seqwright.training.model_size import WithoutInitialization
from seqwright.training.trainer import Trainer

VOCABULARY = 50257
GPT2 = {"layers": 12, "width": 768, "heads": 12, "context": 1024}
CASES: dict[str, dict[str, Any]] = {
    "cpu": {
        "gpt 2 × 128": {"layers": 2, "width": 128, "heads": 4, "context": 128, "batch_size": 32, "vocabulary": 2000},
        "gpt 4 × 256": {"layers": 4, "width": 256, "heads": 4, "context": 256, "batch_size": 8, "vocabulary": 2000},
        "gpt 6 × 384": {"layers": 6, "width": 384, "heads": 6, "context": 256, "batch_size": 4, "vocabulary": 2000},
    },
    "cuda": {
        "gpt 4 × 512": {"layers": 4, "width": 512, "heads": 8, "context": 512, "batch_size": 32, "compile": True},
        "gpt2-124m": GPT2 | {"batch_size": 16},
        "gpt2-124m, 64 rows": GPT2 | {"batch_size": 64},
        "gpt2-124m, checkpointed": GPT2 | {"batch_size": 16, "activation_checkpointing": True},
        "gpt2-355m": {"layers": 24, "width": 1024, "heads": 16, "context": 1024, "batch_size": 16},
        "gpt3-1.3b": {"layers": 24, "width": 2048, "heads": 16, "context": 2048, "batch_size": 4},
        "gpt3-6.7b, 4 layers": {"layers": 4, "width": 4096, "heads": 32, "context": 2048, "batch_size": 4},
        "gpt3-13b, 3 layers": {"layers": 3, "width": 5120, "heads": 40, "context": 2048, "batch_size": 4},
        "gpt2-124m, compiled": GPT2 | {"batch_size": 16, "compile": True},
    },
}
TRAINING = ("batch_size", "activation_checkpointing")
WARM_UP, STEPS = 4, 8
"""Steps that are not timed (the first allocates, the third is captured), and steps that are."""
SECONDS = 40
"""Time limit of a case; twice that where it is compiled, or on a CPU."""


class Rows:
    """A feed of one batch."""

    steps_per_epoch, carried = 1000, False

    def __init__(self, batch: Batch):
        self.only = batch

    def batch(self, step: int) -> Batch:
        return self.only


def table_of(case: dict[str, Any], device: str, precision: str) -> dict[str, Any]:
    sizes = {key: value for key, value in case.items() if key not in (*TRAINING, "compile", "vocabulary")}
    training = {key: value for key, value in case.items() if key in TRAINING}
    return {
        "data": {"kind": "text", "train": "TEXT"},
        "tokenizer": {"kind": "byte-bpe", "size": case.get("vocabulary", VOCABULARY)},
        "model": {"kind": "gpt", "dropout": 0.0} | sizes,
        "training": training | {"device": device, "precision": precision, "steps": 1000},
    }


def check(case: dict[str, Any], device: str, precision: str) -> None:
    """Prints the forecast of one case, and its measurements."""
    wanted = recipe.make(table_of(case, device, precision), settled=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.toml"
        path.write_text(wanted.toml(), encoding="utf-8")
        forecast = plan(path).as_json()
    layers = forecast.pop("layers")
    before = _peak_bytes(torch.device("cpu")) if device == "cpu" else 0
    show("plan", forecast | {"layer_bytes": sum(layer["output_bytes"] for layer in layers), "before": before})
    modes = ["off"]
    if device == "cuda" and "activation_checkpointing" not in case:
        modes += ["cudagraphs"] + ["inductor"] * ("compile" in case)
    for mode in modes:
        try:
            show(mode, measure(replace(wanted, training=replace(wanted.training, compile=mode)), device))
        except RuntimeError as error:
            show(mode, {"error": str(error)[:300]})


def show(kind: str, content: dict[str, Any]) -> None:
    print(json.dumps(content | {"kind": kind}), flush=True)


def measure(wanted: recipe.Recipe, device: str) -> dict[str, Any]:
    """Memory and time of steps."""
    on = torch.device(device)
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    sizes, row = _synthetic(wanted, None, None, None)
    batch = select_rows(row, torch.zeros(wanted.training.batch_size, dtype=torch.long))
    # Initialized on the device: billions of weights take minutes on a CPU.
    with on, WithoutInitialization():
        model = build.model(wanted.model, sizes, task=wanted.data.kind)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    memory = {"model": allocated(on)}
    trainer = Trainer(model, Rows(batch), wanted.training, Discarded())
    first = seconds(trainer.timed_step, on)
    memory["model and optimizer"] = allocated(on)
    for _ in range(WARM_UP - 1):
        trainer.timed_step()
    taken = [seconds(trainer.timed_step, on) for _ in range(STEPS)]
    memory["peak"] = _peak_bytes(on)
    if device == "cuda":
        memory["reserved"] = torch.cuda.max_memory_reserved()
    result = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "memory": memory,
        "first_step": first,
        "step_seconds": statistics.median(taken),
        "fastest": min(taken),
        "captured": trainer.update.capturing,
    }
    if device == "cuda" and wanted.training.compile == "off":
        result["kernels"] = kernels(trainer)
        result["kept"] = kept(trainer, batch, wanted.training.precision)
    return result


def allocated(on: torch.device) -> int:
    return torch.cuda.memory_allocated() if on.type == "cuda" else _peak_bytes(on)


def seconds(work: Callable[[], Any], on: torch.device) -> float:
    machine.synchronize(on)
    start = time.perf_counter()
    work()
    machine.synchronize(on)
    return time.perf_counter() - start


def kernels(trainer: Trainer) -> list[tuple[str, float, int]]:
    """Name, milliseconds and calls of the longest kernels of a step."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        trainer.timed_step()
        torch.cuda.synchronize()
    rows = [(row.key[:80], row.self_device_time_total / 1000, row.count) for row in profile.key_averages()]
    return sorted(rows, key=lambda row: -row[1])[:24]


def kept(trainer: Trainer, batch: Batch, precision: str) -> list[tuple[str, int, float]]:
    """Shape and dtype, number and gigabytes of the storages that autograd keeps for the backward pass."""
    storages: dict[int, tuple[str, int]] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        storages.setdefault(storage.data_ptr(), (f"{tuple(tensor.shape)} {tensor.dtype}", storage.nbytes()))
        return tensor

    moved = batch.to(trainer.device)
    with machine.autocast(trainer.device, precision), torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        trainer.objective.module(moved, None)
    total: dict[str, tuple[int, float]] = {}
    for shape, size in storages.values():
        count, gigabytes = total.get(shape, (0, 0.0))
        total[shape] = count + 1, gigabytes + size / 1e9
    return sorted(((shape, *each) for shape, each in total.items()), key=lambda row: -row[2])[:16]


def fastest(work: Callable[..., Any], *arguments: Any) -> float:
    """Seconds of the fastest of a few calls on a GPU."""
    for _ in range(3):
        work(*arguments)
    return min(seconds(lambda: work(*arguments), torch.device("cuda")) for _ in range(8))


def attention(*parts: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(*parts[:3], is_causal=True)


def attention_and_gradients(*parts: torch.Tensor) -> None:
    attention(*parts).backward(parts[3])


def rates() -> None:
    """Prints the speed of the parts of a step: matrix products, attention, copies and the optimizer, in bf16."""
    on, half = torch.device("cuda"), torch.bfloat16
    for width in (512, 768, 1024, 2048, 4096, 5120):
        x = torch.randn(16384, width, device=on, dtype=half)
        for columns in (width, 3 * width, 4 * width):
            y = torch.randn(columns, width, device=on, dtype=half)
            upstream = torch.randn(16384, columns, device=on, dtype=half)
            operands = {"forward": (x, y.T), "input": (upstream, y), "weight": (upstream.T, x)}
            flops = 2 * 16384 * width * columns
            speeds = {name: flops / fastest(torch.matmul, *pair) for name, pair in operands.items()}
            show("product", {"width": width, "columns": columns} | speeds)
    for heads, size, length in ((12, 64, 1024), (16, 128, 2048), (32, 128, 2048)):
        shape = (16384 // length, heads, length, size)
        parts = [torch.randn(shape, device=on, dtype=half, requires_grad=n < 3) for n in range(4)]
        times = {"forward": fastest(attention, *parts), "both": fastest(attention_and_gradients, *parts)}
        show("attention", {"heads": heads, "size": size, "length": length} | times)
    for numbers in (1 << 22, 1 << 26, 1 << 28):
        x = torch.randn(numbers, device=on)
        show("copy", {"bytes": 8 * numbers, "rate": 8 * numbers / fastest(torch.empty_like(x).copy_, x)})
    weights = [torch.randn(4096, 4096, device=on, requires_grad=True) for _ in range(16)]
    for each in weights:
        each.grad = torch.randn_like(each)
    adam = torch.optim.AdamW(weights, fused=True)
    show("adamw", {"rate": 16 * 4096 * 4096 / fastest(adam.step)})
    show("clip", {"rate": 16 * 4096 * 4096 / fastest(torch.nn.utils.clip_grad_norm_, weights, 1.0)})


def row_of(name: str, forecast: dict[str, Any], mode: str, result: dict[str, Any], before: int) -> str:
    if "error" in result:
        return f"| {name} | {mode} | {result['error']} |"
    planned, counted = forecast["parameters"], result["parameters"]
    parameters = f"{counted:,}" if planned == counted else f"{planned:,}, not {counted:,}"
    memory, peak = forecast["training_bytes"], result["memory"]["peak"] - before
    step, took = forecast["step_seconds"], result["step_seconds"]
    return (
        f"| {name} | {mode} | {parameters} | {memory / 1e9:.2f} | {peak / 1e9:.2f} | {memory / peak:.2f} |"
        f" {1000 * step:.1f} | {1000 * took:.1f} | {step / took:.2f} |"
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    arguments.add_argument("--precision", help="default: bf16 on a GPU, fp32 on a CPU")
    arguments.add_argument("--json", type=Path, metavar="FILE")
    arguments.add_argument("--case", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    precision = given.precision or ("bf16" if given.device == "cuda" else "fp32")
    cases = CASES[given.device]
    if given.case == "rates":
        rates()
        return
    if given.case:
        check(cases[given.case], given.device, precision)
        return
    name = torch.cuda.get_device_name() if given.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{name}, {precision}, torch {torch.__version__}, Python {platform.python_version()}\n")
    print("| training | steps | parameters | memory, GB | measured | ratio | step, ms | measured | ratio |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    about = {"device": name, "precision": precision, "torch": torch.__version__}
    results: dict[str, list[dict[str, Any]]] = {}
    for case in [*(["rates"] if given.device == "cuda" else []), *cases]:
        command = [sys.executable, __file__, "--device", given.device, "--precision", precision, "--case", case]
        results[case] = run(command, SECONDS * (2 if given.device == "cpu" or "compile" in cases.get(case, {}) else 1))
        forecast = next((line for line in results[case] if line["kind"] == "plan"), {})
        for line in results[case]:
            if "memory" in line or "error" in line:
                print(row_of(case, forecast, line["kind"], line, forecast.get("before", 0)), flush=True)
        if given.json:
            given.json.write_text(json.dumps(about | {"cases": results}, indent=1) + "\n", encoding="utf-8")
    if given.device == "cuda":
        print()
        for case, lines in results.items():
            for line in lines:
                print(json.dumps({"case": case} | line))


def run(command: list[str], limit: float) -> list[dict[str, Any]]:
    """Lines of JSON of a case: those before its time limit, or an error, and the error."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as problems:
        try:
            code = subprocess.run(command, stdout=out, stderr=problems, timeout=limit, check=False).returncode
        except subprocess.TimeoutExpired:
            code = None
        out.seek(0)
        problems.seek(0)
        lines = [json.loads(line) for line in out if line.startswith("{")]
        if code is None:
            lines.append({"kind": "stopped", "error": f"more than {limit} s"})
        elif code:
            lines.append({"kind": "stopped", "error": " / ".join(problems.read().splitlines()[-3:])})
    return lines


if __name__ == "__main__":
    main()
