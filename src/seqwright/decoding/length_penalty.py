"""Length normalization: what a hypothesis of some length is compared by, and the best it can still become.

Every rule is monotone in the length for a fixed log-probability; the bounds of both searches rest on that.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqwright.decoding.options import SearchOptions


def normalize(log_prob: Tensor, length: Tensor | int, options: SearchOptions) -> Tensor:
    """The score of log-probabilities at a length that counts the end: greater is better."""
    match options.length_penalty:
        case "power":  # the lectures' |y|^α
            return log_prob / length**options.length_alpha
        case "gnmt":  # Wu et al. 2016
            return log_prob / ((5 + length) / 6) ** options.length_alpha
        case "average":
            return log_prob / length
        case "reward":  # He et al. 2016
            return log_prob + options.length_alpha * length
        case _:
            return log_prob


def best_possible(log_prob: Tensor, length: Tensor | int, most: Tensor | int, options: SearchOptions) -> Tensor:
    """No ending of a live hypothesis scores more: log-probabilities only fall, and scores are monotone in length."""
    soonest = normalize(log_prob, length + 1, options)
    return torch.maximum(soonest, normalize(log_prob, most, options))
