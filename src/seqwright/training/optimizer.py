"""Optimizers: parameter groups (weight decay, learning-rate factors), and optimizer state as named tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from seqwright.core.ranks import SINGLE, Ranks
from seqwright.training import machine
from seqwright.training.config import TrainingConfig
from seqwright.training.layer_freezing import lr_scales
from seqwright.training.muon import Muon
from seqwright.training.schedule_free import ScheduleFreeAdamW
from seqwright.training.sharded_tensors import Shards, local

CAPTURABLE = ("adamw", "muon", "schedule-free", "adam", "sgd")
"""Optimizers whose step can be part of a CUDA graph: their learning rate is then a tensor."""
OUTSIDE = ("head.", "embedding.", "pooling.")
"""Prefixes of parameters that are not hidden matrices."""


WHOLE = Shards()
"""Of a model that is not sharded."""


def optimizer(
    module: nn.Module, config: TrainingConfig, ranks: Ranks = SINGLE, shards: Shards = WHOLE
) -> torch.optim.Optimizer:
    """The recipe's optimizer over every trainable parameter of the module, or its shards on this rank.

    Parameter groups carry `lr_scale`, their factor of the scheduled learning rate, beside PyTorch's own keys.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    groups = _groups(module, config, shards)
    device = parameters[0].device
    fused = device.type in ("cuda", "cpu")
    betas = (config.beta1, config.beta2)
    captured = config.optimizer in CAPTURABLE and machine.captures(config, device, ranks)
    if captured:
        for group in groups:
            group["lr"] = torch.tensor(config.learning_rate, device=device)
    capturable = captured and device.type == "cuda"
    if config.optimizer == "muon":
        return Muon(
            groups,
            lr=config.learning_rate,
            betas=betas,
            fused=fused,
            capturable=capturable,
            bfloat16=config.precision == "bf16",
            shards=shards,
        )
    if config.optimizer == "schedule-free":
        return ScheduleFreeAdamW(groups, lr=config.learning_rate, betas=betas)
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=config.learning_rate, momentum=config.momentum, fused=captured or None)
    if config.optimizer == "adafactor":
        return torch.optim.Adafactor(groups, lr=config.learning_rate)
    adam = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    made = adam(
        groups,
        lr=config.learning_rate,
        betas=betas,
        eps=1e-8,
        fused=fused,
        capturable=capturable,
    )
    made._warned_capturable_if_run_uncaptured = True  # warm-up steps are not captured
    return made


def _groups(module: nn.Module, config: TrainingConfig, shards: Shards) -> list[dict[str, Any]]:
    """Parameter groups by learning-rate factor, weight decay and, for Muon, whether they are hidden matrices."""
    scales = lr_scales(module, config.layer_decay)
    hidden = _hidden_matrices(module) if config.optimizer == "muon" else set()
    groups: dict[tuple[float, bool, bool], list[Tensor]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            # Biases and normalization gains are one-dimensional and do not decay.
            key = (scales[name], parameter.dim() >= 2, name in hidden)
            groups.setdefault(key, []).append(shards.of(parameter))
    return [
        {"params": parameters, "weight_decay": config.weight_decay if decays else 0.0, "lr_scale": scale}
        | ({"orthogonal": orthogonal} if config.optimizer == "muon" else {})
        for (scale, decays, orthogonal), parameters in groups.items()
    ]


def _hidden_matrices(module: nn.Module) -> set[str]:
    """Names of the matrices that map hidden states to hidden states: neither embeddings nor output layers."""
    tables = {
        f"{prefix}.{name}" if prefix else name
        for prefix, part in module.named_modules()
        if isinstance(part, nn.Embedding)
        for name, _ in part.named_parameters(recurse=False)
    }
    return {
        name
        for name, parameter in module.named_parameters()
        if parameter.dim() == 2 and name not in tables and not name.startswith(OUTSIDE)
    }


def optimizer_state(optimizer: torch.optim.Optimizer, module: nn.Module, shards: Shards = WHOLE) -> dict[str, Tensor]:
    """Optimizer state (moments, step counters) as tensors named `parameter name/quantity`, sharded as parameters."""
    names: dict[Tensor, str] = {shards.of(parameter): name for name, parameter in module.named_parameters()}
    return {
        f"{names[parameter]}/{quantity}": shards.joined(value, parameter)
        for parameter, state in optimizer.state.items()
        for quantity, value in state.items()
        if isinstance(value, Tensor)
    }


def load_optimizer_tensor(
    optimizer: torch.optim.Optimizer, parameter: Tensor, quantity: str, value: Tensor, shards: Shards = WHOLE
) -> None:
    """Restores one tensor that `optimizer_state` returned."""
    # Step counters too: fused Adam keeps them on the parameter's device.
    optimizer.state[shards.of(parameter)][quantity] = local(value).clone().to(parameter.device)
