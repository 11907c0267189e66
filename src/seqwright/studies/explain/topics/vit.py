"""Vision Transformer: an image as a sequence of patches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from seqwright import build
from seqwright.core.batch import Batch, EncoderSizes, OutputSpec
from seqwright.core.config import UserError
from seqwright.data.images.corpus import Images, ImagesConfig, read_images
from seqwright.data.images.files import Pixels
from seqwright.data.images.patches import Grid, normalize
from seqwright.runs.run import Run
from seqwright.studies.explain.explanation import Explanation, Step
from seqwright.studies.explain.figures import matrix, table
from seqwright.studies.explain.options import Rows, TopicOptions
from seqwright.studies.explain.recording import recorded
from seqwright.tasks.images.task import ImageRun

CLASSES = 10
SIDE = 12
"""Pixels of the sides to which an image file is scaled: its matrix is shown."""


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

    text: str = ""
    """Image file in place of the example."""

    resizable: ClassVar[tuple[str, ...]] = ("image",)

    def __post_init__(self) -> None:
        if self.text and self.image != ViTOptions.image:
            raise UserError("give an image file with --on, or gray values with --set image=…; one of them.")
        if not all(0 <= pixel <= 255 for row in self.image for pixel in row) or not all(self.image):
            raise UserError("image holds gray values from 0 to 255.")
        if self.patch < 1 or not 2 <= self.width <= 64 or self.width % 2:
            raise UserError("patch must be 1 or more, and width an even number from 2 to 64.")


def vit(options: ViTOptions, run: Run | None = None) -> Explanation:
    """One small image through patches, embedding and class token; with a run, through its model."""
    if run is None:
        pixels = _pixels(options)
        grid = Grid.cut(Images(pixels=pixels, labels=None), options.patch, columns=False)
        model = _untrained(options, grid)
    else:
        if not isinstance(run, ImageRun) or run.codec.objective != "class" or run.settings.kind != "vit":
            raise UserError(f"{run.path} holds no ViT that classifies; train one: `seqwright train digits`.")
        pixels, grid, model = run.images([options.text] if options.text else None).pixels[:1], run.grid, run.model
    patches = grid.patches(pixels)[0]
    source = grid.source(pixels)
    with torch.no_grad(), recorded(model) as record:
        logits = model(Batch.of_source(source, torch.zeros(1, dtype=torch.long)))
    attended = next(iter(record.attention.values()))
    width = attended.query.size(1) * attended.query.size(3)
    names = [f"patch {n}" for n in range(1, grid.length + 1)]
    assert source.features is not None
    shapes = [
        ("image", "height × width × channels", _shape(pixels.shape[1:])),
        ("patches", "patches × values", _shape(patches.shape)),
        ("embedded", "patches × width", _shape(record.outputs["embedding"].shape[1:])),
        ("with class token", "positions × width", _shape((attended.query.size(2), width))),
        ("attention weights", "heads × positions × positions", _shape(attended.weights.shape[1:])),
        ("logits", "classes", _shape(logits.shape[1:])),
    ]
    steps = [
        Step("The image", "Gray values.", "", [matrix("image", pixels[0].mean(-1).astype(int).tolist())]),
        Step(
            "Cut into patches",
            f"Squares of {grid.tall} × {grid.wide} pixels, row by row; each is one token of {grid.patch_dim} numbers.",
            f"S = (H / {grid.tall}) · (W / {grid.wide}) = {grid.length}",
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
    if isinstance(run, ImageRun):
        best = logits[0].softmax(-1).topk(min(3, logits.size(1)))
        rows = [(run.codec.names[n], p) for p, n in zip(best.values.tolist(), best.indices.tolist(), strict=True)]
        steps.append(
            Step(
                "Classify",
                f"The class token's output through the head of {run.path}.",
                "p = softmax(W z_class + b)",
                [table("most probable classes", ["class", "p"], rows)],
            )
        )
    about = "An image as a sequence of patches: no convolution, the encoder of texts (Dosovitskiy et al. 2021)."
    return Explanation("vit", "Patches of an image", about, steps)


def _pixels(options: ViTOptions) -> Pixels:
    """(1, H, W, 1): the example, or the image of a file, scaled to SIDE pixels."""
    if options.text:
        size = (SIDE, SIDE)
        images = read_images([options.text], ImagesConfig(train=options.text, size=size))
        return images.pixels[:1].mean(-1, keepdims=True).astype(np.uint8)
    if len({len(row) for row in options.image}) > 1:
        raise UserError("the rows of image must be equally long.")
    return np.array(options.image, np.uint8)[None, ..., None]


def _untrained(options: ViTOptions, grid: Grid) -> nn.Module:
    """A ViT of which only shapes are shown."""
    table_of = {"kind": "vit", "width": options.width, "heads": 2, "layers": 1, "pooling": "first"}
    table_of["context"] = grid.length + 1
    output = OutputSpec(kind="class", count=CLASSES)
    sizes = EncoderSizes(answers=output, features=grid.patch_dim, length=grid.length)
    torch.manual_seed(0)
    model: nn.Module = build.model(build.model_config(table_of, task="images"), sizes, task="images").eval()
    return model


def _shape(sizes: Iterable[int]) -> str:
    return " × ".join(map(str, sizes))
