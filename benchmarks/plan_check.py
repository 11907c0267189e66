"""`seqwright plan` against measured trainings: parameters, memory and the time of a step, in the same run.

    python benchmarks/plan_check.py [--device cuda] [--json FILE]

Every case has a process of its own, in which the plan is made and then a few steps are taken. Memory is what PyTorch
allocates at most on a GPU; on a CPU, by how much the process grows. Times are forecast by the speed of matrix products
(measured in float32, or the data sheet's bf16 peak), of which training reaches a share: `plan` assumes 40 %, and the
last column is the share that the case reached, which explains the ratio beside it.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from seqwright.pipeline import recipe
from seqwright.pipeline import training as session
from seqwright.studies.plan import _peak_bytes, plan
from seqwright.tasks.defaults import UTILIZATION

CASES: dict[str, dict[str, Any]] = {
    "cpu": {
        "gpt 2 × 128": {"layers": 2, "width": 128, "heads": 4, "context": 128, "batch_size": 32},
        "gpt 4 × 256": {"layers": 4, "width": 256, "heads": 4, "context": 256, "batch_size": 8},
        "gpt 6 × 384": {"layers": 6, "width": 384, "heads": 6, "context": 256, "batch_size": 4},
    },
    "cuda": {
        "gpt2-124m": {"layers": 12, "width": 768, "heads": 12, "context": 1024, "batch_size": 32},
        "gpt2-124m, checkpointed": {
            "layers": 12,
            "width": 768,
            "heads": 12,
            "context": 1024,
            "batch_size": 32,
            "activation_checkpointing": True,
        },
        "gpt2-355m": {"layers": 24, "width": 1024, "heads": 16, "context": 1024, "batch_size": 16},
        "gpt2-774m": {"layers": 36, "width": 1280, "heads": 20, "context": 1024, "batch_size": 8},
    },
}
TRAINING = ("batch_size", "activation_checkpointing")


def table_of(case: dict[str, Any], device: str, precision: str) -> dict[str, Any]:
    model = {"kind": "gpt", "dropout": 0.0} | {key: value for key, value in case.items() if key not in TRAINING}
    training = {key: value for key, value in case.items() if key in TRAINING}
    training |= {"device": device, "precision": precision, "steps": 1, "sample_every": 0, "evaluate_every": 0}
    return {
        "data": {"train": "embedded:topics", "split": "tail 10%"},
        "tokenizer": {"kind": "byte-bpe", "size": 2000},
        "model": model,
        "training": training,
        "evaluation": {"baseline": False, "resamples": 0},
    }


def check(case: dict[str, Any], device: str, precision: str) -> dict[str, Any]:
    """Forecast and measurement of one case, in this process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.toml"
        small = case | {"layers": 1, "width": 16, "heads": 1, "batch_size": 1}
        path.write_text(recipe.make(table_of(small, device, precision)).toml(), encoding="utf-8")
        plan(path, measured=True)  # what data, tokenizer and libraries take is there already
        before = _peak_bytes(torch.device("cpu")) if device == "cpu" else 0
        wanted = recipe.make(table_of(case, device, precision))
        path.write_text(wanted.toml(), encoding="utf-8")
        made = plan(path, measured=True)
        assert made.measured is not None
        summary = session.train(wanted, Path(folder) / "run").summary
    assert summary is not None
    return {
        "parameters": [made.parameters, summary["parameters"]],
        "memory": [made.training_bytes, made.measured.peak_bytes - before],
        "seconds": [made.step_seconds, made.measured.step_seconds],
        "utilization": UTILIZATION * made.step_seconds / made.measured.step_seconds,
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    arguments.add_argument("--precision", help="default: bf16 on a GPU, fp32 on a CPU")
    arguments.add_argument("--json", type=Path, metavar="FILE")
    arguments.add_argument("--case", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    precision = given.precision or ("bf16" if given.device == "cuda" else "fp32")
    cases = CASES[given.device]
    if given.case:
        print(json.dumps(check(cases[given.case], given.device, precision)))
        return
    name = torch.cuda.get_device_name() if given.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{name}, {precision}, torch {torch.__version__}, Python {platform.python_version()}\n")
    print("| training | parameters | memory, GB | measured | ratio | step, ms | measured | ratio | reached |")
    print("|---|---|---|---|---|---|---|---|---|")
    results = {}
    for case in cases:
        command = [sys.executable, __file__, "--device", given.device, "--precision", precision, "--case", case]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        result = results[case] = json.loads(done.stdout.splitlines()[-1])
        (planned, counted), (memory, peak), (step, took) = (result[key] for key in ("parameters", "memory", "seconds"))
        parameters = f"{counted:,}" if planned == counted else f"{planned:,}, not {counted:,}"
        print(
            f"| {case} | {parameters} | {memory / 1e9:.2f} | {peak / 1e9:.2f} | {memory / peak:.2f} |"
            f" {1000 * step:.1f} | {1000 * took:.1f} | {step / took:.2f} | {result['utilization']:.0%} |",
            flush=True,
        )
    if given.json:
        about = {"device": name, "precision": precision, "torch": torch.__version__}
        given.json.write_text(json.dumps(about | {"cases": results}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
