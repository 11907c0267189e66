"""Prepared corpora at a URL: the same batches as from local files, in a cache that never exceeds its bound."""

from __future__ import annotations

import errno
import json
import multiprocessing
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem
from torch.testing import assert_close

from seqwright.core.config import UserError
from seqwright.core.protocols import Feed
from seqwright.data import remote, shard_cache
from seqwright.data.shard_cache import LIMIT, ShardCache
from seqwright.data.text import streamed as module
from seqwright.data.text.bptt import BPTTRows
from seqwright.data.text.mixture import Mixture
from seqwright.data.text.prepare import prepare
from seqwright.data.text.prepared import open_prepared, read_index
from seqwright.data.text.stream import Stream
from seqwright.data.text.streamed import StreamedIds, refuse_small_cache, remote_folder
from seqwright.data.text.windows import Windows
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig, train

TEXT = "".join(f"the cat number {number} sat on mat {number * 7 % 101}\n" for number in range(700))
SHARD = 512
"""Bytes: 256 ids."""
BLOCK = 1000
"""Tokens."""
URL = "flaky://corpus"


class FlakyFileSystem(MemoryFileSystem):
    """Files in memory, whose reads are counted, and fail when told to."""

    protocol = "flaky"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    failures = 0
    error: ClassVar[Exception] = ConnectionResetError("connection reset by peer")
    reads: ClassVar[Counter[int]] = Counter()

    def _open(self, path: str, mode: str = "rb", **options: Any) -> MemoryFile:
        if path.endswith("ids.bin") and mode == "rb":
            if type(self).failures:
                type(self).failures -= 1
                raise type(self).error
            return Seeks(super()._open(path, mode, **options), type(self).reads)  # type: ignore[return-value]
        return super()._open(path, mode, **options)


class Seeks:
    """A file that counts which shard was read."""

    def __init__(self, file: MemoryFile, reads: Counter[int]):
        self.file, self.reads, self.start = file, reads, 0

    def __enter__(self) -> Seeks:
        return self

    def __exit__(self, *error: object) -> None:
        self.reads[self.start // SHARD] += 1
        self.file.close()

    def seek(self, offset: int) -> None:
        self.start = offset
        self.file.seek(offset)

    def read(self, size: int) -> bytes:
        return self.file.read(size)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    fsspec.register_implementation("flaky", FlakyFileSystem, clobber=True)
    FlakyFileSystem.failures, FlakyFileSystem.reads = 0, Counter()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "WAITS", (0.0, 0.0))
    remote_folder.cache_clear()
    yield
    remote_folder.cache_clear()
    FlakyFileSystem.store.clear()


@pytest.fixture
def tokenizer() -> Tokenizer:
    return train(TokenizerConfig(size=300), [TEXT])


@pytest.fixture
def local(tokenizer: Tokenizer, tmp_path: Path) -> Stream:
    """The stream of a local folder, which is at URL as well."""
    (tmp_path / "text.txt").write_text(TEXT)
    stream = prepare([tmp_path / "text.txt"], tmp_path / "prepared", tokenizer, document="line", shard=SHARD)
    upload(tmp_path / "prepared")
    return stream


def upload(folder: Path, url: str = URL) -> None:
    files, path = fsspec.core.url_to_fs(url)
    for name in ("index.json", "ids.bin", "tokenizer.json"):
        files.pipe(f"{path}/{name}", (folder / name).read_bytes())


def cached_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def finished(stream: Stream) -> None:
    """Waits for what is fetched ahead."""
    fetching = stream.ids.fetching  # type: ignore[attr-defined]
    if fetching is not None:
        fetching.join()


FEEDS: dict[str, Callable[[Stream], Feed]] = {
    "windows": lambda stream: Windows(stream, context=16, batch=5, seed=1),
    "blocks": lambda stream: Windows(stream, context=16, batch=5, seed=1, block=BLOCK),
    "bptt": lambda stream: BPTTRows(stream, context=16, batch=3, seed=1),
    "mixture": lambda stream: Mixture(
        [stream.first(999), stream], [0.3, 0.7], context=16, batch=5, seed=1, block=BLOCK
    ),
}


@pytest.mark.parametrize("name", FEEDS)
def test_streamed_batches_equal_local_ones(name: str, local: Stream, tokenizer: Tokenizer) -> None:
    streamed = remote_folder(URL).stream(tokenizer)
    assert (len(streamed.ids), streamed.targets, streamed.fingerprint) == (
        len(local.ids),
        local.targets,
        local.fingerprint,
    )
    ours, theirs = FEEDS[name](streamed), FEEDS[name](local)
    assert ours.steps_per_epoch == theirs.steps_per_epoch
    for step in range(ours.steps_per_epoch + 3):
        assert_close(ours.batch(step).input, theirs.batch(step).input, rtol=0, atol=0)
        assert_close(ours.batch(step).target, theirs.batch(step).target, rtol=0, atol=0)


def test_the_cache_never_exceeds_its_bound(
    local: Stream, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted after every chunk that is written: five shards of a corpus of many."""
    sizes: list[int] = []
    verified = shard_cache._verified

    def counted(chunks: Any, sha256: str) -> Iterator[bytes]:
        for chunk in verified(chunks, sha256):
            yield chunk
            sizes.append(cached_bytes(tmp_path / "cache"))

    monkeypatch.setattr(shard_cache, "_verified", counted)
    monkeypatch.setattr(remote, "CHUNK", 100)
    cache = ShardCache(max_bytes=5 * SHARD)
    streamed = remote_folder(URL).stream(tokenizer)
    streamed.ids.cache = cache  # type: ignore[attr-defined]
    assert len(streamed.ids) > 20 * SHARD // 2
    feed = FEEDS["windows"](streamed)
    for step in range(8):
        feed.batch(step)
    finished(streamed)
    sizes.append(cached_bytes(tmp_path / "cache"))
    assert 4 * SHARD < max(sizes) <= 5 * SHARD


def test_blocks_are_fetched_once_an_epoch_and_ahead_of_use(local: Stream, tokenizer: Tokenizer) -> None:
    streamed = remote_folder(URL).stream(tokenizer)
    ids: StreamedIds = streamed.ids  # type: ignore[assignment]
    ids.cache = ShardCache(max_bytes=2 * ids.shards_of(BLOCK) * SHARD)
    feed = FEEDS["blocks"](streamed)
    for step in range(feed.steps_per_epoch):
        feed.batch(step)
        finished(streamed)
    # A shard between two blocks is fetched for each of them; the first block of the next epoch is there already.
    assert set(FlakyFileSystem.reads) == set(range(ids.shards))
    assert max(FlakyFileSystem.reads.values()) <= 3
    assert FlakyFileSystem.reads.total() <= (2 + len(local.ids) // BLOCK) * ids.shards_of(BLOCK)


def test_a_resumed_training_fetches_only_what_it_reads(local: Stream, tokenizer: Tokenizer) -> None:
    streamed = remote_folder(URL).stream(tokenizer)
    feed = FEEDS["blocks"](streamed)
    feed.batch(feed.steps_per_epoch // 2)
    finished(streamed)
    assert FlakyFileSystem.reads.total() <= 2 * streamed.ids.shards_of(BLOCK)  # type: ignore[attr-defined]
    assert streamed.ids.shards > 30  # type: ignore[attr-defined]


def test_streams_of_one_cache_fetch_each_shard_once(local: Stream, tokenizer: Tokenizer) -> None:
    for stream in (remote_folder(URL).stream(tokenizer), remote_folder(URL).stream(tokenizer)):
        assert np.array_equal(stream.ids[:], local.ids)
    assert set(FlakyFileSystem.reads.values()) == {1}


def random_reads(folder: Path, cache: Path, seed: int) -> tuple[int, int]:
    """In a process of its own: wrong ids of random reads, and the most bytes that the cache held between them."""
    reader = np.random.default_rng(seed)
    ids = StreamedIds(remote_folder(folder.as_uri()), 300, ShardCache(cache, max_bytes=4 * SHARD))
    expected = np.fromfile(folder / "ids.bin", ids.dtype)
    wrong, sizes = 0, []
    for _ in range(40):
        positions = reader.integers(0, len(ids), 6)
        wrong += int(np.count_nonzero(ids[positions] != expected[positions]))
        with ids.cache._locked():
            sizes.append(cached_bytes(cache))
    return wrong, max(sizes)


def test_processes_share_a_cache_smaller_than_what_they_read(local: Stream, tmp_path: Path) -> None:
    count = 3
    with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn")) as pool:
        results = list(
            pool.map(random_reads, [tmp_path / "prepared"] * count, [tmp_path / "shards"] * count, range(count))
        )
    assert len(local.ids) > 20 * SHARD // 2
    assert [wrong for wrong, _ in results] == [0] * count
    assert SHARD < max(size for _, size in results) <= 4 * SHARD


EXITING = """
import sys, threading, fsspec
from fsspec.implementations.local import LocalFileSystem
from seqwright.data.text.streamed import StreamedIds, remote_folder

class Stalled(LocalFileSystem):
    protocol = "stalled"
    def open(self, path, mode="rb", **options):
        if path.endswith("ids.bin"):
            opened.set()
            threading.Event().wait()
        return super().open(path, mode, **options)

opened = threading.Event()
fsspec.register_implementation("stalled", Stalled)
ids = StreamedIds(remote_folder("stalled://" + sys.argv[1]), 300)
ids.fetch_ahead([(0, len(ids))])
opened.wait()
"""


def test_a_process_ends_while_shards_are_fetched_ahead(local: Stream, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", EXITING, tmp_path / "prepared"], check=True, timeout=60)


def test_streamed_ids_are_not_compared_as_a_whole(local: Stream, tokenizer: Tokenizer) -> None:
    streamed = remote_folder(URL).stream(tokenizer)
    for operation in (
        lambda: streamed.ids == streamed.sos,
        lambda: streamed.ids != 0,
        lambda: np.asarray(streamed.ids),
    ):
        with pytest.raises(TypeError, match="take slices"):
            operation()
    assert np.array_equal(streamed.starts, local.starts)
    assert streamed.text(tokenizer) == local.text(tokenizer) == TEXT.encode()


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError("connection reset by peer"),
        PermissionError(errno.EACCES, "access denied"),
        OSError(errno.ENOSPC, "no space at the server"),
        RuntimeError("throttled\nby the server"),
    ],
)
def test_a_connection_that_fails_is_tried_again_and_then_named(
    error: Exception, local: Stream, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FlakyFileSystem, "error", error)
    streamed = remote_folder(URL).stream(tokenizer)
    FlakyFileSystem.failures = 2
    assert np.array_equal(streamed.ids[:300], local.ids[:300])
    FlakyFileSystem.failures = 3
    reason = re.escape(str(error).splitlines()[0])
    with pytest.raises(
        UserError,
        match=rf"shard 3 of \d+ of flaky://corpus \(ids.bin, bytes 1,024 to 1,536\) cannot be read \({reason}\)",
    ):
        streamed.ids[np.array([600])]


def test_a_damaged_shard_is_refused_by_name(local: Stream, tokenizer: Tokenizer) -> None:
    files, path = fsspec.core.url_to_fs(URL)
    data = bytearray(files.cat(f"{path}/ids.bin"))
    data[SHARD + 3] ^= 1
    files.pipe(f"{path}/ids.bin", bytes(data))
    streamed = remote_folder(URL).stream(tokenizer)
    assert np.array_equal(streamed.ids[:256], local.ids[:256])
    with pytest.raises(UserError, match=r"shard 2 of \d+ of flaky://corpus .* is damaged: its sha256 is not that"):
        streamed.ids[250:260]
    files.pipe(f"{path}/ids.bin", bytes(data[: 2 * SHARD - 7]))  # cut short
    with pytest.raises(UserError, match=r"shard 2 of \d+ .* is damaged"):
        streamed.ids[250:260]


def test_a_damaged_file_of_the_cache_is_fetched_again(local: Stream, tokenizer: Tokenizer, tmp_path: Path) -> None:
    ids = remote_folder(URL).stream(tokenizer).ids
    first = ids[:10]
    [path] = (tmp_path / "cache" / "seqwright" / "shards").glob("*.bin")
    path.write_bytes(b"\xff" * SHARD)
    again = remote_folder(URL).stream(tokenizer).ids
    assert again[:10].tolist() == first.tolist()


def test_ids_beyond_the_vocabulary_are_refused(local: Stream, tokenizer: Tokenizer) -> None:
    with pytest.raises(UserError, match=r"shard 1 of .* has ids beyond the vocabulary of 7"):
        StreamedIds(remote_folder(URL), 7)[:10]


@pytest.mark.parametrize(
    ("examples", "block", "advice"),
    [
        ("windows", None, "set data.shuffle_block_tokens=512, or set"),
        ("windows", 5000, "set data.shuffle_block_tokens=512, or set"),
        ("bptt", None, "lower training.batch_size, or set"),
    ],
)
def test_a_cache_that_steps_would_thrash_is_refused(
    examples: str, block: int | None, advice: str, local: Stream, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LIMIT, str(6 * SHARD))
    streamed = remote_folder(URL).stream(tokenizer)
    with pytest.raises(UserError, match=f"more than the 3,072 of {LIMIT}; {advice} {LIMIT} higher"):
        refuse_small_cache([streamed], examples=examples, rows=8, length=16, block=block)
    refuse_small_cache([streamed], examples="windows", rows=8, length=16, block=512)
    refuse_small_cache([local], examples=examples, rows=8, length=16, block=block)
    with pytest.raises(UserError, match="is read as a whole here"):
        remote_folder(URL).stream(tokenizer, whole=True)


def test_blocks_smaller_than_a_batch_are_counted(
    local: Stream, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step then reads several blocks, in random order, each of which may be in two shards."""
    monkeypatch.setenv(LIMIT, str(16 * SHARD))
    streamed = remote_folder(URL).stream(tokenizer)
    refuse_small_cache([streamed], examples="windows", rows=8, length=16, block=128)  # a step reads two blocks
    refuse_small_cache([streamed], examples="windows", rows=7, length=16, block=16)  # 8 blocks in two shards each
    for block in (1, 16):
        with pytest.raises(UserError, match=r"9,216 bytes .*; set data.shuffle_block_tokens=1792, or set"):
            refuse_small_cache([streamed], examples="windows", rows=8, length=16, block=block)


def test_a_url_without_an_index_or_with_a_damaged_one_is_refused(local: Stream, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"flaky://nothing has no index.json.*seqwright data prepare flaky://nothing"):
        remote_folder("flaky://nothing")
    files, path = fsspec.core.url_to_fs(URL)
    index = json.loads(files.cat(f"{path}/index.json"))
    names = (str(tmp_path / "mine"), "../../mine", index["sha256"].upper(), index["sha256"][1:], "")
    damaged_names = [{"shards": [name, *index["shards"][1:]]} for name in names]
    for change in ({"shards": index["shards"][:-1]}, {"shard": 6}, {"format": 4}, {"ids": "many"}, *damaged_names):
        files.pipe(f"{path}/index.json", json.dumps(index | change).encode())
        with pytest.raises(UserError, match=rf"{URL}.* (damaged|prepared by another version).* again\.$") as error:
            remote_folder(URL)
        assert "train again" not in str(error.value)
        if change in damaged_names:
            (tmp_path / "prepared" / "index.json").write_text(json.dumps(index | change))
            with pytest.raises(UserError, match=r"index\.json is damaged: its shards are no sha256"):
                read_index(tmp_path / "prepared")
    files.pipe(f"{path}/index.json", b"{")
    with pytest.raises(UserError, match=r"index\.json is damaged"):
        remote_folder(URL)


def test_a_large_index_is_refused_without_a_length(local: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    files, path = fsspec.core.url_to_fs(URL)
    size = len(files.cat(f"{path}/index.json"))
    monkeypatch.setattr(FlakyFileSystem, "size", lambda self, name: None)
    monkeypatch.setenv("SEQWRIGHT_MAX_JSON_BYTES", str(size - 1))
    with pytest.raises(UserError, match=rf"{URL}/index\.json is large, above the limit of {size - 1:,}"):
        remote_folder(URL)
    monkeypatch.setenv("SEQWRIGHT_MAX_JSON_BYTES", str(size))
    assert remote_folder(URL).index.ids == len(local.ids)


def test_the_shards_of_a_local_folder_have_the_checksums_of_its_index(local: Stream, tmp_path: Path) -> None:
    folder = remote_folder((tmp_path / "prepared").as_uri())
    assert np.array_equal(folder.stream(train(TokenizerConfig(size=300), [TEXT]), whole=True).ids, local.ids)
    assert (
        open_prepared(tmp_path / "prepared", train(TokenizerConfig(size=300), [TEXT])).fingerprint
        == folder.index.fingerprint
    )
