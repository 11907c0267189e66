"""Length normalization of hypothesis scores, and the upper bound of what a live hypothesis can reach.

Every rule is monotone in the length for a fixed log-probability; the bounds of beam and exact search rest on that.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqwright.decoding.options import SearchOptions


def normalize(log_prob: Tensor, length: Tensor | int, options: SearchOptions) -> Tensor:
    """The scores of log-probabilities at a length that counts <eos>; greater is better."""
    match options.length_penalty:
        case "power":  # |y|^α, as in transformers
            return log_prob / length**options.length_alpha
        case "gnmt":  # Wu et al. 2016
            return log_prob / ((5 + length) / 6) ** options.length_alpha
        case "average":
            return log_prob / length
        case "reward":  # He et al. 2016
            return log_prob + options.length_alpha * length
        case _:
            return log_prob


def best_possible(log_prob: Tensor, length: Tensor | int, max_length: Tensor | int, options: SearchOptions) -> Tensor:
    """Upper bound of the score of any continuation of a live hypothesis of this length.

    Log-probabilities only fall and scores are monotone in the length, so that the bound is at one of the two ends: with
    <eos> next, or at the maximum length.
    """
    ended_next = normalize(log_prob, length + 1, options)
    return torch.maximum(ended_next, normalize(log_prob, max_length, options))
