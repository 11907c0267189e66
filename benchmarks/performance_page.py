"""The page of speed and its picture of growth, from the results of the benchmarks.

python benchmarks/performance_page.py > docs/performance.md

Results are JSON files in benchmarks/results, as `--json` of the benchmarks writes them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from seqwright.reporting.svg import Axis, Frame, Series, chart

RESULTS = Path(__file__).parent / "results"
PLOT = Path(__file__).parent.parent / "docs" / "growth.svg"
SIZES = {"context": "length", "batch": "rows"}
"""The key of an axis in its points, where it is not its name."""
BASES = {"context": 1024, "batch": 32, "vocabulary": 50304, "layers": 12, "width": 768}
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")  # safe for color blindness (Okabe & Ito 2008)
STYLE = (
    "text{font:12px sans-serif;fill:#777}.grid,.tick{stroke:#9994}polyline{fill:none;stroke-width:2}"
    ".level{stroke-dasharray:4 4}"
)
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
    yield "Memory is the peak of allocated tensors; a dash: not measured with captured steps."
    if "AMD" in result["machine"] and "fp32" in result["precision"]:
        yield "MKL, whose fp32 products PyTorch takes, does not use AVX-512 on CPUs of AMD: seqwright takes oneDNN's."
    yield ""
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


def shakespeare(result: dict[str, Any]) -> Iterator[str]:
    """Seconds to a validation loss."""
    ours, peer = result["ours"], result["nanogpt"]
    yield f"## Time to a loss: tiny Shakespeare, {result['gpu']}, torch {result['torch']}\n"
    yield "`benchmarks/shakespeare.py --device cuda --set training.steps=600`: seconds of training, without compiling,"
    yield "and nats a character over 200 random batches of windows of the last tenth, as nanoGPT measures.\n"
    yield "| settings | steps | seconds | nats |"
    yield "|---|---:|---:|---:|"
    yield f"| `shakespeare-gpt`, shortened | {ours['steps']:,} | {ours['seconds']:.1f} | {ours['nll']:.4f} |"
    yield f"| nanoGPT's, until its best step | {peer['steps']:,} | {peer['seconds']:.1f} | {peer['nll']:.4f} |"
    yield f"\nRatio of the seconds: {result['ratio']:.2f}."


def generation(result: dict[str, Any]) -> Iterator[str]:
    """Tokens a second of generation."""
    cpu = "core" in result["device"]
    yield f"## Generation: {result['device']}, {result['dtype']}, {result['parameters']} parameters\n"
    yield "`benchmarks/generation.py`: 200 tokens after prompts of 64, prefill included, greedy; the peer is"
    if cpu:
        yield "transformers' `generate`. CPU seconds, in turns. The floor is reading weights and KV cache once a"
        yield f"step at {result['bandwidth'] / 1e9:.0f} GB/s, or the arithmetic where that takes longer, and prompts."
        yield "Ratios are to transformers in fp32.\n"
        columns = ["int8 weights", "bf16", "transformers", "its bf16", "ratio", "ratio of int8", "ratio of bf16"]
    else:
        yield "transformers' `generate`, as it is and with its static cache, which it compiles. The floor is reading"
        yield "the weights once a step.\n"
        columns = ["transformers", "ratio", "static cache", "ratio"]
    yield f"| batch | seqwright, tokens/s | sampled | {' | '.join(columns)} | floor, tokens/s |"
    yield "|---:" * (len(columns) + 4) + "|"
    for row in result["generation"]:
        ours = f"| {row['batch']} | {row['seqwright']:,.0f} | {row['seqwright sampled']:,.0f} |"
        if cpu:
            rates = [row[name] for name in ("seqwright int8", "seqwright bf16", "transformers", "transformers bf16")]
            ratios = [
                row[name] for name in ("ratio to transformers", "ratio of seqwright int8", "ratio of seqwright bf16")
            ]
            cells = [*(f"{rate:,.0f}" for rate in rates), *(f"{ratio:.1f}" for ratio in ratios), f"{row['floor']:,.0f}"]
            yield f"{ours} {' | '.join(cells)} |"
            continue
        peer = f" {row['transformers']:,.0f} | {row['ratio to transformers']:.1f} |"
        static = row.get("transformers static")
        compiled = f"{static:,.0f} | {row['ratio to transformers static']:.1f}" if static else "– | –"
        yield f"{ours}{peer} {compiled} | {row['floor']:,.0f} |"
    if beam := result.get("beam"):
        yield (
            f"\nBeam {beam['beam']}, batch {beam['batch']}, {beam['tokens']} tokens: {beam['seqwright']:,.0f} tokens/s,"
            f" transformers {beam['transformers']:,.0f}, ratio {beam['ratio']:.1f};"
            f" {beam['equal']} of {beam['batch']} outputs are equal."
        )
    if prefill := result.get("prefill"):
        yield (
            f"Prefill of a long prompt: {prefill['prefill']:,.0f} tokens/s, {prefill['ratio']:.2f} of the training"
            " forward pass."
        )
    if note := result.get("note"):
        yield note


def ngram(result: dict[str, Any]) -> Iterator[str]:
    """Tokens a second of n-gram queries."""
    yield f"## n-gram queries: {result['machine']}, order {result['order']}\n"
    yield "`benchmarks/ngram.py`: from text to log-probabilities, tokens a CPU second, in turns with KenLM's module"
    yield "(`score`, and `full_scores` for lines), on the test texts.\n"
    yield "| corpus | query | seqwright, M tokens/s | KenLM | ratio |"
    yield "|---|---|---:|---:|---:|"
    for corpus, facts in result["corpora"].items():
        for query, rates in facts["queries"].items():
            if isinstance(rates, dict) and "ratio" in rates:
                ours, peer = rates["ours"] / 1e6, rates["kenlm"] / 1e6
                yield f"| {corpus} | {query} | {ours:.2f} | {peer:.2f} | {rates['ratio']:.2f} |"


def threads(result: dict[str, Any]) -> Iterator[str]:
    """Tokens a second of a training alone and beside busy processes."""
    yield f"## A busy machine: {result['machine']}\n"
    yield "`benchmarks/threads.py`: training of a GPT of 4 × 128, tokens/s, alone and beside processes that take a"
    yield f"core each ({result['others']}), by how idle threads wait: as seqwright sets it, and as GNU OpenMP does.\n"
    yield "| waiting | alone | beside | times slower |"
    yield "|---|---:|---:|---:|"
    for row in result["results"]:
        yield f"| {row['policy']} | {row['alone']:,.0f} | {row['busy']:,.0f} | {row['ratio']:.2f} |"


def startup(result: dict[str, Any]) -> Iterator[str]:
    """CPU seconds of fresh processes."""
    seconds = result["seconds"]
    yield f"## Startup: {result['machine']}\n"
    yield "`benchmarks/startup.py`: CPU seconds of a fresh process, beside one that imports PyTorch.\n"
    yield "| what | seconds | times the import of torch |"
    yield "|---|---:|---:|"
    for name, value in seconds.items():
        yield f"| {name} | {value:.2f} | {value / seconds['import torch']:.2f} |"


def growth(result: dict[str, Any]) -> Iterator[str]:
    """Time and memory of training steps over each size, and tokens a second of decoding."""
    yield f"## Growth: {result['machine']}, torch {result['torch']}\n"
    yield "`benchmarks/growth.py`, from a GPT-2 of 124 million parameters, 32 × 1,024 tokens a step, one size changed"
    yield "at a time; `context` keeps the tokens of a batch. The last columns are measured ÷ predicted: time by"
    yield "floating-point operations, memory by 16 bytes a parameter and by layers · width of every token. Beyond 1.2:"
    yield "memory of few layers, since logits take as much whatever their number, and narrow models, whose kernels are"
    yield "too short to fill the GPU.\n"
    yield f"![measured ÷ predicted time over relative size]({PLOT.name})\n"
    yield "| axis | size | ms a step | tokens/s | GiB | time ÷ predicted | memory ÷ predicted |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    decoding = []
    for point in result["points"]:
        if "tokens_per_second" in point:
            decoding.append(point)
            continue
        size, ratios = point[SIZES.get(point["axis"], point["axis"])], point["measured to predicted"]
        rate = 1e3 * point.get("rows", 32) * point.get("length", 1024) / point["milliseconds"]
        yield (
            f"| {point['axis']} | {size:,} | {point['milliseconds']:.1f} | {rate:,.0f} |"
            f" {point['bytes'] / 2**30:.1f} | {ratios['time']:.2f} | {ratios.get('memory', math.nan):.2f} |"
        )
    yield "\nDecoding, bf16, tokens a second after the first, all rows together; prompts of 64 tokens, or 16 rows.\n"
    yield "| axis | size | tokens/s | GB read a step |"
    yield "|---|---:|---:|---:|"
    for point in decoding:
        read = point["bytes_a_step"] / 1e9
        yield f"| {point['axis']} | {point[point['axis']]} | {point['tokens_per_second']:,.0f} | {read:.2f} |"


def growth_plot(result: dict[str, Any]) -> str:
    """A picture of measured ÷ predicted time over the size, relative to the base, of each axis."""
    lines = []
    for (axis, base), color in zip(BASES.items(), COLORS, strict=True):
        points = [point for point in result["points"] if point["axis"] == axis and "milliseconds" in point]
        key = SIZES.get(axis, axis)
        places = [(point[key] / base, point["measured to predicted"]["time"]) for point in points]
        lines.append(Series(name=axis, points=places, color=color))
    level = Series(name="predicted", points=[(0.25, 1.0), (16.0, 1.0)], color="#777777", style="level")
    frame = Frame(width=760, height=340)
    drawn = str(chart("time", [level, *lines], x=Axis(title="size ÷ base", log=True), y=Axis(zero=True), frame=frame))
    drawing = drawn[drawn.index("<svg") : drawn.index("</svg>")].replace(
        "<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1
    )
    keys = "".join(
        f'<text x="{70 + 120 * n}" y="285" style="fill:{line.color}">{line.name}</text>' for n, line in enumerate(lines)
    )
    return drawing.replace(">", f"><style>{STYLE}</style>", 1) + keys + "</svg>\n"


KINDS: dict[str, Callable[[dict[str, Any]], Iterator[str]]] = {
    "training": training,
    "shakespeare": shakespeare,
    "generation": generation,
    "ngram": ngram,
    "threads": threads,
    "startup": startup,
    "growth": growth,
}
"""How results are shown, by the beginning of their file's name."""


def main() -> None:
    print(ABOUT)
    for kind, show in KINDS.items():
        for path in sorted(RESULTS.glob(f"{kind}-*.json")):
            result = json.loads(path.read_text(encoding="utf-8"))
            print("\n".join(show(result)), end="\n\n")
            if kind == "growth":
                PLOT.write_text(growth_plot(result), encoding="utf-8")


if __name__ == "__main__":
    main()
