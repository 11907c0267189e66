"""Optimizers: parameter groups (weight decay, learning-rate factors), and optimizer state as named tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from seqwright.training.config import TrainingConfig
from seqwright.training.layer_freezing import lr_scales


def optimizer(module: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """The recipe's optimizer over every trainable parameter of the module.

    Parameter groups carry `lr_scale`, their factor of the scheduled learning rate, beside PyTorch's own keys.
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
    """Parameter groups by learning-rate factor and weight decay."""
    scales = lr_scales(module, config.layer_decay)
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            # Biases and normalization gains are one-dimensional and do not decay.
            groups.setdefault((scales[name], parameter.dim() >= 2), []).append(parameter)
    return [
        {"params": parameters, "weight_decay": config.weight_decay if decays else 0.0, "lr_scale": scale}
        for (scale, decays), parameters in groups.items()
    ]


def optimizer_state(optimizer: torch.optim.Optimizer, module: nn.Module) -> dict[str, Tensor]:
    """Optimizer state (moments, step counters) as tensors named `parameter name/quantity`."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in module.named_parameters()}
    return {
        f"{names[parameter]}/{quantity}": value
        for parameter, state in optimizer.state.items()
        for quantity, value in state.items()
        if isinstance(value, Tensor)
    }


def load_optimizer_state(optimizer: torch.optim.Optimizer, module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Restores what `optimizer_state` returned."""
    named = dict(module.named_parameters())
    optimizer.state.clear()
    for key, value in tensors.items():
        name, quantity = key.rsplit("/", 1)
        parameter = named[name]
        # Step counters too: fused Adam keeps them on the parameter's device.
        optimizer.state[parameter][quantity] = value.clone().to(parameter.device)
