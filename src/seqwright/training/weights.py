"""A model's weights by name: what checkpoints and model.safetensors hold, and how a run is initialized from another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from seqwright.core.config import UserError


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter once (tied weights under their first name), and the persistent buffers."""
    named: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in _saved(model):
        if id(tensor) not in seen:
            named[name] = tensor
            seen.add(id(tensor))
    return named


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copies tensors that `weights` returned into a model of the same shapes; refuses any other."""
    check_weights(model, {name: tensor.shape for name, tensor in tensors.items()})
    with torch.no_grad():
        for name, tensor in weights(model).items():
            tensor.copy_(tensors[name])


def check_weights(model: nn.Module, saved: Mapping[str, torch.Size]) -> None:
    """Raises where saved weights of these shapes are not those of a model."""
    own = weights(model)
    missing, unknown = sorted(own.keys() - saved.keys()), sorted(saved.keys() - own.keys())
    shapes = [n for n in own if n in saved and own[n].shape != saved[n]]
    if missing or unknown or shapes:
        raise UserError(
            f"these weights belong to another model (missing: {missing or 'none'}; unknown: {unknown or 'none'}; "
            f"of another shape: {shapes or 'none'}); open them with the recipe they were trained with,"
            " or train again if an older seqwright wrote them."
        )


TOKEN_EMBEDDING = "embedding.weight"
"""The token embedding's name."""


def is_task_specific(name: str) -> bool:
    """Whether a parameter belongs to the task rather than to the token embedding and encoder: head, body, pooling, and
    what is added to token embeddings (segments, character features). These keep their initialization where the
    pretrained model has none that fit."""
    return name.startswith(("head.", "body.", "pooling.")) or (
        name.startswith("embedding.") and name != TOKEN_EMBEDDING
    )


def init_from(model: nn.Module, tensors: Mapping[str, Tensor]) -> list[str]:
    """Initializes a model from pretrained weights; returns the names of the modules that stay newly initialized.

    Embeddings of new tokens are initialized near the mean of the old ones.
    """
    own = weights(model)
    tensors = _encoder_half(tensors) if "encoder" in dict(model.named_children()) else tensors
    resized = {name: new.detach().clone() for name, new in own.items() if _has_new_tokens(name, tensors, own)}
    for name, new in resized.items():
        old = tensors[name].to(new)
        new[: len(old)] = old
        new[len(old) :] += old.mean(0)  # plus the random initialization, so that new tokens differ
    pretrained = {**tensors, **resized}
    misfits = {name for name in pretrained if name not in own or own[name].shape != pretrained[name].shape}
    loaded = {name: pretrained[name] for name in pretrained if not (name in misfits and is_task_specific(name))}
    fresh = {name: tensor for name, tensor in own.items() if name not in loaded and is_task_specific(name)}
    load_weights(model, {**loaded, **fresh})
    return sorted({name.rsplit(".", 1)[0] for name in fresh})


def _has_new_tokens(name: str, old: Mapping[str, Tensor], new: Mapping[str, Tensor]) -> bool:
    """Whether an embedding or output layer has rows for a larger vocabulary than before. A head with more rows may also
    be that of another task: it counts only where a token embedding grew by the same rows."""
    if name not in old or len(old[name]) >= len(new[name]) or old[name].shape[1:] != new[name].shape[1:]:
        return False
    grown = {(len(old[table]), len(new[table])) for table in new if table.endswith(TOKEN_EMBEDDING) and table in old}
    return not is_task_specific(name) or (len(old[name]), len(new[name])) in grown


def _encoder_half(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The encoder of an encoder-decoder's weights, under the names of an encoder model; other weights as they are."""
    if not any(name.startswith("reader.") for name in tensors):
        return tensors
    halves = {"source_embedding.": "embedding.", "reader.": "encoder."}
    return {
        new + name.removeprefix(old): tensor
        for name, tensor in tensors.items()
        for old, new in halves.items()
        if name.startswith(old)
    }


def _saved(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters(remove_duplicate=False)  # tied weights under all of their names
    for prefix, module in model.named_modules():
        for name, buffer in module.named_buffers(recurse=False):
            if name not in module._non_persistent_buffers_set:
                yield f"{prefix}.{name}" if prefix else name, buffer
