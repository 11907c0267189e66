"""The `[training]` section of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from seqwright.config import UserError


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    steps: int | None = None
    """Optimizer steps; 2,000 unless steps or epochs are given."""
    epochs: float | None = None
    """Passes over the training data, instead of steps."""
    batch: int = 32
    """Rows of each step; 1 is stochastic gradient descent in the strict sense."""
    length: int | None = None
    """Tokens of a row that a step reads; the model's context unless given (128 for models that see any length)."""
    micro_batch: int | None = None
    """Rows computed at a time where a whole batch does not fit in memory; the result is that of the whole batch."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """AdamW (Loshchilov & Hutter 2019) or plain gradient descent."""
    rate: float = 1e-3
    """The learning rate at the top of the schedule."""
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    """How the rate falls after the warm-up."""
    warmup: int = 100
    """Steps over which the rate rises in a straight line from near 0."""
    final: float = 0.1
    """The share of the rate that is left at the last step (linear, cosine)."""
    weight_decay: float = 0.1
    """Pull of matrices towards zero, in units of the rate."""
    beta1: float = 0.9
    """AdamW's memory of gradients."""
    beta2: float = 0.99
    """AdamW's memory of squared gradients."""
    clip: float | None = 1.0
    """The largest gradient norm; longer gradients are shortened to it. 0 means no limit."""
    smoothing: float = 0.0
    """Label smoothing: the share of the target spread over the whole vocabulary."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16 computes matrix products in half the bits; weights and optimizer stay fp32."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute; auto takes a GPU where there is one."""
    deterministic: bool = False
    """Only kernels that give the same bits every time, where a GPU has faster ones that do not."""
    seed: int = 1
    """Fixes fresh weights, data order and dropout."""
    log_every: int = 20
    """Steps between lines of the log."""
    evaluate_every: int | None = None
    """Steps between evaluations; a tenth of the training unless given. 0 = only at the end."""
    sample_every: int | None = None
    """Steps between samples of the model's text in the log; as evaluations unless given. 0 = never."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; as evaluations unless given. 0 = only when stopped and at the end."""
    keep: int = 2
    """Checkpoints kept, beside the best one."""

    def __post_init__(self) -> None:
        problems = []
        if self.steps is not None and self.epochs is not None:
            problems.append("give steps or epochs, not both")
        for name in ("steps", "epochs", "length", "micro_batch"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                problems.append(f"{name} must be above 0, not {value}")
        for name in ("batch", "log_every", "keep"):
            if getattr(self, name) < 1:
                problems.append(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("rate", "weight_decay", "warmup", "clip", "evaluate_every", "sample_every", "checkpoint_every"):
            if (getattr(self, name) or 0) < 0:
                problems.append(f"{name} must not be below 0, but is {getattr(self, name)}")
        if not 0 <= self.seed < 1 << 63:
            problems.append(f"seed must be 0 or more and below 2^63, not {self.seed}")
        for name in ("final", "smoothing", "beta1", "beta2"):
            if not 0 <= getattr(self, name) <= 1:
                problems.append(f"{name} is a share between 0 and 1, not {getattr(self, name)}")
        if problems:
            raise UserError("; ".join(problems) + ".")
