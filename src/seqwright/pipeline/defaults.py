"""Default recipes for users' own files, by kind of data, trained from scratch or fine-tuned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from seqwright import build
from seqwright.tasks.classification.defaults import labeled_recipe
from seqwright.tasks.defaults import learning_rate_for
from seqwright.tasks.images.defaults import captions_recipe, images_recipe
from seqwright.tasks.language.defaults import chat_recipe, masked_recipe, text_recipe
from seqwright.tasks.tagging.defaults import tagged_recipe
from seqwright.tasks.translation.defaults import pairs_recipe

DEFAULT_RECIPES: dict[str, Callable[..., dict[str, Any]]] = {
    "text": text_recipe,
    "pairs": pairs_recipe,
    "chat": chat_recipe,
    "labeled": labeled_recipe,
    "masked": masked_recipe,
    "tagged": tagged_recipe,
    "images": images_recipe,
    "captions": captions_recipe,
}
"""Recipe of (files, validation files), by kind of data; `train` takes the files under that name."""
DEFAULT_MINUTES = 10.0
KEPT = {
    "training": ("batch_size", "steps", "epochs", "minutes", "patience", "label_smoothing"),
    "model": ("head_dropout",),
}
"""Keys of a default recipe that also apply to a fine-tuned model."""
PATCH_KEYS = ("patch", "size")
"""Keys of [data] that an image encoder depends on."""


def default_recipe(
    data: str,
    files: Sequence[str],
    valid: Sequence[str] = (),
    *,
    kind: str | None = None,
    minutes: float | None = None,
    **tokenizer: str,
) -> dict[str, Any]:
    """The tables of a recipe for users' files of a kind of data; `--set` overrides go on top of them. `minutes` is the
    time budget."""
    kind = kind or build.task_spec(data).default_model
    build.pick_trained(kind, data)
    table = DEFAULT_RECIPES[data](files, valid, kind=kind, minutes=minutes, **tokenizer)
    known = {key.name for key in build.model_keys(kind, task=data)}
    model = {key: value for key, value in table["model"].items() if key in known}
    if "context" in known:  # rows have its length
        table.get("training", {}).pop("sequence_length", None)
    return table | {"model": {"kind": kind} | model}


def kinds_of(base: dict[str, Any], task: str) -> dict[str, str]:
    """The kinds of model and tokenizer of a run to fine-tune, where a model of the task can have them."""
    usable = build.task_spec(task).models.keys() - {*build.COUNTED, *build.DERIVED}
    kinds = {"kind": base["model"]["kind"], "tokenizer": base.get("tokenizer", {}).get("kind")}
    return {key: kind for key, kind in kinds.items() if kind and (key == "tokenizer" or kind in usable)}


def fine_tuned(table: dict[str, Any], base: dict[str, Any], path: Path) -> dict[str, Any]:
    """A default recipe, fine-tuned from a run: its model and tokenizer, and a tenth of its learning rate."""
    learning_rate = base["training"]["learning_rate"] / 10
    if base["training"].get("optimizer") == "muon":  # AdamW fine-tunes, whatever trained
        learning_rate = learning_rate_for(base["model"]["width"]) / 10
    defaults = table.get("training", {})  # counted models have none
    training = {key: defaults[key] for key in KEPT["training"] if key in defaults}
    model = {key: table["model"][key] for key in KEPT["model"] if key in table["model"]}
    data = {key: base["data"][key] for key in PATCH_KEYS if key in base["data"] and key in table["data"]}
    return table | {
        "data": table["data"] | data,
        "model": model | {"from": str(path)},
        "training": training | {"learning_rate": learning_rate},
    }
