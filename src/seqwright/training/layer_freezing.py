"""Layer freezing, gradual unfreezing and layer-wise learning-rate decay (ULMFiT, Howard & Ruder 2018)."""

from __future__ import annotations

import re

from torch import nn

from seqwright.core.config import UserError
from seqwright.training.config import TrainingConfig
from seqwright.training.weights import is_task_specific

LAYER = re.compile(r"\.blocks\.(\d+)\.|_l(\d+)(?:_reverse)?(?:\.|$)")
"""The layer number in a parameter's name: Transformer blocks, and torch.nn's stacked recurrent networks."""
TOP_LAYER = ("encoder.norm.", "reader.norm.", "decoder.norm.", "decoder.keys_values.")
"""Prefixes of parameters that count with the last layer: final normalizations, and the decoder's projection of the
source to cross-attention keys and values, which serves all layers."""


def depths(module: nn.Module) -> dict[str, int]:
    """Depth of each parameter: 0 for embeddings and positions, 1, 2, … for layers, one more for the task's head."""
    layers = {name: _layer(name) for name, _ in module.named_parameters()}
    last = max((layer for layer in layers.values() if layer is not None), default=0)
    return {name: _depth_outside_layers(name, last) if layer is None else layer for name, layer in layers.items()}


def lr_scales(module: nn.Module, decay: float) -> dict[str, float]:
    """Learning-rate factor of each parameter: 1 at the top, multiplied by `decay` for each layer below."""
    by_name = depths(module)
    top = max(by_name.values())
    return {name: decay ** (top - depth) for name, depth in by_name.items()}


class LayerFreezing:
    """Which parameters are frozen at a step: a pure function of the step, so that a resumed run freezes the same."""

    def __init__(self, module: nn.Module, config: TrainingConfig, steps_per_epoch: int):
        by_name = depths(module)
        self.top = max(by_name.values())
        # Parameters frozen elsewhere (LoRA) are left alone.
        trainable = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
        self.parameters = [(parameter, by_name[name]) for name, parameter in trainable.items()]
        self.steps_per_layer = None if config.unfreeze_every is None else config.unfreeze_every * steps_per_epoch
        self.always_frozen = _always_frozen(config.freeze, self.top)
        self.current = 0
        """Number of depths that are frozen now."""

    def frozen(self, step: int) -> int:
        """Number of depths, from the bottom, that are frozen at a step: always, or not yet unfrozen."""
        if self.steps_per_layer is None:
            return self.always_frozen
        return max(self.always_frozen, self.top - int(step / self.steps_per_layer))

    def __call__(self, step: int) -> bool:
        """Sets requires_grad of the parameters for a step; whether any has changed since the step before."""
        frozen = self.frozen(step)
        if frozen == self.current:
            return False
        for parameter, depth in self.parameters:
            parameter.requires_grad_(depth >= frozen)
        self.current = frozen
        return True


def _depth_outside_layers(name: str, last: int) -> int:
    """Depth of a parameter that belongs to no layer."""
    return last + 1 if is_task_specific(name) else last if name.startswith(TOP_LAYER) else 0


def _layer(name: str) -> int | None:
    match = LAYER.search(name)
    return None if match is None else int(match[1] or match[2] or 0) + 1


def _always_frozen(freeze: int | str | None, top: int) -> int:
    """Number of depths that are never trained; the embedding is depth 0, below the layers."""
    if freeze is None or isinstance(freeze, str):
        return 0 if freeze is None else top
    if freeze >= top:
        raise UserError(f'training.freeze is {freeze}, but there are {top - 1} layers; "all" freezes all of them.')
    return freeze + 1
