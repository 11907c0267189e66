"""The cost of DDP and FSDP2: one process of each against the plain step of the same model, in turns, in one run.

    python benchmarks/parallel_cost.py [--device cuda] [--sizes 124m 355m] [--rounds 6]

A group of one process communicates nothing, so what is left is the cost of wrapping: buckets of gradients (DDP), and
gathering, casting and freeing the weights of every block (FSDP2), whose model is filled block by block, as in training.
The losses of the first step must agree. On a GPU by NCCL, elsewhere by gloo. Steps are run
kernel by kernel, as those of several ranks are; the last line is a plain step captured as a CUDA graph. Exits with an
error where wrapping costs more than `--most` percent of a size. What FSDP2 does on the host for each parameter does not
depend on its size: a small model shows it, a larger one hides it behind the GPU's work.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from seqwright import build
from seqwright.core.batch import Batch, Vocabulary
from seqwright.core.ranks import SINGLE
from seqwright.training import machine
from seqwright.training.config import TrainingConfig
from seqwright.training.meta_weights import MetaWeights
from seqwright.training.objective import Objective
from seqwright.training.optimizer import optimizer
from seqwright.training.parallel import DataParallel, FullySharded, SingleProcess
from seqwright.training.update import Update

KINDS = ("plain", "ddp", "fsdp")
SIZES = {
    "tiny": {"layers": 4, "width": 128, "heads": 4, "context": 64, "vocabulary": 512, "rows": 8},
    "124m": {"layers": 12, "width": 768, "heads": 12, "context": 1024, "vocabulary": 50304, "rows": 32},
    "355m": {"layers": 24, "width": 1024, "heads": 16, "context": 1024, "vocabulary": 50304, "rows": 16},
}


def gpt(given: argparse.Namespace) -> nn.Module:
    sizes = Vocabulary(size=given.vocabulary, unk=0, pad=1, sos=2, eos=3, mask=4)
    table = {"kind": "gpt", "layers": given.layers, "width": given.width, "heads": given.heads}
    config = build.model_config(table | {"context": given.context, "dropout": 0.0}, task="text")
    model: nn.Module = build.model(config, sizes, task="text")
    return model


def update(kind: str, model: nn.Module, given: argparse.Namespace, device: torch.device) -> Update:
    """One optimizer step, as `seqwright train` takes it on one rank."""
    config = TrainingConfig(precision=given.precision, compile="cudagraphs" if kind == "captured" else "off")
    meta = MetaWeights(model, SINGLE, device) if kind == "fsdp" else None
    model = (copy.deepcopy(model).to(device) if meta is None else meta.model).train()
    objective = Objective(model)  # type: ignore[arg-type]
    wrapped = SingleProcess(objective)
    if kind == "ddp":
        wrapped = DataParallel(objective, SINGLE)
    elif kind == "fsdp":
        stacks, bf16 = machine.transformer_stacks(objective), given.precision == "bf16"
        wrapped = FullySharded(objective, stacks, SINGLE, on=device, bf16=bf16, cpu_offload=False, meta=meta)
    return Update(wrapped, optimizer(model, config, SINGLE, wrapped.shards), config, device)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--precision", default="bf16")
    arguments.add_argument("--sizes", nargs="+", choices=SIZES, default=["124m"])
    arguments.add_argument("--rounds", type=int, default=9, help="rounds of steps; the median counts")
    arguments.add_argument("--steps", type=int, default=5, help="steps of a round")
    arguments.add_argument("--most", type=float, default=100.0, help="percent that wrapping may cost")
    given = arguments.parse_args()
    device = machine.device(given.device, option="--device")
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    with tempfile.TemporaryDirectory() as folder:
        store = dist.FileStore(str(Path(folder) / "store"), 1)
        dist.init_process_group(backend, store=store, rank=0, world_size=1)
        costs = [measured(argparse.Namespace(**vars(given), **SIZES[size]), device) for size in given.sizes]
        dist.destroy_process_group()
    if max(costs) > given.most:
        sys.exit(f"wrapping costs more than {given.most:g} %.")


def measured(given: argparse.Namespace, device: torch.device) -> float:
    """Prints the table of a size; the greater cost of DDP and FSDP2 in percent."""
    model = gpt(given)
    kinds = (*KINDS, "captured") if device.type == "cuda" else KINDS
    updates = {kind: update(kind, model, given, device) for kind in kinds}
    ids = torch.randint(5, given.vocabulary, (given.rows, given.context + 1))
    batch = Batch.of_text(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    losses: dict[str, float] = {}
    for turn in range(given.rounds + 1):
        for kind, step in updates.items():
            machine.synchronize(device)
            start = time.perf_counter()
            for number in range(given.steps):
                loss, _, _ = step(batch, None, number)
                if kind not in losses:
                    losses[kind] = float(loss) / batch.count
            machine.synchronize(device)
            if turn:  # the first round warms up
                seconds[kind].append((time.perf_counter() - start) / given.steps)
    # Of the ratios to the plain step of the same round: a busy machine slows down both.
    ratios = {kind: [one / plain for one, plain in zip(seconds[kind], seconds["plain"], strict=True)] for kind in kinds}
    cost = {kind: 100 * (statistics.median(ratios[kind]) - 1) for kind in kinds[1:]}
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    size = f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} million parameters"
    print(
        f"{name}, {given.precision}, GPT of {size}, {given.rows} × {given.context} tokens a step,"
        f" torch {torch.__version__}"
    )
    print("| step | ms | cost |\n|---|---|---|")
    for kind in kinds:
        change = "" if kind == "plain" else f"{cost[kind]:+.1f} %"
        print(f"| {kind} | {1000 * statistics.median(seconds[kind]):.1f} | {change} |")
    medians = {kind: statistics.median(of_kind) for kind, of_kind in seconds.items()}
    print(json.dumps({"device": name, "cost_percent": cost, "seconds": medians, "first_loss": losses}))
    if max(losses.values()) - min(losses.values()) > 1e-3 * losses["plain"]:
        sys.exit("the first losses differ.")
    return max(cost["ddp"], cost["fsdp"])


if __name__ == "__main__":
    main()
