"""Default recipes for users' images: the patch size, and models of a size that suits the number of images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from seqwright.core.config import UserError
from seqwright.data.files import resolve
from seqwright.data.images.corpus import ImagesConfig, read_images
from seqwright.data.images.files import sizes_of
from seqwright.data.samples.text import is_embedded
from seqwright.tasks.defaults import KILO, epochs_within, run_name

# Up to this many images: layers, width and heads of a vision Transformer, epochs.
SIZES: list[tuple[float, dict[str, Any]]] = [
    (1 * KILO, {"layers": 3, "width": 64, "heads": 4, "epochs": 60}),
    (5 * KILO, {"layers": 4, "width": 96, "heads": 4, "epochs": 40}),
    (50 * KILO, {"layers": 6, "width": 128, "heads": 4, "epochs": 20}),
    (float("inf"), {"layers": 6, "width": 256, "heads": 8, "epochs": 10}),
]
PATCHES = 64
"""The most patches of an image, where any squares that fill it allow that."""
SCALED = (64, 64)
"""Height and width that image files are scaled to where they are larger, or differ."""


def images_recipe(
    files: Sequence[str],
    valid: Sequence[str] = (),
    *,
    kind: str,
    tokenizer: str | None = None,
    minutes: float | None = None,
) -> dict[str, Any]:
    """A recipe, as tables, for a classifier of images."""
    if tokenizer is not None:
        raise UserError("images have no tokenizer: leave --tokenizer out, and fine-tune from runs of images only.")
    size = scaled(files)
    images = read_images(files, ImagesConfig(train=tuple(files), size=size))
    height, width = images.pixels.shape[1:3]
    sizes = next(sizes for most, sizes in SIZES if len(images) <= most)
    data: dict[str, Any] = {"kind": "images", "train": list(files), "patch": patch(height, width)}
    data |= {} if size is None else {"size": list(size)}
    data |= {"valid": list(valid)} if valid else {"split": f"stratified {_share(len(images))}%"}
    data["shift"] = min(height, width) // 14  # 2 pixels of MNIST's 28
    model: dict[str, Any] = {"kind": kind, "width": sizes["width"], "dropout": 0.1}
    if kind == "vit":
        model |= {"layers": sizes["layers"], "heads": sizes["heads"], "ffn_width": 2 * sizes["width"]}
        model["context"] = (height // data["patch"]) * (width // data["patch"]) + 1
    return {
        "name": run_name(files, kind),
        "data": data,
        "model": model,
        "training": epochs_within(minutes, sizes["epochs"])
        | {"batch_size": 64, "learning_rate": 1e-3, "weight_decay": 0.05},
    }


def captions_recipe(
    files: Sequence[str],
    valid: Sequence[str] = (),
    *,
    kind: str,
    tokenizer: str | None = None,
    minutes: float | None = None,
) -> dict[str, Any]:
    """A recipe, as tables, for an image captioner."""
    images = read_images(files, ImagesConfig(train=tuple(files)))
    sizes = next(sizes for most, sizes in SIZES if len(images) <= most)
    data: dict[str, Any] = {"kind": "captions", "train": list(files), "patch": patch(*images.pixels.shape[1:3])}
    data |= {"valid": list(valid)} if valid else {"split": f"images {_share(len(images))}%"}
    model: dict[str, Any] = {"kind": kind, "width": sizes["width"]}
    if kind == "transformer":
        model |= {"layers": sizes["layers"], "heads": sizes["heads"], "ffn_width": 2 * sizes["width"]}
        model["positions"] = "learned"  # patches stand in rows, which sinusoids know nothing of
    return {
        "name": run_name(files, kind),
        "data": data,
        "tokenizer": {"kind": tokenizer or "words"},
        "model": model,
        "training": epochs_within(minutes, sizes["epochs"])
        | {"batch_size": 64, "learning_rate": 1e-3, "weight_decay": 0.05},
    }


def patch(height: int, width: int) -> int:
    """The smallest side of squares, of 2 pixels at least, that fill an image with few enough of them; otherwise the
    largest there is."""
    shared = math.gcd(height, width)
    fitting = [side for side in range(2, shared + 1) if shared % side == 0]
    return next((side for side in fitting if height * width <= PATCHES * side**2), shared)


def scaled(files: Sequence[str]) -> tuple[int, int] | None:
    """What image files are scaled to; nothing where they are few pixels and as many in each."""
    paths = [resolve(name) for name in files if not is_embedded(name)]
    sizes = {size for path in paths for size in sizes_of(path)}
    return SCALED if len(sizes) > 1 or any(max(size) > max(SCALED) for size in sizes) else None


def _share(count: int) -> int:
    """Per cent that leave some two hundred to measure on, where there are so many."""
    return min(20, max(5, 100 * 200 // count))
