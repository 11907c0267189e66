"""Default recipes for users' texts and conversations: GPT, BERT and recurrent models of a size that suits the text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from seqwright.data.files import is_remote, resolve
from seqwright.data.text.corpora import prepared_index
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

INFINITE = float("inf")
COUNTED = "ngram"
"""The counted kind, which takes no steps."""
NGRAM: dict[str, Any] = {"kind": COUNTED, "order": 5}
"""The n-gram that networks are compared and mixed with (decision 227)."""

# Up to this many bytes of text: byte-bpe vocabulary, GPT layers, width, heads and context, rows of a step.
# Measured in docs/experiments.md (2026-11-16 and 2026-11-18).
GPT_SIZES: list[tuple[float, dict[str, Any]]] = [
    (20 * KILO, {"size": 300, "layers": 2, "width": 64, "heads": 2, "context": 32, "rows": 16}),
    (200 * KILO, {"size": 512, "layers": 4, "width": 128, "heads": 4, "context": 128, "rows": 8}),
    (400 * KILO, {"size": 512, "layers": 4, "width": 128, "heads": 4, "context": 128, "rows": 16}),
    (2 * MEGA, {"size": 1024, "layers": 4, "width": 128, "heads": 4, "context": 128, "rows": 16}),
    (20 * MEGA, {"size": 2048, "layers": 6, "width": 256, "heads": 8, "context": 256, "rows": 16}),
    (200 * MEGA, {"size": 8192, "layers": 8, "width": 512, "heads": 8, "context": 512, "rows": 32}),
    (INFINITE, {"size": 16384, "layers": 12, "width": 768, "heads": 12, "context": 1024, "rows": 32}),
]

# Up to this many passes over the text: dropout (decision 261).
DROPOUT: list[tuple[float, dict[str, float]]] = [
    (8, {"dropout": 0.0}),
    (25, {"dropout": 0.1}),
    (60, {"dropout": 0.2}),
    (INFINITE, {"dropout": 0.3}),
]

RECURRENT_RATES = {"lstm": 12e-3, "gru": 6e-3}
"""Measured on 0.1 to 5 MB of text (docs/experiments.md, 2026-11-16)."""

# Up to this many floating-point operations: the largest GPT that a time budget trains well. Recurrent models are twice
# as wide; beside 4 × 192, as wide as beside 4 × 128, since none of 384 was measured.
AFFORDABLE: list[tuple[float, dict[str, Any]]] = [
    (3e13, {"layers": 4, "width": 128, "heads": 4, "context": 128}),
    (2e14, {"layers": 4, "width": 192, "heads": 6, "context": 128, "recurrent": 256}),
    (2e16, {"layers": 6, "width": 256, "heads": 8, "context": 256}),
    (1e18, {"layers": 8, "width": 512, "heads": 8, "context": 512}),
    (INFINITE, {"layers": 12, "width": 768, "heads": 12, "context": 1024}),
]


def text_recipe(
    files: Sequence[str],
    valid: Sequence[str] = (),
    *,
    kind: str,
    tokenizer: str = "byte-bpe",
    minutes: float | None = None,
) -> dict[str, Any]:
    """A recipe, as tables, for a language model of some files, of the size that the text and the time budget allow."""
    size = sum(bytes_of(file) for file in files)
    sizes = fitting(GPT_SIZES, size)
    data: dict[str, Any] = {"kind": "text", "train": list(files)}
    if valid:
        data["valid"] = list(valid)
    elif not _tokenizers(files):
        # Counting again takes seconds, so that the score is of held-out text and the model knows all of it.
        data |= {"split": "tail 5%"} | ({"refit": True} if kind == COUNTED else {})
    table: dict[str, Any] = {
        "name": run_name(files, kind),
        "data": data,
        "tokenizer": {"kind": tokenizer} | ({"size": sizes["size"]} if tokenizer == "byte-bpe" else {}),
        "model": dict(NGRAM) if kind == COUNTED else {"kind": kind},
    }
    if _tokenizers(files):  # a prepared text is encoded already, with the tokenizer beside it
        table["tokenizer"] = {"file": _tokenizers(files)[0]}
    if kind == COUNTED:
        return table
    trained = length_of_training(minutes, steps_for(size))
    sizes = sizes | smaller(fitting(AFFORDABLE, affordable(minutes)), sizes)
    dropout = fitting(DROPOUT, _epochs(size, tokenizer, sizes, minutes))
    if kind == "gpt":
        table["model"] |= {key: sizes[key] for key in ("layers", "width", "heads", "context")}
        table["model"] |= dropout | {"positions": "rope"}
        table["training"] = trained | {
            "batch_size": sizes["rows"],
            "optimizer": "muon",
            "learning_rate": muon_rate_for(sizes["width"]),
        }
    else:
        width = sizes.get("recurrent", 2 * sizes["width"])
        table["model"] |= {"width": width} | (dropout if kind != "neural-bigram" else {})
        table["training"] = trained | {
            "batch_size": 16,
            "sequence_length": 64 if size > 200 * KILO else 16,
            "learning_rate": RECURRENT_RATES.get(kind, 2e-3),
        }
    return table


def chat_recipe(
    files: Sequence[str],
    valid: Sequence[str] = (),
    *,
    kind: str,
    tokenizer: str = "byte-bpe",
    minutes: float | None = None,
) -> dict[str, Any]:
    """A recipe, as tables, for an assistant of some files of conversations."""
    table = text_recipe(files, valid, kind=kind, tokenizer=tokenizer, minutes=minutes)
    table["data"] |= {"kind": "chat"}
    if "split" in table["data"]:
        table["data"]["split"] = "tail 10%"
    if "context" in table["model"]:
        table["model"]["context"] *= 2  # a question must fit beside its answer
    return table


def masked_recipe(
    files: Sequence[str],
    valid: Sequence[str] = (),
    *,
    kind: str,
    tokenizer: str = "byte-bpe",
    minutes: float | None = None,
) -> dict[str, Any]:
    """A recipe, as tables, for a masked language model of some files: the sizes of a GPT, and twice its steps,
    since only one token in seven is learned from."""
    causal = "gpt" if kind in ("bert", "transformer") else kind
    table = text_recipe(files, valid, kind=causal, tokenizer=tokenizer, minutes=minutes)
    table["data"] |= {"kind": "masked"}
    table["model"] |= {"kind": kind}
    if kind == "bert":  # pre-LN, because so little text does not reward the long warm-up that post-LN needs
        table["model"] |= {"norm_position": "pre"}
    if causal == "gpt":
        del table["model"]["positions"], table["training"]["optimizer"]
        table["training"]["learning_rate"] = learning_rate_for(table["model"]["width"])
    if minutes is None:
        table["training"]["steps"] *= 2
    return table | {"name": run_name(files, kind)}


def _epochs(size: int, tokenizer: str, sizes: dict[str, Any], minutes: float | None) -> float:
    """About how often a GPT of these sizes sees a text of so many bytes in a time budget, or in the default steps."""
    bytes_of_token = {"byte-bpe": 0.7 * (math.log2(sizes["size"]) - 6), "words": 5.0}.get(tokenizer, 1.0)
    if minutes is None:
        tokens = float(steps_for(size) * sizes["rows"] * sizes["context"])
    else:
        parameters = 12 * sizes["layers"] * sizes["width"] ** 2 + sizes["size"] * sizes["width"]
        tokens = affordable(minutes) / (6 * parameters)
    return tokens * bytes_of_token / max(1, size)


def _tokenizers(files: Sequence[str]) -> list[str]:
    """The tokenizers of prepared folders."""
    folders = [file for file in files if prepared_index(file) is not None]
    return [f"{folder if is_remote(folder) else resolve(folder)}/tokenizer.json" for folder in folders]
