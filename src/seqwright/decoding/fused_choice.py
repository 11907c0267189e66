"""The choice of beams in two kernels, where candidates are ranked by log-probabilities alone (decision 220).

The same as `_BeamSearch` computes with PyTorch's operations, in place; of equal candidates that of the first beam comes
first, then that of the first id.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqwright.decoding.backpointers import BackPointers
from seqwright.decoding.live_beams import Beams
from seqwright.decoding.options import SearchOptions
from seqwright.decoding.processors import LogitsProcessors
from seqwright.layers.inference.availability import has_beam_kernels
from seqwright.layers.inference.top_k import MAX_MANY, PART

MAX_CANDIDATES = 8192
"""Candidates of a group that its program holds in registers."""
MAX_FINISHED = 64
"""Scores of finished hypotheses that it ranks by comparing all with all."""


def covers(log_probs: Tensor, options: SearchOptions, processors: LogitsProcessors) -> bool:
    """Whether the kernels choose the beams of such a search: a GPU, one group of few beams for each source."""
    each = 2 * options.beam_size + len(processors.unfinished)
    candidates = options.beam_size * each * -(-log_probs.size(-1) // PART)
    small = each <= MAX_MANY and candidates <= MAX_CANDIDATES and options.enough <= MAX_FINISHED
    return (
        has_beam_kernels(log_probs.device) and log_probs.dtype == torch.float32 and options.beam_groups == 1 and small
    )


def choose(
    log_probs: Tensor,
    live: Beams,
    back_pointers: BackPointers,
    place: Tensor,
    never: Tensor,
    eos: int,
    options: SearchOptions,
) -> None:
    """Finished candidates go to the pool, the best others are the new beams; ids that are `never` generated are none.
    `place` () is the length of the hypotheses."""
    from seqwright.layers.inference.beam_kernel import choose_  # needs Triton
    from seqwright.layers.inference.top_k_kernel import largest_of_parts

    values, indices = largest_of_parts(log_probs.contiguous(), 2 * live.totals.size(1) + len(never), PART)
    choose_(
        values,
        indices,
        never,
        place,
        dict(live.named_tensors()),
        dict(back_pointers.tables()),
        eos=eos,
        penalty=options.length_penalty,
        alpha=float(options.length_alpha),
        stopping=options.stopping,
    )
