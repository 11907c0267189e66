"""Training speed beside what a user would pick instead: our Trainer and a peer's loop in turns, in one run.

    python benchmarks/training.py [--device cpu] [--models gpt lstm] [--json FILE] [--set KEY=VALUE]

Our side is the step that `seqwright train` takes, batches included: a feed and `Trainer.timed_step`. Both sides train
the same model on the same ids, in float32 or under bf16 autocast with float32 weights. Rounds of steps alternate; the
median round counts: by the clock on a GPU; on a CPU, which others may use, by CPU time, and each side in a process of
its own, since ours sets how the process keeps memory. MFU is the share of the device's peak that the model's
arithmetic takes (Chowdhery et al. 2022): 6 operations for each weight of a matrix product and token, 12 · layers ·
length · width for attention. The floor is the time of a step at that peak. `benchmarks/peers/workloads.py` has the
table of models.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from peers.loop import Options, Step
from peers.peak import cpu_name, cpu_peak
from peers.workloads import CYCLE, WORKLOADS, Workload, ours, tokens_per_step
from seqwright.training import machine
from seqwright.training.mfu import peak_flops

SIDES = ("seqwright", "peer")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(kw_only=True)
class Side:
    """One program under measurement."""

    step: Step
    first: float
    """Seconds from building to the end of the warm-up, compilation included."""
    resident: int
    """Bytes that it holds on the GPU between steps."""
    seconds: list[float] = field(default_factory=list)
    peak: int = 0
    parameters: int = 0

    @classmethod
    def begin(cls, make: Callable[[], tuple[nn.Module, Step]], device: torch.device, warmup: int) -> Side:
        before, start = allocated(device), time.perf_counter()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        model, step = make()
        for _ in range(warmup):
            step()
        machine.synchronize(device)
        first = time.perf_counter() - start
        # Also of the warm-up: the memory of captured steps is not allocated again when they are replayed.
        peak = torch.cuda.max_memory_allocated(device) - before if device.type == "cuda" else 0
        parameters = sum(p.numel() for p in model.parameters())
        return cls(step=step, first=first, resident=allocated(device) - before, peak=peak, parameters=parameters)

    def round(self, steps: int, device: torch.device) -> None:
        """Times so many steps; peak memory without what the other side holds."""
        others = allocated(device) - self.resident
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        clock = time.process_time if device.type == "cpu" else time.perf_counter
        start = clock()
        for _ in range(steps):
            self.step()
        machine.synchronize(device)
        self.seconds.append((clock() - start) / steps)
        if device.type == "cuda":
            self.peak = max(self.peak, torch.cuda.max_memory_allocated(device) - others)

    def facts(self, workload: Workload, tokens: float, peak: float) -> dict[str, Any]:
        seconds = statistics.median(self.seconds)
        return {
            "parameters": self.parameters,
            "milliseconds": round(1e3 * seconds, 3),
            "tokens_per_second": round(tokens / seconds),
            "mfu": round(workload.operations * tokens / (workload.rows * workload.length) / seconds / peak, 4),
            "peak_gib": round(self.peak / 2**30, 2) or None,
            "seconds_to_warm": round(self.first, 1),
        }


@dataclass(kw_only=True)
class RemoteSide(Side):
    """A side in a process of its own, which waits for its turn."""

    here: Any
    process: Any

    @classmethod
    def begin(cls, make: Callable[[], tuple[nn.Module, Step]], device: torch.device, warmup: int) -> RemoteSide:
        here, there = multiprocessing.get_context("fork").Pipe()
        process = multiprocessing.get_context("fork").Process(
            target=serve, args=(there, make, device, warmup), daemon=True
        )
        process.start()
        first, parameters = here.recv()
        if isinstance(first, ImportError):
            raise first
        waiting = {"step": lambda: None, "here": here, "process": process}
        return cls(first=first, resident=0, parameters=parameters, **waiting)

    def round(self, steps: int, device: torch.device) -> None:
        self.here.send(steps)
        self.seconds.append(self.here.recv())


def serve(pipe: Any, make: Callable[[], tuple[nn.Module, Step]], device: torch.device, warmup: int) -> None:
    """Runs a side's rounds as they are asked for."""
    try:
        side = Side.begin(make, device, warmup)
    except ImportError as error:
        pipe.send((error, 0))
        return
    pipe.send((side.first, side.parameters))
    while True:
        side.round(pipe.recv(), device)
        pipe.send(side.seconds[-1])


def allocated(device: torch.device) -> int:
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def peak_rate(options: Options) -> float:
    """Operations a second of the device at its best in this precision."""
    if options.device.type == "cpu":
        return cpu_peak(options.dtype)
    published = peak_flops(options.device) if options.dtype == torch.bfloat16 else None
    return published or machine.flops(options.device)


def compared(workload: Workload, options: Options, given: argparse.Namespace) -> dict[str, Any]:
    """Both sides in turns: their facts, and how many times the peer's rate ours is."""
    device = options.device
    makers: dict[str, Callable[[], tuple[nn.Module, Step]]] = {
        "seqwright": partial(ours, workload, options, given.set),
        "peer": partial(
            workload.peer, workload, replace(options, dtype=DTYPES[given.peer_precision or given.precision])
        ),
    }
    kind = RemoteSide if device.type == "cpu" else Side
    sides, skipped = {}, None
    for name in given.sides:
        try:
            sides[name] = kind.begin(makers[name], device, given.warmup)
        except ImportError as error:
            skipped = f"{workload.peer_name} is not installed ({error}): no ratio."
    for n in range(given.rounds + 1):
        for side in sides.values():
            # Whole cycles of padded batches, so that both sides see the same lengths.
            side.round(CYCLE * max(1, round(given.seconds / side.seconds[0] / CYCLE)) if n else CYCLE, device)
    for side in sides.values():
        if isinstance(side, RemoteSide):
            side.process.terminate()
    tokens, peak = tokens_per_step(workload), peak_rate(options)
    facts = {}
    for name, side in sides.items():
        side.seconds = side.seconds[1:]
        facts[name] = side.facts(workload, tokens, peak)
    ratio = None
    if len(facts) == 2:
        ratio = round(facts["peer"]["milliseconds"] / facts["seqwright"]["milliseconds"], 3)
    return {
        "workload": workload.name,
        "peer_name": workload.peer_name + (" (compiled)" if options.compile else ""),
        "rows": workload.rows,
        "length": workload.length,
        **facts,
        "ratio": ratio,
        "floor_milliseconds": round(1e3 * workload.operations / peak, 3),
        "skipped": skipped,
    }


def shown(result: dict[str, Any]) -> str:
    lines = [f"{result['workload']}: batch {result['rows']} × {result['length']}"]
    for key, name in (("seqwright", "seqwright"), ("peer", result["peer_name"])):
        if facts := result.get(key):
            memory = f", {facts['peak_gib']} GiB" if facts["peak_gib"] else ""
            lines.append(
                f"  {name:36} {facts['milliseconds']:9.2f} ms {facts['tokens_per_second']:11,} tokens/s"
                f"  MFU {facts['mfu']:.1%}{memory}, warm after {facts['seconds_to_warm']} s,"
                f" {facts['parameters']:,} parameters"
            )
    verdict = result["skipped"] or ("" if result["ratio"] is None else f"ratio {result['ratio']:.2f}")
    return "\n".join([*lines, f"  {verdict} (floor {result['floor_milliseconds']:.2f} ms)"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--precision", choices=["fp32", "bf16"], help="bf16 on a GPU, fp32 on a CPU by default")
    parser.add_argument("--peer-precision", choices=["fp32", "bf16"], help="default: the same")
    parser.add_argument("--models", nargs="+", default=[""], help="names of workloads, or how they begin")
    parser.add_argument("--compile", choices=["auto", "yes", "no"], default="auto", help="the peer; auto: on a GPU")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--set", action="append", default=[], help="a key of our [training]")
    parser.add_argument("--warmup", type=int, default=10, help="steps before the first round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a round, about")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    given = parser.parse_args()
    device = machine.device(given.device, option="--device")
    gpu = device.type == "cuda"
    given.precision = given.precision or ("bf16" if gpu else "fp32")
    options = Options(
        device=device,
        dtype=DTYPES[given.precision],
        compile=gpu if given.compile == "auto" else given.compile == "yes",
    )
    about = {
        "machine": torch.cuda.get_device_name() if gpu else cpu_name(torch.get_num_threads()),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "precision": given.precision + (f", the peer {given.peer_precision}" if given.peer_precision else ""),
    }
    print(", ".join(f"{key} {value}" for key, value in about.items()), flush=True)
    results = []
    for workload in WORKLOADS:
        prefixed = workload.device == device.type and workload.name.startswith(tuple(given.models))
        if prefixed or workload.name in given.models:
            results.append(compared(workload, options, given))
            print(shown(results[-1]), flush=True)
            gc.collect()
            if gpu:
                torch.cuda.empty_cache()
            torch.compiler.reset()  # else graphs of one workload count towards the recompilation limit of the next
    if given.json:
        given.json.write_text(json.dumps(about | {"results": results}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
