"""Vision Transformer: an image as a sequence of patches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from seqwright import build
from seqwright.core.batch import Batch, EncoderSizes, OutputSpec
from seqwright.core.config import UserError
from seqwright.data.images.corpus import Images
from seqwright.data.images.patches import Grid, normalize
from seqwright.studies.explain.explanation import Explanation, Step
from seqwright.studies.explain.figures import matrix, table
from seqwright.studies.explain.options import Rows, TopicOptions
from seqwright.studies.explain.recording import recorded

CLASSES = 10


@dataclass(frozen=True, kw_only=True)
class ViTOptions(TopicOptions):
    image: Rows = (
        (0, 0, 255, 255, 0, 0),
        (0, 255, 255, 255, 0, 0),
        (0, 0, 255, 255, 0, 0),
        (0, 0, 255, 255, 0, 0),
        (0, 0, 255, 255, 0, 0),
        (0, 255, 255, 255, 255, 0),
    )
    """Gray values of an image, 0 black to 255 white: the digit one."""
    patch: int = 2
    """Side of a patch in pixels."""
    width: int = 8
    """Width of the encoder."""

    resizable: ClassVar[tuple[str, ...]] = ("image",)

    def __post_init__(self) -> None:
        if not all(0 <= pixel <= 255 for row in self.image for pixel in row) or not all(self.image):
            raise UserError("image holds gray values from 0 to 255.")
        if self.patch < 1 or not 2 <= self.width <= 64 or self.width % 2:
            raise UserError("patch must be 1 or more, and width an even number from 2 to 64.")


def vit(options: ViTOptions) -> Explanation:
    """One small image through patches, embedding and class token."""
    if len({len(row) for row in options.image}) > 1:
        raise UserError("the rows of image must be equally long.")
    pixels = np.array(options.image, np.uint8)[None, ..., None]  # (1, H, W, 1)
    grid = Grid.cut(Images(pixels=pixels, labels=None), options.patch, columns=False)
    patches = grid.patches(pixels)[0]
    source = grid.source(pixels)
    table_of = {"kind": "vit", "width": options.width, "heads": 2, "layers": 1, "pooling": "first"}
    table_of["context"] = grid.length + 1
    output = OutputSpec(kind="class", count=CLASSES)
    sizes = EncoderSizes(answers=output, features=grid.patch_dim, length=grid.length)
    torch.manual_seed(0)  # only shapes of the model are shown
    model = build.model(build.model_config(table_of, task="images"), sizes, task="images").eval()
    with torch.no_grad(), recorded(model) as record:
        logits = model(Batch.of_source(source, torch.zeros(1, dtype=torch.long)))
    attended = next(iter(record.attention.values()))
    names = [f"patch {n}" for n in range(1, grid.length + 1)]
    assert source.features is not None
    shapes = [
        ("image", "height × width × channels", _shape(pixels.shape[1:])),
        ("patches", "patches × values", _shape(patches.shape)),
        ("embedded", "patches × width", _shape(record.outputs["embedding"].shape[1:])),
        ("with class token", "positions × width", _shape((attended.query.size(2), options.width))),
        ("attention weights", "heads × positions × positions", _shape(attended.weights.shape[1:])),
        ("logits", "classes", _shape(logits.shape[1:])),
    ]
    steps = [
        Step("The image", "Gray values.", "", [matrix("image", pixels[0, :, :, 0].tolist())]),
        Step(
            "Cut into patches",
            f"Squares of {options.patch} × {options.patch} pixels, row by row; each is one token of"
            f" {grid.patch_dim} numbers.",
            f"S = (H / {options.patch}) · (W / {options.patch}) = {grid.length}",
            [matrix("patches", patches.tolist(), rows=names)],
        ),
        Step(
            "Normalize",
            "Black is -1, white is 1.",
            "x = pixel / 127.5 - 1",
            [
                matrix("features", source.features[0], rows=names),
                matrix("image again", grid.images(normalize(patches)[None])[0, :, :, 0].tolist()),
            ],
        ),
        Step(
            "Embed, and go on as with text",
            "A linear layer makes vectors of patches, a learned class token comes first, positions are added; the"
            " Transformer encoder is the same as for words, and the class token's output is classified.",
            "z = [class; x₁ E; …; x_S E] + positions",
            [table("shapes", ["tensor", "axes", "shape"], shapes)],
        ),
    ]
    about = "An image as a sequence of patches: no convolution, the encoder of texts (Dosovitskiy et al. 2021)."
    return Explanation("vit", "Patches of an image", about, steps)


def _shape(sizes: Iterable[int]) -> str:
    return " × ".join(map(str, sizes))
