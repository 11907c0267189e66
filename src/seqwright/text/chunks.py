"""Chunks and batches of texts: bounded memory for texts of any length and number."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

CHUNK = 1 << 16
"""Characters normalized and encoded at once, so that long texts need bounded memory."""
BLOCK = 1 << 10
"""Texts that are looked at together."""

# No kind merges a character with the white space after it, so chunks cut there have the ids of the whole text.
_SAFE_CUT = re.compile(r"(?<=\S)(?=[ \n])")


def text_chunks(text: str, size: int = CHUNK) -> Iterator[str]:
    """Chunks of about `size` characters whose ids, concatenated, are those of the whole text."""
    start = 0
    while len(text) - start > size and (cut := _SAFE_CUT.search(text, start + size)):
        yield text[start : cut.start()]
        start = cut.start()
    yield text[start:]


def chunk_batches(
    texts: Iterable[str], chunk_size: int, size: int = 64 * CHUNK
) -> Iterator[tuple[list[str], list[int]]]:
    """Batches of chunks with the index of each chunk's text, at most about `size` characters a batch."""
    batch: list[str] = []
    text_indices: list[int] = []
    room, index, source = size, 0, iter(texts)
    while block := list(itertools.islice(source, BLOCK)):
        lengths = [*map(len, block)]
        if sum(lengths) < room and max(lengths) <= chunk_size:  # as most lines are: no look at each
            batch += block
            text_indices += range(index, index + len(block))
            room -= sum(lengths)
        else:
            for at, text in enumerate(block, index):
                for chunk in text_chunks(text, chunk_size) if len(text) > chunk_size else (text,):
                    batch.append(chunk)
                    text_indices.append(at)
                    room -= len(chunk)
                    if room <= 0:
                        yield batch, text_indices
                        batch, text_indices, room = [], [], size
        index += len(block)
    if batch:
        yield batch, text_indices
