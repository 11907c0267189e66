"""Batch encoders: normalized texts to ids. Words, characters and bytes are table lookups, several times faster than the
general pipeline of the `tokenizers` library, which encodes the other kinds.

Each function here builds an encoder: texts (already normalized) to all their ids in one array, and each text's length.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import normalizers

from seqwright.text.word_table import Ids, WordTable

BatchEncoder = Callable[[Sequence[str]], tuple[Ids, list[int]]]
WordStarts = Callable[[Sequence[str]], NDArray[np.bool_]]

LARGE = 1 << 16
"""Characters from which a word table pays, which takes milliseconds to build."""


def words(ids: Mapping[str, int], unknown: int, dtype: type[np.unsignedinteger[Any]]) -> BatchEncoder:
    """Word-level encoder: splits on white space and looks each word up, those of a large text all at once."""
    table = functools.cache(lambda: WordTable(ids, unknown, dtype))

    def encode(texts: Sequence[str]) -> tuple[Ids, list[int]]:
        if sum(map(len, texts)) >= LARGE:
            return table().encode(texts)
        split = [text.split() for text in texts]
        lengths = [len(text_words) for text_words in split]
        return np.fromiter(map(ids.get, chain.from_iterable(split), repeat(unknown)), dtype, sum(lengths)), lengths

    return encode


def characters(ids: Mapping[str, int], unknown: int, dtype: type[np.unsignedinteger[Any]]) -> BatchEncoder:
    """Character-level encoder: a dense table over all 0x110000 code points."""
    table = np.full(0x110000, unknown, dtype)
    for character, id in ids.items():
        table[ord(character)] = id

    def encode(texts: Sequence[str]) -> tuple[Ids, list[int]]:
        code_points = np.frombuffer("".join(texts).encode("utf-32-le"), "<u4")
        return table[code_points], [len(text) for text in texts]

    return encode


def utf8_bytes(first: int, dtype: type[np.unsignedinteger[Any]]) -> BatchEncoder:
    """Byte-level encoder: the id of a byte is its value plus `first`, the id of byte 0."""

    def encode(texts: Sequence[str]) -> tuple[Ids, list[int]]:
        encoded = [text.encode() for text in texts]
        return np.frombuffer(b"".join(encoded), np.uint8).astype(dtype) + dtype(first), [len(e) for e in encoded]

    return encode


def subwords(backend: Any, dtype: type[np.unsignedinteger[Any]], steps: Sequence[Any] | None) -> BatchEncoder:
    """Subword encoder by the library. `steps` are the normalizers still to apply; None applies all of the backend's."""
    backend = _with_steps(backend, steps)

    def encode(texts: Sequence[str]) -> tuple[Ids, list[int]]:
        encoded = [encoding.ids for encoding in backend.encode_batch_fast(texts, add_special_tokens=False)]
        lengths = [len(ids) for ids in encoded]
        return np.fromiter(chain.from_iterable(encoded), dtype, sum(lengths)), lengths

    return encode


def word_starts(backend: Any, steps: Sequence[Any] | None) -> WordStarts:
    """Which ids of `subwords` begin a word; slower than encoding, since the library must track word ids."""
    backend = _with_steps(backend, steps)

    def starts(texts: Sequence[str]) -> NDArray[np.bool_]:
        flags: list[bool] = []
        for encoding in backend.encode_batch(texts, add_special_tokens=False):
            word_ids = encoding.word_ids
            flags += [
                word is None or word != previous for word, previous in zip(word_ids, [None, *word_ids], strict=False)
            ]
        return np.array(flags, np.bool_)

    return starts


def _with_steps(backend: Any, steps: Sequence[Any] | None) -> Any:
    """A copy of the backend whose normalizer is these steps; None keeps its own."""
    backend = copy.deepcopy(backend)
    backend.encode_special_tokens = True  # lost in copying
    if steps is not None:  # texts are already normalized, and normalization is not always idempotent
        backend.normalizer = normalizers.Sequence(list(steps)) if steps else None
    return backend


def without_special_tokens(encode: BatchEncoder, special_ids: Sequence[int], unknown: int) -> BatchEncoder:
    """An encoder that maps literal special tokens in a text to the unknown id."""

    def guard(texts: Sequence[str]) -> tuple[Ids, list[int]]:
        ids, lengths = encode(texts)
        return np.where(np.isin(ids, special_ids), ids.dtype.type(unknown), ids), lengths

    return guard
