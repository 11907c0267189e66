"""The layers of a model in the order of its forward pass: output shapes, parameters, multiply-adds and memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seqwright.core.batch import Batch
from seqwright.layers.attention import Attend
from seqwright.layers.encoder import EncoderOutput
from seqwright.layers.mogrifier import MogrifierLSTM
from seqwright.training.model_size import on_meta

META_PARAMETERS = 20_000_000
"""Parameters above which the forward pass is taken on the meta device: slower to start, but free of arithmetic."""


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A module without submodules; one that is called several times, such as a decoder's cell, is one layer."""

    path: str
    kind: str
    output: tuple[int, ...]
    """Shape of its (last) output."""
    parameters: int
    """Those that no layer before has: tied weights are counted once."""
    mult_adds: int
    """Multiply-adds of matrix products and convolutions; lookups and elementwise operations have none."""
    output_bytes: int
    """Of all its outputs in float32."""


def layer_table(make: Callable[[], nn.Module], batch: Batch) -> tuple[list[Layer], int]:
    """The layers of a model on a batch, and its number of parameters, tied ones counted once.

    No memory is allocated for weights: their pages are only read, or do not exist.
    """
    model = on_meta_device(make)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if parameters > META_PARAMETERS and not is_recurrent(model):
        try:
            return forward_layers(model.to("meta"), batch.to("meta")), parameters
        except RuntimeError as error:
            if not needs_values(error):
                raise
    return forward_layers(model.to_empty(device="cpu"), batch), parameters


def needs_values(error: RuntimeError) -> bool:
    """Whether a trace failed because a shape depends on values, such as the words of a text, which the meta device does
    not have. Any other error is one of the model or of the trace, and has to show."""
    return isinstance(error, NotImplementedError) or "meta tensors" in str(error)


def forward_layers(model: nn.Module, batch: Batch) -> list[Layer]:
    """The layers of one forward pass."""
    with _recorded(model.eval()) as layers, torch.no_grad():
        model(batch)
    return list(layers.values())


def on_meta_device(make: Callable[[], nn.Module]) -> nn.Module:
    """The model that `make` builds, on the meta device; any size can be planned."""
    return on_meta(make, lambda size: None)


def is_recurrent(model: nn.Module) -> bool:
    """Whether a model has recurrent layers, which run on no meta device."""
    return any(isinstance(module, nn.RNNBase | MogrifierLSTM) for module in model.modules())


@contextmanager
def _recorded(model: nn.Module) -> Iterator[dict[str, Layer]]:
    """Layers by path, recorded by forward hooks while entered."""
    layers: dict[str, Layer] = {}
    counted: set[int] = set()

    def new_parameters(module: nn.Module) -> int:
        new = [parameter for parameter in module.parameters() if id(parameter) not in counted]
        counted.update(map(id, new))
        return sum(parameter.numel() for parameter in new)

    def hook(path: str) -> Any:
        def record(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            vectors = output.vectors if isinstance(output, EncoderOutput) else output
            vectors = vectors[0] if isinstance(vectors, tuple) else vectors
            if not isinstance(vectors, Tensor):
                return
            before = layers.get(path)
            layers[path] = Layer(
                path=path,
                kind=type(module).__name__,
                output=tuple(vectors.shape),
                parameters=before.parameters if before else new_parameters(module),
                mult_adds=_mult_adds(module, inputs, vectors) + (before.mult_adds if before else 0),
                output_bytes=4 * vectors.numel() + (before.output_bytes if before else 0),
            )

        return record

    leaves = [
        (path, module)
        for path, module in model.named_modules()
        if not list(module.children()) and not isinstance(module, nn.Dropout | nn.Identity)
    ]
    handles = [module.register_forward_hook(hook(path)) for path, module in leaves]
    try:
        yield layers
    finally:
        for handle in handles:
            handle.remove()


def _mult_adds(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> int:
    """Each weight of a matrix is used once for each position of the output; attention has two products."""
    if isinstance(module, Attend):
        query, key = inputs[:2]
        return 2 * query.numel() * key.size(-2)  # Q Kᵀ, and weights times V
    if isinstance(module, nn.Embedding):
        return 0
    features = output.size(1) if isinstance(module, nn.Conv1d) else output.size(-1)
    weights = sum(parameter.numel() for parameter in module.parameters() if parameter.dim() >= 2)
    return weights * (math.prod(output.shape) // max(1, features))
