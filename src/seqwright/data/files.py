"""Text from files, folders and patterns: plain, .gz or .xz, in UTF-8, beside the recipe or under the data root.

The text is exact: line endings stay as they are (`data/text/corpus.py` splits lines); only a byte order mark at the
very beginning is dropped.
"""

from __future__ import annotations

import codecs
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

from seqwright.core.config import UserError, did_you_mean

Errors = Literal["strict", "replace"]

DATA_ROOT = "SEQWRIGHT_DATA"
"""The environment variable that names the folder where relative paths are looked for second."""
UNDER_ROOT = f"${DATA_ROOT}/"
"""How a path begins that is looked for under the data root only, wherever one stands."""

PACKED: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}
"""What opens a compressed file, by the ending of its name."""
TEXTS = (".txt", ".text", ".md", ".markdown", ".rst", ".jsonl", ".ndjson", ".csv", ".tsv")
"""What the files of a folder are recognized by; a file that is named is read whatever it is called."""

BYTE_ORDER_MARK = "\ufeff"
REPLACEMENT = "\ufffd"


def named(files: Sequence[str] | str | None) -> list[str]:
    """The names of files, of which there may be one, several or none."""
    return [files] if isinstance(files, str) else list(files or ())


def resolve(path: str, base: Path | None = None) -> Path:
    """The file that a path of a recipe means: in the recipe's folder (or here), otherwise under the data root."""
    wanted = Path(path.removeprefix(UNDER_ROOT)).expanduser()
    root = os.environ.get(DATA_ROOT)
    if path.startswith(UNDER_ROOT) and not root:
        raise UserError(f"no file {path}: {DATA_ROOT} is not set; set it to the folder that holds {wanted}.")
    folders = [Path(root)] if root else []
    if not path.startswith(UNDER_ROOT):
        folders.insert(0, base or Path())
    places = [wanted] if wanted.is_absolute() else [folder / wanted for folder in folders]
    for place in places:
        # A file may be called "a[1].txt", so what is there comes before what a pattern could mean.
        if place.exists() or (is_pattern(place) and expand(place)[0]):
            return place
    tried = " or ".join(str(place) for place in places)
    unset = "" if root or wanted.is_absolute() else f" {DATA_ROOT} (the data root, looked in second) is not set."
    raise UserError(f"no file {tried}.{_nearest(places)}{unset}")


def expand(path: Path) -> tuple[list[Path], list[Path]]:
    """The files that a file, folder or pattern stands for, in order, and those of a folder that hold no known text."""
    if is_pattern(path) and not path.exists():
        anchor = next(parent for parent in path.parents if not is_pattern(parent))
        return sorted(found for found in anchor.glob(str(path.relative_to(anchor))) if found.is_file()), []
    if not path.is_dir():
        return [path], []
    inside = [found for found in sorted(path.rglob("*")) if found.is_file() and not _hidden(found, path)]
    texts = [found for found in inside if plain_suffix(found) in TEXTS]
    if not texts:
        raise UserError(f"the folder {path} has no files that end in {', '.join(TEXTS)} (nor those with .gz or .xz).")
    return texts, [found for found in inside if found not in set(texts)]


def is_pattern(path: Path) -> bool:
    return any(sign in str(path) for sign in "*?[")


def plain_suffix(path: Path) -> str:
    """`.jsonl` of `a.jsonl.xz`: what a file holds, however it is compressed."""
    return (Path(path.stem) if path.suffix in PACKED else path).suffix.lower()


def read_text(path: Path, errors: Errors = "strict") -> tuple[str, int]:
    """The text of a file, and how many broken places in it were replaced by U+FFFD (none unless asked for)."""
    data = read_bytes(path)
    if data in (b"", BYTE_ORDER_MARK.encode()):
        raise UserError(f"{path} is empty.")
    if errors == "replace":
        text = data.decode(errors="replace").replace("\0", REPLACEMENT)
        replaced = text.count(REPLACEMENT) - data.count(REPLACEMENT.encode())
        return text.removeprefix(BYTE_ORDER_MARK), replaced
    instead = 'give a text file in UTF-8, or set data.errors = "replace" to read U+FFFD in such places.'
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UserError(f"{path} is UTF-16, as spreadsheets write it; save it as UTF-8.")
    if (offset := data.find(0)) >= 0:
        raise UserError(f"{path} looks binary or UTF-16: NUL at byte {_place(data, offset)}; {instead}")
    try:
        return data.decode().removeprefix(BYTE_ORDER_MARK), 0
    except UnicodeDecodeError as error:
        broken = f"0x{data[error.start]:02x} at byte {_place(data, error.start)}"
        raise UserError(f"{path} is not UTF-8: {broken}; {instead}") from error


def lines_of(path: Path) -> Iterator[str]:
    """Lines of a file as they are read, without their ends (LF or CR LF): a file may be larger than memory."""
    opener: Callable[..., IO[bytes]] = PACKED.get(path.suffix, open)
    with _named(path), opener(path, "rb") as file:
        for number, raw in enumerate(file, 1):
            line = decode_line(raw, number, str(path))
            yield line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line


def decode_line(raw: bytes, number: int, source: str) -> str:
    """A line without its end; `source` and `number` say where it is from."""
    try:
        return raw.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{source}, line {number:,}: not UTF-8 at byte {error.start} of the line; save it as UTF-8."
        ) from error


def read_bytes(path: Path) -> bytes:
    """What a file holds, decompressed."""
    with _named(path):
        if path.suffix == ".gz":
            return gzip.decompress(path.read_bytes())
        if path.suffix == ".xz":
            return lzma.decompress(path.read_bytes())
        return path.read_bytes()


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turns a file that cannot be read into an error that names it."""
    try:
        yield
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError) as error:
        raise UserError(f"{path} cannot be decompressed ({error}): it is damaged, or no {path.suffix} file.") from error
    except IsADirectoryError as error:
        raise UserError(f"{path} is a folder; name the files in it.") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error


def _hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _place(data: bytes, offset: int) -> str:
    return f"{offset:,} (line {data.count(10, 0, offset) + 1:,})"


def _nearest(places: list[Path]) -> str:
    for place in places:
        if place.parent.is_dir():
            near = did_you_mean(place.name, sorted(entry.name for entry in place.parent.iterdir()))
            if near.startswith(" Did"):
                return near
    return ""
