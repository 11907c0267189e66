"""Embeddings of a word's prefixes, suffixes, lower-cased form and shape: the features of count-based taggers.

Each feature is hashed to a row of a small embedding table (the hashing trick, Weinberger et al. 2009), so no affix
vocabulary is needed; collisions do little harm, since colliding words differ in their other features.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqwright.layers.unicode import (
    CASELESS,
    DASH,
    DIGIT,
    IGNORED,
    LOWER,
    PERIOD,
    SYMBOL,
    UPPER,
    character_classes,
    lowercase_offsets,
)

BUCKETS = 4096
"""Hash buckets (embedding rows) of each feature."""
PREFIXES, SUFFIXES = (1, 2, 3), (1, 2, 3, 4)
"""Affix lengths in characters; prefixes keep their case, suffixes are lower-cased."""
FEATURES = len(PREFIXES) + len(SUFFIXES) + 2
FNV_OFFSET, FNV_PRIME = 0xCBF29CE484222325 - (1 << 64), 0x100000001B3
"""Constants of 64-bit FNV-1a (Fowler, Noll & Vo); int64 wraps around as the hash wants it."""


class AffixEmbedding(nn.Module):
    """Concatenated embeddings of a word's affixes, of the lower-cased word and of its shape."""

    classes: Tensor
    offsets: Tensor

    def __init__(self, size: int):
        super().__init__()
        self.width = size * FEATURES
        self.table = nn.Embedding(BUCKETS * FEATURES, size)
        self.register_buffer("classes", torch.from_numpy(character_classes()), persistent=False)
        self.register_buffer("offsets", torch.from_numpy(lowercase_offsets()), persistent=False)

    def forward(self, words: Tensor) -> Tensor:
        """(U, width) from words (U, C): code points plus 1, right-padded with 0."""
        known = words.clamp(max=len(self.classes) - 1)
        lower = words + self.offsets[known]
        lengths = (words > 0).sum(-1, keepdim=True)  # (U, 1)
        hashes = [fnv1a(words[:, :size]) for size in PREFIXES]
        for size in SUFFIXES:
            index = lengths - size + torch.arange(size, device=words.device)  # (U, size)
            suffix = lower.gather(1, index.clamp(min=0, max=words.size(1) - 1))
            hashes.append(fnv1a(suffix * (index >= 0)))
        hashes += [fnv1a(lower), word_shape(words, self.classes[known])]
        # XOR-folding, as FNV's authors recommend where fewer bits are needed.
        folded = [keys ^ (keys >> 32) for keys in hashes]
        rows = torch.stack([keys.remainder(BUCKETS) + n * BUCKETS for n, keys in enumerate(folded)], 1)  # (U, FEATURES)
        return self.table(rows).flatten(1)


def fnv1a(characters: Tensor) -> Tensor:
    """64-bit FNV-1a hash (U,) of each row of characters (U, C); padding does not change it."""
    keys = torch.full_like(characters[:, 0], FNV_OFFSET)
    for column in characters.unbind(1):
        keys = torch.where(column > 0, (keys ^ column) * FNV_PRIME, keys)
    return keys


def word_shape(words: Tensor, classes: Tensor) -> Tensor:
    """Word shape (U,) as a bit set: capitals (initial, internal, all) and the character classes (U, C) that occur.

    Letters beyond ASCII have a bit of their own: their presence or absence marks loanwords and foreign names.
    """
    lower, upper, caseless = classes == LOWER, classes == UPPER, classes == CASELESS
    digit, ignored = classes == DIGIT, classes == IGNORED
    bits = [
        upper[:, 0],
        upper[:, 1:].any(1),
        (upper | ignored).all(1),
        lower.any(1),
        digit.any(1),
        (digit | ignored).all(1),
        ((lower | upper | caseless) & (words > 128)).any(1),
        (classes == DASH).any(1),
        (classes == PERIOD).any(1),
        caseless.any(1),
        (classes == SYMBOL).any(1),
    ]
    return (torch.stack(bits, 1).long() << torch.arange(len(bits), device=classes.device)).sum(1)
