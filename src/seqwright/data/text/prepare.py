"""Pre-tokenization of large corpora to ids on disk: in parallel, in bounded memory, and resumable (decision 36).

Each block of text becomes a part (`parts/00042.bin`, then `.json`: a part without its `.json` is encoded again), and
the parts are joined into one file of ids, `ids.bin`. `index.json` is written last: a folder that has it is complete.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import shutil
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from seqwright.core.config import UserError
from seqwright.core.lock import is_lock, lock
from seqwright.core.progress import SILENT, Progress
from seqwright.core.regular_files import FileRecord, refuse_irregular
from seqwright.core.storage import (
    is_leftover,
    read_record,
    recover,
    write_chunks,
    write_errors,
    write_json,
    write_text,
)
from seqwright.data.records import holds_records
from seqwright.data.text.blocks import BLOCK, Block, Blocks, Skipped, all_blocks
from seqwright.data.text.corpus import END, Document
from seqwright.data.text.prepared import SHARD, EncodedCounts, Plan, open_prepared, read_index
from seqwright.data.text.stream import CHUNK, Stream, frame
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import SUBWORDS, TokenizerConfig, train
from seqwright.text.word_table import Ids

SAMPLE_BLOCK = 1 << 20
"""Block size in bytes of the sample that a subword tokenizer is trained on."""

LOCKED = "Wait for it, stop it, or choose another folder."


@dataclass(frozen=True, kw_only=True)
class Part(EncodedCounts):
    """One encoded block."""

    text: str
    """sha256 of the text."""
    sha256: str
    """sha256 of the ids."""
    read: int
    first: bool
    lacking: int


def check_inputs(files: Sequence[Path], folder: Path, document: Document, columns: Sequence[str]) -> None:
    """Refuses inputs that cannot be prepared, before a tokenizer is trained or a file is read, which may take long."""
    started = (folder / "plan.json").exists()
    if not started and folder.exists() and (not folder.is_dir() or not all(map(_is_ours, folder.iterdir()))):
        raise UserError(f"{folder} holds other files; choose an empty folder.")
    for path in filter(holds_records, files):
        if len(columns) != 1:
            raise UserError(f"{path} holds records; name the text column: --columns text=NAME.")
        if document != "line":
            raise UserError(f"{path} holds records, each of which is a document; leave --document {document} out.")


def train_tokenizer(
    config: TokenizerConfig,
    files: Sequence[Path],
    document: Document,
    columns: Sequence[str] = (),
    skipped: Skipped | None = None,
) -> Tokenizer:
    """A tokenizer trained on files in bounded memory; subwords on a sample of `sample_bytes`, with a note about it.

    With `skipped`, files that cannot be read are left out.
    """
    texts = Blocks(files, document, columns, skipped=skipped)
    if config.file is not None or config.kind not in SUBWORDS:
        return train(config, texts)
    total = sum(len(text.encode()) for text in texts)
    stride = max(1, -(-total // config.sample_bytes))
    sample = replace(texts, every=stride, size=SAMPLE_BLOCK)
    # The stride has sampled already, so the trainer's own limit is lifted.
    tokenizer = train(replace(config, sample_bytes=2 * max(total, 1)), sample)
    note = f"{config.kind} was trained on about {1 / stride:.1%} of the text (tokenizer.sample_bytes)."
    return tokenizer if stride == 1 else Tokenizer(tokenizer.json, [*tokenizer.notes, note])


def prepare(
    files: Sequence[Path],
    folder: Path,
    tokenizer: Tokenizer,
    *,
    document: Document,
    columns: Sequence[str] = (),
    workers: int = 1,
    skipped: Skipped | None = None,
    progress: Progress = SILENT,
    block: int = BLOCK,
    shard: int = SHARD,
) -> Stream:
    """The stream of the files, encoded to a folder, or opened from it where it is complete.

    `skipped` is called with the reason where a file cannot be read, and what follows is left out.
    """
    plan = Plan(
        files=[str(path.resolve()) for path in files],
        tokenizer=tokenizer.hash,
        document=document,
        columns=list(columns),
        block=block,
    )
    if shard < np.dtype(tokenizer.dtype).itemsize or shard % 4:
        raise UserError(f"a shard of {shard:,} bytes cannot hold whole ids; set --shard-bytes to a multiple of 4.")
    if tokenizer.sos is None:
        raise UserError("documents of a stream begin with <sos>; add it to tokenizer.special_tokens.")
    if tokenizer.imported and document == "file":
        raise UserError(
            "it is unknown where a long text may be split under an imported tokenizer; prepare it with documents of"
            " lines or paragraphs."
        )
    check_inputs(files, folder, document, columns)
    with write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with lock(folder, LOCKED):
        refuse_irregular(folder)
        recover(folder)
        recover(folder / "parts")
        _write_plan(folder, plan, tokenizer)
        if not (folder / "index.json").exists():
            reasons: list[str] = []
            texts = all_blocks(
                list(map(Path, plan.files)),
                document,
                block,
                None if skipped is None else _recording(skipped, reasons),
                _recording(progress.note, reasons),
            )
            counts = _encode(plan, texts, folder, tokenizer, workers, progress)
            _join(plan, folder, tokenizer, counts, reasons, shard)
        elif read_index(folder).shard != shard:
            _reshard(folder, tokenizer, shard)
        if (folder / "parts").exists():  # also those that a killed process left after index.json
            shutil.rmtree(folder / "parts")
    return open_prepared(folder, tokenizer)


def _is_ours(path: Path) -> bool:
    """Whether this may be left by a preparation that was killed before it wrote its plan."""
    return is_lock(path) or is_leftover(path)


def _write_plan(folder: Path, plan: Plan, tokenizer: Tokenizer) -> None:
    """Writes the plan, or checks that an interrupted preparation has the same one."""
    path = folder / "plan.json"
    if not path.exists():
        write_json(path, asdict(plan))
    before, now = asdict(read_record(path, Plan)), asdict(plan)
    for key, value in now.items():
        if before[key] != value:
            raise UserError(
                f"{folder} was started with other settings: {key} was {before[key]}, now {value}."
                " Resume with the same settings, or choose another folder."
            )
    if not (folder / "tokenizer.json").exists():  # after the plan, which marks the folder as ours
        write_text(folder / "tokenizer.json", tokenizer.json)


def _encode(
    plan: Plan, texts: Iterator[Block], folder: Path, tokenizer: Tokenizer, workers: int, progress: Progress
) -> list[dict[str, Any]]:
    """The counts of every block, each written as a part as soon as it is encoded; existing parts are reused."""
    counts: list[dict[str, Any]] = []
    pending: deque[tuple[int, dict[str, Any] | Future[tuple[bytes, dict[str, Any]]]]] = deque()

    def collect() -> None:
        number, result = pending.popleft()
        if isinstance(result, Future):
            data, count = result.result()
            # The .json comes second: it marks the .bin as complete.
            write_chunks(_part(folder, number).with_suffix(".bin"), [data])
            write_json(_part(folder, number), count)
        else:
            count = result
        counts.append(count)
        if isinstance(result, Future):
            totals = {key: sum(count[name] for count in counts) for key, name in (("bytes", "read"), ("ids", "ids"))}
            progress.record({"kind": "encoding", **totals})

    pool = _pool(workers, tokenizer)
    try:
        for number, block in enumerate(texts):
            done = _existing(folder, number, block)
            pending.append((number, done or pool.submit(_work, block, plan.document, tuple(plan.columns))))
            while len(pending) > 2 * workers or (pending and _ready(pending[0][1])):  # bounds the blocks in memory
                collect()
        while pending:
            collect()
    finally:
        pool.shutdown(cancel_futures=True)  # after an interrupt, blocks not yet started are left to the next run
    return counts


def _ready(result: dict[str, Any] | Future[tuple[bytes, dict[str, Any]]]) -> bool:
    return not isinstance(result, Future) or result.done()


def _recording(skipped: Skipped, reasons: list[str]) -> Skipped:
    def record(reason: str) -> None:
        reasons.append(reason)
        skipped(reason)

    return record


def _join(
    plan: Plan, folder: Path, tokenizer: Tokenizer, counts: list[dict[str, Any]], skipped: list[str], shard: int
) -> None:
    """Joins the parts into `ids.bin`, files separated by `<eos>`, and writes `index.json`."""
    digests = Digests(np.dtype(tokenizer.dtype), shard)
    unended: list[tuple[int, int]] = []

    def chunks() -> Iterator[bytes]:
        for number, count in enumerate(counts):
            new_file = plan.document == "file" and count["first"]
            opening = [tokenizer.eos if number else None, tokenizer.sos] if new_file else []
            boundary = np.array([id for id in opening if id is not None], tokenizer.dtype)
            chunk = boundary.tobytes() + _part(folder, number).with_suffix(".bin").read_bytes()
            digests.update(chunk)
            if count["lacking"]:
                unended.append((digests.ids - 1, count["lacking"]))
            yield chunk

    write_chunks(folder / "ids.bin", chunks())
    totals: Counter[str] = Counter()
    for count in counts:
        totals.update({key: count[key] for key in ("documents", "characters", "bytes", "unknown")})
    facts = digests.facts() | {"unended": unended, "skipped": skipped}
    lossless = {key: all(count[key] for count in counts) for key in ("exact", "whole")}
    write_json(folder / "index.json", asdict(plan) | facts | dict(totals) | lossless)


class Digests:
    """Checksums of ids.bin while it is written: of the file, of its shards, and of the ids as a stream."""

    def __init__(self, dtype: np.dtype[Any], shard: int):
        self.dtype, self.shard, self.bytes = dtype, shard, 0
        self.file, self.fingerprint = hashlib.sha256(), hashlib.sha256()
        self.shards: list[Any] = []

    @property
    def ids(self) -> int:
        return self.bytes // self.dtype.itemsize

    def update(self, chunk: bytes) -> None:
        self.file.update(chunk)
        self.fingerprint.update(np.frombuffer(chunk, self.dtype).astype("<u4").tobytes())
        rest = memoryview(chunk)
        while rest:
            if self.bytes % self.shard == 0:
                self.shards.append(hashlib.sha256())
            piece = rest[: self.shard - self.bytes % self.shard]
            self.shards[-1].update(piece)
            self.bytes += len(piece)
            rest = rest[len(piece) :]

    def facts(self) -> dict[str, Any]:
        """Keys of index.json."""
        return {
            "dtype": self.dtype.name,
            "ids": self.ids,
            "sha256": self.file.hexdigest(),
            "shard": self.shard,
            "shards": [shard.hexdigest() for shard in self.shards],
            "fingerprint": self.fingerprint.hexdigest(),
        }


def _reshard(folder: Path, tokenizer: Tokenizer, shard: int) -> None:
    """Writes the checksums of shards of another size to the index of a complete folder; its ids stay as they are."""
    ids = open_prepared(folder, tokenizer).ids  # damaged ones are refused
    digests = Digests(ids.dtype, shard)
    for start in range(0, len(ids), CHUNK):
        digests.update(ids[start : start + CHUNK].tobytes())
    write_json(folder / "index.json", asdict(read_index(folder)) | digests.facts())


def _part(folder: Path, number: int) -> Path:
    """The file of a part's counts; its ids have the suffix .bin."""
    return folder / "parts" / f"{number:05}.json"


def _existing(folder: Path, number: int, block: Block) -> dict[str, Any] | None:
    """The counts of a part that an earlier run encoded from the same text, if any."""
    path = _part(folder, number)
    try:
        part = read_record(path, Part)
        intact = part.text == _digest(block.text) and FileRecord.of(path.with_suffix(".bin")).sha256 == part.sha256
    except UserError:  # missing or damaged: it is encoded again
        return None
    return asdict(part) if intact else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _pool(workers: int, tokenizer: Tokenizer) -> Executor:
    if workers == 1:
        return ThreadPoolExecutor(1, initializer=_load, initargs=(tokenizer.json,))
    # Spawned, not forked: the tokenizers library has threads, and a fork would inherit their locks.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, mp_context=context, initializer=_load, initargs=(tokenizer.json,))


_tokenizer: Tokenizer
"""The tokenizer of this worker, loaded once."""


def _load(text: str) -> None:
    global _tokenizer
    _tokenizer = Tokenizer(text)


def _work(block: Block, document: Document, columns: Sequence[str]) -> tuple[bytes, dict[str, Any]]:
    """The ids of a block as bytes, with special tokens, and its counts."""
    corpus = block.corpus(document, columns)
    encoded = _tokenizer.encode_batch(corpus.documents)
    whole = document == "file"
    ids: Ids = encoded.ids if whole else frame(encoded.ids, encoded.lengths, _tokenizer, ended=True)
    missing = sum(corpus.unended.values())
    ends = len(END[document]) * len(corpus.documents) - missing
    data = ids.tobytes()
    return data, {
        "text": _digest(block.text),
        "sha256": hashlib.sha256(data).hexdigest(),
        "read": len(block.text.encode()),
        "first": block.first,
        "ids": len(ids),
        "documents": int(block.first) if whole else len(corpus.documents),
        "characters": sum(map(len, corpus.documents)) + ends,
        "bytes": sum(len(text.encode()) for text in corpus.documents) + ends,
        "unknown": encoded.unknown,
        "exact": encoded.exact,
        "whole": corpus.exact,
        "lacking": missing,
    }
