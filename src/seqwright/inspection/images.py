"""Images as the model of a run reads them, and what it attends to, drawn over the patches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seqwright.core.batch import Batch
from seqwright.core.config import UserError
from seqwright.data.images.files import Pixels
from seqwright.data.images.patches import Grid
from seqwright.inspection.attention import selected
from seqwright.inspection.figures import detail
from seqwright.inspection.labeled import CLASS_TOKEN, Heads
from seqwright.inspection.subject import Subject, ViewResult
from seqwright.reporting.markup import Html, element
from seqwright.reporting.png import base64_png
from seqwright.studies.explain.explanation import Step
from seqwright.studies.explain.figures import LINE_WIDTH, Figure, matrix, table
from seqwright.tasks.captioning.task import CaptioningRun
from seqwright.tasks.example import Example, quoted
from seqwright.tasks.images.run import ImageInputRun
from seqwright.tasks.images.scores import predict
from seqwright.tasks.images.task import ImageRun, reconstructions

SHADES = " ░▒▓█"
SIDE, SHORT_SIDE = 224, 64
"""Pixels of the longer side of an image on a page, at least, and of the shorter side of a strip, if it fits."""
MAX_MAPS = 24
"""Maps of attention: layers, or tokens of a caption."""


def image_example(run: ImageInputRun, file: str | None, target: str | None, number: int) -> Example:
    """An image of a file, by default of the run's validation images, counted from 0; of a captioner with `target`, or
    the caption that its search finds."""
    images = run.images(None if file is None else [file])
    if not 0 <= number < len(images):
        raise UserError(f"no image {number}: there are {len(images):,}, counted from 0.")
    one = images.take([number])
    name = f"image {number} of {file or 'the validation images'}"
    if isinstance(run, CaptioningRun):
        return _captioned(run, one.pixels, name, target)
    assert isinstance(run, ImageRun)
    if target is not None:
        raise UserError(f"{run.path} has no target beside its image: it {run.description}; leave --target out.")
    batch = run.codec.evaluation_feed(one, run.settings.data, batch=1, labeled=False).batch(0)
    names = patch_names(run.grid)
    if (visible := batch.source.visible) is not None:  # a masked autoencoder encodes these only
        names = tuple(names[n] for n in visible[0].tolist())
    return Example(text=name, batch=batch.to(run.device), tokens=names, pixels=one.pixels[0])


def _captioned(run: CaptioningRun, pixels: Pixels, name: str, target: str | None) -> Example:
    tokenizer, source = run.tokenizer, run.grid.source(pixels)
    assert tokenizer.sos is not None
    assert tokenizer.eos is not None
    notes: tuple[str, ...] = ()
    if target is None:
        target = run.caption_pixels(pixels)
        notes = (f"target, the output of the search: {quoted(target)}",)
    output = [*tokenizer.encode(target), tokenizer.eos]
    input = [tokenizer.sos, *output[:-1]]
    return Example(
        text=name,
        batch=Batch(source=source, input=torch.tensor([input]), target=torch.tensor([output])).to(run.device),
        tokens=tuple(tokenizer.tokens(input)),
        targets=tuple(tokenizer.tokens(output)),
        source=patch_names(run.grid),
        notes=notes,
        pixels=pixels[0],
    )


def patch_names(grid: Grid) -> tuple[str, ...]:
    """Row and column of each patch, from 0: `0,1`; the column alone where there is one row."""
    rows, columns = grid.height // grid.tall, grid.width // grid.wide
    return tuple(f"{row},{column}" if rows > 1 else f"{column}" for row in range(rows) for column in range(columns))


@dataclass(frozen=True)
class ImageFigure:
    """An image; in a terminal in five shades."""

    name: str
    pixels: Pixels  # (H, W, C)

    def text(self) -> str:
        step = max(1, -(-2 * self.pixels.shape[1] // LINE_WIDTH))
        gray = self.pixels[::step, ::step].mean(-1)
        return "\n".join([self.name, *("".join(2 * SHADES[int(value * 4.99 / 255)] for value in row) for row in gray)])

    def as_json(self) -> dict[str, Any]:
        return {"kind": "image", "name": self.name, "pixels": self.pixels.tolist()}

    def html(self) -> Html:
        return _drawn(self.name, self.pixels, [])


@dataclass(frozen=True)
class PatchMap:
    """Numbers of the patches of an image, drawn over it: the greater a number, the stronger the color."""

    name: str
    pixels: Pixels
    values: Tensor  # (rows, columns), at least 0

    def text(self) -> str:
        return matrix(self.name, self.values).text()

    def as_json(self) -> dict[str, Any]:
        return {"kind": "patches", "name": self.name, "values": self.values.tolist()}

    def html(self) -> Html:
        rows, columns = self.values.shape
        tall, wide = self.pixels.shape[0] / rows, self.pixels.shape[1] / columns
        top = max(1e-12, float(self.values.max()))
        cells = [
            element(
                "rect",
                x=f"{column * wide:g}",
                y=f"{row * tall:g}",
                width=f"{wide:g}",
                height=f"{tall:g}",
                class_="patch",
                fill_opacity=f"{0.75 * value / top:.3f}",
                role="img",
                aria_label=f"patch {row},{column}: {value:.4f}",
            )
            for row, values in enumerate(self.values.tolist())
            for column, value in enumerate(values)
        ]
        return _drawn(self.name, self.pixels, cells)


def _drawn(name: str, pixels: Pixels, cells: Sequence[Html]) -> Html:
    height, width = pixels.shape[:2]
    longer, shorter = max(height, width), min(height, width)
    scale = max(1.0, SIDE / longer, min(SHORT_SIDE / shorter, 2 * SIDE / longer))
    drawn = element(
        "image",
        href=f"data:image/png;base64,{base64_png(pixels)}",
        width=width,
        height=height,
        style="image-rendering: pixelated",
    )
    size = {"width": round(width * scale), "height": round(height * scale), "viewBox": f"0 0 {width} {height}"}
    svg = element("svg", drawn, *cells, role="group" if cells else "img", aria_label=name, **size)
    caption = element("figcaption", element("span", name, class_="title"))
    scroll = element("div", svg, class_="scroll drawing", tabindex="0", role="region", aria_label=name)
    return element("figure", caption, scroll, *([detail()] if cells else []))


def image_view(subject: Subject) -> ViewResult:
    """The image, its predicted classes or its restoration, and attention weights over its patches."""
    run, pixels = subject.run, subject.example.pixels
    assert isinstance(run, ImageInputRun)
    assert pixels is not None
    figures: list[Figure] = [ImageFigure("image", pixels)]
    if isinstance(run, ImageRun) and run.codec.objective == "class":
        figures.append(_classes(run, subject))
    elif isinstance(run, ImageRun) and not run.codec.names:
        batch = subject.example.batch
        with torch.inference_mode():
            restored = reconstructions(batch.to("cpu"), predict(run.model, batch), run.grid)
        figures += [ImageFigure(name, one[0]) for name, one in zip(("input", "output"), restored, strict=True)]
    maps = attention_maps(subject, run.grid)
    prose = "What the model reads; patches are named row,column, from 0."
    if maps:
        prose += (
            " Attention over the patches: weights, the mean of the heads that are selected (--layer, --head); the"
            " greatest of each map has the strongest color."
        )
    figures += [PatchMap(name, pixels, values) for name, values in maps.items()]
    return ViewResult(Step("The image and its patches", prose, figures=figures), maps)


def _classes(run: ImageRun, subject: Subject) -> Figure:
    with torch.inference_mode():
        probabilities = run.model(subject.example.batch)[0].double().softmax(-1)
    best = probabilities.topk(min(subject.options.top, len(probabilities)))
    rows = [(run.codec.names[n], p) for p, n in zip(best.values.tolist(), best.indices.tolist(), strict=True)]
    return table("most probable classes", ("class", "p"), rows)


def attention_maps(subject: Subject, grid: Grid) -> dict[str, Tensor]:
    """(rows, columns) weights over patches: of a captioner's cross-attention for each token; of the class token in
    each layer; without one, the mean over all queries."""
    kinds, shape = subject.forward.attention.kinds, (grid.height // grid.tall, grid.width // grid.wide)
    if (heads := kinds.get("cross")) is not None:
        layers = selected(heads, subject.options)
        weights = torch.stack(layers).mean((0, 1))  # (T, K)
        return {
            f"{n}. {token}": row.view(shape)
            for n, (token, row) in enumerate(zip(heads.rows[:MAX_MAPS], weights[:MAX_MAPS], strict=True), 1)
        }
    if (heads := kinds.get("self")) is None or grid.length > len(heads.columns):
        return {}
    numbers = range(len(heads.layers)) if subject.options.layer is None else [subject.options.layer]
    return {
        f"layer {layer}": _over_patches(heads, weights).view(shape)
        for layer, weights in list(zip(numbers, selected(heads, subject.options), strict=True))[:MAX_MAPS]
    }


def _over_patches(heads: Heads, weights: Tensor) -> Tensor:
    """(K,): weights (H, T, K) of the class token, or the mean over all queries."""
    mean = weights.mean(0)
    return mean[0, 1:] if heads.columns[0] == CLASS_TOKEN else mean.mean(0)
