"""Small models that see, of every kind; a kind of `build.py` without a row here fails the suite."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from seqwright import build
from seqwright.core.batch import Batch
from seqwright.data.images.corpus import Images, ImagesConfig
from seqwright.tasks.images.codec import ImageCodec

VIT: dict[str, object] = {"kind": "vit", "width": 8, "layers": 2, "heads": 2}

IMAGE_ENCODERS: dict[str, dict[str, object]] = {
    "vit": VIT,
    "vit mean": VIT | {"pooling": "mean", "norm_position": "post", "positions": "sinusoidal"},
    "cnn": {"kind": "cnn", "embedding": 5, "channels": [4]},
    "rnn": {"kind": "rnn", "width": 6, "pooling": ["last", "mean"]},
    "lstm": {"kind": "lstm", "width": 6, "layers": 2, "embedding": 5},
    "gru": {"kind": "gru", "width": 6, "pooling": "attention"},
    "gpt": {"kind": "gpt", "width": 8, "layers": 2, "heads": 2},
}
MASKED_AUTOENCODERS: dict[str, dict[str, object]] = {
    "mae": VIT | {"decoder_layers": 1, "decoder_width": 4},
    "mae mean": VIT | {"decoder_layers": 2, "pooling": "mean", "positions": "rope", "ffn_width": 12},
}
"""Of inpainting only."""
ANSWERS = ("class", "frames", "inpaint", "denoise", "colorize", "denoise+colorize")


def seeing(name: str, answer: Any = "class", rows: int = 4) -> tuple[Any, Batch]:
    """The model of a row, in float64 and evaluation mode, and images with what to answer."""
    width = 12 if answer == "next-frame" else 6
    pixels = np.random.default_rng(1).integers(0, 256, (rows, 4, width, 3), np.uint8)
    labels = tuple("a b c" if row % 2 else "c b a" for row in range(rows))
    if answer != "frames":
        labels = tuple("ab"[row % 2] for row in range(rows))
    images = Images(pixels=pixels, labels=labels)
    config = ImagesConfig(train="x", patch=2, objective=answer)  # frames of 4 × 2 (six of a movie), or patches of 2 × 2
    codec = ImageCodec.learn(images, config)
    torch.manual_seed(7)
    model = build.model(
        build.model_config(dict((IMAGE_ENCODERS | MASKED_AUTOENCODERS)[name]), task="images"),
        codec.sizes,
        task="images",
    )
    for parameter in model.parameters():  # fresh weights are so small that mistakes would hide
        torch.nn.init.normal_(parameter, std=0.4)
    batch = codec.feed(images, config, seed=1, batch=rows).batch(0)
    source = batch.source
    assert source.features is not None
    target = batch.target.double() if batch.target.is_floating_point() else batch.target
    return model.double().eval(), Batch.of_source(replace(source, features=source.features.double()), target)
