"""Worked example 11: parameter counts of the papers' tables and of the practice sheet, on the meta device."""

from __future__ import annotations

import pytest
import torch

from seqwright import build
from seqwright.core.batch import Vocabulary
from tests.contract.kinds import configured


def parameters(config: object, vocabulary: int) -> int:
    with torch.device("meta"):
        model = build.model(config, Vocabulary(size=vocabulary))
    return sum(parameter.numel() for parameter in model.parameters())


def test_gpt() -> None:
    config = configured("gpt", layers=12, width=768, heads=12, context=512, norm_position="post")
    assert parameters(config, 40_478) == 116_534_784


def test_gpt_2() -> None:
    config = configured("gpt", layers=48, width=1600, heads=25, context=1024)
    assert parameters(config, 50_257) == 1_557_611_200


@pytest.mark.parametrize(
    ("layers", "width", "heads", "expected"),
    [
        (12, 768, 12, 125_226_240),
        (24, 1024, 16, 355_871_744),
        (24, 1536, 16, 760_300_032),
        (24, 2048, 16, 1_315_723_264),
        (32, 2560, 32, 2_651_553_280),
        (32, 4096, 32, 6_658_404_352),
        (40, 5120, 40, 12_853_386_240),
        (96, 12288, 96, 174_604_259_328),
    ],
    ids=["small", "medium", "large", "xl", "2.7b", "6.7b", "13b", "175b"],
)
def test_gpt_3(layers: int, width: int, heads: int, expected: int) -> None:
    assert parameters(configured("gpt", layers=layers, width=width, heads=heads, context=2048), 50_257) == expected


def test_the_practice_networks() -> None:
    assert parameters(configured("rnn", width=128), 1000) == 290_024
    assert parameters(configured("rnn", width=128, readout="flatten", length=40), 1000) == 5_282_024
