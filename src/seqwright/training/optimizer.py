"""Optimizers: which parameters decay, and their memory as named tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from seqwright.training.config import TrainingConfig
from seqwright.training.layer_freezing import shares


def optimizer(module: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """The optimizer that the recipe names, over every parameter of the module.

    A group has the `share` of the rate that it learns at, beside PyTorch's own keys.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    groups = _groups(module, config)
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=config.learning_rate, momentum=config.momentum)
    if config.optimizer == "adafactor":
        return torch.optim.Adafactor(groups, lr=config.learning_rate)
    fused = parameters[0].device.type in ("cuda", "cpu")
    betas = (config.beta1, config.beta2)
    adam = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return adam(groups, lr=config.learning_rate, betas=betas, eps=1e-8, fused=fused)


def _groups(module: nn.Module, config: TrainingConfig) -> list[dict[str, Any]]:
    """Parameters that learn alike."""
    share = shares(module, config.layer_decay)
    alike: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            # Biases and gains are one-dimensional; pulling them to zero helps nothing.
            alike.setdefault((share[name], parameter.dim() >= 2), []).append(parameter)
    return [
        {"params": several, "weight_decay": config.weight_decay if pulled else 0.0, "share": at}
        for (at, pulled), several in alike.items()
    ]


def optimizer_state(optimizer: torch.optim.Optimizer, module: nn.Module) -> dict[str, Tensor]:
    """What the optimizer remembers, as `parameter name/quantity`."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in module.named_parameters()}
    return {
        f"{names[parameter]}/{quantity}": value
        for parameter, state in optimizer.state.items()
        for quantity, value in state.items()
        if isinstance(value, Tensor)
    }


def load_optimizer_state(optimizer: torch.optim.Optimizer, module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Gives an optimizer the memory that `memory` took."""
    named = dict(module.named_parameters())
    optimizer.state.clear()
    for key, value in tensors.items():
        name, quantity = key.rsplit("/", 1)
        parameter = named[name]
        # AdamW keeps its step counter where its kernel wants it: with the parameter when fused, else on the CPU.
        optimizer.state[parameter][quantity] = value.clone().to(parameter.device)
