"""Character CNN: word vectors from spelling, for rare and unknown words (dos Santos & Zadrozny 2014)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqwright.layers.affix_embedding import AffixEmbedding

CHAR_BUCKETS = 8192
"""Rows of the character embedding; code points are taken modulo this, so no script has unknown characters. Most
alphabets lie below it and have a row for each letter; Chinese and Korean characters share a row with two or three."""
KERNEL_SIZES = (2, 3, 4)
"""Characters that a filter sees."""
PADDING = max(KERNEL_SIZES) // 2
"""Zero padding on either side of a word: filters then see where it begins and ends, as affixes do."""


class CharCNN(nn.Module):
    """Convolution over characters with max pooling over time, plus affix features, projected to `width`."""

    def __init__(self, width: int, filters: int, *, letter: int = 32):
        super().__init__()
        self.letters = nn.Embedding(CHAR_BUCKETS + 1, letter)  # 0 is padding
        self.filters = nn.ModuleList(nn.Conv1d(letter, filters, size) for size in KERNEL_SIZES)
        self.affixes = AffixEmbedding(letter)
        self.out = nn.Linear(filters * len(KERNEL_SIZES) + self.affixes.width, width, bias=False)

    def forward(self, spelling: Tensor) -> Tensor:
        """(B, S, D) from code points (B, S, C); zeros where no word begins."""
        is_word = spelling.any(-1)  # (B, S)
        words, inverse = torch.unique(spelling[is_word], dim=0, return_inverse=True)  # each word type is computed once
        rows = torch.where(words > 0, (words - 1).remainder(CHAR_BUCKETS) + 1, 0)
        letters = self.letters(nn.functional.pad(rows, (PADDING, PADDING))).transpose(1, 2)  # (U, letter, C + …)
        lengths = (words > 0).sum(-1)  # (U,)
        pooled = torch.cat([self._max_over_time(letters, lengths, filters) for filters in self.filters], -1)
        vectors = self.out(torch.cat([pooled, self.affixes(words)], -1))  # (U, D)
        out = vectors.new_zeros(*is_word.shape, vectors.size(-1))
        return out.masked_scatter(is_word.unsqueeze(-1), vectors[inverse])

    @staticmethod
    def _max_over_time(letters: Tensor, lengths: Tensor, filters: nn.Module) -> Tensor:
        """(U, filters): max over the windows that touch a word, so that it does not depend on the longest word."""
        assert isinstance(filters, nn.Conv1d)
        activations = filters(letters).relu()  # (U, filters, windows)
        windows = lengths + 2 * PADDING - filters.kernel_size[0] + 1
        real = torch.arange(activations.size(-1), device=lengths.device) < windows.unsqueeze(1)  # (U, windows)
        # After ReLU nothing is below zero, so zeros never win over a real window.
        return (activations * real.unsqueeze(1)).amax(-1)
