"""Whether a training on a GPU is compiled: decided once, before the first step (decision 160)."""

from __future__ import annotations

from typing import Literal

from seqwright.reporting.numbers import duration

BASE_SECONDS, LAYER_SECONDS = 5.0, 3.0
"""Seconds that torch.compile takes, and for each Transformer layer besides: about 40 s for GPT-2's 12 layers."""
SAVED = 0.2
"""Share of the time of captured steps that compiling a Transformer saves: 0.19 for a GPT of 6 × 384 on an H200."""
WORTH = 2.0
"""Compiling must save this many times what it takes: the forecast is rough."""

VARYING = 4
"""How many times as long compiling takes where lengths vary, for which kernels are compiled again, of any length: more
than two minutes for a translator of 4 + 4 layers on an H200."""

Choice = Literal["cudagraphs", "inductor"]


def compile_choice(layers: int, seconds: float, *, varying: bool = False) -> tuple[Choice, str]:
    """How a training of so many Transformer layers and seconds, of batches of varying lengths or not, is run, and
    why."""
    if not layers:
        return "cudagraphs", "steps are captured as CUDA graphs (training.compile = cudagraphs)."
    takes, saves = (BASE_SECONDS + LAYER_SECONDS * layers) * (VARYING if varying else 1), SAVED * seconds
    if saves > WORTH * takes:
        return "inductor", (
            f"compiling takes about {duration(takes)} and saves about {duration(saves)} of {duration(seconds)}"
            " (training.compile = inductor)."
        )
    return "cudagraphs", (
        f"compiling would take about {duration(takes)} and save about {duration(saves)}: steps are captured as CUDA"
        " graphs instead (training.compile = cudagraphs)."
    )
