"""The mixer of 64 bits, against the numbers that its authors' generator gives."""

import numpy as np

from seqwright.text.hashing import GOLDEN, mixed


def test_it_is_splitmix64() -> None:
    steps = np.arange(1, 4, dtype=np.uint64) * GOLDEN  # the generator's state after each step from 0
    assert [hex(number) for number in mixed(steps)] == ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f"]
