"""Fine-tuning: `[model] from = "runs/x"` expanded to the model and tokenizer keys of that run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from seqwright import build
from seqwright.core.config import UserError
from seqwright.runs.directory import RunDirectory

HEAD_KEYS = {"tied", "readout", "length", "forget_bias", "decoder_layers", "attention", "input_feeding"}
HEAD_KEYS |= {"softmaxes", "latent_dropout", "token_std", "pooling", "hidden", "head_dropout", "crf", "char_features"}
"""Keys of heads, decoders and initialization: dropped where the new model has no such key."""
MAE_KEYS = {"decoder_layers", "decoder_width"}
"""Keys of a masked autoencoder's decoder: only masked patches are predicted with it."""
CAUSAL = ("text", "chat")
"""Kinds of data whose recurrent networks are unidirectional."""


def fine_tuning(table: Mapping[str, Any], task: str) -> dict[str, Any]:
    """A recipe with the model and tokenizer of the run in `model.from`, and `training.init_from` to load its weights.
    Keys of the recipe itself take precedence."""
    overrides = dict(table.get("model", {}))
    path = Path(str(overrides.pop("from")))
    base = RunDirectory.open(path).recipe()
    kind = base["model"]["kind"]
    if overrides.get("kind", kind) != kind:
        raise UserError(
            f"model.kind is '{overrides['kind']}', but {path} holds a model of kind '{kind}'; leave model.kind out."
        )
    shared = shared_keys(base, task, path)
    if task == "images" and table["data"].get("objective") != "inpaint":
        shared = {key: value for key, value in shared.items() if key not in MAE_KEYS}
    model = {"kind": kind} | shared | overrides
    training = dict(table.get("training", {})) | {"init_from": str(path.resolve())}
    known = {field.name for field in fields(build.task_spec(task).tokenizer)}
    tokenizer = {key: value for key, value in base["tokenizer"].items() if key in known}
    return dict(table) | {"model": model, "tokenizer": tokenizer, "training": training}


def shared_keys(base: Mapping[str, Any], task: str, path: Path) -> dict[str, Any]:
    """The model keys of a run that a model of another task has, too; raises where one that it lacks is set."""
    kind, before = base["model"]["kind"], base.get("data", {}).get("kind", "text")
    models = build.task_spec(task).models
    if kind not in models or kind in {*build.COUNTED, *build.DERIVED}:
        usable = ", ".join(sorted(models.keys() - {*build.COUNTED, *build.DERIVED}))
        raise UserError(
            f"{path} holds a model of kind '{kind}' of {before}; what begins a model of {task} is one of {usable}."
        )
    known = {key.name for key in build.model_keys(kind, task=task)}
    defaults = {key.name: key.default for key in build.model_keys(kind, task=before)}
    keys = {key: value for key, value in base["model"].items() if key != "kind"}
    for key in keys.keys() - known - HEAD_KEYS:
        if keys[key] != defaults[key]:
            raise UserError(f"{path} has model.{key} = {keys[key]!r}, which a '{kind}' of {task} cannot have.")
    shared = {key: value for key, value in keys.items() if key in known}
    if "bidirectional" in known and before in CAUSAL:
        shared["bidirectional"] = False
    return shared
