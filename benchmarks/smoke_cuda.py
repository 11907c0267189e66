"""A smoke test for a GPU: every law on CUDA, a short bf16 training, resume to the same bits, and tokens per second.

python benchmarks/smoke_cuda.py [--device cuda]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.contract.kinds import SMALL, batch, small

from seqwright import recipe, session
from seqwright.api import open as open_run
from seqwright.storage import load_tensors
from seqwright.studies.laws import LAWS

TABLE = {
    "data": {"train": "embedded:topics", "split": "tail 10%"},
    "tokenizer": {"kind": "byte-bpe", "size": 512},
    "training": {"steps": 200, "batch": 32, "rate": 2e-3, "warmup": 20, "evaluate_every": 100, "keep": 9},
}
MODELS = {
    "gpt": {
        "kind": "gpt",
        "layers": 4,
        "width": 256,
        "heads": 8,
        "context": 128,
        "positions": "rotary",
        "dropout": 0.1,
    },
    "lstm": {"kind": "lstm", "width": 256, "dropout": 0.1},
}


@torch.no_grad()
def laws(device: str) -> None:
    """Prints the worst difference of each kind over all laws, in float64."""
    for name in SMALL:
        model = small(name)
        if isinstance(model, torch.nn.Module):
            worst = max(law(model.to(device), batch().to(device)) for law in LAWS.values())
            print(f"laws of {name:16} worst difference {worst:.1e}")
            assert worst < 1e-8


def resume(device: str) -> None:
    """Trains in bf16, once through and once stopped half-way: same weights."""
    for name, model in MODELS.items():
        whole = TABLE | {"model": model}
        whole["training"] = TABLE["training"] | {"device": device, "precision": "bf16", "deterministic": True}
        half = whole | {"training": whole["training"] | {"steps": 100, "schedule": "constant"}}
        whole["training"] |= {"schedule": "constant"}
        with tempfile.TemporaryDirectory() as folder:
            first, second = Path(folder) / "whole", Path(folder) / "halves"
            summary = session.train(recipe.make(whole), first).summary
            session.train(recipe.make(half), second)
            session.train(recipe.make(whole), second)
            one, other = (load_tensors(path / "model.safetensors")[0] for path in (first, second))
            equal = all(torch.equal(one[key], other[key]) for key in one)
            assert summary is not None
            rate = summary["trained_tokens"] / summary["seconds"]
            text = open_run(first, device=device).generate("The ", tokens=20)[0].text
            print(f"{name}: bits/byte {summary['bits_per_byte']:.3f}, {rate:,.0f} tokens/s, resumed equal: {equal}")
            print(f"    {text!r}")
            assert equal


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    device = parser.parse_args().device
    laws(device)
    resume(device)
