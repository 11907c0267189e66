"""A GPU that runs out of memory: `micro_batch = "auto"` finds parts that fit, with the losses of the whole batch.

The process is given a share of the GPU's memory (`--gigabytes`), so that the same batch fits without the limit and does
not with it. Three trainings of a few steps: the whole batch without the limit, the same batch in parts that are found
under the limit, and under the limit with nothing found, which must end in advice.

python benchmarks/memory_cuda.py [--gigabytes 3]
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from seqwright.core.config import UserError
from seqwright.pipeline import recipe
from seqwright.pipeline import training as session
from seqwright.runs.directory import RunDirectory

STEPS = 5
TABLE: dict[str, Any] = {
    "data": {"train": "embedded:topics"},
    "tokenizer": {"kind": "byte-bpe", "size": 4000},
    "model": {"kind": "gpt", "layers": 4, "width": 512, "heads": 8, "context": 256},
    "training": {
        "steps": STEPS,
        "batch_size": 96,
        "learning_rate": 1e-3,
        "log_every": 1,
        "sample_every": 0,
        "device": "cuda",
    },
}


def trained(folder: Path, **options: Any) -> tuple[list[dict[str, Any]], float]:
    """The log of a training, and the most gigabytes it held."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    session.train(recipe.make(TABLE | {"training": TABLE["training"] | options}), folder)
    return list(RunDirectory.open(folder).records()), torch.cuda.max_memory_allocated() / 1e9


def losses(log: list[dict[str, Any]]) -> list[float]:
    return [record["loss"] for record in log if record["kind"] == "train"]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--gigabytes", type=float, default=3.0, help="what the process may have under the limit")
    given = arguments.parse_args()
    if not torch.cuda.is_available():
        print("there is no GPU here; nothing was measured.")
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        whole, needed = trained(root / "whole")
        torch.cuda.set_per_process_memory_fraction(given.gigabytes * 1e9 / torch.cuda.mem_get_info()[1])
        parts, held = trained(root / "parts", micro_batch="auto")
        try:
            trained(root / "advice")
            advice = None
        except UserError as error:
            advice = str(error)
    found = [record["micro_batch_size"] for record in parts if record["kind"] == "memory"]
    apart = max(abs(one - other) for one, other in zip(losses(whole), losses(parts), strict=True))
    print(
        json.dumps(
            {
                "device": torch.cuda.get_device_name(),
                "batch_size": TABLE["training"]["batch_size"],
                "limit_gb": given.gigabytes,
                "whole_batch_gb": round(needed, 2),
                "parts_gb": round(held, 2),
                "micro_batches_tried": found,
                "losses": losses(whole),
                "largest_difference": apart,
                "advice": advice,
            }
        )
    )
    if not found or apart > 1e-4 or advice is None:
        sys.exit("memory did not run out, or the losses differ, or no advice was given")


if __name__ == "__main__":
    main()
