"""The default recipe for users' tagged words: a perceptron, or a neural tagger of a size that suits them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from seqwright.data.files import read_text, resolve
from seqwright.data.samples.text import is_embedded
from seqwright.tasks.defaults import KILO, MEGA, epochs_within, held_out_percentage, run_name

COUNTED = "perceptron"
"""The counted kind, which takes no gradient steps."""
# Up to this many characters of tagged words: passes over them, trainings that are averaged, share of hidden features.
# None takes much more than two minutes of one CPU core.
PERCEPTRON_SIZES: list[tuple[float, dict[str, Any]]] = [
    (300 * KILO, {"epochs": 32, "averaged_models": 4, "feature_dropout": 0.2}),
    (3 * MEGA, {"epochs": 16, "averaged_models": 4, "feature_dropout": 0.1}),
    (12 * MEGA, {"epochs": 8, "averaged_models": 2, "feature_dropout": 0.1}),
    (float("inf"), {"epochs": 5, "averaged_models": 1}),
]
# Up to this many characters of tagged words: width, embedding, filters over letters, dropout, sentences of a step,
# epochs.
TAGGER_SIZES: list[tuple[float, dict[str, Any]]] = [
    (20 * KILO, {"width": 64, "embedding": 32, "char_features": 16, "dropout": 0.2, "batch_size": 8, "epochs": 60}),
    (200 * KILO, {"width": 128, "embedding": 64, "char_features": 32, "dropout": 0.3, "batch_size": 16, "epochs": 30}),
    (4 * MEGA, {"width": 256, "embedding": 128, "char_features": 48, "dropout": 0.4, "batch_size": 32, "epochs": 12}),
    (
        float("inf"),
        {"width": 400, "embedding": 200, "char_features": 64, "dropout": 0.4, "batch_size": 64, "epochs": 8},
    ),
]
FEWEST_STEPS = 400
"""Of a small tagger, however few its sentences are."""
FEWEST_SENTENCES, MANY_SENTENCES = 20, 200
"""With fewer, all are needed to learn from; with as many, a choice all over the file holds out some for certain."""
BLANK = re.compile(r"\n[ \t\r]*\n")
"""What parts sentences, whatever ends their lines."""
SPAN = re.compile(r"[\t\n \"][BI]-\S")
"""What tells tags that mark spans, in any of the formats."""


def tagged_recipe(
    files: Sequence[str],
    valid: Sequence[str] = (),
    *,
    kind: str,
    minutes: float | None = None,
    tokenizer: str = "words",
) -> dict[str, Any]:
    """A recipe, as tables, for a tagger of some files; `minutes` is the most that its training takes."""
    texts = [read_text(resolve(file), "replace")[0] for file in files if not is_embedded(file)]
    size = sum(map(len, texts)) or MEGA
    sentences = sum(map(_sentences, texts)) if texts else FEWEST_SENTENCES
    data: dict[str, Any] = {"kind": "tagged", "train": list(files)}
    if valid:
        data["valid"] = list(valid)
    elif sentences >= FEWEST_SENTENCES:
        share = held_out_percentage(sentences, least=5, most=10) if texts else 5  # embedded samples are large
        data["split"] = f"tail {share}%" if sentences < MANY_SENTENCES else f"documents {share}%"
    table: dict[str, Any] = {
        "name": run_name(files, kind),
        "data": data,
        "tokenizer": {"kind": tokenizer} | ({"lowercase": True} if tokenizer == "words" else {}),
        "model": {"kind": kind},
    }
    if kind == COUNTED:
        table["model"] |= next(sizes for most, sizes in PERCEPTRON_SIZES if size <= most)
        return table | ({} if minutes is None else {"training": {"minutes": minutes}})
    sizes = next(dict(sizes) for most, sizes in TAGGER_SIZES if size <= most)
    batch, epochs = sizes.pop("batch_size"), sizes.pop("epochs")
    epochs = max(epochs, math.ceil(FEWEST_STEPS * batch / max(1, sentences))) if texts else 1  # embedded ones are large
    table["training"] = epochs_within(minutes, epochs) | {
        "batch_size": batch,
        "learning_rate": 2e-3,
        "weight_decay": 0.01,
    }
    if kind in ("transformer", "gpt", "bert"):
        sizes["width"] = sizes.pop("embedding")
        table["training"]["learning_rate"] = 1e-3
    if tokenizer == "words":
        data["word_dropout"] = 0.25
    table["model"] |= sizes | {"crf": any(SPAN.search(text) for text in texts)}
    return table


def _sentences(text: str) -> int:
    """Approximate number of sentences: separated by blank lines, or one per line in the JSON and `word TAG` formats."""
    first = text.split("\n", 1)[0]
    a_line = first.startswith("{") or ("\t" in first and " " in first)
    return len(BLANK.findall(text)) or (text.count("\n") if a_line else 1)
