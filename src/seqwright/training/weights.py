"""A model's weights by plain name, whatever wrapped it: what checkpoints and model.safetensors hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from seqwright.core.config import UserError


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
            f"of another shape: {shapes or 'none'}); open them with the recipe they were trained with,"
            " or train again if an older seqwright wrote them."
        )
    with torch.no_grad():
        for name, tensor in mine.items():
            tensor.copy_(tensors[name])


TOKENS = "embedding.weight"
"""The vectors of tokens."""


def is_of_the_task(name: str) -> bool:
    """Whether a parameter belongs to what a task adds to an embedding and an encoder: what answers, and what is added
    to the vectors of tokens (segments, spelling). Such parts stay fresh where a trained model has none that fit."""
    return name.startswith(("head.", "body.", "pooling.")) or (name.startswith("embedding.") and name != TOKENS)


def begin_with(model: nn.Module, tensors: Mapping[str, Tensor]) -> list[str]:
    """Fills a fresh model with a trained one's weights; the parts of it that stay fresh because the task is another.

    Tokens that are new begin near the mean of the old ones.
    """
    mine = weights(model)
    tensors = _as_reader(tensors) if "encoder" in dict(model.named_children()) else tensors
    grown = {name: fresh.detach().clone() for name, fresh in mine.items() if _grows(name, tensors, mine)}
    for name, fresh in grown.items():
        old = tensors[name].to(fresh)
        fresh[: len(old)] = old
        fresh[len(old) :] += old.mean(0)
    found = {**tensors, **grown}
    strange = {name for name in found if name not in mine or mine[name].shape != found[name].shape}
    kept = {name: found[name] for name in found if not (name in strange and is_of_the_task(name))}
    own = {name: tensor for name, tensor in mine.items() if name not in kept and is_of_the_task(name)}
    load_weights(model, {**kept, **own})
    return sorted({name.rsplit(".", 1)[0] for name in own})


def _grows(name: str, old: Mapping[str, Tensor], new: Mapping[str, Tensor]) -> bool:
    """Whether a table has rows for more tokens than before. A head may also have become one of other things: it grows
    only together with the tokens."""
    if name not in old or len(old[name]) >= len(new[name]) or old[name].shape[1:] != new[name].shape[1:]:
        return False
    tokens = {(len(old[table]), len(new[table])) for table in new if table.endswith(TOKENS) and table in old}
    return not is_of_the_task(name) or (len(old[name]), len(new[name])) in tokens


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
