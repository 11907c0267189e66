"""SentencePiece `.model` files (Kudo & Richardson 2018) as pipelines of the `tokenizers` library.

The file is a protocol buffer; the few fields that matter are read here, and whatever would be read wrongly is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from seqwright.core.config import UserError
from seqwright.text.backend import MARK

# Types of pieces, and of models, as sentencepiece_model.proto numbers them.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
MODELS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}

Fields = dict[int, list[Any]]


@dataclass(frozen=True)
class Piece:
    text: str
    score: float
    type: int


@dataclass(frozen=True, kw_only=True)
class Model:
    pieces: list[Piece]
    kind: str
    byte_fallback: bool
    charsmap: bytes
    """The normalizer, compiled by SentencePiece; empty where text is taken as it is."""
    dummy_prefix: bool
    """Whether a space is put before every text."""
    single_spaces: bool
    """Whether runs of spaces are read as one, and none at the ends."""


def read_model(data: bytes) -> Model:
    """What a `.model` file says."""
    try:
        top = _fields(data)
        trainer, normalizer = (_fields(top[number][0]) for number in (2, 3))
        pieces = [_piece(_fields(raw)) for raw in top[1]]
        _check_charsmap(_one(normalizer, 2, b""))
    except (KeyError, IndexError, ValueError, struct.error) as error:
        raise UserError(
            "not a SentencePiece model that can be read: it is damaged, or of another version; train it again with"
            " SentencePiece 0.1.8 or later, or give a tokenizer.json."
        ) from error
    kind = MODELS.get(_one(trainer, 3, 1), "unknown")
    if kind not in ("unigram", "bpe"):
        raise UserError(f"a SentencePiece model of type '{kind}' cannot be imported; unigram and bpe can.")
    if _one(trainer, 24, 0):
        raise UserError("a SentencePiece model with white space as suffix cannot be imported; train it without.")
    return Model(
        pieces=pieces,
        kind=kind,
        byte_fallback=any(piece.type == BYTE for piece in pieces),
        charsmap=_one(normalizer, 2, b""),
        dummy_prefix=bool(_one(normalizer, 3, 1)),
        single_spaces=bool(_one(normalizer, 4, 1)),
    )


def _check_charsmap(charsmap: bytes) -> None:
    """Raises where the library could not use a compiled normalizer: the size of a table, the table, then texts."""
    if charsmap:
        (size,) = struct.unpack_from("<I", charsmap)
        if not 0 < size <= len(charsmap) - 4 or size % 4:
            raise ValueError(f"a table of {size} bytes in {len(charsmap)}")
        charsmap[4 + size :].decode()


def pipeline(model: Model) -> Tokenizer:
    """The same cuts and ids by the library."""
    backend = Tokenizer(_unigram(model) if model.kind == "unigram" else _bpe(model))
    steps: list[Any] = [normalizers.Precompiled(model.charsmap)] if model.charsmap else []
    if model.single_spaces:
        steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
    steps += [normalizers.Prepend(" ")] if model.dummy_prefix else []
    if steps:
        backend.normalizer = normalizers.Sequence(steps)
    backend.pre_tokenizer = pre_tokenizers.Metaspace(MARK, prepend_scheme="never")
    strip = [decoders.Strip(" ", 1, 0)] if model.dummy_prefix else []
    backend.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    reserved = [piece.text for piece in model.pieces if piece.type in (UNKNOWN, CONTROL)]
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in reserved])
    if model.kind == "bpe":
        named = [piece.text for piece in model.pieces if piece.type == USER_DEFINED]
        backend.add_tokens([AddedToken(name, normalized=False) for name in named])
    return backend


def _unigram(model: Model) -> models.Model:
    scores = [piece.score for piece in model.pieces if piece.type == NORMAL]

    def score(piece: Piece) -> float:
        if piece.type == USER_DEFINED:  # better than any other cut, as SentencePiece has it
            return len(piece.text.encode()) * max(scores) - 0.1
        # Reserved pieces should never be found; the least of the others leaves the cost of the unknown as it is.
        return min(scores) if piece.type in (UNKNOWN, CONTROL) else piece.score

    unknown = next((id for id, piece in enumerate(model.pieces) if piece.type == UNKNOWN), None)
    return models.Unigram([(p.text, score(p)) for p in model.pieces], unknown, byte_fallback=model.byte_fallback)


def _bpe(model: Model) -> models.Model:
    """SentencePiece keeps scores, not merges: the pairs that make a piece, those of better pieces first."""
    ids = {piece.text: id for id, piece in enumerate(model.pieces)}
    found = []
    for piece in model.pieces:
        if piece.type == NORMAL:
            for cut in range(1, len(piece.text)):
                left, right = piece.text[:cut], piece.text[cut:]
                if left in ids and right in ids:
                    found.append((-piece.score, ids[left], ids[right], (left, right)))
    unknown = next((piece.text for piece in model.pieces if piece.type == UNKNOWN), None)
    merges = [pair for *_, pair in sorted(found)]
    return models.BPE(ids, merges, unk_token=unknown, fuse_unk=True, byte_fallback=model.byte_fallback)


def _piece(fields: Fields) -> Piece:
    [score] = struct.unpack("<f", _one(fields, 2, b"\0\0\0\0"))
    return Piece(fields[1][0].decode(), score, _one(fields, 3, NORMAL))


def _one(fields: Fields, number: int, default: Any) -> Any:
    return fields.get(number, [default])[-1]


def _fields(data: bytes) -> Fields:
    """The fields of a protocol buffer by number: whole numbers, or bytes as they are."""
    found: Fields = {}
    for number, value in _walk(data):
        found.setdefault(number, []).append(value)
    return found


def _walk(data: bytes) -> Iterator[tuple[int, Any]]:
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, place = _varint(data, place)
            yield number, value
            continue
        if wire == 2:
            size, place = _varint(data, place)
        else:
            size = {1: 8, 5: 4}[wire]
        if place + size > len(data):
            raise ValueError("cut short")
        yield number, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
