"""What a run gives to one that begins with it: `[model] from = "runs/x"` as the keys that it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from seqwright import build
from seqwright.core.config import UserError
from seqwright.runs.directory import RunDirectory

ANSWERS = {"tied", "readout", "length", "forget_bias", "decoder_layers", "attention", "input_feeding"}
ANSWERS |= {"pooling", "hidden", "head_dropout", "crf", "char_features"}
"""Keys of what follows an encoder, or of how it once began: they go where the new model has no such thing."""
ONE_WAY = ("text", "chat")
"""Kinds of data whose recurrent networks read from left to right."""


def begun(table: Mapping[str, Any], task: str) -> dict[str, Any]:
    """The recipe with the model and tokenizer of the run that `model.from` names; `training.init_from` loads its
    weights. Keys stated by the recipe itself win."""
    own = dict(table.get("model", {}))
    path = Path(str(own.pop("from")))
    base = RunDirectory.open(path).recipe()
    kind = base["model"]["kind"]
    if own.get("kind", kind) != kind:
        raise UserError(f"model.kind is '{own['kind']}', but {path} holds a '{kind}' model; leave model.kind out.")
    model = {"kind": kind} | given(base, task, path) | own
    training = dict(table.get("training", {})) | {"init_from": str(path.resolve())}
    known = {field.name for field in fields(build.task_spec(task).tokenizer)}
    tokenizer = {key: value for key, value in base["tokenizer"].items() if key in known}
    return dict(table) | {"model": model, "tokenizer": tokenizer, "training": training}


def given(base: Mapping[str, Any], task: str, path: Path) -> dict[str, Any]:
    """The keys of a run's model that a model of another task has, too; refused where one of the others matters."""
    kind, before = base["model"]["kind"], base.get("data", {}).get("kind", "text")
    models = build.task_spec(task).models
    if kind not in models or kind in {*build.COUNTED, *build.DERIVED}:
        usable = ", ".join(sorted(models.keys() - {*build.COUNTED, *build.DERIVED}))
        raise UserError(f"{path} holds a '{kind}' model of {before}; what begins a model of {task} is one of {usable}.")
    known = {key.name for key in build.model_keys(kind, task=task)}
    defaults = {key.name: key.default for key in build.model_keys(kind, task=before)}
    keys = {key: value for key, value in base["model"].items() if key != "kind"}
    for key in keys.keys() - known - ANSWERS:
        if keys[key] != defaults[key]:
            raise UserError(f"{path} has model.{key} = {keys[key]!r}, which a '{kind}' of {task} cannot have.")
    found = {key: value for key, value in keys.items() if key in known}
    if "bidirectional" in known and before in ONE_WAY:
        found["bidirectional"] = False
    return found
