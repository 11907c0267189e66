"""Images from files: IDX (as MNIST is kept), .npz archives and folders of image files, plain, .gz or .xz."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from seqwright.core.config import UserError, check_not_negative, check_shares, check_sizes
from seqwright.data.files import named, plain_suffix, read_bytes, resolve
from seqwright.data.images.files import IMAGES, Pixels, decode, image_files
from seqwright.data.samples.images import embedded_pictures
from seqwright.data.samples.text import is_embedded
from seqwright.data.text.corpus import check_split, parse_split

WAYS = ("stratified", "pictures", "tail")
IDX_BYTES = 0x08
"""The type code of unsigned bytes in an IDX file."""

Seen = Literal["class", "frames", "inpaint", "denoise", "colorize", "denoise+colorize"]


@dataclass(frozen=True, kw_only=True)
class ImageFilesConfig:
    """Which pictures there are, and how they are cut."""

    kind: str
    """What is asked of pictures."""
    train: tuple[str, ...] | str = ()
    """What to learn from: an IDX file of images and the one of their labels behind it, an .npz of `images` and `labels`
    (or `captions`), a folder with a folder of image files for each class; or embedded:digits, embedded:tinted-digits,
    embedded:digit-strips, embedded:digit-captions."""
    valid: tuple[str, ...] | str | None = None
    """What to measure progress on."""
    split: str | None = None
    """Validation pictures from the training files: "stratified 10%" of each class or "pictures 10%" of all, a fixed
    choice by what they show, or "tail 10%"."""
    patch: int = 4
    """Side of the square patches that a picture is read in; where it is read in columns, their width."""
    size: tuple[int, int] | None = None
    """Height and width to which image files are scaled; left out: all have the same size."""

    files: ClassVar[tuple[str, ...]] = ("train", "valid")
    """The keys that name files."""

    def __post_init__(self) -> None:
        if not self.train:
            raise UserError("train names no pictures; give files, a folder, or embedded:digits.")
        check_split(self.split, self.valid, WAYS)
        check_sizes(self, "patch")
        if self.size is not None and min(self.size) < 1:
            raise UserError(f"size is a height and a width in pixels, not {list(self.size)}.")


@dataclass(frozen=True, kw_only=True)
class ImagesConfig(ImageFilesConfig):
    kind: Literal["images"] = "images"
    """Images: what is on them, or what is missing from them."""
    objective: Seen = "class"
    """What is asked: the class of a picture, the class of each frame of a strip, which is read in columns (frames), the
    patches that were hidden (fill), the picture without its noise (clean), its colors (color), or both of these."""
    shift: int = 0
    """Pixels by which training pictures move at most, up, down and sideways; what comes in is as the border was."""
    flip: bool = False
    """Whether training pictures are mirrored half of the time."""
    mask_rate: float = 0.5
    """Share of the patches that fill hides (Xie et al. 2022)."""
    noise_std: float = 0.3
    """Standard deviation of the noise that clean adds, where black is -1 and white is 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shares(self, "mask_rate")
        check_not_negative(self, "shift", "noise_std")
        if self.objective == "frames" and (self.shift or self.flip):
            raise UserError("labels of frames would no longer fit a moved picture; leave shift and flip out.")


@dataclass(frozen=True, kw_only=True)
class CaptionsConfig(ImageFilesConfig):
    kind: Literal["captions"] = "captions"
    """Images, and words that say what is on them."""
    patches: Literal["squares", "columns"] = "squares"
    """How a picture is read: in square patches row by row, or in columns from left to right."""
    max_length: int = 64
    """The most tokens of a caption, its end included; training pictures with longer ones are left out, and counted."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self, "max_length")
        if self.split is not None and parse_split(self.split, WAYS)[0] == "stratified":
            raise UserError('captions are no classes to take shares of; write split = "pictures 10%".')


@dataclass(frozen=True, kw_only=True)
class Images:
    """Images of one size, with what is on them where that is known."""

    pixels: Pixels  # (N, H, W, C)
    labels: tuple[str, ...] | None = None
    """Of each picture: its class, its caption, or the classes of the frames of a strip with spaces between them."""
    notes: tuple[str, ...] = ()
    """What a reader of the numbers should know, to be said."""
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        if self.labels is not None and len(self.labels) != len(self.pixels):
            raise UserError(f"there are {len(self.pixels):,} pictures and {len(self.labels):,} labels.")
        known = hashlib.sha256(str(self.pixels.shape).encode() + np.ascontiguousarray(self.pixels).tobytes())
        known.update(repr(self.labels).encode())
        object.__setattr__(self, "fingerprint", known.hexdigest())

    def __len__(self) -> int:
        return len(self.pixels)

    def take(self, rows: Sequence[int]) -> Images:
        labels = None if self.labels is None else tuple(self.labels[n] for n in rows)
        return Images(pixels=self.pixels[list(rows)], labels=labels, notes=self.notes)

    def split(self, rule: str) -> tuple[Images, Images]:
        """Training and held-out part; copies of a picture fall on one side."""
        way, share = parse_split(rule, WAYS)
        keys = [hashlib.sha256(one.tobytes()).digest() for one in self.pixels]
        groups: dict[str, list[int]] = {}
        for n in range(len(self)):
            groups.setdefault(self.labels[n] if way == "stratified" and self.labels else "", []).append(n)
        held: set[int] = set()
        for group in groups.values():
            ordered = group[::-1] if way == "tail" else sorted(group, key=keys.__getitem__)
            held.update(ordered[: round(share * len(group))])
        if way != "tail":
            copies = {keys[n] for n in held}
            held = {n for n in range(len(self)) if keys[n] in copies}
        train, valid = ([n for n in range(len(self)) if (n in held) == side] for side in (False, True))
        if not train or not valid:
            raise UserError(f'split = "{rule}" of {len(self)} pictures leaves one side empty; hold out another share.')
        return self.take(train), self.take(valid)


def read_splits(config: ImageFilesConfig) -> tuple[Images, Images | None]:
    """The training pictures and the validation pictures, if there are any."""
    train = read_pictures(config.train, config)
    if config.valid is not None:
        return train, read_pictures(config.valid, config)
    return train.split(config.split) if config.split is not None else (train, None)


def read_pictures(files: Sequence[str] | str, config: ImageFilesConfig) -> Images:
    """The pictures of some files, folders or embedded sets, all of one size."""
    names = named(files)
    parts: list[Images] = []
    for name in names:
        for part in _read(name, config):
            if isinstance(part, tuple):  # the labels of an IDX file stand in a file of their own
                if not parts or parts[-1].labels is not None:
                    raise UserError(f"{name} holds labels; name it behind the file of their images.")
                parts[-1] = Images(pixels=parts[-1].pixels, labels=part)
            else:
                parts.append(part)
    sizes = {part.pixels.shape[1:] for part in parts}
    if len(sizes) > 1:
        raise UserError(f"pictures have different sizes: {', '.join(map(_written, sorted(sizes)))}.")
    if len({part.labels is None for part in parts}) > 1:
        raise UserError("some of these pictures have labels and others none; name the labels of each file behind it.")
    labels = None
    if parts[0].labels is not None:
        labels = tuple(label for part in parts for label in part.labels or ())
    notes = tuple(note for part in parts for note in part.notes)
    return Images(pixels=np.concatenate([part.pixels for part in parts]), labels=labels, notes=notes)


def _read(name: str, config: ImageFilesConfig) -> Iterator[Images | tuple[str, ...]]:
    if is_embedded(name):
        pixels, labels = embedded_pictures(name)
        yield Images(pixels=pixels, labels=labels)
        return
    path = resolve(name)
    if path.is_dir():
        yield _folder(path, config.size)
    elif plain_suffix(path) == ".npz":
        yield _npz(path)
    elif plain_suffix(path) in IMAGES:
        yield Images(pixels=decode(path, config.size)[None])
    else:
        array = _idx(path)
        if array.ndim == 1:
            yield tuple(map(str, array.tolist()))
        else:
            yield Images(pixels=_with_channels(array, path))


def _idx(path: Path) -> Pixels:
    """An array of bytes behind a header of big-endian sizes, as MNIST's files are."""
    data = read_bytes(path)
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] != IDX_BYTES or not 1 <= data[3] <= 4:
        raise UserError(
            f"{path} is no IDX file of bytes (it begins with {data[:4].hex(' ') or 'nothing'}); give IDX or .npz"
            f" files, or a folder of images ({', '.join(IMAGES[:3])}, …)."
        )
    start = 4 + 4 * data[3]
    shape = np.frombuffer(data[4:start], ">u4").astype(np.int64)
    if len(data) != start + shape.prod():
        raise UserError(
            f"{path} is damaged: its header says {_written(shape.tolist())}, {shape.prod():,} bytes, and"
            f" {len(data) - start:,} follow it."
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape.tolist())


def _npz(path: Path) -> Images:
    """Arrays `images` (N, H, W) or (N, H, W, C) and, perhaps, `labels` or `captions` (N,)."""
    try:
        with np.load(io.BytesIO(read_bytes(path)), allow_pickle=False) as held:
            arrays = {name: held[name] for name in held.files}
    except (ValueError, OSError, zipfile.BadZipFile, EOFError) as error:
        raise UserError(f"{path} cannot be read as .npz: {error}.") from error
    if "images" not in arrays:
        raise UserError(f"{path} has no array 'images', only {', '.join(arrays) or 'nothing'}.")
    said = next((arrays[name] for name in ("labels", "captions") if name in arrays), None)
    if said is not None and said.ndim != 1:
        raise UserError(f"{path}: labels and captions are one for each picture, not {_written(said.shape)}.")
    if said is not None and len(said) != len(arrays["images"]):
        raise UserError(f"{path} has {len(arrays['images']):,} pictures and {len(said):,} labels or captions.")
    labels = None if said is None else tuple(map(str, said.tolist()))
    return Images(pixels=_with_channels(arrays["images"], path), labels=labels)


def _with_channels(array: NDArray[Any], path: Path) -> Pixels:
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim != 4 or array.shape[-1] not in (1, 3) or array.dtype != np.uint8 or not array.size:
        hint = (
            " Shares of white become bytes by (255 * images).round().astype('uint8')."
            if array.dtype.kind == "f"
            else ""
        )
        raise UserError(
            f"{path} holds {array.dtype} of {_written(array.shape)}; pictures are bytes (uint8), N × height × width for"
            f" gray ones, N × height × width × 3 for colors.{hint}"
        )
    return array


def _folder(path: Path, size: tuple[int, int] | None) -> Images:
    """A folder for each class, in which its image files are."""
    files = image_files(path)
    if not files:
        raise UserError(f"the folder {path} has no image files ({', '.join(IMAGES)}).")
    loose = [found for found in files if found.parent == path]
    if loose and len(loose) < len(files):
        raise UserError(f"{loose[0]} is in no folder of a class, as others in {path} are; move it into one.")
    pixels = _alike([decode(found, size) for found in files])
    for found, picture in zip(files, pixels, strict=True):
        if picture.shape != pixels[0].shape:
            raise UserError(
                f"{found} is {_written(picture.shape)}, and {files[0]} is {_written(pixels[0].shape)}; set data.size ="
                f" [{picture.shape[0]}, {picture.shape[1]}] or so to scale them."
            )
    labels = None if loose else tuple(found.relative_to(path).parts[0] for found in files)
    others = sum(1 for found in path.rglob("*") if found.is_file()) - len(files)
    notes = (f"{path}: {others:,} files are no images and are not read.",) if others else ()
    return Images(pixels=np.stack(pixels), labels=labels, notes=notes)


def _alike(pictures: list[Pixels]) -> list[Pixels]:
    """All of them with colors where some have any: gray photographs are often kept without."""
    most = max(picture.shape[-1] for picture in pictures)
    return [np.broadcast_to(picture, (*picture.shape[:2], most)) for picture in pictures]


def _written(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))
