"""Prepared corpora at a URL: ids that are fetched shard by shard while they are read (decision 211)."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import Any, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from seqwright.core.config import UserError
from seqwright.core.limits import check_limit, limit
from seqwright.data.remote import SourceError, exists, file_system, read_chunks, read_errors
from seqwright.data.shard_cache import LIMIT, DamagedShardError, ShardCache
from seqwright.data.text.prepared import Index, check_tokenizer, stream_of, to_index
from seqwright.data.text.stream import Stream
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.word_table import Ids

WAITS = (0.5, 2.0, 5.0)
"""Seconds before each new attempt to fetch a shard."""
JSON_LIMIT = "SEQWRIGHT_MAX_JSON_BYTES"


@dataclass(frozen=True)
class RemoteFolder:
    """A folder of `seqwright data prepare` at a URL."""

    url: str
    index: Index = field(repr=False)
    files: Any = field(repr=False)
    """The file system of fsspec."""
    path: str = field(repr=False)

    def __str__(self) -> str:
        return self.url

    def stream(self, tokenizer: Tokenizer, *, whole: bool = False) -> Stream:
        """The stream of the folder, whose ids are fetched while they are read; `whole`: all of them, in memory."""
        check_tokenizer(self.url, self.index, tokenizer)
        ids = StreamedIds(self, tokenizer.size)
        if not whole:
            return stream_of(self.index, cast(Ids, ids), tokenizer, fingerprint=self.index.fingerprint)
        if ids.bytes > ids.cache.max_bytes:
            raise UserError(
                f"{self.url} is read as a whole here, and has {ids.bytes:,} bytes, more than the"
                f" {ids.cache.max_bytes:,} of {LIMIT}; copy the folder, and name the copy."
            )
        return stream_of(self.index, ids[:], tokenizer)


@functools.lru_cache(maxsize=16)
def remote_folder(url: str) -> RemoteFolder:
    """The prepared folder of a URL: its index is read, no shard yet."""
    url = url.rstrip("/")
    files, path = file_system(url)
    name = f"{path.rstrip('/')}/index.json"
    with read_errors(url):
        if not exists(files, name):
            raise UserError(
                f"{url} has no index.json, so it is no folder of `seqwright data prepare`; tokenize it first:"
                f" `seqwright data prepare {url} --out FOLDER`."
            )
        # Not by the length that a server gives: it may give none.
        text = b"".join(read_chunks(files, name, size=limit(JSON_LIMIT) + 1))
        check_limit(JSON_LIMIT, len(text), f"{url}/index.json is large")
    try:
        index = to_index(json.loads(text), url)
    except ValueError as error:
        raise UserError(f"{url}/index.json is damaged ({error}); copy the prepared folder there again.") from error
    size = index.ids * np.dtype(index.dtype).itemsize
    if index.shard < 4 or index.shard % 4 or len(index.shards) != -(-size // index.shard) or not index.ids:
        raise UserError(f"{url}/index.json is damaged: its shards are not those of its ids; prepare the text again.")
    return RemoteFolder(url, index, files, path.rstrip("/"))


class StreamedIds:
    """(N,) ids of a prepared folder at a URL, indexed by slices and by arrays of positions, as a NumPy array is.

    Memory: what is asked for, and a chunk of 4 MB while a shard is fetched. Disk: that of the cache.
    """

    def __init__(self, folder: RemoteFolder, vocabulary: int, cache: ShardCache | None = None):
        self.folder, self.vocabulary, self.cache = folder, vocabulary, cache or ShardCache()
        index = folder.index
        self.dtype = np.dtype(index.dtype)
        self.per_shard = index.shard // self.dtype.itemsize
        self.shards, self.shard_bytes = len(index.shards), index.shard
        self.bytes = index.ids * self.dtype.itemsize
        self.checked: set[int] = set()
        """Shards whose ids are known to be of the vocabulary."""
        self.fetching: Thread | None = None
        if min(index.shard, self.bytes) > self.cache.max_bytes:
            raise UserError(
                f"a shard of {folder.url} has {index.shard:,} bytes, more than the {self.cache.max_bytes:,} of {LIMIT};"
                " set it higher."
            )

    def __len__(self) -> int:
        return self.folder.index.ids

    def __array__(self, *options: Any, **more: Any) -> NoReturn:
        raise TypeError("streamed ids are not read as a whole; take slices of them.")

    def __eq__(self, other: object) -> NoReturn:
        self.__array__()  # else the identity of objects would be compared

    __hash__ = None  # type: ignore[assignment]

    def __getitem__(self, key: slice | NDArray[np.int64]) -> Ids:
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            ranges = self._ranges(start, stop)
            parts = [self._shard(number)[first:last].copy() for number, first, last in ranges]
            return cast(Ids, np.concatenate([np.empty(0, self.dtype), *parts])[::step])
        flat = key.reshape(-1)
        ids, numbers = np.empty(len(flat), self.dtype), flat // self.per_shard
        for number in np.flatnonzero(np.bincount(numbers)).tolist():
            here = np.flatnonzero(numbers == number)
            ids[here] = self._shard(number)[flat[here] - number * self.per_shard]
        return ids.reshape(key.shape)

    def shards_of(self, tokens: int) -> int:
        """The most shards that so many consecutive tokens, and the id after them, are in."""
        return -(-tokens // self.per_shard) + 1

    def fetch_ahead(self, spans: Iterable[tuple[int, int]]) -> None:
        """Fetches the shards of these spans of positions in the background, one after another, those first that are
        named first."""
        numbers = dict.fromkeys(number for span in spans for number, _, _ in self._ranges(*span))
        # Those that are there count as used: what earlier steps have read is dropped before them.
        missing = [number for number in numbers if not self.cache.touch(self.folder.index.shards[number])]
        if missing and (self.fetching is None or not self.fetching.is_alive()):
            # A daemon: a process ends without waiting for shards that nobody will read.
            self.fetching = Thread(target=self._fetch, args=(missing,), name="shards", daemon=True)
            self.fetching.start()

    def _ranges(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """(shard, first, last) of the positions from start to stop, within each shard."""
        start, stop = max(0, start), min(stop, len(self))
        for number in range(start // self.per_shard, -(-stop // self.per_shard)):
            base = number * self.per_shard
            yield number, max(0, start - base), min(self.per_shard, stop - base)

    def _fetch(self, numbers: Sequence[int]) -> None:
        with suppress(UserError, OSError):  # whoever reads the shard tries again, and says so
            for number in numbers:
                self._path(number)

    def _shard(self, number: int) -> Ids:
        """The ids of a shard, memory-mapped."""
        while True:
            try:
                ids = np.memmap(self._path(number), self.dtype, mode="r")
                break
            except FileNotFoundError:  # another process dropped it
                continue
        if number not in self.checked:
            if int(ids.max()) >= self.vocabulary:
                raise UserError(f"{self._name(number)} has ids beyond the vocabulary of {self.vocabulary:,}.")
            self.checked.add(number)
        return ids

    def _path(self, number: int) -> Any:
        """The file of a shard; a UserError names it where it cannot be fetched."""
        index = self.folder.index
        size = min(index.shard, self.bytes - number * index.shard)
        for wait in (*WAITS, None):
            try:
                return self.cache.path(
                    index.shards[number],
                    size,
                    lambda: read_chunks(self.folder.files, f"{self.folder.path}/ids.bin", number * index.shard, size),
                )
            except DamagedShardError as error:
                reason, advice = f"is damaged: {error}", "Copy the prepared folder there again"
            except SourceError as error:
                reason = f"cannot be read ({error})"
                advice = "See its name, your permission to read it and the connection"
            if wait is None:
                break
            time.sleep(wait)
        raise UserError(
            f"{self._name(number)} {reason}, after {len(WAITS) + 1} attempts. {advice}; training resumes from"
            " its last checkpoint."
        )

    def _name(self, number: int) -> str:
        start = number * self.folder.index.shard
        end = min(start + self.folder.index.shard, self.bytes)
        return f"shard {number + 1} of {self.shards} of {self.folder.url} (ids.bin, bytes {start:,} to {end:,})"


def refuse_small_cache(streams: Sequence[Stream], *, examples: str, rows: int, length: int, block: int | None) -> None:
    """Raises where the cache cannot hold the shards that steps read in turn: each would be fetched again and again."""
    streamed: list[StreamedIds] = [cast(Any, stream.ids) for stream in streams if stream.streamed]
    if not streamed:
        return
    max_bytes, shard = streamed[0].cache.max_bytes, max(ids.shard_bytes for ids in streamed)
    if examples == "bptt":  # the shard of each row, and the next one
        needed, advice = [2 * rows for _ in streamed], "lower training.batch_size, or "
    else:  # all windows, or the blocks of a step: one and the next, and more where a block is smaller than a batch
        windows = None if block is None else max(1, block // length)
        needed = [
            ids.shards if windows is None else (-(-rows // windows) + 1) * ids.shards_of(windows * length)
            for ids in streamed
        ]
        fitting = (max_bytes // (2 * len(streamed) * shard) - 1) * min(ids.per_shard for ids in streamed)
        advice = f"set data.shuffle_block_tokens={fitting}, or " if fitting > rows * length else ""
    total = sum(min(ids.bytes, shards * ids.shard_bytes) for ids, shards in zip(streamed, needed, strict=True))
    if total > max_bytes:
        raise UserError(
            f"steps read {total:,} bytes of streamed shards in turn, more than the {max_bytes:,} of {LIMIT};"
            f" {advice}set {LIMIT} higher."
        )
