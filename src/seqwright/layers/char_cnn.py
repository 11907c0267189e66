"""What a word looks like: convolutions over its letters, for rare and new words (dos Santos & Zadrozny 2014)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqwright.layers.affix_embedding import Affixes

LETTERS = 8192
"""Vectors of letters: code points by their remainder, so that no script has unknown ones. Most alphabets stand before
it, each letter with a vector of its own; Chinese and Korean characters share theirs with two or three others."""
WIDTHS = (2, 3, 4)
"""Letters that a filter sees at a time."""
OUTSIDE = max(WIDTHS) // 2
"""Places before and behind a word that filters see too: where it begins and ends is what affixes are."""


class CharCNN(nn.Module):
    """The largest answer of each filter over the letters of each word, as a vector of the width asked for."""

    def __init__(self, width: int, filters: int, *, letter: int = 32):
        super().__init__()
        self.letters = nn.Embedding(LETTERS + 1, letter)  # 0 is no letter
        self.filters = nn.ModuleList(nn.Conv1d(letter, filters, size) for size in WIDTHS)
        self.affixes = Affixes(letter)
        self.out = nn.Linear(filters * len(WIDTHS) + self.affixes.width, width, bias=False)

    def forward(self, spelling: Tensor) -> Tensor:
        """(B, S, D) from (B, S, C); zeros where no word begins."""
        shown = spelling.any(-1)  # (B, S)
        words, copies = torch.unique(spelling[shown], dim=0, return_inverse=True)  # each is looked at once
        rows = torch.where(words > 0, (words - 1).remainder(LETTERS) + 1, 0)
        letters = self.letters(nn.functional.pad(rows, (OUTSIDE, OUTSIDE))).transpose(1, 2)  # (U, letter, C + …)
        lengths = (words > 0).sum(-1)  # (U,)
        found = torch.cat([self._largest(letters, lengths, filters) for filters in self.filters], -1)
        vectors = self.out(torch.cat([found, self.affixes(words)], -1))  # (U, D)
        out = vectors.new_zeros(*shown.shape, vectors.size(-1))
        return out.masked_scatter(shown.unsqueeze(-1), vectors[copies])

    @staticmethod
    def _largest(letters: Tensor, lengths: Tensor, filters: nn.Module) -> Tensor:
        """(U, filters): over the windows that reach into a word or stand at its ends, whatever the longest word is."""
        assert isinstance(filters, nn.Conv1d)
        answers = filters(letters).relu()  # (U, filters, windows)
        windows = lengths + 2 * OUTSIDE - filters.kernel_size[0] + 1
        real = torch.arange(answers.size(-1), device=lengths.device) < windows.unsqueeze(1)  # (U, windows)
        return (answers * real.unsqueeze(1)).amax(-1)
