"""Atomic file storage: JSON, JSON lines and safetensors that are complete or absent after a crash or a full disk.

Everything is written to a temporary directory beside its target, fsynced, then renamed into place. A log is the
exception: it grows by appended lines, and a partial last line is dropped. Weights are safetensors, never pickles.
Files are opened as regular files only: a link could lead outside, and a FIFO would never end.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import json
import math
import os
import re
import secrets
import shutil
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import safe_open
from torch import Tensor

from seqwright.core.config import ConfigLoader, UserError
from seqwright.core.limits import check_limit
from seqwright.core.mapped import release
from seqwright.core.regular_files import open_regular, read_errors
from seqwright.core.safetensors_chunks import StreamedTensors, safetensors_chunks

T = TypeVar("T")

TEMPORARY = re.compile(r"\.(tmp|old)-[0-9a-f]{8}-(.+)")
"""Temporary directories of <name>: `.tmp-<hex>-<name>` has its new contents, `.old-<hex>-<name>` the replaced ones."""
METADATA_KEY = "seqwright"
"""The only safetensors metadata key, with all metadata as one JSON: several keys have no fixed order in the file."""
TIED_KEY = "shared"
"""Key in that JSON for tied tensors: name to the name whose values it shares."""
PICKLES = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"}


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Strict JSON: NaN and infinities become null."""
    return json.dumps(finite(value), ensure_ascii=False, allow_nan=False, indent=indent)


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text atomically, line ends unchanged."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_chunks(path: Path, chunks: Iterable[bytes]) -> None:
    """Writes a stream of bytes atomically, in the memory of one chunk."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)


def write_json(path: Path, value: Any) -> None:
    """Writes indented strict JSON atomically."""
    write_text(path, to_json(value, indent=2) + "\n")


def read_text(path: Path) -> str:
    """The text of a UTF-8 file."""
    with read_errors(path):
        return read_bytes(path).decode()


def read_json(path: Path) -> Any:
    """The value of a JSON file."""
    with read_errors(path):
        return json.loads(read_bytes(path).decode())


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    with read_errors(path):
        return tomllib.loads(read_bytes(path).decode())


def read_record(path: Path, cls: type[T], *, extensible: bool = False) -> T:
    """A JSON file as an instance of a dataclass, read strictly; an `extensible` one may have further keys."""
    return to_record(read_json(path), cls, path, extensible=extensible)


def to_record(
    value: Any,
    cls: type[T],
    path: Path | str,
    *,
    extensible: bool = False,
    advice: str = "Restore it from a copy, or train again.",
) -> T:
    """JSON values of `path` as an instance of a dataclass; a wrong, missing or unknown key is a UserError."""
    loader = ConfigLoader("", noun="it")
    if not isinstance(value, Mapping):
        loader.problem("", "it is no JSON object.")
    else:
        known = cls.__dataclass_fields__  # type: ignore[attr-defined]
        table = {key: item for key, item in value.items() if key in known or not extensible}
        record = loader.read(cls, table)
        if record is not None:
            return record
    raise UserError(f"{path} is damaged: {loader.problems[0][2:]} {advice}")


def read_bytes(path: Path) -> bytes:
    """The bytes of a regular file, up to SEQWRIGHT_MAX_JSON_BYTES of them."""
    with os.fdopen(open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        check_limit("SEQWRIGHT_MAX_JSON_BYTES", size, f"{path} has {size:,} bytes")
        return file.read()


def append_jsonl(path: Path, record: Mapping[str, Any]) -> None:
    """Appends one record to a JSON lines file; a partial last line left by a crash is truncated first."""
    line = (to_json(record) + "\n").encode()
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
    with write_errors(path), os.fdopen(open_regular(path, flags), "a+b", buffering=0) as file:
        end = _truncate_partial_line(file)
        try:
            written = file.write(line)
            if written < len(line):  # a short write on a full disk: writing the rest raises the reason
                file.write(line[written:])
        except OSError:
            file.truncate(end)
            raise


def read_jsonl(path: Path, key: str) -> list[dict[str, Any]]:
    """The records of a JSON lines file, each of which must have `key`; a partial last line is skipped."""
    with read_errors(path):
        lines = read_bytes(path).split(b"\n")[:-1]
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            if not isinstance(record, dict) or key not in record:
                raise ValueError(f"no record with '{key}'")
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path} is damaged at line {number}: {error}. Delete that line and run again.") from None
        records.append(record)
    return records


def save_tensors(
    path: Path,
    tensors: Mapping[str, Tensor] | StreamedTensors,
    metadata: Mapping[str, str] | None = None,
    before_rename: Callable[[Path], None] = lambda staged: None,
) -> None:
    """Writes named tensors and metadata as safetensors. Tied tensors are stored once and tied again when loaded.

    `before_rename` is called with the complete temporary file, before it takes the place of `path`.
    """
    stored, shared = (tensors, {}) if isinstance(tensors, StreamedTensors) else _untied(tensors)
    header: dict[str, Any] = dict(metadata or {})
    assert TIED_KEY not in header, f"the metadata key '{TIED_KEY}' is taken"
    if shared:
        header[TIED_KEY] = shared
    with atomic_path(path) as temporary:
        with temporary.open("wb") as file:
            for chunk in safetensors_chunks(stored, {METADATA_KEY: json.dumps(header)}):
                file.write(chunk)
                release()  # tensors in temporary files leave memory as soon as they are written
        before_rename(temporary)


def load_tensors(path: Path, device: torch.device | str = "cpu") -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a safetensors file, and its metadata."""
    if path.suffix in PICKLES:
        raise UserError(
            f"{path} may be a pickle, which can run code when loaded, so it is refused. "
            "Ask its author for safetensors, or convert it where you trust it."
        )
    with _open_tensors(path, device) as file:
        metadata = _metadata(file)
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        tied = metadata.pop(TIED_KEY, {})
        if not isinstance(tied, dict) or not tensors.keys() >= set(map(str, tied.values())):
            raise ValueError("its tied tensors are not among its tensors")
        tensors |= {name: tensors[stored_name] for name, stored_name in tied.items()}
    return tensors, metadata


def tensor_shapes(path: Path) -> dict[str, torch.Size]:
    """The shapes of the tensors of a complete safetensors file; reads the header only."""
    with _open_tensors(path) as file:
        _metadata(file)
        return {name: torch.Size(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


@contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """A temporary directory that is renamed to `path` when the block succeeds; if it fails, nothing appears."""
    with atomic_path(path) as temporary:
        temporary.mkdir()
        yield temporary
        for child in temporary.rglob("*"):
            sync(child)


def remove_directory(path: Path) -> None:
    """Deletes a directory by renaming it first, so that a crash leaves no partial directory under its name."""
    temporary = _temporary_path(path, "tmp")
    path.rename(temporary)
    shutil.rmtree(temporary)


def recover(folder: Path) -> None:
    """Removes leftovers of crashed writers in a folder and restores a replaced directory. Call with its lock held."""
    for leftover in filter(is_leftover, list(folder.glob(".*"))):
        _, state, name = TEMPORARY.split(leftover.name)[:3]
        if state == "old" and not (folder / name).exists():  # crashed between the two renames
            leftover.rename(folder / name)
        else:
            shutil.rmtree(leftover)


def is_leftover(path: Path) -> bool:
    """Whether a path is a temporary directory of a writer, crashed or active."""
    return TEMPORARY.fullmatch(path.name) is not None and path.is_dir() and not path.is_symlink()


def sync(path: Path) -> None:
    """Flushes a file or folder to disk (fsync)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turns disk-full and permission errors while writing `path` into a UserError."""
    try:
        yield
    except OSError as error:
        code = error.errno
        name = Path(*(part for part in path.parts if not TEMPORARY.fullmatch(part)))  # the final name
        if code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            advice = "Raise the limit on file sizes (ulimit -f)" if code == errno.EFBIG else "Free some space"
            raise UserError(
                f"no room to write {name}: {os.strerror(code)}. {advice}, or choose a folder on"
                " another disk; no partial file was left."
            ) from None
        if code in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
            raise UserError(
                f"cannot write {name}: {os.strerror(code)}. Choose a folder with write permission."
            ) from None
        if code == errno.ENAMETOOLONG:
            raise UserError(f"cannot write {name}: its name is too long. Choose a shorter one.") from None
        raise


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path whose file or directory is fsynced and renamed to `path` when the block succeeds."""
    with staging(path) as staged:
        yield staged
        sync(staged)
        if staged.is_dir() and path.is_dir():  # rename(2) replaces a file, but not a non-empty directory
            replaced = _temporary_path(path, "old")
            path.rename(replaced)
            staged.rename(path)
            shutil.rmtree(replaced)
        else:
            staged.replace(path)
        sync(path.parent)


@contextmanager
def staging(path: Path) -> Iterator[Path]:
    """A path of the same name in a temporary directory beside `path`, which is locked and removed after the block.

    A directory even for a single file: files and directories are staged and swept alike.
    """
    if path.exists() and not path.is_file() and not path.is_dir():  # /dev/null would be replaced for everybody
        raise UserError(f"{path} is a device or a pipe, which a file would take the place of; name a file.")
    with write_errors(path):
        while True:
            temporary = _temporary_path(path, "tmp")
            temporary.mkdir(parents=True)
            with suppress(FileNotFoundError):
                handle = os.open(temporary, os.O_RDONLY)
                with suppress(OSError):  # file systems without locks of directories: nothing is swept there
                    fcntl.flock(handle, fcntl.LOCK_EX)
                if temporary.exists():  # else `sweep` was faster
                    break
                os.close(handle)
        try:
            yield temporary / path.name
        finally:
            shutil.rmtree(temporary)
            os.close(handle)


def sweep(path: Path) -> None:
    """Removes temporary directories that killed writers of `path` left; those of live ones are locked."""
    for leftover in filter(is_leftover, path.parent.glob(f".tmp-*-{glob.escape(path.name)}")):
        with suppress(OSError):
            handle = os.open(leftover, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(leftover)
            finally:
                os.close(handle)


@contextmanager
def _open_tensors(path: Path, device: torch.device | str = "cpu") -> Iterator[Any]:
    with read_errors(path), os.fdopen(open_regular(path), "rb") as opened:
        # safetensors opens a name twice, through links: the file that was opened stays the same if it is replaced.
        pinned = Path(f"/proc/self/fd/{opened.fileno()}")
        with safe_open(pinned if pinned.exists() else path, framework="pt", device=str(device)) as file:
            yield file


def _metadata(file: Any) -> dict[str, Any]:
    metadata = json.loads((file.metadata() or {}).get(METADATA_KEY, "{}"))
    if not isinstance(metadata, dict):
        raise ValueError("its metadata is no JSON object")
    return metadata


def _truncate_partial_line(file: Any) -> int:
    """Truncates a last line without a newline; the offset at which to append."""
    end = int(file.seek(0, os.SEEK_END))
    if end == 0:
        return 0
    file.seek(end - 1)
    if file.read(1) != b"\n":
        file.seek(0)
        end = file.read().rfind(b"\n") + 1
        file.truncate(end)
    return end


def _untied(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """CPU tensors that share no memory, and for each tied name the name that is stored."""
    stored: dict[str, Tensor] = {}
    shared: dict[str, str] = {}
    stored_names: dict[Any, str] = {}
    storages: set[Any] = set()
    for name, tensor in tensors.items():
        tensor = tensor.detach()
        storage = (tensor.device, tensor.untyped_storage().data_ptr())
        view = (*storage, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() and view in stored_names:
            shared[name] = stored_names[view]
            continue
        stored_names[view] = name
        overlaps = storage in storages  # a different view of the same storage, which safetensors refuses: copied
        storages.add(storage)
        stored[name] = (tensor.clone() if overlaps else tensor).cpu().contiguous()
    return stored, shared


def finite(value: Any) -> Any:
    """A value of JSON with None for NaN and infinities, which JSON lacks."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def _temporary_path(path: Path, state: str) -> Path:
    """A temporary path beside `path` for its new (tmp) or replaced (old) contents."""
    return path.with_name(f".{state}-{secrets.token_hex(4)}-{path.name}")
