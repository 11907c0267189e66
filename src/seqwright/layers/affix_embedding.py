"""How words begin and end, and which kinds of letters they have, as vectors.

Each affix has a row of a small table by its hash, so that none need be listed (Weinberger et al. 2009); that some share
a row does little harm, since their words have other affixes. What taggers that count look at, given to networks.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqwright.layers.unicode import CAPITAL, CASELESS, DASH, DIGIT, SILENT, SMALL, STOP, SYMBOL, kinds, shifts

ROWS = 4096
"""Of the table, for each way to look at a word."""
PREFIXES, SUFFIXES = (1, 2, 3), (1, 2, 3, 4)
"""Characters of a word, lower-cased at its end."""
WAYS = len(PREFIXES) + len(SUFFIXES) + 2
BASIS, PRIME = 0xCBF29CE484222325 - (1 << 64), 0x100000001B3
"""Of Fowler, Noll & Vo's hash, which wraps around as int64 does."""


class Affixes(nn.Module):
    """The vectors of a word's affixes, of the whole word lower-cased and of its shape, side by side."""

    kinds: Tensor
    shifts: Tensor

    def __init__(self, size: int):
        super().__init__()
        self.width = size * WAYS
        self.table = nn.Embedding(ROWS * WAYS, size)
        self.register_buffer("kinds", torch.from_numpy(kinds()), persistent=False)
        self.register_buffer("shifts", torch.from_numpy(shifts()), persistent=False)

    def forward(self, words: Tensor) -> Tensor:
        """(U, width) from letters (U, C): code points counted from 1, 0 behind them."""
        known = words.clamp(max=len(self.kinds) - 1)
        lower = words + self.shifts[known]
        lengths = (words > 0).sum(-1, keepdim=True)  # (U, 1)
        seen = [hashed(words[:, :size]) for size in PREFIXES]
        for size in SUFFIXES:
            places = lengths - size + torch.arange(size, device=words.device)  # (U, size)
            letters = lower.gather(1, places.clamp(min=0, max=words.size(1) - 1))
            seen.append(hashed(letters * (places >= 0)))
        seen += [hashed(lower), shape(words, self.kinds[known])]
        folded = [keys ^ (keys >> 32) for keys in seen]
        rows = torch.stack([keys.remainder(ROWS) + way * ROWS for way, keys in enumerate(folded)], 1)  # (U, WAYS)
        return self.table(rows).flatten(1)


def hashed(letters: Tensor) -> Tensor:
    """A number for each row of letters (Fowler, Noll & Vo's hash); places without one change nothing."""
    keys = torch.full_like(letters[:, 0], BASIS)
    for column in letters.unbind(1):
        keys = torch.where(column > 0, (keys ^ column) * PRIME, keys)
    return keys


def shape(words: Tensor, kinds: Tensor) -> Tensor:
    """Which kinds of letters (U, C) a word has, a bit for each, and where capitals stand: first, inside, throughout.

    Letters beyond ASCII have a bit, too: it tells loans and foreign names, by having them or by having none.
    """
    small, capital, caseless = kinds == SMALL, kinds == CAPITAL, kinds == CASELESS
    digit, silent = kinds == DIGIT, kinds == SILENT
    bits = [
        capital[:, 0],
        capital[:, 1:].any(1),
        (capital | silent).all(1),
        small.any(1),
        digit.any(1),
        (digit | silent).all(1),
        ((small | capital | caseless) & (words > 128)).any(1),
        (kinds == DASH).any(1),
        (kinds == STOP).any(1),
        caseless.any(1),
        (kinds == SYMBOL).any(1),
    ]
    return (torch.stack(bits, 1).long() << torch.arange(len(bits), device=kinds.device)).sum(1)
