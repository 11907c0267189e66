"""The default recipe for users' labeled texts: a bag of n-grams, or a neural classifier of a size that suits them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seqwright.data.files import expand, read_text, resolve
from seqwright.data.samples.labels import embedded_labels
from seqwright.data.samples.text import is_embedded
from seqwright.tasks.defaults import KILO, MEGA, PATIENCE, epochs_within, held_out_percentage, run_name

COUNTED = "bag"
"""The counted kind, which cross-validates a small file."""
# Up to this many labeled texts: width, epochs.
CLASSIFIER_SIZES: list[tuple[float, dict[str, Any]]] = [
    (1 * KILO, {"width": 64, "epochs": 40}),
    (10 * KILO, {"width": 128, "epochs": 12}),
    (100 * KILO, {"width": 256, "epochs": 6}),
    (float("inf"), {"width": 256, "epochs": 3}),
]


LETTERS = 8 * MEGA
"""Maximum number of characters of labeled texts for which a bag has character and word features; more have words."""
FEW_TEXTS = 2000
"""Labeled texts of which none is held out where a model is counted."""


def labeled_recipe(
    files: Sequence[str],
    valid: Sequence[str] = (),
    *,
    kind: str,
    tokenizer: str | None = None,
    minutes: float | None = None,
) -> dict[str, Any]:
    """A recipe, as tables, for a classifier of labeled texts."""
    texts = [text for file in files for text in _labeled_texts(file)]
    lines = len(texts)
    letters = kind == "bag" and tokenizer in (None, "characters") and sum(map(len, texts)) <= LETTERS
    tokenizer = tokenizer or ("words" if _spaced(texts) and not letters else "characters")
    sizes = next(sizes for most, sizes in CLASSIFIER_SIZES if lines <= most)
    data: dict[str, Any] = {"kind": "labeled", "train": list(files)}
    counted = kind == COUNTED
    if valid:
        data["valid"] = list(valid)
    elif lines >= (FEW_TEXTS if counted else 10):
        data["split"] = f"stratified {held_out_percentage(lines)}%"
    if counted:  # an n-gram's words may all be rare
        split = {"pretokenizer": "basic-english"} if tokenizer == "words" else {}
        return {
            "name": run_name(files, kind),
            "data": data,
            "tokenizer": {"kind": tokenizer} | split,
            "model": {"kind": kind} | ({"order": 5, "words": 2, "smoothing": 0.3} if letters else {}),
        }
    model: dict[str, Any] = {"kind": kind, "head_dropout": 0.5}
    if kind in ("rnn", "lstm", "gru"):
        model |= {"width": sizes["width"], "embedding": 128, "dropout": 0.3}
    elif kind in ("transformer", "gpt"):
        model |= {"layers": 2, "width": sizes["width"], "context": 512, "dropout": 0.3}
    words = {"pretokenizer": "basic-english", "min_frequency": 2, "size": 30_000} if tokenizer == "words" else {}
    return {
        "name": run_name(files, kind),
        "data": data,
        "tokenizer": {"kind": tokenizer} | words,
        "model": model,
        "training": epochs_within(minutes, sizes["epochs"])
        | {"batch_size": 32, "learning_rate": 1e-3, "patience": PATIENCE},
    }


def _labeled_texts(file: str) -> list[str]:
    """The rows of a labeled file, or of an embedded one, more or less."""
    if is_embedded(file):
        return [text for _, text in embedded_labels(file)]
    return [line for path in expand(resolve(file))[0] for line in read_text(path, "replace")[0].splitlines()]


def _spaced(texts: Sequence[str]) -> bool:
    """Whether words are set apart: in unspaced scripts hardly one character in twenty is a space."""
    some = texts[:: max(1, len(texts) // 1000)]
    return sum(text.count(" ") for text in some) > sum(map(len, some)) / 20
