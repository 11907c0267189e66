"""The cost of DDP and FSDP2: one process of each against the plain step of the same model, in turns, in one run.

    python benchmarks/parallel_cost.py [--device cuda] [--cases 124m gpt2-124m 355m 355m-32] [--seconds 20]
        [--compile inductor] [--captured] [--json FILE]

A group of one process communicates nothing, so what is left is the cost of wrapping: buckets of gradients (DDP), and
gathering, casting and freeing weights (FSDP2), whose model is filled group by group, as in training. `gpt2-124m` is
the step of that recipe, its micro-batches accumulated, of which `--passes` are taken (the recipe has 16, over which
the cost of a step is spread further). The losses of the first step must agree. On a GPU by NCCL, elsewhere by gloo.

Kinds take turns, in another order each round, for about a second each; a cost is the median over rounds of the ratio to
the plain step of the same round, with its quartiles. "host" is a step of one row of 32 tokens, which waits for nothing
but the host: where it is below the step's time, the GPU hides it. By default steps are run kernel by kernel, as several
ranks run them unless their recipe says `compile = "inductor"`; one process captures or compiles by default, so that
the price of several ranks is the difference to "captured" as well (`--captured`; a graph keeps memory of its own).
"busy" is the time of the GPU's kernels in a step by PyTorch's profiler: where it is as long as the step, the host costs
nothing, and what wrapping adds is work of the GPU.
Exits with an error where wrapping costs more than `--most` percent in a case.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from seqwright import build
from seqwright.core.batch import Batch, Vocabulary
from seqwright.core.ranks import SINGLE
from seqwright.pipeline import recipe as recipes
from seqwright.training import machine, parallel
from seqwright.training.config import TrainingConfig
from seqwright.training.meta_weights import MetaWeights
from seqwright.training.objective import Objective
from seqwright.training.optimizer import optimizer
from seqwright.training.parallel import DataParallel, FullySharded, SingleProcess
from seqwright.training.update import Update

KINDS = ("plain", "ddp", "fsdp")
TURN_SECONDS = 0.8
"""Of steps that are launched one after the other, as training does between log lines."""


@dataclass(frozen=True)
class Case:
    """A model and its step: `rows` at a time, `passes` of them."""

    model: dict[str, Any]
    vocabulary: int
    rows: int
    passes: int = 1

    @property
    def context(self) -> int:
        return int(self.model["context"])


def gpt2(layers: int, width: int, heads: int, rows: int) -> Case:
    return Case({"layers": layers, "width": width, "heads": heads, "context": 1024}, 50304, rows)


def of_recipe(name: str, passes: int) -> Case:
    recipe = recipes.load(name, ["data.train=embedded:topics"])
    assert isinstance(recipe.training.micro_batch_size, int)
    return Case(recipe.model.to_table(), recipe.tokenizer.size, recipe.training.micro_batch_size, passes)


CASES = {
    "tiny": Case({"layers": 4, "width": 128, "heads": 4, "context": 64}, 512, 8),
    "deep": Case({"layers": 24, "width": 32, "heads": 2, "context": 32}, 512, 2),
    "124m": gpt2(12, 768, 12, 32),
    "gpt2-124m": Case({}, 0, 0),
    "355m": gpt2(24, 1024, 16, 16),
    "355m-32": gpt2(24, 1024, 16, 32),
    "355m-48": gpt2(24, 1024, 16, 48),
}
"""Cases by name; the recipe's sizes are its own. The host of "deep" has as much to do as that of 355m."""


def update(kind: str, model: nn.Module, case: Case, given: argparse.Namespace, device: torch.device) -> Update:
    """One optimizer step, as `seqwright train` takes it on one rank."""
    rows = case.rows if case.passes > 1 else None
    config = TrainingConfig(precision=given.precision, compile=given.compile, micro_batch_size=rows)
    run = replace(config, compile="cudagraphs" if kind == "captured" else "off")  # compiled or not, as prepared below
    meta = MetaWeights(model, SINGLE, device) if kind == "fsdp" else None
    model = (copy.deepcopy(model).to(device) if meta is None else meta.model).train()
    objective = Objective(model)  # type: ignore[arg-type]
    wrapped: SingleProcess
    if meta is not None:
        if machine.compiles(config, device):
            machine.compile_blocks(objective)
        stacks, bf16 = machine.transformer_stacks(objective), given.precision == "bf16"
        wrapped = FullySharded(objective, stacks, SINGLE, on=device, bf16=bf16, cpu_offload=False, meta=meta)
    else:
        wrapped = machine.prepare(objective, config, device)
        if kind == "ddp":
            wrapped = DataParallel(wrapped.module, SINGLE)
    return Update(wrapped, optimizer(model, run, SINGLE, wrapped.shards), run, device)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--precision", default="bf16")
    arguments.add_argument("--cases", nargs="+", choices=CASES, default=["124m"])
    arguments.add_argument("--passes", type=int, default=4, help="micro-batches of a step of the recipe")
    arguments.add_argument("--compile", choices=["off", "inductor"], default="off")
    arguments.add_argument("--group", type=float, metavar="MILLIONS", help="parameters of a group of blocks, at least")
    arguments.add_argument("--captured", action="store_true", help="also the plain step as a CUDA graph")
    arguments.add_argument("--seconds", type=float, default=20, help="for each case, after a warm-up")
    arguments.add_argument("--most", type=float, default=100.0, help="percent that wrapping may cost")
    arguments.add_argument("--json", type=Path, metavar="FILE", help="numbers, of the cases so far")
    given = arguments.parse_args()
    device = machine.device(given.device, option="--device")
    if given.group:
        parallel.GROUP_PARAMETERS = round(1e6 * given.group)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{name}, {given.precision}, compile = {given.compile}, torch {torch.__version__}\n", flush=True)
    print("| case | parameters | tokens a step | kind | ms | host ms | busy ms | cost (quartiles), % | rounds |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        store = dist.FileStore(str(Path(folder) / "store"), 1)
        dist.init_process_group(backend, store=store, rank=0, world_size=1)
        results: dict[str, dict[str, Any]] = {}
        for each in given.cases:
            case = of_recipe(each, given.passes) if each == "gpt2-124m" else CASES[each]
            results[each] = measured(each, case, given, device)
            about = {"device": name, "torch": torch.__version__, "date": time.strftime("%Y-%m-%d")}
            about |= {"precision": given.precision, "compile": given.compile, "group": given.group, "cases": results}
            if given.json:
                given.json.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        dist.destroy_process_group()
    for each, result in results.items():
        losses = result["first_loss"].values()
        if max(losses) - min(losses) > 1e-3 * min(losses):
            sys.exit(f"the first losses of {each} differ.")
    most = max(result["cost_percent"][kind][1] for result in results.values() for kind in KINDS[1:])
    if most > given.most:
        sys.exit(f"wrapping costs more than {given.most:g} %.")


def measured(name: str, case: Case, given: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Prints the rows of a case; returns their numbers."""
    sizes = Vocabulary(size=case.vocabulary, unk=0, pad=1, sos=2, eos=3, mask=4)
    config = build.model_config({"kind": "gpt", "dropout": 0.0} | case.model, task="text")
    model: nn.Module = build.model(config, sizes, task="text")
    kinds = (*KINDS, "captured") if given.captured and device.type == "cuda" and case.passes == 1 else KINDS
    updates = {kind: update(kind, model, case, given, device) for kind in kinds}
    batch, one_row = (
        batch_of(rows, length, case.vocabulary)
        for rows, length in ((case.rows * case.passes, case.context), (1, min(32, case.context)))
    )
    losses = {kind: float(step(batch, None, 0)[0]) / batch.count for kind, step in updates.items()}
    each = max(1, round(TURN_SECONDS / timed(updates["plain"], batch, 2, device)))
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    end = time.perf_counter() + given.seconds
    while time.perf_counter() < end or len(seconds["plain"]) < 3:
        first = len(seconds["plain"]) % len(kinds)
        for kind in kinds[first:] + kinds[:first]:
            seconds[kind].append(timed(updates[kind], batch, each, device))
    host = {}
    if given.compile == "off":  # another shape would be compiled once more
        host = {kind: statistics.median(timed(updates[kind], one_row, 5, device) for _ in range(5)) for kind in KINDS}
    busy = {kind: gpu_seconds(updates[kind], batch) for kind in KINDS} if device.type == "cuda" else {}
    cost = {}
    for kind in kinds:
        # Of the ratios to the plain step of the same round: a busy machine slows down both.
        ratios = [one / plain for one, plain in zip(seconds[kind], seconds["plain"], strict=True)]
        cost[kind] = [100 * (quartile - 1) for quartile in statistics.quantiles(ratios)]
    medians = {kind: statistics.median(of_kind) for kind, of_kind in seconds.items()}
    million = sum(p.numel() for p in model.parameters()) / 1e6
    print_rows(f"{name} | {million:.0f} M | {described(case)}", medians, host, busy, cost, len(seconds["plain"]))
    del updates
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return {
        "rounds": len(seconds["plain"]),
        "seconds": medians,
        "host_seconds": host,
        "gpu_seconds": busy,
        "cost_percent": cost,
        "first_loss": losses,
    }


def batch_of(rows: int, length: int, vocabulary: int) -> Batch:
    ids = torch.randint(5, vocabulary, (rows, length + 1))
    return Batch.of_text(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())


def timed(step: Update, batch: Batch, steps: int, device: torch.device) -> float:
    """Seconds of a step."""
    machine.synchronize(device)
    start = time.perf_counter()
    for number in range(steps):
        step(batch, None, number)
    machine.synchronize(device)
    return (time.perf_counter() - start) / steps


def gpu_seconds(step: Update, batch: Batch) -> float:
    """Seconds in which the GPU computes or copies during a step: kernels that overlap count once."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step(batch, None, 0)
        torch.cuda.synchronize()
    ranges = sorted(
        (each.time_range.start, each.time_range.end)
        for each in profile.events() or ()
        if each.device_type == torch.autograd.DeviceType.CUDA and not getattr(each, "is_user_annotation", False)
    )
    total, until = 0.0, 0.0
    for start, end in ranges:
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total / 1e6  # of microseconds


def described(case: Case) -> str:
    rows = f"{case.rows} × {case.context}"
    return rows if case.passes == 1 else f"{case.passes} × {rows}"


def print_rows(
    case: str,
    medians: dict[str, float],
    host: dict[str, float],
    busy: dict[str, float],
    cost: dict[str, Sequence[float]],
    rounds: int,
) -> None:
    for kind, seconds in medians.items():
        low, middle, high = cost[kind]
        change = "" if kind == "plain" else f"{middle:+.1f} ({low:+.1f} to {high:+.1f})"
        waits, computes = (f"{1000 * each[kind]:.1f}" if kind in each else "" for each in (host, busy))
        print(f"| {case} | {kind} | {1000 * seconds:.1f} | {waits} | {computes} | {change} | {rounds} |", flush=True)


if __name__ == "__main__":
    main()
