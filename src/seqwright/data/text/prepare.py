"""Encoding a large corpus once, to ids on disk: in parallel, in bounded memory, and going on where it was stopped.

Blocks of text become parts (`parts/00042.bin`, then `.json`: a part without its `.json` is done again), and the parts
one file of ids, `ids.bin`. `index.json` comes last: a folder that has it is complete.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import shutil
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from seqwright.core.config import UserError
from seqwright.core.storage import read_json, write_chunks, write_json, write_text
from seqwright.data.records import holds_records
from seqwright.data.text.blocks import BLOCK, Block, Blocks, blocks
from seqwright.data.text.corpus import END, Document
from seqwright.data.text.stream import Stream, frame, lossy, surfaces
from seqwright.text.lookup import Ids
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import SUBWORDS, TokenizerConfig, train

FORMAT = 2
SAMPLED = 1 << 20
"""Bytes of the blocks that a sample for learning pieces is made of."""

Watch = Callable[[int, int], None]
"""Told (bytes of text read, ids) so far, whenever a part was encoded."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is encoded, and how: parts of another plan are not mixed in."""

    files: list[str]
    tokenizer: str
    document: Document
    columns: list[str]
    block: int = BLOCK
    format: int = FORMAT


def refuse(files: Sequence[Path], folder: Path, document: Document, columns: Sequence[str]) -> None:
    """Raises where a preparation cannot begin: before anything is learned or read, which may take long."""
    if not (folder / "plan.json").exists() and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} holds other things; choose an empty folder.")
    for path in filter(holds_records, files):
        if len(columns) != 1:
            raise UserError(f"{path} holds records; say which column is the text, as in --columns text.")
        if document != "line":
            raise UserError(f"{path} holds records, each of which is a document; leave --document {document} out.")


def learn(config: TokenizerConfig, files: Sequence[Path], document: Document, columns: Sequence[str] = ()) -> Tokenizer:
    """A tokenizer of files that are read in blocks; pieces are learned from a sample of `sample_bytes`, as is said."""
    if config.file is not None or config.kind not in SUBWORDS:
        return train(config, Blocks(files, document, columns))
    whole = sum(len(text.encode()) for text in Blocks(files, document, columns))
    every = -(-whole // config.sample_bytes)
    sample = Blocks(files, document, columns, every=every, size=SAMPLED)
    learned = train(replace(config, sample_bytes=2 * max(whole, 1)), sample)
    share = f"{config.kind} learned its pieces from about {1 / every:.1%} of the text (tokenizer.sample_bytes)."
    return learned if every == 1 else Tokenizer(learned.json, [*learned.notes, share])


def prepare(
    files: Sequence[Path],
    folder: Path,
    tokenizer: Tokenizer,
    *,
    document: Document,
    columns: Sequence[str] = (),
    workers: int = 1,
    watch: Watch = lambda done, tokens: None,
    block: int = BLOCK,
) -> Stream:
    """The stream of some files, encoded to a folder (or found there, where the same was done before)."""
    plan = Plan(
        files=[str(path.resolve()) for path in files],
        tokenizer=tokenizer.hash,
        document=document,
        columns=list(columns),
        block=block,
    )
    if tokenizer.sos is None:
        raise UserError("a stream begins its documents with <sos>; add it to tokenizer.special_tokens.")
    if tokenizer.imported and document == "file":
        raise UserError(
            "where a tokenizer made elsewhere may cut a long text is not known; prepare it with documents of lines or"
            " paragraphs."
        )
    refuse(files, folder, document, columns)
    _begin(folder, plan, tokenizer)
    if not (folder / "index.json").exists():
        counts = _encode(plan, folder, tokenizer, workers, watch)
        _join(plan, folder, tokenizer, counts)
    return open_prepared(folder, tokenizer)


def is_prepared(folder: Path) -> bool:
    return (folder / "index.json").is_file()


def open_prepared(folder: Path, tokenizer: Tokenizer) -> Stream:
    """The stream of a prepared folder; its ids stay on disk and are read where they are needed."""
    index = read_json(folder / "index.json")
    if index["format"] != FORMAT:
        raise UserError(f"{folder} was prepared by another version (format {index['format']}); prepare it again.")
    if index["tokenizer"] != tokenizer.hash:
        raise UserError(
            f"{folder} was encoded with tokenizer {index['tokenizer'][:16]}…, but this one is {tokenizer.hash[:16]}…;"
            f' set tokenizer.file = "{folder / "tokenizer.json"}", or prepare the text again.'
        )
    dtype, path = np.dtype(index["dtype"]), folder / "ids.bin"
    if not path.exists() or path.stat().st_size != index["ids"] * dtype.itemsize:
        raise UserError(f"{path} is missing or cut short; delete {folder} and prepare the text again.")
    assert tokenizer.sos is not None
    return Stream(
        ids=np.memmap(path, dtype, mode="r"),
        sos=tokenizer.sos,
        pad=tokenizer.sos if tokenizer.pad is None else tokenizer.pad,
        documents=index["documents"],
        unknown=index["unknown"],
        lossy=lossy(index["document"], tokenizer, **{key: index[key] for key in ("unknown", "exact", "whole")}),
        surfaces=surfaces(index["document"], tokenizer),
        unended=dict(index["unended"]),
    )


def verify(folder: Path) -> bool:
    """Whether the ids are those that were written."""
    digest = hashlib.sha256()
    with (folder / "ids.bin").open("rb") as file:
        while chunk := file.read(BLOCK):
            digest.update(chunk)
    return bool(digest.hexdigest() == read_json(folder / "index.json")["sha256"])


def _begin(folder: Path, plan: Plan, tokenizer: Tokenizer) -> None:
    """Writes the plan, or finds that the folder was begun with the same."""
    path = folder / "plan.json"
    if not path.exists():
        write_text(folder / "tokenizer.json", tokenizer.json)
        write_json(path, asdict(plan))
        return
    before, now = read_json(path), asdict(plan)
    for key, value in now.items():
        if before.get(key) != value:
            raise UserError(
                f"{folder} was begun with other settings: {key} was {before.get(key)}, now {value}."
                " Go on as before, or choose another folder."
            )


def _encode(plan: Plan, folder: Path, tokenizer: Tokenizer, workers: int, watch: Watch) -> list[dict[str, Any]]:
    """Every block as a part on disk, as soon as it is encoded; what is there already is not done again."""
    counts: list[dict[str, Any]] = []
    waiting: deque[tuple[int, dict[str, Any] | Future[tuple[bytes, dict[str, Any]]]]] = deque()

    def settle() -> None:
        number, result = waiting.popleft()
        if isinstance(result, Future):
            data, count = result.result()
            write_chunks(_part(folder, number).with_suffix(".bin"), [data])
            write_json(_part(folder, number), count)
        else:
            count = result
        counts.append(count)
        if isinstance(result, Future):
            watch(sum(one["read"] for one in counts), sum(one["ids"] for one in counts))

    pool = _pool(workers, tokenizer)
    try:
        for number, one in enumerate(_all_blocks(plan)):
            done = _done(folder, number, one)
            waiting.append((number, done or pool.submit(_work, one, plan.document, tuple(plan.columns))))
            while len(waiting) > 2 * workers or (waiting and _ready(waiting[0][1])):
                settle()
        while waiting:
            settle()
    finally:
        pool.shutdown(cancel_futures=True)  # stopped by a user, what was not begun is left for the next time
    return counts


def _ready(result: dict[str, Any] | Future[tuple[bytes, dict[str, Any]]]) -> bool:
    return not isinstance(result, Future) or result.done()


def _join(plan: Plan, folder: Path, tokenizer: Tokenizer, counts: list[dict[str, Any]]) -> None:
    """The parts as one file, files separated by <eos>."""
    digest, size = hashlib.sha256(), 0
    dtype = np.dtype(tokenizer.dtype)
    unended: list[tuple[int, int]] = []

    def chunks() -> Iterator[bytes]:
        nonlocal size
        for number, count in enumerate(counts):
            begins = plan.document == "file" and count["first"]
            opening = [tokenizer.eos if number else None, tokenizer.sos] if begins else []
            border = np.array([id for id in opening if id is not None], tokenizer.dtype)
            chunk = border.tobytes() + _part(folder, number).with_suffix(".bin").read_bytes()
            digest.update(chunk)
            size += len(chunk)
            if count["lacking"]:
                unended.append((size // dtype.itemsize - 1, count["lacking"]))
            yield chunk

    write_chunks(folder / "ids.bin", chunks())
    totals: Counter[str] = Counter()
    for count in counts:
        totals.update({key: count[key] for key in ("documents", "characters", "bytes", "unknown")})
    facts = {"dtype": dtype.name, "ids": size // dtype.itemsize, "sha256": digest.hexdigest(), "unended": unended}
    kept = {key: all(count[key] for count in counts) for key in ("exact", "whole")}
    write_json(folder / "index.json", asdict(plan) | facts | dict(totals) | kept)
    shutil.rmtree(folder / "parts")


def _all_blocks(plan: Plan) -> Iterator[Block]:
    for name in plan.files:
        yield from blocks(Path(name), plan.document, plan.block)


def _part(folder: Path, number: int) -> Path:
    return folder / "parts" / f"{number:05}.json"


def _done(folder: Path, number: int, block: Block) -> dict[str, Any] | None:
    """What a part counted, if it is there and of this very text."""
    path = _part(folder, number)
    if not path.exists():
        return None
    found: dict[str, Any] = read_json(path)
    return found if found["text"] == _digest(block.text) else None


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
    """A block's framed ids as bytes, and what was counted on the way."""
    corpus = block.corpus(document, columns)
    encoded = _tokenizer.encode_batch(corpus.documents)
    whole = document == "file"
    ids: Ids = encoded.ids if whole else frame(encoded.ids, encoded.lengths, _tokenizer, ended=True)
    lacking = sum(corpus.unended.values())
    ends = len(END[document]) * len(corpus.documents) - lacking
    return ids.tobytes(), {
        "text": _digest(block.text),
        "read": len(block.text.encode()),
        "first": block.first,
        "ids": len(ids),
        "documents": int(block.first) if whole else len(corpus.documents),
        "characters": sum(map(len, corpus.documents)) + ends,
        "bytes": sum(len(own.encode()) for own in corpus.documents) + ends,
        "unknown": encoded.unknown,
        "exact": encoded.exact,
        "whole": corpus.exact,
        "lacking": lacking,
    }
