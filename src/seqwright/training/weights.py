"""A model's weights by plain name, whatever wrapped it: what checkpoints and model.safetensors hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from seqwright.config import UserError


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter once (tied ones under their first name), and the buffers that are saved."""
    named: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in _saved(model):
        if id(tensor) not in seen:
            named[name] = tensor
            seen.add(id(tensor))
    return named


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Fills a model with what `weights` took from its like."""
    mine = weights(model)
    missing, unknown = sorted(mine.keys() - tensors.keys()), sorted(tensors.keys() - mine.keys())
    shapes = [n for n in mine if n in tensors and mine[n].shape != tensors[n].shape]
    if missing or unknown or shapes:
        raise UserError(
            f"these weights belong to another model (missing: {missing or 'none'}; unknown: {unknown or 'none'}; "
            f"of another shape: {shapes or 'none'}); open them with the recipe they were trained with."
        )
    with torch.no_grad():
        for name, tensor in mine.items():
            tensor.copy_(tensors[name])


ANSWERING = ("head.", "body.", "pooling.", "embedding.segments.", "embedding.characters.")
"""Parts that belong to a task: they stay fresh where the trained model has none that fit."""


def begin_with(model: nn.Module, tensors: Mapping[str, Tensor]) -> list[str]:
    """Fills a fresh model with a trained one's weights; the parts of it that stay fresh because the task is another.

    Tokens that are new begin near the mean of the old ones.
    """
    mine = weights(model)
    tensors = _as_reader(tensors) if "encoder" in dict(model.named_children()) else tensors
    grown = {
        name: fresh.detach().clone()
        for name, fresh in mine.items()
        if name in tensors and len(tensors[name]) < len(fresh) and tensors[name].shape[1:] == fresh.shape[1:]
    }
    for name, fresh in grown.items():
        old = tensors[name].to(fresh)
        fresh[: len(old)] = old
        fresh[len(old) :] += old.mean(0)
    found = {**tensors, **grown}
    strange = {name for name in found if name not in mine or mine[name].shape != found[name].shape}
    kept = {name: found[name] for name in found if not (name in strange and name.startswith(ANSWERING))}
    own = {name: tensor for name, tensor in mine.items() if name not in kept and name.startswith(ANSWERING)}
    load_weights(model, {**kept, **own})
    return sorted({name.rsplit(".", 1)[0] for name in own})


def _as_reader(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The reading half of a translator's weights, under the names of a model that only reads."""
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
    yield from model.named_parameters(remove_duplicate=False)
    for prefix, module in model.named_modules():
        for name, buffer in module.named_buffers(recurse=False):
            if name not in module._non_persistent_buffers_set:
                yield f"{prefix}.{name}" if prefix else name, buffer
