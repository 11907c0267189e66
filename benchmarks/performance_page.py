"""The page of speed, from the results of the benchmarks.

python benchmarks/performance_page.py > docs/performance.md

Results are JSON files in benchmarks/results, as `--json` of the benchmarks writes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
ABOUT = """# Speed

Made by `python benchmarks/performance_page.py` from `benchmarks/results/`: seqwright and what a user would pick
instead, measured in turns in one run, medians. A ratio above 1 says that seqwright is faster. Machines are shared:
between two runs a figure moves by a tenth. Peers are the libraries themselves, except for nanoGPT, which is no package:
`benchmarks/peers/nanogpt.py` is an equivalent of its model and loop.
"""


def training(result: dict[str, Any]) -> Iterator[str]:
    """Tokens a second of training steps."""
    yield f"## Training: {result['machine']}, {result['precision']}, torch {result['torch']}\n"
    yield "`benchmarks/training.py`; `training.compile` as in the third column. MFU is the share of the device's peak."
    yield "Memory is the peak of allocated tensors; a dash: not measured with captured steps.\n"
    yield "| model | batch | run as | seqwright, tokens/s | peer, tokens/s | ratio | MFU | GiB, ours and theirs |"
    yield "|---|---|---|---:|---|---:|---:|---|"
    for row in result["results"]:
        ours, peer = row["seqwright"], row["peer"]
        memory = f"{ours['peak_gib'] or '–'} and {peer['peak_gib'] or '–'}"
        yield (
            f"| {row['workload']} | {row['rows']} × {row['length']} | {row.get('compile', 'kernel by kernel')} |"
            f" {ours['tokens_per_second']:,} | {row['peer_name']}: {peer['tokens_per_second']:,} |"
            f" {row['ratio']:.2f} | {ours['mfu']:.0%} | {memory} |"
        )


def generation(result: dict[str, Any]) -> Iterator[str]:
    """Tokens a second of generation."""
    yield f"## Generation: {result['device']}, {result['dtype']}, {result['parameters']} parameters\n"
    yield "`benchmarks/generation.py`: 200 tokens after prompts of 64, prefill included, greedy; the peer is"
    yield "transformers' `generate`. The floor is reading the weights once a step.\n"
    yield "| batch | seqwright, tokens/s | sampled | transformers | ratio | floor, tokens/s |"
    yield "|---:|---:|---:|---:|---:|---:|"
    for row in result["generation"]:
        yield (
            f"| {row['batch']} | {row['seqwright']:,.0f} | {row['seqwright sampled']:,.0f} |"
            f" {row['transformers']:,.0f} | {row['ratio to transformers']:.1f} | {row['floor']:,.0f} |"
        )
    if beam := result.get("beam"):
        yield (
            f"\nBeam {beam['beam']}, batch {beam['batch']}: {beam['seqwright']:,.0f} tokens/s, transformers"
            f" {beam['transformers']:,.0f}, ratio {beam['ratio']:.1f}; {beam['equal']} of {beam['batch']} outputs are"
            " equal."
        )
    if prefill := result.get("prefill"):
        yield (
            f"Prefill of a long prompt: {prefill['prefill']:,.0f} tokens/s, {prefill['ratio']:.2f} of the training"
            " forward pass."
        )


KINDS: dict[str, Callable[[dict[str, Any]], Iterator[str]]] = {"training": training, "generation": generation}
"""How results are shown, by the beginning of their file's name."""


def main() -> None:
    print(ABOUT)
    for kind, show in KINDS.items():
        for path in sorted(RESULTS.glob(f"{kind}-*.json")):
            print("\n".join(show(json.loads(path.read_text(encoding="utf-8")))), end="\n\n")


if __name__ == "__main__":
    main()
