"""Readers of whole texts: what convolutions see, settings that are refused."""

from __future__ import annotations

import pytest
import torch

from seqwright import build
from seqwright.config import UserError
from seqwright.models.convolution import ConvolutionConfig, ConvolutionReader


@pytest.mark.parametrize("kernel", [2, 3, 7])
def test_windows_are_centred_and_see_zeros_beyond_a_text(kernel: int) -> None:
    torch.manual_seed(1)
    reader = ConvolutionReader(ConvolutionConfig(embedding=3, channels=(4,), kernels=(kernel,))).double()
    x, layer = torch.randn(1, 5, 3, dtype=torch.double), reader.towers[0][0]  # type: ignore[index]
    vectors = reader(x, torch.ones(1, 5, dtype=torch.bool)).vectors
    for place in range(5):
        window = torch.zeros(kernel, 3, dtype=torch.double)
        for offset in range(kernel):
            at = place + offset - (kernel - 1) // 2
            if 0 <= at < 5:
                window[offset] = x[0, at]
        expected = torch.einsum("ock,kc->o", layer.weight, window) + layer.bias
        torch.testing.assert_close(vectors[0, place], expected.relu())


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"kind": "cnn", "pooling": "flatten"}, "go together"),
        ({"kind": "cnn", "length": 20, "pooling": "flatten"}, "one kernel"),
        ({"kind": "cnn", "kernels": []}, "lists of sizes"),
        ({"kind": "cnn", "kernels": [7], "channels": [4, 4], "stride": 3, "length": 20, "pooling": "flatten"}, "fits"),
        ({"kind": "lstm", "pooling": "backward", "bidirectional": False}, "bidirectional = true"),
        ({"kind": "gru", "width": 7}, "halves the width"),
        ({"kind": "mlp", "hidden": [0]}, "widths of layers"),
        ({"kind": "transformer", "pooling": "last"}, "pooling"),
    ],
)
def test_settings_that_make_no_model_are_refused(table: dict[str, object], told: str) -> None:
    with pytest.raises(UserError, match=told):
        build.model_config(table, task="labelled")
