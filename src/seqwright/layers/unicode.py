"""What letters are: the kind and the small form of each, as Unicode has them, in tables to look up many at once."""

from __future__ import annotations

import functools
import itertools
import unicodedata

import numpy as np
from numpy.typing import NDArray

Letters = NDArray[np.int32]
"""(words, C): code points counted from 1, 0 behind them."""

SILENT, SMALL, CAPITAL, CASELESS, DIGIT, DASH, STOP, SYMBOL, OTHER = range(9)
"""Kinds of letters. Silent are accents that no letter holds, joiners, and places without a letter."""
KINDS = {"Ll": SMALL, "Lu": CAPITAL, "Lt": CAPITAL, "Lo": CASELESS, "Lm": CASELESS, "Mc": CASELESS, "Pd": DASH}
KINDS |= dict.fromkeys(("N" + form for form in "dlo"), DIGIT)
KINDS |= {"So": SYMBOL, "Mn": SILENT, "Me": SILENT, "Cf": SILENT}
STOPS = ".．。"

KNOWN = 0x20000
"""Code points that are looked at one by one. Those behind are Chinese characters, but for a few that are seldom met."""


@functools.cache
def kinds() -> NDArray[np.uint8]:
    """(KNOWN + 2,): the kind of each letter; the last is that of all further ones."""
    own = (STOP if char in STOPS else KINDS.get(unicodedata.category(char), OTHER) for char in map(chr, range(KNOWN)))
    return np.fromiter(itertools.chain([SILENT], own, [CASELESS]), np.uint8, KNOWN + 2)


@functools.cache
def shifts() -> NDArray[np.int32]:
    """(KNOWN + 2,): how far the small form of each letter is from it."""
    return np.fromiter(itertools.chain([0], map(_shift, range(KNOWN)), [0]), np.int32, KNOWN + 2)


def _shift(code: int) -> int:
    """By folding, where a letter stays one: the last sigma of a Greek word is that of its capitals, too."""
    folded = chr(code).casefold()
    return ord(folded if len(folded) == 1 else chr(code).lower()[0]) - code
