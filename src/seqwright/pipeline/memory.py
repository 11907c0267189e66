"""Whether a model fits into memory with its gradients and optimizer state, before it is built."""

from __future__ import annotations

import os
from typing import Any

from seqwright import build
from seqwright.core.config import UserError
from seqwright.core.limits import check_limit
from seqwright.pipeline.recipe import Recipe
from seqwright.training import machine
from seqwright.training.model_size import ModelSize, on_meta


def refuse_too_large(wanted: Recipe, sizes: Any) -> None:
    """Raises where a model with its gradients and optimizer state would not fit into memory."""
    if wanted.kind in build.COUNTED or wanted.kind in build.REGISTERED:
        return

    def check(size: ModelSize) -> None:
        what = f"[model] has {size.tensors:,} parameter tensors or more"
        check_limit("SEQWRIGHT_MAX_PARAMETER_TENSORS", size.tensors, what)

    model = on_meta(lambda: build.model(wanted.model, sizes, task=wanted.data.kind), check)
    parameters = sum(p.numel() for p in model.parameters())
    needed, memory = 16 * parameters, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory and machine.device(wanted.training.device).type == "cpu":
        raise UserError(
            f"a model of {parameters:,} parameters needs about {needed / 1e9:,.0f} GB to be trained, and this machine"
            f" has {memory / 1e9:,.0f} GB; make it narrower or shallower, or give it a shorter context."
        )
