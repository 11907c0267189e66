"""mix64 against the published outputs of the splitmix64 generator."""

import numpy as np

from seqwright.text.hashing import GOLDEN, mix64


def test_mix64_is_the_splitmix64_finalizer() -> None:
    states = np.arange(1, 4, dtype=np.uint64) * GOLDEN  # the generator's state after each step from 0
    assert [hex(number) for number in mix64(states)] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]
