"""Where Triton's kernels are used: on NVIDIA GPUs."""

from __future__ import annotations

import importlib.util

import torch

BEAM_KERNELS = {"cuda"}
"""Devices on which kernels choose the beams of a search and reorder their KV cache; without a device here PyTorch's
operations do, with the same hypotheses."""


def has_triton() -> bool:
    """Whether Triton is installed beside PyTorch for NVIDIA GPUs."""
    return not torch.version.hip and importlib.util.find_spec("triton") is not None


def has_beam_kernels(device: torch.device) -> bool:
    """Whether kernels choose and reorder beams on a device."""
    return device.type in BEAM_KERNELS and has_triton()
