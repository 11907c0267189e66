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


def begin_with(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Fills a fresh model with a trained one's weights; tokens that are new begin near the mean of the old ones."""
    mine = weights(model)
    grown = {
        name: fresh.detach().clone()
        for name, fresh in mine.items()
        if name in tensors and len(tensors[name]) < len(fresh) and tensors[name].shape[1:] == fresh.shape[1:]
    }
    for name, fresh in grown.items():
        old = tensors[name].to(fresh)
        fresh[: len(old)] = old
        fresh[len(old) :] += old.mean(0)
    load_weights(model, {**tensors, **grown})


def _saved(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters(remove_duplicate=False)
    for prefix, module in model.named_modules():
        for name, buffer in module.named_buffers(recurse=False):
            if name not in module._non_persistent_buffers_set:
                yield f"{prefix}.{name}" if prefix else name, buffer
