"""Unicode lookup tables: the character class and the lower-case offset of each code point, for vectorized lookup."""

from __future__ import annotations

import functools
import itertools
import unicodedata

import numpy as np
from numpy.typing import NDArray

CodePoints = NDArray[np.int32]
"""(words, C): code points plus 1, right-padded with 0."""

IGNORED, LOWER, UPPER, CASELESS, DIGIT, DASH, PERIOD, SYMBOL, OTHER = range(9)
"""Character classes. IGNORED are combining marks without a precomposed letter, joiners, and padding."""
CLASSES = {"Ll": LOWER, "Lu": UPPER, "Lt": UPPER, "Lo": CASELESS, "Lm": CASELESS, "Mc": CASELESS, "Pd": DASH}
CLASSES |= dict.fromkeys(("N" + form for form in "dlo"), DIGIT)
CLASSES |= {"So": SYMBOL, "Mn": IGNORED, "Me": IGNORED, "Cf": IGNORED}
PERIODS = ".．。"

TABLE_SIZE = 0x20000
"""Code points with an entry of their own. Those beyond are CJK extension characters, but for a few rare ones."""


@functools.cache
def character_classes() -> NDArray[np.uint8]:
    """(TABLE_SIZE + 2,): the class of each code point plus 1; entry 0 is padding, the last is all further ones."""
    characters = map(chr, range(TABLE_SIZE))
    classes = (PERIOD if char in PERIODS else CLASSES.get(unicodedata.category(char), OTHER) for char in characters)
    return np.fromiter(itertools.chain([IGNORED], classes, [CASELESS]), np.uint8, TABLE_SIZE + 2)


@functools.cache
def lowercase_offsets() -> NDArray[np.int32]:
    """(TABLE_SIZE + 2,): what to add to each code point for its lower-case form."""
    return np.fromiter(itertools.chain([0], map(_offset, range(TABLE_SIZE)), [0]), np.int32, TABLE_SIZE + 2)


def _offset(code: int) -> int:
    """By case folding where it maps one character to one: the final sigma of Greek folds to the other sigma."""
    folded = chr(code).casefold()
    return ord(folded if len(folded) == 1 else chr(code).lower()[0]) - code
