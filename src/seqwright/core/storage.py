"""Files that are there in full or not at all, whatever is killed and however full the disk.

Everything is written in a folder aside whose name only this file makes, synced, then renamed into place. A log is the
exception: it grows line by line, and a line torn by a kill is dropped. Weights are safetensors; nothing is unpickled.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from seqwright.core.config import UserError

OURS = re.compile(r"\.(tmp|old)-[0-9a-f]{8}-(.+)")
"""Names of what is not finished (tmp) or about to be replaced (old), with the name it will have or had."""
ABOUT = "seqwright"
"""The one metadata key, which holds all that is said about the tensors: several would be written in any order."""
SHARED = "shared"
"""The key in there under which tied tensors are named."""
PICKLES = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"}


def to_json(value: Any, *, indent: int | None = None) -> str:
    """JSON that every reader accepts: numbers that are not finite become null."""
    return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, indent=indent)


def write_text(path: Path, text: str) -> None:
    with aside_of(path) as aside:
        aside.write_text(text, encoding="utf-8", newline="\n")


def write_chunks(path: Path, chunks: Iterable[bytes]) -> None:
    """Writes bytes as they come, so that a large file needs no more memory than a chunk."""
    with aside_of(path) as aside, aside.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)


def write_json(path: Path, value: Any) -> None:
    write_text(path, to_json(value, indent=2) + "\n")


def read_text(path: Path) -> str:
    with _readable(path):
        return path.read_text(encoding="utf-8")


def read_json(path: Path) -> Any:
    with _readable(path):
        return json.loads(path.read_text(encoding="utf-8"))


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """Adds one record to a file of JSON lines, in one write; what a kill left of a line before it goes first."""
    line = (to_json(record) + "\n").encode()
    with writable(path), path.open("a+b", buffering=0) as file:
        end = _repair(file)
        try:
            written = file.write(line)
            if written < len(line):  # a disk that fills up takes a part, and says why when asked for the rest
                file.write(line[written:])
        except OSError:
            file.truncate(end)
            raise


def read_lines(path: Path, key: str) -> list[dict[str, Any]]:
    """The records of a file of JSON lines, each with this key; a torn last one is left out."""
    with _readable(path):
        lines = path.read_bytes().split(b"\n")[:-1]
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            if not isinstance(record, dict) or key not in record:
                raise ValueError(f"no record with '{key}'")
        except ValueError as error:
            raise UserError(f"{path} is damaged at line {number}: {error}. Delete that line and go on.") from None
        records.append(record)
    return records


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Writes tensors by name, with a few words about them. Tied tensors are written once and tied again by loading."""
    kept, shared = _untied(tensors)
    about: dict[str, Any] = dict(metadata or {})
    assert SHARED not in about, f"the metadata key '{SHARED}' is taken"
    if shared:
        about[SHARED] = shared
    with aside_of(path) as aside:
        aside.touch()
        mode = aside.stat().st_mode
        save_file(kept, aside, {ABOUT: json.dumps(about)})
        aside.chmod(mode)  # safetensors makes files that only their owner can read; a run is to be shared


def load_tensors(path: Path, device: torch.device | str = "cpu") -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file and what was said about them."""
    if path.suffix in PICKLES:
        raise UserError(
            f"{path} may hold a pickle, which can run code when it is opened, so it is not. "
            "Ask its author for safetensors, or convert it where you trust it."
        )
    with _readable(path), safe_open(path, framework="pt", device=str(device)) as file:
        metadata = json.loads((file.metadata() or {}).get(ABOUT, "{}"))
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        tensors |= {name: tensors[twin] for name, twin in metadata.pop(SHARED, {}).items()}
    return tensors, metadata


def check_tensors(path: Path) -> None:
    """Raises where the file is missing, cut short or no safetensors; reads the header alone."""
    with _readable(path), safe_open(path, framework="pt"):
        pass


@contextmanager
def directory(path: Path) -> Iterator[Path]:
    """A folder to fill, which appears at `path` when the block ends, complete; if the block fails, nothing does."""
    with aside_of(path) as aside:
        aside.mkdir()
        yield aside
        for inside in aside.rglob("*"):
            _sync(inside)


def remove(path: Path) -> None:
    """Deletes a folder; one killed while it does so leaves no half of it under its name."""
    doomed = _ours(path, "tmp", _mark())
    path.rename(doomed)
    shutil.rmtree(doomed)


def recover(folder: Path) -> None:
    """Clears what killed writers left in a folder. Only the holder of its lock may: no other writer lives then."""
    for leftover in filter(is_leftover, list(folder.glob(".*"))):
        _, state, name = OURS.split(leftover.name)[:3]
        if state == "old" and not (folder / name).exists():  # killed after the old one went, before the new one came
            leftover.rename(folder / name)
        else:
            shutil.rmtree(leftover)


def is_leftover(path: Path) -> bool:
    """Whether this is what a killed writer of ours leaves, or one at work has aside."""
    return OURS.fullmatch(path.name) is not None and path.is_dir()


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """Turns a disk that cannot take `path` into an error that says what to do."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        code = error.errno if isinstance(error, OSError) else _os_error(error)
        name = Path(*(part for part in path.parts if not OURS.fullmatch(part)))  # as it would have been in the end
        if code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise UserError(
                f"no room to write {name}: {os.strerror(code)}, {_free(path)} free. "
                "Make room there, or choose a folder on another disk; nothing half-written was left."
            ) from None
        if code in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
            raise UserError(
                f"cannot write {name}: {os.strerror(code)}. Choose a folder that is yours to write."
            ) from None
        raise


@contextmanager
def aside_of(path: Path) -> Iterator[Path]:
    """A name to write to, whose file or folder takes its place at `path` when the block ends well."""
    mark = _mark()
    folder = _ours(path, "tmp", mark)  # a folder even for a file: what safetensors itself leaves when killed is inside
    aside = folder / path.name
    with writable(path):
        folder.mkdir(parents=True)
        try:
            yield aside
            _sync(aside)
            if aside.is_dir() and path.is_dir():  # a rename replaces a file, but not a folder
                replaced = _ours(path, "old", mark)
                path.rename(replaced)
                aside.rename(path)
                shutil.rmtree(replaced)
            else:
                aside.replace(path)
            _sync(path.parent)
        finally:
            shutil.rmtree(folder)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turns a missing or damaged `path` into an error that names it."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"{path} is missing. Restore it from a copy, or train again.") from None
    except (PermissionError, IsADirectoryError) as error:
        raise UserError(f"cannot read {path}: {error.strerror}. It should be a file that is yours to read.") from None
    except (ValueError, SafetensorError) as error:  # ValueError: JSON and UTF-8
        raise UserError(f"{path} is damaged: {error}. Restore it from a copy, or train again.") from None


def _os_error(error: SafetensorError) -> int | None:
    """The system's error code inside an error of safetensors, which knows it only in words."""
    found = re.search(r"os error (\d+)", str(error))
    return int(found[1]) if found else None


def _free(path: Path) -> str:
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    return f"{shutil.disk_usage(folder).free / 1e6:,.1f} MB"


def _repair(file: Any) -> int:
    """Drops a line that no newline ends, and returns where the next one begins."""
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
    """Tensors on the CPU that share no memory, and for each tied name the name that holds its values."""
    kept: dict[str, Tensor] = {}
    shared: dict[str, str] = {}
    first: dict[Any, str] = {}
    storages: set[Any] = set()
    for name, tensor in tensors.items():
        tensor = tensor.detach()
        storage = (tensor.device, tensor.untyped_storage().data_ptr())
        place = (*storage, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() and place in first:
            shared[name] = first[place]
            continue
        first[place] = name
        overlaps = storage in storages  # another view of memory already written: it gets its own
        storages.add(storage)
        kept[name] = (tensor.clone() if overlaps else tensor).cpu().contiguous()
    return kept, shared


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _mark() -> str:
    return secrets.token_hex(4)


def _ours(path: Path, state: str, mark: str) -> Path:
    """The name beside `path` of what will be it (tmp) or was it (old)."""
    return path.with_name(f".{state}-{mark}-{path.name}")
