"""SentencePiece `.model` files (Kudo & Richardson 2018) as pipelines of the `tokenizers` library.

The file is a protocol buffer (sentencepiece_model.proto). Only the fields that change segmentation are parsed; models
that cannot be reproduced exactly are refused. Ids were compared with SentencePiece's own (decision 0035).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from seqwright.core.config import UserError
from seqwright.text.backend import METASPACE

# Enums SentencePiece.Type and TrainerSpec.ModelType of sentencepiece_model.proto.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
MODEL_TYPES = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}

Fields = dict[int, list[Any]]


@dataclass(frozen=True)
class Piece:
    """One vocabulary entry."""

    text: str
    score: float
    type: int


@dataclass(frozen=True, kw_only=True)
class Model:
    """The parsed fields of a `.model` file; those of the normalizer are named as in its proto."""

    pieces: list[Piece]
    kind: str
    byte_fallback: bool
    precompiled_charsmap: bytes
    """Compiled normalization rules; empty for the identity."""
    add_dummy_prefix: bool
    """Prepend a space to every text."""
    remove_extra_whitespaces: bool
    """Collapse runs of spaces and strip the ends."""


def read_model(data: bytes) -> Model:
    """Parses a `.model` file."""
    try:
        top = _fields(data)
        trainer, normalizer = (_fields(top[number][0]) for number in (2, 3))
        pieces = [_piece(_fields(raw)) for raw in top[1]]
        _check_charsmap(_scalar(normalizer, 2, b""))
    except (KeyError, IndexError, ValueError, TypeError, AttributeError, struct.error) as error:  # odd wire types too
        raise UserError(
            "not a valid SentencePiece model: it is damaged, or of another version; train it again with"
            " SentencePiece 0.1.8 or later, or give a tokenizer.json."
        ) from error
    kind = MODEL_TYPES.get(_integer(trainer, 3, 1), "unknown")
    if kind not in ("unigram", "bpe"):
        raise UserError(f"a SentencePiece model of type '{kind}' cannot be imported; unigram and bpe can.")
    if _integer(trainer, 24, 0):  # treat_whitespace_as_suffix
        raise UserError(
            "a SentencePiece model trained with treat_whitespace_as_suffix cannot be imported; train it without."
        )
    return Model(
        pieces=pieces,
        kind=kind,
        byte_fallback=any(piece.type == BYTE for piece in pieces),
        precompiled_charsmap=_scalar(normalizer, 2, b""),
        add_dummy_prefix=bool(_integer(normalizer, 3, 1)),
        remove_extra_whitespaces=bool(_integer(normalizer, 4, 1)),
    )


def _check_charsmap(charsmap: bytes) -> None:
    """Raises on normalization rules that would crash the library: trie size in bytes, trie, then UTF-8 replacements."""
    if charsmap:
        (size,) = struct.unpack_from("<I", charsmap)
        if not 0 < size <= len(charsmap) - 4 or size % 4:
            raise ValueError(f"a trie of {size} bytes in {len(charsmap)}")
        charsmap[4 + size :].decode()


def to_backend(model: Model) -> Tokenizer:
    """A pipeline of the library with the same segmentation and ids."""
    backend = Tokenizer(_unigram(model) if model.kind == "unigram" else _bpe(model))
    steps: list[Any] = [normalizers.Precompiled(model.precompiled_charsmap)] if model.precompiled_charsmap else []
    if model.remove_extra_whitespaces:
        steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
    steps += [normalizers.Prepend(" ")] if model.add_dummy_prefix else []
    if steps:
        backend.normalizer = normalizers.Sequence(steps)
    backend.pre_tokenizer = pre_tokenizers.Metaspace(METASPACE, prepend_scheme="never")
    strip = [decoders.Strip(" ", 1, 0)] if model.add_dummy_prefix else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace(METASPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    control_names = [piece.text for piece in model.pieces if piece.type in (UNKNOWN, CONTROL)]
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in control_names])
    if model.kind == "bpe":
        user_defined = [piece.text for piece in model.pieces if piece.type == USER_DEFINED]
        backend.add_tokens([AddedToken(name, normalized=False) for name in user_defined])
    return backend


def _unigram(model: Model) -> models.Model:
    scores = [piece.score for piece in model.pieces if piece.type == NORMAL]

    def score(piece: Piece) -> float:
        if piece.type == USER_DEFINED:  # beats any other segmentation of its text, as in SentencePiece
            return len(piece.text.encode()) * max(scores) - 0.1
        # The library derives the penalty of <unk> from the minimum score, so control pieces must not lower it.
        return min(scores) if piece.type in (UNKNOWN, CONTROL) else piece.score

    unknown = next((id for id, piece in enumerate(model.pieces) if piece.type == UNKNOWN), None)
    return models.Unigram([(p.text, score(p)) for p in model.pieces], unknown, byte_fallback=model.byte_fallback)


def _bpe(model: Model) -> models.Model:
    """Merges recovered from scores, which are all that SentencePiece stores: every split of a piece, best first."""
    ids = {piece.text: id for id, piece in enumerate(model.pieces)}
    candidates = []
    for piece in model.pieces:
        if piece.type == NORMAL:
            for split in range(1, len(piece.text)):
                left, right = piece.text[:split], piece.text[split:]
                if left in ids and right in ids:
                    candidates.append((-piece.score, ids[left], ids[right], (left, right)))
    unknown = next((piece.text for piece in model.pieces if piece.type == UNKNOWN), None)
    merges = [pair for *_, pair in sorted(candidates)]
    return models.BPE(ids, merges, unk_token=unknown, fuse_unk=True, byte_fallback=model.byte_fallback)


def _piece(fields: Fields) -> Piece:
    [score] = struct.unpack("<f", _scalar(fields, 2, b"\0\0\0\0"))
    if not math.isfinite(score):
        raise ValueError("a score that is not finite")
    return Piece(fields[1][0].decode(), score, _integer(fields, 3, NORMAL))


def _scalar(fields: Fields, number: int, default: Any) -> Any:
    """A scalar field; the last occurrence wins, as protocol buffers specify."""
    return fields.get(number, [default])[-1]


def _integer(fields: Fields, number: int, default: int) -> int:
    """An integer field; another wire type counts as damage, or as the default where the fields were checked."""
    value = _scalar(fields, number, default)
    return value if isinstance(value, int) else default


def _fields(data: bytes) -> Fields:
    """Fields of a protocol buffer message by number: varints as int, everything else as raw bytes."""
    fields: Fields = {}
    for number, value in _iter_fields(data):
        fields.setdefault(number, []).append(value)
    return fields


def _iter_fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(field number, value) pairs; wire types are 0 varint, 1 64-bit, 2 length-delimited, 5 32-bit."""
    offset = 0
    while offset < len(data):
        key, offset = _varint(data, offset)
        number, wire_type = key >> 3, key & 7
        if wire_type == 0:
            value, offset = _varint(data, offset)
            yield number, value
            continue
        if wire_type == 2:
            size, offset = _varint(data, offset)
        else:
            size = {1: 8, 5: 4}[wire_type]
        if offset + size > len(data):
            raise ValueError("truncated")
        yield number, data[offset : offset + size]
        offset += size


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    """A base-128 varint, and the offset after it."""
    value = shift = 0
    while True:
        if shift > 63:
            raise ValueError("a varint of more than 64 bits")
        byte = data[offset]
        value |= (byte & 0x7F) << shift
        offset, shift = offset + 1, shift + 7
        if byte < 0x80:
            return value, offset
