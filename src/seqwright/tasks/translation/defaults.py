"""The default recipe for users' parallel texts: a translator of a size that suits them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seqwright.tasks.defaults import (
    KILO,
    MEGA,
    affordable,
    bytes_of,
    fitting,
    learning_rate_for,
    length_of_training,
    muon_rate_for,
    run_name,
    smaller,
    steps_for,
)

# Up to this many bytes of both sides: joint byte-bpe vocabulary, layers, width, heads, dropout, tokens of a step.
# Measured in docs/experiments.md (2026-11-16).
TRANSFORMER_SIZES: list[tuple[float, dict[str, Any]]] = [
    (40 * KILO, {"size": 400, "layers": 2, "width": 64, "heads": 2, "dropout": 0.1, "batch_tokens": 512}),
    (400 * KILO, {"size": 1000, "layers": 2, "width": 128, "heads": 4, "dropout": 0.2, "batch_tokens": 1024}),
    (8 * MEGA, {"size": 4000, "layers": 3, "width": 128, "heads": 4, "dropout": 0.2, "batch_tokens": 2048}),
    (80 * MEGA, {"size": 16000, "layers": 6, "width": 256, "heads": 4, "dropout": 0.2, "batch_tokens": 4096}),
    (float("inf"), {"size": 32000, "layers": 6, "width": 512, "heads": 8, "dropout": 0.1, "batch_tokens": 8192}),
]

# Up to this many floating-point operations: the largest Transformer that a time budget trains well.
AFFORDABLE: list[tuple[float, dict[str, Any]]] = [
    (2e14, {"size": 8000, "layers": 3, "width": 128, "heads": 4, "batch_tokens": 2048}),
    (2e17, {"size": 16000, "layers": 6, "width": 256, "heads": 4, "batch_tokens": 4096}),
    (float("inf"), {"size": 32000, "layers": 6, "width": 512, "heads": 8, "batch_tokens": 8192}),
]


def pairs_recipe(
    files: Sequence[str],
    valid: Sequence[str] = (),
    *,
    kind: str,
    tokenizer: str = "byte-bpe",
    minutes: float | None = None,
) -> dict[str, Any]:
    """A recipe, as tables, for a translator between some files."""
    size = sum(bytes_of(file) for file in files)
    sizes = fitting(TRANSFORMER_SIZES, size)
    sizes = sizes | smaller(fitting(AFFORDABLE, affordable(minutes)), sizes)
    data: dict[str, Any] = {"kind": "pairs", "train": list(files), "batch_tokens": sizes["batch_tokens"]}
    data |= {"valid": list(valid)} if valid else {"split": "documents 3%"}
    model = {"kind": kind, "layers": sizes["layers"], "width": sizes["width"], "dropout": sizes["dropout"]}
    optimizer: dict[str, Any] = {"learning_rate": learning_rate_for(sizes["width"])}
    if kind in ("transformer", "gpt"):
        model |= {"heads": sizes["heads"], "ffn_width": 2 * sizes["width"]}
        optimizer = {"optimizer": "muon", "learning_rate": muon_rate_for(sizes["width"])}
    else:
        model |= {"layers": 1, "width": 2 * sizes["width"]}
    return {
        "name": run_name(files, kind),
        "data": data,
        "tokenizer": {"kind": tokenizer} | ({"size": sizes["size"]} if tokenizer == "byte-bpe" else {}),
        "model": model,
        "training": {
            **length_of_training(minutes, steps_for(2 * size)),
            **optimizer,
            "label_smoothing": 0.1,
            "weight_decay": 0.01,
            "beta2": 0.98,
        },
    }
