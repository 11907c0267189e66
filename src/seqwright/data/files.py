"""Reading files, plain, .gz or .xz: paths, folders and glob patterns, relative to the recipe or the data root.

Text is decoded exactly, as UTF-8 unless the recipe names another encoding: line endings are kept
(`data/text/corpus.py` reads CRLF as LF); only a leading byte order mark is dropped.
"""

from __future__ import annotations

import codecs
import difflib
import gzip
import lzma
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from encodings.aliases import aliases
from pathlib import Path
from typing import Any, Literal

from seqwright.core.config import UserError, did_you_mean
from seqwright.core.limits import check_limit, limit
from seqwright.core.printable import quantity
from seqwright.core.warning import warn

Errors = Literal["strict", "replace"]
UTF_8 = "utf-8"

DATA_ROOT = "SEQWRIGHT_DATA"
"""Environment variable of the data root, the second folder in which relative paths are searched."""
UNDER_ROOT = f"${DATA_ROOT}/"
"""Prefix of paths that are searched under the data root only."""

UNTRUSTED = "untrusted:"
"""Prefix of paths that a received run names (`pipeline/trust.py`)."""

URL = re.compile(r"[a-z][a-z0-9+.-]*://")

COMPRESSED: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}
"""Functions that open compressed files, by suffix."""
MAX_DECOMPRESSED = "SEQWRIGHT_MAX_DECOMPRESSED_BYTES"
TEXTS = (".txt", ".text", ".md", ".markdown", ".rst", ".jsonl", ".ndjson", ".csv", ".tsv")
"""Suffixes of the files that are read from a folder; a file named directly may have any suffix."""

COLUMNAR = (".parquet", ".arrow")
"""Suffixes of columnar files (`data/columnar.py`)."""

BINARY: dict[bytes, str] = {
    b"PK\x03\x04": "a ZIP archive, as spreadsheets (.xlsx, .ods) and documents (.docx) are; save the table as CSV"
    " (UTF-8), or the text as plain text",
    b"\xd0\xcf\x11\xe0": "an Office file (.xls or .doc); save the table as CSV (UTF-8), or the text as plain text",
    b"%PDF-": "a PDF; save its text as a plain text file",
    b"\x1f\x8b": "compressed by gzip; give it a name that ends in .gz",
    b"\xfd7zXZ\0": "compressed by xz; give it a name that ends in .xz",
}
"""What a file that begins with these bytes is, and the next move."""
UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
STRAY_NULS = 0.01
"""Share of NUL bytes up to which valid UTF-8 is text with a few of them; in UTF-16, spaces and line ends have one."""
MAX_SNIFFED = 1 << 16
"""Bytes of a file that are looked at to guess its encoding."""
BYTE_ORDER_MARK = "\ufeff"
REPLACEMENT = "\ufffd"
REPLACE = "To decode invalid bytes as U+FFFD: --set data.errors=replace."
"""The last resort where a text cannot be decoded."""
CONVERT = "convert it: iconv -f WINDOWS-1252 -t UTF-8 OLD > NEW."
"""The next move where a command streams UTF-8 and reads no [data] table."""


LIKENESS = 0.75
"""Similarity of names (difflib) from which one is suggested for another."""


class MissingFileError(UserError):
    """A path that does not exist."""


class EmptyFileError(UserError):
    """A file without text."""


class UntrustedFileError(UserError):
    """A path that a received run names, and that is not read without `--trust`."""


def as_list(files: Sequence[str | os.PathLike[str]] | str | os.PathLike[str] | None) -> list[str]:
    """File names as a list, from one name or path, several or None; UserError for texts, rows and other values."""
    several = [files] if isinstance(files, str | os.PathLike) or not isinstance(files, Iterable) else files
    names: list[str] = []
    for file in several if several != [None] else ():
        if not isinstance(file, str | os.PathLike) or isinstance(several, Mapping):
            wrong = several if isinstance(several, bytes | Mapping) else file
            raise UserError(
                f"{repr(wrong)[:60]} ({type(wrong).__name__}) is no file; give the path of a file, or a list of paths."
                " Texts and rows of yours go into a file first."
            )
        names.append(os.fspath(file))
    return names


def resolve(path: str, base: Path | None = None) -> Path:
    """The existing path that a recipe's path refers to: in `base` (or the working directory), then the data root."""
    if path.startswith(UNTRUSTED):
        raise UntrustedFileError(
            f"this run comes from elsewhere and names {path.removeprefix(UNTRUSTED)}, outside of the data root and this"
            " folder. Name your own data with --on FILE, or add --trust to read what it names."
        )
    if is_remote(path):
        raise UserError(
            f"{path} is a URL, and only training text is read from one, prepared (`seqwright data prepare`); copy the"
            " text to a file, and name that."
        )
    if not path.strip():
        raise MissingFileError("an empty name is no file; name one, or the folder that holds them.")
    relative = Path(path.removeprefix(UNDER_ROOT)).expanduser()
    root = os.environ.get(DATA_ROOT)
    if path.startswith(UNDER_ROOT) and not root:
        raise UserError(f"no file {path}: {DATA_ROOT} is not set; set it to the folder that holds {relative}.")
    folders = [Path(root)] if root else []
    if not path.startswith(UNDER_ROOT):
        folders.insert(0, base or Path())
    candidates = [relative] if relative.is_absolute() else [folder / relative for folder in folders]
    for candidate in candidates:
        # A file may be called "a[1].txt", so an existing path is tried before a glob pattern.
        with suppress(OSError, ValueError):  # names that are too long, or hold NUL: no such file
            if candidate.exists() or (is_pattern(candidate) and expand(candidate)[0]):
                return candidate
            # The files of recipes are named as they are often stored: compressed.
            if candidate.suffix in COMPRESSED and candidate.with_suffix("").is_file():
                return candidate.with_suffix("")
    tried = " or ".join(str(candidate) for candidate in candidates)
    unset = "" if root or relative.is_absolute() else f" {DATA_ROOT} (the data root, searched second) is not set."
    text = "" if relative.suffix or len(relative.parts) > 1 else " A text or a row of yours goes into a file first."
    raise MissingFileError(f"no file {tried}.{_nearest(candidates)}{unset}{text}")


def is_remote(name: str) -> bool:
    """Whether a name is a URL rather than a path."""
    return URL.match(name) is not None


def expand(path: Path, suffixes: Sequence[str] = TEXTS) -> tuple[list[Path], list[Path]]:
    """The sorted text files of a file, folder or glob pattern, and the files of a folder with other suffixes."""
    if is_pattern(path) and not path.exists():
        anchor = next(parent for parent in path.parents if not is_pattern(parent))
        return sorted(match for match in anchor.glob(str(path.relative_to(anchor))) if match.is_file()), []
    if not path.is_dir():
        return [path], []
    files = [entry for entry in sorted(path.rglob("*")) if entry.is_file() and not _hidden(entry, path)]
    texts = [file for file in files if plain_suffix(file) in suffixes]
    if not texts:
        endings = ", ".join(suffixes)
        raise UserError(f"the folder {path} has no files that end in {endings} (nor those with .gz or .xz).")
    return texts, [file for file in files if file not in set(texts)]


def is_pattern(path: Path) -> bool:
    """Whether a path has glob characters."""
    return any(character in str(path) for character in "*?[")


def plain_suffix(path: Path) -> str:
    """The suffix below any compression, in lower case: `.jsonl` of `a.jsonl.xz`."""
    return (Path(path.stem) if path.suffix in COMPRESSED else path).suffix.lower()


def read_text(path: Path, errors: Errors = "strict", encoding: str = UTF_8) -> tuple[str, list[str]]:
    """The text of a file, and notes for the user about how it was decoded."""
    if path.suffix in COLUMNAR:
        prepare = f"seqwright data prepare {path} --columns text=NAME --out FOLDER"
        raise UserError(f"{path} is a file of columns; tokenize a text first: `{prepare}`; save labeled rows as CSV.")
    data = read_bytes(path)
    if data in (b"", codecs.BOM_UTF8):
        raise EmptyFileError(f"{path} is empty; name a file with text.")
    refuse_binary(data, path)
    if data.startswith(codecs.BOM_UTF8):  # no other encoding starts with it: what we write for spreadsheets does
        encoding = UTF_8
    if not check_encoding(encoding).startswith(UTF_8) and is_utf8(data):
        warn(f"{path} is valid UTF-8, but read as {encoding}; --set data.encoding=utf-8 reads it as UTF-8.")
    notes = []
    if errors == "replace":
        text = data.decode(encoding, "replace").replace("\0", REPLACEMENT)
        if replaced := text.count(REPLACEMENT) - data.decode(encoding, "ignore").count(REPLACEMENT):
            notes.append(f"{path}: {replaced:,} decoding errors were replaced by U+FFFD.")
    else:
        text = _decoded(data, encoding, path)
    return text.removeprefix(BYTE_ORDER_MARK), notes


def refuse_binary(start: bytes, path: Path | str) -> None:
    """Raises for the first bytes of a file that is known not to be text."""
    for mark, what in BINARY.items():
        if start.startswith(mark):
            raise UserError(f"{path} is {what}.")


def refuse_blank(text: str, path: Path | str) -> None:
    """Raises for the text of a file that is empty or has only blank lines."""
    if not text.strip():
        what = "has only blank lines" if text else "is empty"
        raise EmptyFileError(f"{path} {what}; name a file with text.")


def check_encoding(encoding: str) -> str:
    """The normalized name of a text encoding; raises on names that Python does not know."""
    try:
        codec = codecs.lookup(encoding)
        "".encode(encoding)  # base64 and rot13 are codecs, too, but not of text
    except (LookupError, ValueError) as error:
        names = sorted({name.replace("_", "-") for name in (*aliases, *aliases.values())})
        near = "" if encoding in names else did_you_mean(encoding, names)
        hint = near or " Name one of texts, such as latin-1, cp1252 or utf-16."
        raise UserError(f"no encoding '{encoding}'.{hint}") from error
    return codec.name


def _decoded(data: bytes, encoding: str, path: Path) -> str:
    """The text of bytes without errors; otherwise an error that names the encoding they may be in."""
    name = check_encoding(encoding)
    if data.startswith(UTF_16_MARKS) and not name.startswith(("utf-16", "utf-32")):
        raise UserError(f"{path} is UTF-16, as spreadsheets write it; add --set data.encoding=utf-16.")
    if name == UTF_8 and (offset := data.find(0)) >= 0:
        if _is_text_with_nuls(data):
            raise UserError(
                f"{path} has {quantity(data.count(0), 'NUL byte')}, the first at byte {_position(data, offset)}; --set"
                " data.errors=replace decodes NUL as U+FFFD. If the file is not UTF-8, name its encoding: --set"
                " data.encoding=utf-16."
            )
        raise UserError(
            f"{path} looks binary or UTF-16: NUL at byte {_position(data, offset)}; give a text file, or name its"
            f" encoding: --set data.encoding=utf-16. {REPLACE}"
        )
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        invalid = f"0x{data[error.start]:02x} at byte {_position(data, error.start)}"
        likely = likely_encoding(data)
        advice = f"it looks like {likely}: add" if likely and likely != encoding else "name its encoding, as in"
        raise UserError(
            f"{path} is not {encoding.upper()}: {invalid}; {advice} --set data.encoding={likely or 'cp1251'}. {REPLACE}"
        ) from error


def _is_text_with_nuls(data: bytes) -> bool:
    """Whether bytes are UTF-8 with a few NULs, and not UTF-16 or binary."""
    if data.count(0) > max(1, STRAY_NULS * len(data)):
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def read_bytes(path: Path) -> bytes:
    """The decompressed content of a file."""
    with naming_errors(path):
        if path.suffix not in COMPRESSED:
            return path.read_bytes()
        with COMPRESSED[path.suffix](path, "rb") as file:
            data: bytes = file.read(limit(MAX_DECOMPRESSED) + 1)
    check_limit(MAX_DECOMPRESSED, len(data), f"{path} decompresses to {len(data):,} bytes or more")
    return data


@contextmanager
def naming_errors(path: Path) -> Iterator[None]:
    """Context manager that turns read and decompression errors into a UserError that names the file."""
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


def _position(data: bytes, offset: int) -> str:
    return f"{offset:,} (line {data.count(10, 0, offset) + 1:,})"


def is_utf8(data: bytes) -> bool:
    """Whether bytes are UTF-8 with other characters than ASCII, as text in another encoding hardly ever is."""
    try:
        return not data.decode().isascii()
    except UnicodeDecodeError:
        return False


def likely_encoding(data: bytes) -> str | None:
    """The encoding of bytes that are mostly ASCII with single accented letters: Latin-1 or Windows-1252."""
    high = [byte for byte in data[:MAX_SNIFFED] if byte > 127]
    if len(high) * 4 > min(len(data), MAX_SNIFFED):
        return None
    return "cp1252" if any(byte < 160 for byte in high) else "latin-1"


def _nearest(candidates: list[Path]) -> str:
    for candidate in candidates:
        with suppress(OSError, ValueError):
            if not candidate.parent.is_dir():
                continue
            names = {entry.name.casefold(): entry.name for entry in sorted(candidate.parent.iterdir())}
            near = difflib.get_close_matches(candidate.name.casefold(), names, n=1, cutoff=LIKENESS)
            if near:
                return f" Did you mean '{candidate.with_name(names[near[0]])}'?"
    return ""
