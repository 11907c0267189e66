"""Layers by depth: which of them a step learns, and at what share of the rate (Howard & Ruder 2018)."""

from __future__ import annotations

import re

from torch import nn

from seqwright.core.config import UserError
from seqwright.training.config import TrainingConfig
from seqwright.training.weights import is_of_the_task

LAYER = re.compile(r"\.blocks\.(\d+)\.|_l(\d+)(?:_reverse)?$")
"""How the names of parameters say their layer: Transformer blocks, and stacked recurrent networks."""
LAST = ("encoder.norm.", "reader.norm.", "decoder.norm.", "decoder.keys_values.")


def depths(module: nn.Module) -> dict[str, int]:
    """How deep each parameter lies: 0 for tokens and positions, 1, 2, … for layers, one more for what a task adds.

    What follows the last layer (a last normalization) or serves all (a decoder's keys of the source) counts with it.
    """
    names = [name for name, _ in module.named_parameters()]
    found = {name: _layer(name) for name in names}
    last = max((layer for layer in found.values() if layer is not None), default=0)
    return {name: _above(name, last) if layer is None else layer for name, layer in found.items()}


def shares(module: nn.Module, decay: float) -> dict[str, float]:
    """The share of the rate that each parameter learns at: 1 at the top, `decay` times less for every layer below."""
    found = depths(module)
    top = max(found.values())
    return {name: decay ** (top - depth) for name, depth in found.items()}


class LayerFreezing:
    """Which parameters a step leaves as they are: a function of the step, so that a resumed training does the same."""

    def __init__(self, module: nn.Module, config: TrainingConfig, steps_per_epoch: int):
        found = depths(module)
        self.top = max(found.values())
        learned = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
        self.parameters = [(parameter, found[name]) for name, parameter in learned.items()]
        self.pause = None if config.unfreeze_every is None else config.unfreeze_every * steps_per_epoch
        self.kept = _kept(config.freeze, self.top)

    def frozen(self, step: int) -> int:
        """How many depths, from the bottom, do not learn at a step: those kept, and those not yet thawed."""
        if self.pause is None:
            return self.kept
        return max(self.kept, self.top - int(step / self.pause))

    def __call__(self, step: int) -> None:
        """Lets gradients reach what a step learns, and nothing else."""
        frozen = self.frozen(step)
        for parameter, depth in self.parameters:
            parameter.requires_grad_(depth >= frozen)


def _above(name: str, last: int) -> int:
    """The depth of what is in no layer."""
    return last + 1 if is_of_the_task(name) else last if name.startswith(LAST) else 0


def _layer(name: str) -> int | None:
    found = LAYER.search(name)
    return None if found is None else int(found[1] or found[2] or 0) + 1


def _kept(freeze: int | str | None, top: int) -> int:
    """Depths that never learn; the embedding lies below the layers."""
    if freeze is None or isinstance(freeze, str):
        return 0 if freeze is None else top
    if freeze >= top:
        raise UserError(f'training.freeze is {freeze}, but there are {top - 1} layers; "all" keeps every one.')
    return freeze + 1
