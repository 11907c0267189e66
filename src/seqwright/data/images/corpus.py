"""Image datasets: IDX files (MNIST's format), .npz archives and folders of image files, plain, .gz or .xz."""

from __future__ import annotations

import hashlib
import io
import math
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from seqwright.core.config import UserError, check_not_negative, check_shares, check_sizes
from seqwright.core.limits import check_limit
from seqwright.data.files import MAX_DECOMPRESSED, as_list, plain_suffix, read_bytes, resolve
from seqwright.data.images.files import SUFFIXES, Pixels, decode, image_files
from seqwright.data.samples.images import embedded_images
from seqwright.data.samples.text import is_embedded
from seqwright.data.text.corpus import check_split, parse_split

SPLIT_METHODS = ("stratified", "images", "tail")
IDX_UINT8 = 0x08
"""IDX type code of unsigned bytes."""

Objective = Literal["class", "frames", "next-frame", "inpaint", "denoise", "colorize", "denoise+colorize"]

STRIPS = ("frames", "next-frame")
"""Objectives of strips, which are read in columns from left to right."""


@dataclass(frozen=True, kw_only=True)
class ImageFilesConfig:
    """Files and patches of an image dataset: the keys that all image kinds share."""

    kind: str
    """Kind of examples."""
    train: tuple[str, ...] | str = ()
    """Training images: an IDX file of images followed by the one of their labels, an .npz of `images` and `labels` (or
    `captions`), or a folder with a subfolder of image files per class; or embedded:digits, embedded:tinted-digits,
    embedded:digit-strips, embedded:digit-captions, embedded:moving-digits."""
    valid: tuple[str, ...] | str | None = None
    """Validation images."""
    split: str | None = None
    """Validation split of the training images: "stratified 10%" of each class or "images 10%" of all, a fixed choice
    by the hash of the pixels, or "tail 10%"."""
    patch: int = 4
    """Patch size in pixels: the side of square patches, or the width of columns."""
    size: tuple[int, int] | None = None
    """Height and width to which image files are resized; default: none, so all must have the same size."""

    files: ClassVar[tuple[str, ...]] = ("train", "valid")
    """Keys whose values are paths."""

    def __post_init__(self) -> None:
        if not self.train:
            raise UserError("train names no images; give files, a folder, or embedded:digits.")
        check_split(self.split, self.valid, SPLIT_METHODS)
        check_sizes(self, "patch")
        if self.size is not None and min(self.size) < 1:
            raise UserError(f"size is a height and a width in pixels, not {list(self.size)}.")


@dataclass(frozen=True, kw_only=True)
class ImagesConfig(ImageFilesConfig):
    kind: Literal["images"] = "images"
    """Images for classification or restoration."""
    objective: Objective = "class"
    """Prediction target: the class of an image; the class of each frame of a strip, which is read in columns (frames);
    each frame of a movie from those before it (next-frame): a strip of frames that are `patch` pixels wide; masked
    patches (inpaint); the image without added noise (denoise); its colors (colorize); or both of these."""
    shift: int = 0
    """Augmentation: maximum random translation in pixels along each axis, with edge padding."""
    flip: bool = False
    """Augmentation: random horizontal flip with probability 0.5."""
    mask_rate: float = 0.5
    """Share of the patches that inpaint masks (Xie et al. 2022)."""
    noise_std: float = 0.3
    """Standard deviation of the Gaussian noise that denoise adds, where black is -1 and white is 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shares(self, "mask_rate")
        check_not_negative(self, "shift", "noise_std")
        if self.objective in STRIPS and (self.shift or self.flip):
            raise UserError("the frames of a shifted or flipped strip are no longer frames; leave shift and flip out.")


@dataclass(frozen=True, kw_only=True)
class CaptionsConfig(ImageFilesConfig):
    kind: Literal["captions"] = "captions"
    """Images with captions."""
    patches: Literal["squares", "columns"] = "squares"
    """Patches of an image: squares row by row, or columns from left to right."""
    max_length: int = 64
    """Maximum tokens of a caption, <eos> included; training images with longer captions are skipped and counted."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self, "max_length")
        if self.split is not None and parse_split(self.split, SPLIT_METHODS)[0] == "stratified":
            raise UserError('captions are no classes to stratify by; write split = "images 10%".')


@dataclass(frozen=True, kw_only=True)
class Images:
    """Images of one size, with their labels where they are known."""

    pixels: Pixels  # (N, H, W, C)
    labels: tuple[str, ...] | None = None
    """Of each image: its class, its caption, or the classes of the frames of a strip, separated by spaces."""
    notes: tuple[str, ...] = ()
    """Notes for the user."""
    fingerprint: str = field(init=False)
    """sha256 of pixels and labels."""

    def __post_init__(self) -> None:
        if self.labels is not None and len(self.labels) != len(self.pixels):
            raise UserError(f"there are {len(self.pixels):,} images and {len(self.labels):,} labels.")
        digest = hashlib.sha256(str(self.pixels.shape).encode() + np.ascontiguousarray(self.pixels).tobytes())
        digest.update(repr(self.labels).encode())
        object.__setattr__(self, "fingerprint", digest.hexdigest())

    def __len__(self) -> int:
        return len(self.pixels)

    def take(self, rows: Sequence[int]) -> Images:
        """The images of these rows."""
        labels = None if self.labels is None else tuple(self.labels[n] for n in rows)
        return Images(pixels=self.pixels[list(rows)], labels=labels, notes=self.notes)

    def split(self, rule: str) -> tuple[Images, Images]:
        """The training and the held-out part; except with "tail", duplicates of an image fall on the same side."""
        method, share = parse_split(rule, SPLIT_METHODS)
        hashes = [hashlib.sha256(image.tobytes()).digest() for image in self.pixels]
        groups: dict[str, list[int]] = {}
        for n in range(len(self)):
            groups.setdefault(self.labels[n] if method == "stratified" and self.labels else "", []).append(n)
        held_out: set[int] = set()
        for group in groups.values():
            ordered = group[::-1] if method == "tail" else sorted(group, key=hashes.__getitem__)
            held_out.update(ordered[: round(share * len(group))])
        if method != "tail":
            held_out_hashes = {hashes[n] for n in held_out}
            held_out = {n for n in range(len(self)) if hashes[n] in held_out_hashes}
        train, valid = ([n for n in range(len(self)) if (n in held_out) == side] for side in (False, True))
        if not train or not valid:
            raise UserError(f'split = "{rule}" of {len(self)} images leaves one side empty; hold out another share.')
        return self.take(train), self.take(valid)


def read_splits(config: ImageFilesConfig) -> tuple[Images, Images | None]:
    """Training images, and validation images if there are any."""
    train = read_images(config.train, config)
    if config.valid is not None:
        return train, read_images(config.valid, config)
    return train.split(config.split) if config.split is not None else (train, None)


def read_images(files: Sequence[str] | str, config: ImageFilesConfig) -> Images:
    """The images of files, folders or embedded datasets, all of one size."""
    names = as_list(files)
    parts: list[Images] = []
    for name in names:
        for part in _read(name, config):
            if isinstance(part, tuple):  # IDX keeps labels in a file of their own
                if not parts or parts[-1].labels is not None:
                    raise UserError(f"{name} holds labels; name it after the file of their images.")
                parts[-1] = Images(pixels=parts[-1].pixels, labels=part)
            else:
                parts.append(part)
    sizes = {part.pixels.shape[1:] for part in parts}
    if len(sizes) > 1:
        raise UserError(f"images have different sizes: {', '.join(map(_format_shape, sorted(sizes)))}.")
    if len({part.labels is None for part in parts}) > 1:
        raise UserError("some of these images have labels and others none; name the labels of each file after it.")
    labels = None
    if parts[0].labels is not None:
        labels = tuple(label for part in parts for label in part.labels or ())
    notes = tuple(note for part in parts for note in part.notes)
    return Images(pixels=np.concatenate([part.pixels for part in parts]), labels=labels, notes=notes)


def _read(name: str, config: ImageFilesConfig) -> Iterator[Images | tuple[str, ...]]:
    if is_embedded(name):
        pixels, labels = embedded_images(name)
        yield Images(pixels=pixels, labels=labels)
        return
    path = resolve(name)
    if path.is_dir():
        yield _folder(path, config.size)
    elif plain_suffix(path) == ".npz":
        yield _npz(path)
    elif plain_suffix(path) in SUFFIXES:
        yield Images(pixels=decode(path, config.size)[None])
    else:
        array = _idx(path)
        if array.ndim == 1:
            yield tuple(map(str, array.tolist()))
        else:
            yield Images(pixels=_with_channels(array, path))


def _idx(path: Path) -> Pixels:
    """The array of an IDX file: a header with big-endian sizes, then the bytes (MNIST's format)."""
    data = read_bytes(path)
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] != IDX_UINT8 or not 1 <= data[3] <= 4:
        raise UserError(
            f"{path} is no IDX file of bytes (it begins with {data[:4].hex(' ') or 'nothing'}); give IDX or .npz"
            f" files, or a folder of images ({', '.join(SUFFIXES[:3])}, …)."
        )
    start = 4 + 4 * data[3]
    shape = [int.from_bytes(data[at : at + 4], "big") for at in range(4, start, 4)]
    size = math.prod(shape)  # not in numpy: four sizes of 32 bits overflow its integers
    if len(data) != start + size:
        raise UserError(
            f"{path} is damaged: its header declares {_format_shape(shape)}, {size:,} bytes, and"
            f" {max(0, len(data) - start):,} follow it."
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _npz(path: Path) -> Images:
    """Images from the arrays `images` (N, H, W) or (N, H, W, C) and, optionally, `labels` or `captions` (N,)."""
    data = io.BytesIO(read_bytes(path))
    try:
        with zipfile.ZipFile(data) as archive:
            size = sum(member.file_size for member in archive.infolist())
        check_limit(MAX_DECOMPRESSED, size, f"{path} decompresses to {size:,} bytes")
        with np.load(data, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except UserError:
        raise
    except Exception as error:  # numpy and zipfile raise many kinds on damaged files, zlib.error and MemoryError too
        raise UserError(f"{path} cannot be read as .npz: {error}.") from error
    if "images" not in arrays:
        raise UserError(f"{path} has no array 'images', only {', '.join(arrays) or 'nothing'}.")
    array = next((arrays[name] for name in ("labels", "captions") if name in arrays), None)
    if array is not None and array.ndim != 1:
        raise UserError(f"{path}: labels and captions are one per image, not {_format_shape(array.shape)}.")
    if array is not None and len(array) != len(arrays["images"]):
        raise UserError(f"{path} has {len(arrays['images']):,} images and {len(array):,} labels or captions.")
    labels = None if array is None else tuple(map(str, array.tolist()))
    return Images(pixels=_with_channels(arrays["images"], path), labels=labels)


def _with_channels(array: NDArray[Any], path: Path) -> Pixels:
    """The array as (N, H, W, C)."""
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim != 4 or array.shape[-1] not in (1, 3) or array.dtype != np.uint8 or not array.size:
        hint = (
            " Convert floats in [0, 1] with (255 * images).round().astype('uint8')." if array.dtype.kind == "f" else ""
        )
        raise UserError(
            f"{path} holds {array.dtype} of {_format_shape(array.shape)}; images are uint8, N × height × width for"
            f" grayscale, N × height × width × 3 for color.{hint}"
        )
    return array


def _folder(path: Path, size: tuple[int, int] | None) -> Images:
    """Images of a folder: labeled by subfolder, or without labels where all files are in the folder itself."""
    files = image_files(path)
    if not files:
        raise UserError(f"the folder {path} has no image files ({', '.join(SUFFIXES)}).")
    unlabeled = [file for file in files if file.parent == path]
    if unlabeled and len(unlabeled) < len(files):
        raise UserError(f"{unlabeled[0]} is in no class folder, as others in {path} are; move it into one.")
    pixels = _same_channels([decode(file, size) for file in files])
    for file, image in zip(files, pixels, strict=True):
        if image.shape != pixels[0].shape:
            raise UserError(
                f"{file} is {_format_shape(image.shape)}, and {files[0]} is {_format_shape(pixels[0].shape)}; set"
                f" data.size = [{image.shape[0]}, {image.shape[1]}] or so to resize them."
            )
    labels = None if unlabeled else tuple(file.relative_to(path).parts[0] for file in files)
    others = sum(1 for entry in path.rglob("*") if entry.is_file()) - len(files)
    notes = (f"{path}: {others:,} files are no images and are skipped.",) if others else ()
    return Images(pixels=np.stack(pixels), labels=labels, notes=notes)


def _same_channels(images: list[Pixels]) -> list[Pixels]:
    """Grayscale images as RGB where others are RGB: folders of photographs often mix both."""
    channels = max(image.shape[-1] for image in images)
    return [np.broadcast_to(image, (*image.shape[:2], channels)) for image in images]


def _format_shape(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))
