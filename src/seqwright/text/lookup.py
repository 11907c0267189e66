"""Text to ids by table, for the kinds that need no search: several times faster than a general tokenizer.

Each function made here takes texts (normalized already) and gives all their ids in one array, with the length of each.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import normalizers

Ids = NDArray[np.unsignedinteger[Any]]
Lookup = Callable[[Sequence[str]], tuple[Ids, list[int]]]
Starts = Callable[[Sequence[str]], NDArray[np.bool_]]


def words(ids: Mapping[str, int], unknown: int, dtype: type[np.unsignedinteger[Any]]) -> Lookup:
    """Splits on white space and looks each word up."""

    def look_up(texts: Sequence[str]) -> tuple[Ids, list[int]]:
        found: list[str] = []
        lengths: list[int] = []
        for text in texts:
            split = text.split()
            found += split
            lengths.append(len(split))
        return np.fromiter(map(ids.get, found, repeat(unknown)), dtype, len(found)), lengths

    return look_up


def characters(ids: Mapping[str, int], unknown: int, dtype: type[np.unsignedinteger[Any]]) -> Lookup:
    """Looks each code point up in a table of all of them."""
    table = np.full(0x110000, unknown, dtype)
    for character, id in ids.items():
        table[ord(character)] = id

    def look_up(texts: Sequence[str]) -> tuple[Ids, list[int]]:
        points = np.frombuffer("".join(texts).encode("utf-32-le"), "<u4")
        return table[points], [len(text) for text in texts]

    return look_up


def utf8_bytes(first: int, dtype: type[np.unsignedinteger[Any]]) -> Lookup:
    """Counts each byte from the id of byte 0."""

    def look_up(texts: Sequence[str]) -> tuple[Ids, list[int]]:
        encoded = [text.encode() for text in texts]
        return np.frombuffer(b"".join(encoded), np.uint8).astype(dtype) + dtype(first), [len(e) for e in encoded]

    return look_up


def merged(backend: Any, dtype: type[np.unsignedinteger[Any]], steps: Sequence[Any] | None) -> Lookup:
    """Asks the library to find the pieces; texts come normalized, but for these steps (None: but for all it has)."""
    backend = _with_steps(backend, steps)

    def look_up(texts: Sequence[str]) -> tuple[Ids, list[int]]:
        encoded = [encoding.ids for encoding in backend.encode_batch_fast(texts, add_special_tokens=False)]
        lengths = [len(ids) for ids in encoded]
        return np.fromiter(chain.from_iterable(encoded), dtype, sum(lengths)), lengths

    return look_up


def word_starts(backend: Any, steps: Sequence[Any] | None) -> Starts:
    """Says which of the ids that `merged` finds begin a word: slower, since the library then keeps account."""
    backend = _with_steps(backend, steps)

    def starts(texts: Sequence[str]) -> NDArray[np.bool_]:
        found: list[bool] = []
        for encoding in backend.encode_batch(texts, add_special_tokens=False):
            words = encoding.word_ids
            found += [word is None or word != before for word, before in zip(words, [None, *words], strict=False)]
        return np.array(found, np.bool_)

    return starts


def _with_steps(backend: Any, steps: Sequence[Any] | None) -> Any:
    """The backend for texts that are normalized but for these steps."""
    backend = copy.deepcopy(backend)
    backend.encode_special_tokens = True  # lost in copying
    if steps is not None:  # texts are normalized already, and twice is not always the same as once
        backend.normalizer = normalizers.Sequence(list(steps)) if steps else None
    return backend


def guarded(look_up: Lookup, reserved: Sequence[int], unknown: int) -> Lookup:
    """A lookup in which a special's name that was typed is unknown text, never the special."""

    def guard(texts: Sequence[str]) -> tuple[Ids, list[int]]:
        ids, lengths = look_up(texts)
        return np.where(np.isin(ids, reserved), ids.dtype.type(unknown), ids), lengths

    return guard
