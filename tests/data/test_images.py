"""Image datasets: IDX, .npz and folders, errors for broken files, splits, and decoding."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from seqwright.core.config import UserError
from seqwright.data.images.corpus import CaptionsConfig, Images, ImagesConfig, read_images, read_splits
from seqwright.data.images.files import decode, image_files, sizes_of
from seqwright.data.samples.images import NAMES, digits

PIXELS = np.random.default_rng(1).integers(0, 256, (6, 4, 5), np.uint8)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def config(**options) -> ImagesConfig:
    return ImagesConfig(**{"train": "x"} | options)


def test_idx_images_and_labels(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(idx(PIXELS)))
    (tmp_path / "b").write_bytes(idx(np.arange(6, dtype=np.uint8)))
    read = read_images([str(tmp_path / "a.gz"), str(tmp_path / "b")], config())
    assert np.array_equal(read.pixels[..., 0], PIXELS)
    assert read.labels == tuple("012345")


def test_npz_images_and_labels(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.stack([PIXELS] * 3, -1), labels=np.array(list("abcabc")))
    read = read_images([str(tmp_path / "a.npz")], config())
    assert read.pixels.shape == (6, 4, 5, 3)
    assert read.labels == tuple("abcabc")


def test_subfolders_are_classes(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs Pillow: the extra [images]")
    for n, name in enumerate(("cat", "dog", "cat")):
        (tmp_path / name).mkdir(exist_ok=True)
        image.fromarray(PIXELS[n]).save(tmp_path / name / f"{n}.png")
    (tmp_path / "dog" / "notes.txt").write_text("no image")
    read = read_images(str(tmp_path), config())
    assert read.labels == ("cat", "cat", "dog")
    assert np.array_equal(read.pixels[..., 0], PIXELS[[0, 2, 1]])
    assert "1 files are no images" in read.notes[0]
    scaled = read_images(str(tmp_path), config(size=(8, 10)))
    assert scaled.pixels.shape == (3, 8, 10, 1)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a", b"", "no IDX file"),
        ("a", b"hello there", "no IDX file of bytes (it begins with 68 65 6c 6c)"),
        ("a", idx(PIXELS)[:-1], "120 bytes, and 119 follow it"),
        ("a.npz", b"PK nothing", "cannot be read as .npz"),
    ],
)
def test_broken_files_are_refused_by_name(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as error:
        read_images([str(tmp_path / name)], config())
    assert message in str(error.value)
    assert str(tmp_path / name) in str(error.value)


def test_corrupt_image_files_are_refused_by_name(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs Pillow: the extra [images]")
    (tmp_path / "cat").mkdir()
    image.fromarray(np.repeat(PIXELS[0], 20, 0)).save(tmp_path / "cat" / "a.png")
    whole = (tmp_path / "cat" / "a.png").read_bytes()
    (tmp_path / "cat" / "b.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"b\.png cannot be read as an image"):
        read_images(str(tmp_path), config())
    image.fromarray(PIXELS[0]).save(tmp_path / "cat" / "b.png")
    with pytest.raises(UserError, match=r"set data\.size = \[4, 5\]"):
        read_images(str(tmp_path), config())


def test_idx_labels_need_their_images(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(idx(PIXELS))
    (tmp_path / "b").write_bytes(idx(np.arange(5, dtype=np.uint8)))
    with pytest.raises(UserError, match="after the file of their images"):
        read_images([str(tmp_path / "b"), str(tmp_path / "a")], config())
    with pytest.raises(UserError, match="6 images and 5 labels"):
        read_images([str(tmp_path / "a"), str(tmp_path / "b")], config())


def test_stratified_split_has_every_class_and_keeps_duplicates_together() -> None:
    pixels = np.random.default_rng(2).integers(0, 256, (40, 2, 2, 1), np.uint8)
    pixels[1] = pixels[0]
    train, valid = Images(pixels=pixels, labels=tuple("ab" * 20)).split("stratified 20%")
    assert set(valid.labels or ()) == {"a", "b"}
    assert len(train) + len(valid) == 40
    assert not {one.tobytes() for one in train.pixels} & {one.tobytes() for one in valid.pixels}


def test_mnist_idx_files(data_root: Path) -> None:
    names = ("mnist/t10k-images-idx3-ubyte.xz", "mnist/t10k-labels-idx1-ubyte.xz")
    read = read_images([str(data_root / name) for name in names], config())
    assert read.pixels.shape == (10_000, 28, 28, 1)
    assert read.labels is not None
    assert read.labels[:5] == ("7", "2", "1", "0", "4")


def test_embedded_digit_strips_have_no_leak() -> None:
    pytest.importorskip("sklearn", reason="needs scikit-learn: the extra [samples]")
    train, valid = read_splits(config(train="embedded:digit-strips", split="tail 10%", objective="frames", patch=2))
    assert valid is not None
    frames = [
        {strip[:, 8 * n : 8 * n + 8].tobytes() for strip in part.pixels for n in range(6)} for part in (train, valid)
    ]
    assert len(frames[0] & frames[1]) <= 2  # scikit-learn's digits have duplicates


def test_images_are_split_by_the_hash_of_their_pixels() -> None:
    pixels = np.random.default_rng(2).integers(0, 256, (40, 2, 2, 1), np.uint8)
    pixels[1] = pixels[0]
    captions = tuple(f"image number {n}" for n in range(40))
    train, valid = Images(pixels=pixels, labels=captions).split("images 20%")
    assert len(valid) in (8, 9)
    assert not {one.tobytes() for one in train.pixels} & {one.tobytes() for one in valid.pixels}
    reordered = Images(pixels=pixels[::-1], labels=captions[::-1]).split("images 20%")[1]
    assert set(reordered.labels or ()) == set(valid.labels or ())
    with pytest.raises(UserError, match='split = "images 10%"'):
        CaptionsConfig(train="x", split="stratified 10%")


def test_npz_captions_are_one_per_image(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=PIXELS, captions=np.array([f"it is {n}" for n in range(6)]))
    assert read_images([str(tmp_path / "a.npz")], config()).labels == tuple(f"it is {n}" for n in range(6))
    np.savez(tmp_path / "b.npz", images=PIXELS, captions=np.array([["one", "two"]] * 6))
    with pytest.raises(UserError, match="one per image, not 6 × 2"):
        read_images([str(tmp_path / "b.npz")], config())


def test_embedded_digit_captions_are_right_and_have_no_leak() -> None:
    pytest.importorskip("sklearn", reason="needs scikit-learn: the extra [samples]")
    pixels, labels = digits()
    names = {pixels[n].tobytes(): NAMES[int(labels[n])] for n in range(len(pixels))}
    strips = CaptionsConfig(train="embedded:digit-captions", split="tail 10%")
    train, valid = read_splits(strips)
    assert valid is not None
    seen: list[set[bytes]] = []
    for part in (train, valid):
        sample = part.take(range(0, len(part), 40))
        seen.append(set())
        for strip, caption in zip(sample.pixels, sample.labels or (), strict=True):
            # Digits have gaps between them, so each is a window of eight columns that equals one of scikit-learn's.
            windows = [strip[:, n : n + 8].tobytes() for n in range(strip.shape[1] - 7)]
            shown = [window for window in windows if window in names]
            assert [names[window] for window in shown] == caption.split()
            seen[-1] |= set(shown)
    assert len(seen[0]) > 100
    assert not seen[0] & seen[1]


def test_embedded_movies_show_a_digit_that_moves_within_the_frame_and_have_no_leak() -> None:
    pytest.importorskip("sklearn", reason="needs scikit-learn: the extra [samples]")
    train, valid = read_splits(ImagesConfig(train="embedded:moving-digits", split="tail 10%"))
    assert valid is not None
    seen = []
    for part in (train, valid):
        movies = part.pixels[::40].reshape(-1, 16, 10, 16).swapaxes(1, 2)  # (N, F, 16, 16)
        ink = movies.astype(int).sum((2, 3))
        assert (ink == ink[:, :1]).all()  # all of the digit is within every frame
        moved = (movies[:, 1:] != movies[:, :-1]).any((2, 3))  # a corner may send it back to where it was
        assert moved.sum(1).min() >= 6
        cropped = [movie[0][movie[0].any(1)][:, movie[0].any(0)].tobytes() for movie in movies]
        seen.append(set(cropped))
    assert len(seen[0]) > 100
    assert not seen[0] & seen[1]


def test_decode_16_bit_and_exif_orientation(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs Pillow: the extra [images]")
    deep = (np.arange(20, dtype=np.uint16) * 3000).reshape(4, 5)
    image.fromarray(deep).save(tmp_path / "deep.png")
    assert np.array_equal(decode(tmp_path / "deep.png", None)[..., 0], deep >> 8)
    rotated = image.Exif()
    rotated[0x0112] = 6  # rotate 90° clockwise to display
    image.fromarray(PIXELS[0]).save(tmp_path / "rotated.png", exif=rotated)
    assert np.array_equal(decode(tmp_path / "rotated.png", None)[..., 0], np.rot90(PIXELS[0], -1))
    assert set(sizes_of(tmp_path)) == {(4, 5), (5, 4)}


@pytest.mark.parametrize("mode", ["LA", "RGBA"])
def test_transparent_pixels_are_composited_on_white(tmp_path: Path, mode: str) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs Pillow: the extra [images]")
    ink = image.fromarray(PIXELS[0])
    black = image.new("L", ink.size)
    image.merge(mode, [*[black] * (len(mode) - 1), ink]).save(tmp_path / "drawn.png")
    assert np.array_equal(decode(tmp_path / "drawn.png", None)[..., 0], 255 - PIXELS[0])


def test_a_folder_of_grayscale_and_color_files_is_rgb_and_hidden_files_are_skipped(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs Pillow: the extra [images]")
    (tmp_path / "cat").mkdir()
    (tmp_path / "dog").mkdir()
    image.fromarray(PIXELS[0]).save(tmp_path / "cat" / "a.png")
    image.fromarray(np.stack([PIXELS[1], PIXELS[2], PIXELS[3]], -1)).save(tmp_path / "dog" / "b.png")
    (tmp_path / "cat" / "._a.png").write_bytes(b"metadata of another system")
    read = read_images(str(tmp_path), config())
    assert read.pixels.shape == (2, 4, 5, 3)
    assert all(np.array_equal(read.pixels[0, ..., n], PIXELS[0]) for n in range(3))


def test_frames_refuse_shift_and_flip() -> None:
    for options in ({"shift": 1}, {"flip": True}):
        with pytest.raises(UserError, match="leave shift and flip out"):
            config(objective="frames", **options)


def test_without_a_split_nothing_is_held_out(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=PIXELS, labels=np.array(list("abcabc")))
    training, valid = read_splits(config(train=str(tmp_path / "a.npz"), split=None))
    assert (len(training), valid) == (6, None)


def test_image_files_of_a_file_and_of_a_folder(tmp_path: Path) -> None:
    for name in ("b.png", "a/c.JPG", "a/.d.png", "a/e.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert image_files(tmp_path) == [tmp_path / "a/c.JPG", tmp_path / "b.png"]
    assert image_files(tmp_path / "b.png") == [tmp_path / "b.png"]
    assert image_files(tmp_path / "a/e.txt") == []
