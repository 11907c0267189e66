"""`seqwright plan` against measured trainings: parameters, memory and the time of a step.

    python benchmarks/plan_check.py [--device cuda] [--json FILE] [--cases NAME …]

Every case has a process of its own, in which the plan is made and then steps are taken on rows of its shape. On a GPU
each is measured kernel by kernel, captured as a CUDA graph and, in some cases, compiled; memory is what PyTorch
allocates at most. On a CPU memory is by how much the process grows, after steps of a tiny model. The JSON has the
milliseconds of kernels by kind as well, which the shares of studies/device_speed.py were read from, and what was
allocated before a measurement began.

Cases of several ranks are rank 0 of so many with PyTorch's "fake" process group, which gives collectives the shapes of
that many ranks and sends nothing: memory is that of a rank, and time what a rank computes, to which `plan` adds what is
sent. The numbers themselves are wrong then, so losses are not looked at.
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
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from seqwright import build
from seqwright.core.batch import Batch
from seqwright.core.ranks import SINGLE, Ranks
from seqwright.pipeline import recipe
from seqwright.pipeline.budget import Discarded
from seqwright.studies.plan import _peak_bytes, _synthetic, plan
from seqwright.training.model_size import WithoutInitialization
from seqwright.training.parallel import DataParallel
from seqwright.training.trainer import Trainer

VOCABULARY = 50257
GPT2 = {"layers": 12, "width": 768, "heads": 12, "context": 1024}
GPT2_355M = GPT2 | {"layers": 24, "width": 1024, "heads": 16}
GPT3_XL = {"layers": 24, "width": 2048, "heads": 16, "context": 2048}
CASES: dict[str, dict[str, Any]] = {
    "cpu": {
        "gpt 2 × 128": {"layers": 2, "width": 128, "heads": 4, "context": 128, "batch_size": 64, "vocabulary": 2000},
        "gpt 4 × 256": {"layers": 4, "width": 256, "heads": 4, "context": 256, "batch_size": 16, "vocabulary": 2000},
        "gpt 6 × 384": {"layers": 6, "width": 384, "heads": 6, "context": 256, "batch_size": 8, "vocabulary": 2000},
        "gpt 4 × 768": {"layers": 4, "width": 768, "heads": 12, "context": 256, "batch_size": 4, "vocabulary": 8000},
        "gpt 3 × 320": {"layers": 3, "width": 320, "heads": 5, "context": 512, "batch_size": 6, "vocabulary": 5000},
        "gpt 5 × 448": {"layers": 5, "width": 448, "heads": 7, "context": 192, "batch_size": 10, "vocabulary": 3000},
        "gpt 8 × 192": {"layers": 8, "width": 192, "heads": 6, "context": 128, "batch_size": 24, "vocabulary": 1000},
    },
    "cuda": {
        "gpt 4 × 512": {"layers": 4, "width": 512, "heads": 8, "context": 512, "batch_size": 32, "compile": True},
        "gpt2-124m": GPT2 | {"batch_size": 16},
        "gpt2-124m, 64 rows": GPT2 | {"batch_size": 64},
        "gpt2-124m, checkpointed": GPT2 | {"batch_size": 16, "activation_checkpointing": True},
        "gpt2-355m": GPT2_355M | {"batch_size": 16},
        "gpt3-1.3b": GPT3_XL | {"batch_size": 4},
        "gpt3-6.7b, 4 layers": {"layers": 4, "width": 4096, "heads": 32, "context": 2048, "batch_size": 4},
        "gpt3-13b, 3 layers": {"layers": 3, "width": 5120, "heads": 40, "context": 2048, "batch_size": 4},
        "gpt2-124m, compiled": GPT2 | {"batch_size": 16, "compile": True},
        "gpt2-124m, ddp": GPT2 | {"batch_size": 16, "parallel": "ddp", "ranks": 8},
        "gpt2-124m, fsdp": GPT2 | {"batch_size": 16, "parallel": "fsdp", "ranks": 8, "compile": True},
        "gpt2-355m, fsdp": GPT2_355M | {"batch_size": 16, "parallel": "fsdp", "ranks": 8},
        "gpt2-355m, fsdp, 2 passes": GPT2_355M
        | {"batch_size": 16, "micro_batch_size": 8, "parallel": "fsdp", "ranks": 8},
        "gpt3-1.3b, fsdp": GPT3_XL | {"batch_size": 4, "parallel": "fsdp", "ranks": 8},
    },
}
TRAINING = ("activation_checkpointing", "micro_batch_size", "parallel")
KERNELS = {
    "products": ("nvjet", "gemm", "cutlass"),
    "attention": ("sdpa", "flash", "cudnn::fusion"),
    "update": ("multi_tensor_apply",),
}
"""Parts of the names of kernels, by kind."""
GPU = "H200"
"""The GPU that forecasts of several ranks are of."""
WARM_UP, STEPS = 4, 8
"""Steps that are not timed (the first allocates, the third is captured), and steps that are."""
SECONDS = 60
"""Time limit of a case; twice that where it is compiled, or on a CPU."""


class Rows:
    """A feed of one batch."""

    steps_per_epoch, carried = 1000, False

    def __init__(self, batch: Batch):
        self.only = batch

    def batch(self, step: int) -> Batch:
        return self.only


def table_of(case: dict[str, Any], device: str, precision: str, mode: str) -> dict[str, Any]:
    """The recipe of a case; its `batch_size` is of one rank."""
    others = (*TRAINING, "batch_size", "ranks", "compile", "vocabulary")
    sizes = {key: value for key, value in case.items() if key not in others}
    training = {key: value for key, value in case.items() if key in TRAINING}
    training["batch_size"] = case["batch_size"] * case.get("ranks", 1)
    return {
        "data": {"kind": "text", "train": "TEXT"},
        "tokenizer": {"kind": "byte-bpe", "size": case.get("vocabulary", VOCABULARY)},
        "model": {"kind": "gpt", "dropout": 0.0} | sizes,
        "training": training | {"device": device, "precision": precision, "compile": mode, "steps": 1000},
    }


def check(case: dict[str, Any], device: str, precision: str) -> None:
    """Prints the forecasts of one case and their measurements, as lines of JSON."""
    modes, ranks = ["off"], case.get("ranks", 1)
    if device == "cuda" and ranks == 1 and "activation_checkpointing" not in case:
        modes.append("cudagraphs")
    modes += ["inductor"] * (device == "cuda" and "compile" in case)
    if ranks > 1:
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    for mode in modes:
        table = table_of(case, device, precision, mode)
        line: dict[str, Any] = {"mode": mode, "case": case}
        before = 0
        if device == "cpu":
            small = case | {"layers": 1, "width": 16, "heads": 1, "batch_size": 1}
            measure(recipe.make(table_of(small, device, precision, mode), settled=True), device)
            before = _peak_bytes(torch.device("cpu"))  # what libraries take is there already
        try:
            line["measured"] = measure(recipe.make(table, settled=True), device, Ranks(0, ranks))
            line["measured"]["peak_bytes"] -= before
            line["forecast"] = forecast(table, ranks)  # last: a process on a CPU does not shrink
        except RuntimeError as error:
            line["error"] = str(error)[:300]
        print(json.dumps(line), flush=True)


def forecast(table: dict[str, Any], ranks: int) -> dict[str, Any]:
    """Parameters, bytes and seconds of a step, by `plan`; of several ranks those of one, without what it sends."""
    parallel = table["training"].pop("parallel", None)  # both are forecast, also by a PyTorch that refuses fsdp
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.toml"
        path.write_text(recipe.make(table, settled=True).toml(), encoding="utf-8")
        made = plan(path, gpus=ranks, gpu=GPU) if ranks > 1 else plan(path)
    for strategy in made.strategies or ():
        if strategy.parallel == parallel:
            of_rank = {"peak_bytes": round(strategy.memory), "step_seconds": strategy.compute_seconds}
            return {"parameters": made.parameters} | of_rank | {"strategy": strategy.as_json()}
    return {"parameters": made.parameters, "peak_bytes": made.training_bytes, "step_seconds": made.step_seconds}


def measure(wanted: recipe.Recipe, device: str, ranks: Ranks = SINGLE) -> dict[str, Any]:
    """Memory and time of steps of rank 0."""
    on = torch.device(device)
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() if device == "cuda" else 0
    sizes, row = _synthetic(wanted, None, None, None)
    batch = row.rows_of(torch.zeros(wanted.training.batch_size, dtype=torch.long))
    # Initialized on the device: billions of weights take minutes on a CPU. Rank 0 of FSDP2 has the model there.
    sharded = ranks.size > 1 and wanted.training.parallel == "fsdp"
    with torch.device("cpu") if sharded else on, WithoutInitialization():
        model = build.model(wanted.model, sizes, task=wanted.data.kind)
    for parameter in model.parameters():
        torch.nn.init.uniform_(parameter, -0.03, 0.03)
    trainer = Trainer(model, Rows(batch), wanted.training, Discarded(), ranks=ranks)
    if isinstance(trainer.objective, DataParallel):
        trainer.objective._wrapped().register_comm_hook(on, unsent)  # the fake group's results are not for DDP
    for _ in range(WARM_UP):
        trainer.timed_step()
    taken = [seconds(trainer.timed_step, on) for _ in range(STEPS)]
    result = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "peak_bytes": _peak_bytes(on),
        "step_seconds": statistics.median(taken) if device == "cuda" else min(taken),  # a CPU may be busy
    }
    if device == "cuda":
        result["before_bytes"] = before
        result["reserved_bytes"] = torch.cuda.max_memory_reserved()
        if wanted.training.compile == "off":
            result["kernels"] = kernels(trainer)
    return result


def unsent(on, bucket):  # type: ignore[no-untyped-def]  # DDP compares types, which are strings here
    """Gradients of a bucket as they are."""
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=[on] if on.type == "cuda" else None)
    done.set_result(bucket.buffer())
    return done


def seconds(work: Callable[[], Any], on: torch.device) -> float:
    """Seconds of some work; on a CPU those of this process, on as many cores as it has threads: others may be busy."""
    if on.type == "cpu":
        start = time.process_time()
        work()
        return (time.process_time() - start) / torch.get_num_threads()
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def kernels(trainer: Trainer) -> dict[str, float]:
    """Milliseconds of a step's kernels, by kind."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        trainer.timed_step()
        torch.cuda.synchronize()
    total = dict.fromkeys((*KERNELS, "others"), 0.0)
    for row in profile.key_averages():
        kind = next((kind for kind, parts in KERNELS.items() if any(part in row.key for part in parts)), "others")
        total[kind] += row.self_device_time_total / 1000
    return total


def row_of(name: str, line: dict[str, Any]) -> str:
    """A line of the table."""
    mode = f"{name} | {line['mode']}"
    if ranks := line.get("case", {}).get("ranks"):
        mode = f"{name}, {ranks} ranks | {line['mode']}"
    if "error" in line:
        return f"| {mode} | {line['error']} |"
    (planned, memory, step), (counted, peak, took) = (
        [line[side][key] for key in ("parameters", "peak_bytes", "step_seconds")] for side in ("forecast", "measured")
    )
    parameters = f"{counted:,}" if planned == counted else f"{planned:,}, not {counted:,}"
    return (
        f"| {mode} | {parameters} | {memory / 1e9:.2f} | {peak / 1e9:.2f} | {memory / peak:.2f} |"
        f" {1000 * step:.1f} | {1000 * took:.1f} | {step / took:.2f} |"
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    arguments.add_argument("--precision", help="default: bf16 on a GPU, fp32 on a CPU")
    arguments.add_argument("--json", type=Path, metavar="FILE")
    arguments.add_argument("--cases", nargs="+", choices=[*CASES["cpu"], *CASES["cuda"]], metavar="NAME")
    arguments.add_argument("--case", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    precision = given.precision or ("bf16" if given.device == "cuda" else "fp32")
    cases = CASES[given.device]
    if given.cases:
        cases = {case: cases[case] for case in given.cases if case in cases}
    if given.case:
        check(cases[given.case], given.device, precision)
        return
    name = torch.cuda.get_device_name() if given.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{name}, {precision}, torch {torch.__version__}, Python {platform.python_version()}\n")
    print("| training | steps | parameters | memory, GB | measured | ratio | step, ms | measured | ratio |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    about = {"device": name, "precision": precision, "torch": torch.__version__}
    results: dict[str, list[dict[str, Any]]] = {}
    for case in cases:
        command = [sys.executable, __file__, "--device", given.device, "--precision", precision, "--case", case]
        results[case] = run(command, SECONDS * (2 if given.device == "cpu" or "compile" in cases.get(case, {}) else 1))
        for line in results[case]:
            print(row_of(case, line), flush=True)
        if given.json:
            given.json.write_text(json.dumps(about | {"cases": results}, indent=1) + "\n", encoding="utf-8")


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
            lines.append({"mode": "stopped", "error": f"more than {limit} s"})
        elif code:
            lines.append({"mode": "stopped", "error": " / ".join(problems.read().splitlines()[-3:])})
    return lines


if __name__ == "__main__":
    main()
