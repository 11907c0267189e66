"""Suffix index of a training text: longest matches of any text in it, from suffix arrays on disk (decision 163).

The ids are sorted block by block, so that building takes the memory of one block however long the text is. A match
lies within a block, and its suffix array has it, or it crosses the border of two, and is compared there directly:
results are those of one suffix array of the text.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from seqwright.core.config import UserError
from seqwright.core.mapped import release, track
from seqwright.core.progress import SILENT, Progress
from seqwright.core.regular_files import FileRecord, refuse_irregular
from seqwright.core.storage import atomic_directory, read_record, sweep, write_chunks, write_json
from seqwright.data.text.corpus import Corpus
from seqwright.data.text.origins import Origin, Origins, Unit
from seqwright.data.text.stream import CHUNK, Stream
from seqwright.data.text.suffix_array import Ints, common_prefixes, longest_matches, suffix_array
from seqwright.text.tokenizer import Tokenizer

FORMAT = 2
BLOCK = 1 << 22
"""Ids that are sorted at once: about 350 MB of memory."""
MAX_BLOCKS = 1 << 10
"""Blocks of an index, all of which are searched; those of more than four billion ids are larger."""
LIMIT = 64
"""Ids of a match up to which all positions of a query are searched together; longer ones are followed one by one."""
ROWS = 1 << 14
"""Positions of a query that are searched together: bounds memory."""
ARRAYS: dict[str, str | None] = {"ids.bin": None, "suffixes.bin": "<u4", "documents.bin": "<i8"}
"""Files of an index and their dtypes; that of the ids is the tokenizer's."""
COUNTED_IDS = 1 << 14
"""Ids whose line ends are counted together, once."""
NEVER = -1
"""In a query: an id that occurs in no text."""


@dataclass(frozen=True, kw_only=True)
class Header:
    """The contents of index.json."""

    format: int
    corpus: str
    """Fingerprint of the data that the index is of."""
    dtype: Literal["uint16", "uint32"]
    ids: int
    documents: int
    """Places: documents, or lines."""
    block: int
    files: list[tuple[str, Unit]]
    records: dict[str, FileRecord]
    """Sizes and hashes of the arrays."""


@dataclass(frozen=True)
class Match:
    """A part of a query that occurs in the text, and is not within a longer one that does."""

    start: int
    length: int
    position: int
    """One of its occurrences in the ids of the text."""

    @property
    def end(self) -> int:
        return self.start + self.length


@dataclass(frozen=True)
class SuffixIndex:
    """Ids of a text with the suffix array of each block, memory-mapped."""

    ids: Ints
    suffixes: Ints
    """(N,): the suffix array of each block, its starts counted from that of the block."""
    starts: NDArray[np.int64]
    """(places,): positions of the `<sos>` of each document, or of each line."""
    origins: Origins
    """Of the places."""
    block: int

    def matches(self, query: Sequence[int] | Ints) -> list[Match]:
        """The maximal matches of a query: for every position the longest one, unless an earlier one reaches as far."""
        ids = np.asarray(query, np.int64)
        if not len(ids):
            return []
        longest = _Longest(self, ids)
        ends = longest.ends()
        new = np.flatnonzero(ends > np.append(0, ends[:-1]))
        new = new[ends[new] > new]
        return [Match(int(q), int(ends[q] - q), int(longest.at[q])) for q in new]

    def count(self, pattern: Sequence[int] | Ints) -> int:
        """Number of occurrences of a pattern of at least one id; they may overlap."""
        wanted = np.asarray(pattern).tolist()
        size, total = len(wanted), 0
        for offset, ids, suffixes in self.blocks:

            def prefix(n: int, ids: Ints = ids, suffixes: Ints = suffixes) -> list[int]:
                start = int(suffixes[n])
                prefix: list[int] = ids[start : start + size].tolist()
                return prefix

            rows = range(len(ids))
            total += bisect_right(rows, wanted, key=prefix) - bisect_left(rows, wanted, key=prefix)
            # Occurrences that begin in this block and end in a later one.
            first = max(offset, offset + len(ids) - size + 1)
            starts = first + np.flatnonzero(self.ids[first : offset + len(ids)] == wanted[0])
            total += sum(self.ids[start : start + size].tolist() == wanted for start in starts.tolist())
        return total

    def origin(self, position: int, lines: LineCounter) -> Origin:
        """File and line of a position."""
        place = int(np.searchsorted(self.starts, position, side="right")) - 1
        origin = self.origins[place]
        if origin.unit != "line":
            return origin
        passed = lines.before(position) - lines.before(int(self.starts[place]))
        return Origin(origin.file, origin.number + passed, origin.unit)

    @property
    def blocks(self) -> Iterator[tuple[int, Ints, Ints]]:
        """Offset, ids and suffix array of each block."""
        for offset in range(0, len(self.ids), self.block):
            part = slice(offset, offset + self.block)
            yield offset, self.ids[part], self.suffixes[part]


class LineCounter:
    """Line ends before positions of ids, where `line_ends` (V,) are those of each token. They are summed once for every
    COUNTED_IDS ids: a file may be one document, with matches by the thousand."""

    def __init__(self, ids: Ints, line_ends: NDArray[np.int64]):
        self.ids, self.line_ends = ids, line_ends
        sums = [int(line_ends[ids[n : n + COUNTED_IDS]].sum()) for n in range(0, len(ids), COUNTED_IDS)]
        self.sums = np.cumsum([0, *sums])

    def before(self, position: int) -> int:
        chunk = position // COUNTED_IDS
        return int(self.sums[chunk] + self.line_ends[self.ids[chunk * COUNTED_IDS : position]].sum())


class _Longest:
    """Longest matches of all positions of a query: `at[q]`, and q plus its length."""

    def __init__(self, index: SuffixIndex, query: NDArray[np.int64]):
        self.index, self.query = index, query
        self.lengths = np.zeros(len(query), np.int64)
        self.at = np.zeros(len(query), np.int64)
        self.cut = np.zeros((sum(1 for _ in index.blocks), len(query)), bool)
        """(blocks, positions): matches that were cut at LIMIT; no other block has the longest one of a position."""

    def ends(self) -> NDArray[np.int64]:
        positions = np.arange(len(self.query))
        for first in range(0, len(positions), ROWS):
            self._search_blocks(positions[first : first + ROWS])
        cut = np.flatnonzero(self.cut.any(0))
        for offset in range(self.index.block, len(self.index.ids), self.index.block):
            self._cross(offset)
        for run in np.split(cut, np.flatnonzero(np.diff(cut) > 1) + 1) if len(cut) else ():
            self._follow(int(run[0]), int(run[-1]) + 1)
        return positions + self.lengths

    def _search_blocks(self, rows: NDArray[np.int64]) -> None:
        """Matches within blocks, up to LIMIT."""
        for number, (offset, ids, suffixes) in enumerate(self.index.blocks):
            lengths, at = longest_matches(ids, suffixes, self.query, rows, LIMIT)
            self.cut[number, rows] = lengths >= LIMIT
            better = lengths > self.lengths[rows]
            self.lengths[rows[better]], self.at[rows[better]] = lengths[better], at[better] + offset

    def _cross(self, border: int) -> None:
        """Matches across the border of two blocks: query[j] at the first id of the second, with what agrees around."""
        query, ids = self.query, self.index.ids
        inner = np.flatnonzero((query[:-1] == ids[border - 1]) & (query[1:] == ids[border])) + 1
        if not len(inner):
            return
        left = ids[max(0, border - len(query)) : border][::-1]
        right = ids[border : border + len(query)]
        zero = np.zeros(len(inner), np.int64)
        before = common_prefixes(left, zero, query[::-1], len(query) - inner, len(query))
        after = common_prefixes(right, zero, query, inner, len(query))
        for j, back, forth in zip(inner.tolist(), before.tolist(), after.tolist(), strict=True):
            rows = np.arange(j - back, j)
            lengths = j + forth - rows
            better = lengths > self.lengths[rows]
            self.lengths[rows[better]] = lengths[better]
            self.at[rows[better]] = border - (j - rows[better])

    def _follow(self, first: int, stop: int) -> None:
        """Exact lengths of consecutive positions whose matches were cut at LIMIT.

        Ends never decrease from one position to the next, so the first position that reaches beyond the end of a match
        is found by bisection; those between have the rest of that match.
        """
        start = first
        while start < stop:
            self._exact(start)
            end = start + self.lengths[start]
            low, high = start, stop
            if high - low > 1 and self._exact(stop - 1) == end:
                low = stop - 1
            while high - low > 1:
                middle = (low + high) // 2
                if self._exact(middle) == end:
                    low = middle
                else:
                    high = middle
            rows = np.arange(start, high)
            self.lengths[rows], self.at[rows] = end - rows, self.at[start] + rows - start
            start = high

    def _exact(self, position: int) -> int:
        """The end of the longest match of a position."""
        for number, (offset, ids, suffixes) in enumerate(self.index.blocks):
            if self.cut[number, position]:
                start = np.array([position])
                (length,), (at,) = longest_matches(ids, suffixes, self.query, start, len(self.query))
                if length > self.lengths[position]:
                    self.lengths[position], self.at[position] = length, at + offset
        return position + int(self.lengths[position])


@dataclass(frozen=True)
class IndexedText:
    """A stream of ids to be indexed, and where it comes from."""

    stream: Stream
    origins: Origins
    """Of its documents, or of the places at `starts`."""
    starts: NDArray[np.int64] | None = None
    """(places,): positions in the stream, ascending; by default those of its documents."""


def line_places(corpus: Corpus, stream: Stream, tokenizer: Tokenizer) -> IndexedText:
    """A corpus with a place for every line, where lines cannot be counted in the ids: a tokenizer of words drops their
    ends. Tokens that reach across lines leave it with a place for every document."""
    assert corpus.origins is not None, "training documents come from files"
    by_document = IndexedText(stream, corpus.origins)
    if corpus.kind == "line" or any(b"\n" in piece for piece in tokenizer.token_bytes):
        return by_document
    lines = [document.split("\n") for document in corpus.documents]
    counts = np.array(tokenizer.encode_batch(line for each in lines for line in each).lengths, np.int64)
    firsts = np.cumsum([0, *map(len, lines[:-1])])
    ends = np.isin(stream.lengths - np.add.reduceat(counts, firsts), (0, 1))  # with <eos>, or without
    if not ends.all():
        return by_document
    document = np.repeat(np.arange(len(lines)), list(map(len, lines)))
    before = np.cumsum(counts) - counts
    starts = _starts(stream)[document] + 1 + before - before[firsts][document]
    starts[firsts] -= 1  # <sos> is of the first line
    places = corpus.origins.places[document].astype(np.int64)
    numbered = np.array([unit == "line" for _, unit in corpus.origins.files])  # records keep their number
    places[:, 1] += (np.arange(len(counts)) - firsts[document]) * numbered[places[:, 0]]
    return IndexedText(stream, Origins(corpus.origins.files, places.astype(np.int32)), starts)


def build_index(
    folder: Path,
    texts: Sequence[IndexedText],
    corpus: str,
    *,
    progress: Progress = SILENT,
    block: int = BLOCK,
) -> None:
    """Writes the index of training streams to a folder, in the memory of one block; it appears when complete."""
    dtype = max(text.stream.ids.dtype for text in texts)
    total = sum(len(text.stream.ids) for text in texts)
    block = max(block, -(-total // MAX_BLOCKS))
    origins = Origins.join([text.origins for text in texts])
    sweep(folder)
    with atomic_directory(folder) as temporary:
        write_chunks(temporary / "ids.bin", _chunks(text.stream for text in texts))
        ids = np.memmap(temporary / "ids.bin", dtype, mode="r")
        track(ids)

        def sorted_blocks() -> Iterator[bytes]:
            for offset in range(0, total, block):
                progress.stage(f"sorting the suffixes of {total:,} tokens: {offset / total:.0%}")
                part = np.array(ids[offset : offset + block])
                release()
                yield suffix_array(part).tobytes()
            progress.stage("")

        write_chunks(temporary / "suffixes.bin", sorted_blocks())
        firsts = np.cumsum([0, *(len(text.stream.ids) for text in texts[:-1])])
        starts = np.concatenate(
            [
                first + (_starts(text.stream) if text.starts is None else text.starts)
                for first, text in zip(firsts, texts, strict=True)
            ]
        )
        if len(starts) != len(origins.places):
            raise UserError("the documents of the training text are not those of its ids; prepare the text again.")
        table = np.concatenate([starts[:, None], origins.places], 1).astype("<i8")
        write_chunks(temporary / "documents.bin", [table.tobytes()])
        header = {
            "format": FORMAT,
            "corpus": corpus,
            "dtype": np.dtype(dtype).name,
            "ids": total,
            "documents": len(starts),
            "block": block,
            "files": [list(file) for file in origins.files],
            "records": {name: vars(FileRecord.of(temporary / name)) for name in ARRAYS},
        }
        write_json(temporary / "index.json", header)


def open_index(folder: Path, corpus: str) -> SuffixIndex | None:
    """The index in a folder; None where there is none, or one of another text, version or damaged."""
    if not (folder / "index.json").is_file():
        return None
    refuse_irregular(folder)
    try:
        header = read_record(folder / "index.json", Header)
        records = {name: FileRecord.of(folder / name) for name in ARRAYS}
    except UserError:
        return None
    counts = {"ids.bin": header.ids, "suffixes.bin": header.ids, "documents.bin": 3 * header.documents}
    dtypes = {name: np.dtype(header.dtype if dtype is None else dtype) for name, dtype in ARRAYS.items()}
    fits = all(records[name].size == dtypes[name].itemsize * counts[name] > 0 for name in ARRAYS)
    fits = fits and header.block * MAX_BLOCKS >= header.ids
    if header.format != FORMAT or header.corpus != corpus or records != header.records or not fits:
        return None
    ids, suffixes, table = (np.memmap(folder / name, dtypes[name], mode="r") for name in ARRAYS)
    documents = np.array(table).reshape(-1, 3)
    if not 0 <= documents[:, 1].min() <= documents[:, 1].max() < len(header.files):
        return None
    origins = Origins(tuple((name, unit) for name, unit in header.files), documents[:, 1:])
    return SuffixIndex(ids, suffixes, documents[:, 0], origins, header.block)


def _chunks(streams: Iterable[Stream]) -> Iterator[bytes]:
    for stream in streams:
        track(stream.ids)
        for first in range(0, len(stream.ids), CHUNK):
            yield stream.ids[first : first + CHUNK].tobytes()
            release()


def _starts(stream: Stream) -> NDArray[np.int64]:
    """(documents,): positions of `<sos>`."""
    lengths = stream.lengths + 1
    return np.cumsum(lengths) - lengths
