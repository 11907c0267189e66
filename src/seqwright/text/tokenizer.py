"""Tokenizers: text to ids and back, one tokenizer.json a run."""

from __future__ import annotations

import codecs
import functools
import hashlib
import json
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import filterfalse
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from tokenizers import normalizers

from seqwright.core.batch import Vocabulary
from seqwright.core.config import UserError
from seqwright.text import lookup
from seqwright.text.backend import (
    METASPACE,
    SPLIT_AT_SPACE,
    apply_replacements,
    damage_named,
    normalization_steps,
    parse,
    structural_steps,
)
from seqwright.text.chunks import CHUNK, chunk_batches
from seqwright.text.token_bytes import BYTE, token_bytes
from seqwright.text.word_table import Ids

ROLES = {
    "unk": ("<unk>", "[UNK]"),
    "pad": ("<pad>", "[PAD]"),
    "sos": ("<sos>", "<s>", "<bos>", "[CLS]"),
    "eos": ("<eos>", "</s>", "[SEP]", "<|endoftext|>"),
    "mask": ("<mask>", "[MASK]"),
}
"""Names of each special token, ours first, then those of SentencePiece, BERT and GPT-2."""


@dataclass(frozen=True, kw_only=True)
class EncodedBatch:
    """Ids of a batch of texts, concatenated."""

    ids: Ids
    lengths: list[int]
    """Number of ids of each text."""
    unknown: int
    """Number of ids that are <unk>."""
    exact: bool
    """Whether decoding reproduces the texts exactly; otherwise bits per byte are undefined."""


class Tokenizer:
    """Text to ids and back. No text is ever encoded as a special token, not even its literal name (decision 0003)."""

    def __init__(self, text: str, notes: Sequence[str] = ()):
        """Builds a tokenizer from the contents of a tokenizer.json."""
        self._backend, spec = parse(text)
        self._spec = spec
        self._table = json.loads(text)
        self.kind = spec.kind
        self.imported = spec.imported
        """Built by another program: the library encodes whole texts with the pipeline as it is (decision 0035)."""
        self.notes = tuple(notes)
        """Warnings to show once after training: a sampled corpus, decomposed characters, added special tokens."""
        with damage_named():
            vocabulary = self._backend.get_vocab()
            self._token_bytes = token_bytes(self._table, spec, vocabulary)
            self.special_tokens: dict[str, int] = {name: vocabulary[name] for name in spec.special_tokens}
        self.size = len(self._token_bytes.pieces)
        """Vocabulary size V, special tokens included."""
        self.unk, self.pad, self.sos, self.eos, self.mask = (self._role(*names) for names in ROLES.values())
        self.lossless = (
            spec.kind in ("bytes", "byte-bpe")
            and spec.unicode_normalization == "none"
            and not (spec.lowercase or spec.imported)
        )
        """decode(encode(text)) == text for every text. Other kinds round-trip some texts: see `EncodedBatch.exact`."""
        self.dtype: type[np.unsignedinteger[Any]] = np.uint16 if self.size < 1 << 16 else np.uint32
        steps = normalization_steps(replace(spec, pretokenizer="white-space"))
        self._normalizer = normalizers.Sequence(steps) if steps else None
        self._normalizes = bool(normalization_steps(spec)) and not spec.imported
        self._steps = None if spec.imported else structural_steps(spec)
        with damage_named():
            self._encode = self._make_encoder()

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Opens a tokenizer.json."""
        try:
            return cls(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path} cannot be read as a tokenizer.json: {error}.") from error
        except UserError as error:
            raise UserError(f"{path}: {error}") from error

    @functools.cached_property
    def json(self) -> str:
        """The contents of tokenizer.json as they were read; the library may serialize them differently by version."""
        return json.dumps(self._table, indent=2, ensure_ascii=False) + "\n"

    @functools.cached_property
    def hash(self) -> str:
        """sha256 of the canonical JSON, independent of layout and key order."""
        canonical = json.dumps(self._table, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def signature(self) -> str:
        """Kind, size and hash, for the signature of a score: `byte-bpe-8000-1a2b3c4d`."""
        return f"{self.kind}-{self.size}-{self.hash[:8]}"

    def __repr__(self) -> str:
        return f"<Tokenizer {self.signature}>"

    @property
    def padding(self) -> int:
        """The padding id: <pad>, or 0 without one, since padding is never attended to nor predicted."""
        return 0 if self.pad is None else self.pad

    @functools.cached_property
    def sizes(self) -> NDArray[np.int64]:
        """(V, 3): bytes and characters of each token, and the bytes that decoding strips from a text beginning with it.

        Stripped are spaces, before the first word or after the last; the latter are charged to the first token too.
        """
        prefix, suffix = self._token_bytes.prefix.encode(), self._token_bytes.suffix.encode()
        counts = []
        for piece in self._token_bytes.pieces:
            stripped = len(piece) - len(piece.removeprefix(prefix)) + len(suffix) * bool(piece)
            # A character is counted at its first byte: UTF-8 continuation bytes have the high bits 10.
            counts.append((len(piece), sum(byte & 0xC0 != 0x80 for byte in piece), stripped))
        return np.array(counts, np.int64).reshape(-1, 3)

    @property
    def token_bytes(self) -> Sequence[bytes]:
        """(V,) bytes of each token; empty for special tokens."""
        return self._token_bytes.pieces

    @functools.cached_property
    def is_text(self) -> NDArray[np.bool_]:
        """(V,) mask: True for text, False for special tokens."""
        return np.array([bool(piece) for piece in self._token_bytes.pieces])

    def never_generated(self, end: int | None = None, *, allowed: Iterable[str] = ()) -> list[int]:
        """Ids that no output may hold: every special token but the one that ends it and those `allowed` by name."""
        kept = {end, *(self.special_tokens[name] for name in allowed)}
        return [id for id in self.special_tokens.values() if id not in kept]

    @functools.cached_property
    def _word_borders(self) -> NDArray[np.bool_]:
        """(2, V): whether an id always begins a word, and whether the id after it does."""
        pieces, has_end_mark = self._token_bytes.pieces, bool(self._token_bytes.suffix)
        # White space belongs to the word after it, except for kinds with an end-of-word mark.
        first = [not piece or (piece[:1].isspace() and not has_end_mark) for piece in pieces]
        next_first = [not piece or (piece[-1:].isspace() and (has_end_mark or not piece.isspace())) for piece in pieces]
        return np.array([first, next_first], bool)

    def word_start_mask(self, ids: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
        """(..., S) mask of the ids (..., S) that begin a word; a special token is a word of its own."""
        first, next_first = self._word_borders
        starts = np.ones(ids.shape, bool)
        starts[..., 1:] = next_first[ids[..., :-1]]
        return starts | first[ids]

    @functools.cached_property
    def _char_classes(self) -> NDArray[np.int8]:
        """(V,) classes of characters: 1 word character, 2 punctuation or symbol, 0 white space or special token."""
        texts = [piece.decode(errors="replace") for piece in self._token_bytes.pieces]
        # Combining marks (category M) are word characters: vowel signs of Thai and Devanagari, decomposed accents.
        is_word = [bool(text) and (text.isalnum() or unicodedata.category(text[0])[0] == "M") for text in texts]
        classes = [
            1 if word else 2 * (bool(text) and not text.isspace()) for word, text in zip(is_word, texts, strict=True)
        ]
        if self.unk is not None:
            classes[self.unk] = 1  # <unk> counts as a word character
        return np.array(classes, np.int8)

    def word_bio(self, ids: NDArray[np.integer[Any]], starts: NDArray[np.integer[Any]]) -> NDArray[np.int8]:
        """BIO marks of words in character ids: 1 begin, 2 inside, 0 outside. Concatenated texts begin at `starts`.

        A word is a run of letters and digits, or a single punctuation character or symbol.
        """
        classes = self._char_classes[ids]
        previous = np.concatenate([classes[:1], classes[:-1]])
        previous[starts[starts < len(ids)]] = 0
        return np.where(classes == 0, 0, np.where((classes == 1) & (previous == 1), 2, 1)).astype(np.int8)

    @property
    def vocabulary(self) -> Vocabulary:
        """Size and special ids, which is all that models know of a tokenizer."""
        return Vocabulary(size=self.size, unk=self.unk, pad=self.pad, sos=self.sos, eos=self.eos, mask=self.mask)

    def has_special_token(self, name: str) -> bool:
        """Whether the special token exists, under this name or another of its usual names (`ROLES`)."""
        role = next((role for role, names in ROLES.items() if name in names), None)
        return name in self.special_tokens or (role is not None and getattr(self, role) is not None)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens around it."""
        if not isinstance(text, str):
            raise UserError(f"{text!r:.60} ({type(text).__name__}) is no text; encode_batch takes several.")
        ids: list[int] = self.encode_batch([text]).ids.tolist()
        return ids

    def encode_batch(self, texts: Iterable[str]) -> EncodedBatch:
        """The ids of all texts in one array: the way to encode a corpus."""
        arrays: list[Ids] = []
        lengths: list[int] = []
        unknown, exact = 0, self.kind not in SPLIT_AT_SPACE or self.imported
        chunk_size = sys.maxsize if self.imported else CHUNK  # an imported pre-tokenizer may cross any chunk border
        for batch, text_indices in chunk_batches(texts, chunk_size):
            for chunk in filterfalse(str.isascii, batch):
                _check_surrogates(chunk)
            normalized = [self.normalize(chunk) for chunk in batch] if self._normalizes else batch
            with damage_named():  # a library meets some damage of its file only now
                ids, counts = self._encode(normalized)
                if len(ids) and ids.max() > max(self.size - 1, self._unknown_id):
                    raise ValueError("it has two tokens of one name")
            unknown_ids = int(np.count_nonzero(ids == self._unknown_id))
            if unknown_ids and self.unk is None:
                first = next(unit for chunk in batch for unit in self.unknowns(chunk))
                raise UserError(
                    f"{first!r} is not in the vocabulary, and there is no <unk>: add it to tokenizer.special_tokens."
                )
            exact = exact and self._is_exact(batch, normalized, ids, counts)
            unknown += unknown_ids
            arrays.append(ids)
            lengths.extend([0] * (text_indices[-1] + 1 - len(lengths)))
            for index, count in zip(text_indices, counts, strict=True):
                lengths[index] += count
        ids = arrays[0] if len(arrays) == 1 else np.concatenate([np.zeros(0, self.dtype), *arrays])
        return EncodedBatch(ids=ids, lengths=lengths, unknown=unknown, exact=exact and not unknown)

    def word_starts(self, texts: Iterable[str]) -> NDArray[np.bool_]:
        """Mask of the ids of `encode_batch` that begin a word (a pre-token: no token crosses into the next)."""
        starts = [np.zeros(0, np.bool_)]
        for batch, _ in chunk_batches(texts, sys.maxsize if self.imported else CHUNK):
            starts.append(self._word_starts([self.normalize(chunk) for chunk in batch]))
        return np.concatenate(starts)

    @functools.cached_property
    def atomic_ids(self) -> frozenset[int]:
        """Ids that no other segmentation can replace: special tokens, added tokens, byte-fallback tokens."""
        added = {token["id"] for token in self._table["added_tokens"]}
        byte_fallback = bool(self._table["model"].get("byte_fallback"))
        entries = self._backend.get_vocab().items() if byte_fallback else ()
        return frozenset(added | {id for name, id in entries if BYTE.fullmatch(name)})

    def normalize(self, text: str) -> str:
        """Text after Unicode normalization, lower-casing and basic-english; an imported pipeline normalizes later."""
        if self.imported:
            return text
        if self._normalizer is not None:
            if not text.isascii():
                text = str(self._normalizer.normalize_str(text))
            elif self._spec.lowercase:  # ASCII is its own normal form
                text = text.lower()
        return apply_replacements(text, self._spec)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids; special tokens are skipped."""
        with self._naming_ids(ids) as known:
            joined = b"".join([self._token_bytes.pieces[id] for id in known]).decode(errors="replace")
        return joined.removeprefix(self._token_bytes.prefix).removesuffix(self._token_bytes.suffix)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Display form of each id: special tokens by name, bytes that are not UTF-8 by themselves as `\\xe1`."""
        with self._naming_ids(ids) as known:
            return [self._display(id) for id in known]

    @contextmanager
    def _naming_ids(self, ids: Any) -> Iterator[list[int]]:
        """Context manager of a list of ids, in which what is no id of the vocabulary is a UserError."""
        try:
            known = list(ids)
            if min(known, default=0) < 0:  # such as -100, which other tools take for no target
                raise IndexError
            yield known
        except (IndexError, TypeError) as error:
            raise UserError(f"{ids!r:.60} are no ids; give a list of numbers from 0 to {self.size - 1:,}.") from error

    def unknowns(self, text: str) -> Counter[str]:
        """Out-of-vocabulary words or characters of a text, with their counts."""
        if self.kind in ("bytes", "byte-bpe"):
            return Counter()
        normalized = self.normalize(text)
        units = Counter(normalized.split() if self.kind in ("words", "wordpiece") else normalized)
        if self.kind in ("words", "characters"):
            return Counter({unit: count for unit, count in units.items() if unit not in self._units})
        return Counter({unit: count for unit, count in units.items() if self._unknown_id in self._encode([unit])[0]})

    @functools.cached_property
    def _units(self) -> dict[str, int]:
        """Words or characters to ids."""
        pieces = self._token_bytes.pieces
        prefix = self._token_bytes.prefix
        return {piece.decode().removeprefix(prefix): id for id, piece in enumerate(pieces) if piece}

    @functools.cached_property
    def _word_starts(self) -> lookup.WordStarts:
        return lookup.word_starts(self._backend, self._steps)

    @property
    def _unknown_id(self) -> int:
        """The id of out-of-vocabulary units; V, past the end, without <unk>."""
        return self.size if self.unk is None else self.unk

    def _role(self, *names: str) -> int | None:
        return next((self.special_tokens[name] for name in names if name in self.special_tokens), None)

    def _display(self, id: int) -> str:
        if not (piece := self._token_bytes.pieces[id]):
            return str(self._backend.id_to_token(id))
        if self.kind == "wordpiece" or self._token_bytes.suffix:
            return str(self._backend.id_to_token(id)).replace(METASPACE, "</w>")
        shown = piece.decode(errors="backslashreplace")
        return shown.removeprefix(" ") if self.kind == "words" else shown

    def _is_exact(self, texts: Sequence[str], normalized: Sequence[str], ids: Ids, counts: Sequence[int]) -> bool:
        """Whether decoding the ids of each text reproduces it."""
        if not self.imported:
            return texts == normalized and (self.kind != "unigram" or not any(METASPACE in text for text in texts))
        borders = np.cumsum(counts)[:-1]
        return [self.decode(text_ids.tolist()) for text_ids in np.split(ids, borders)] == texts

    def _make_encoder(self) -> lookup.BatchEncoder:
        if self.kind == "bytes":
            return lookup.utf8_bytes(self._token_bytes.pieces.index(b"\0"), self.dtype)
        if self.kind in ("words", "characters"):
            table = lookup.words if self.kind == "words" else lookup.characters
            return table(self._units, self._unknown_id, self.dtype)
        if not self.imported:
            return lookup.subwords(self._backend, self.dtype, self._steps)
        encoder = lookup.subwords(self._backend, self.dtype, self._steps)
        return lookup.without_special_tokens(encoder, list(self.special_tokens.values()), self._unknown_id)


class StreamingDecoder:
    """Incremental detokenizer for streaming: its outputs, concatenated, equal `decode` of all the ids."""

    def __init__(self, tokenizer: Tokenizer, after: str = ""):
        """`after` is the text before the stream, such as the prompt: it decides whether a leading space is kept."""
        self._token_bytes = tokenizer._token_bytes
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        # The leading space is stripped at the start of a text or after white space.
        self._prefix = self._token_bytes.prefix if not after or after[-1].isspace() else ""
        self._held = ""

    def feed(self, id: int) -> str:
        """The text that this id completes; empty while a character lacks bytes."""
        return self._emit(self._utf8.decode(self._token_bytes.pieces[id]))

    def finish(self) -> str:
        """The rest: U+FFFD for an incomplete character."""
        return (self._emit(self._utf8.decode(b"", final=True)) + self._held).removesuffix(self._token_bytes.suffix)

    def _emit(self, text: str) -> str:
        if text and self._prefix:
            text, self._prefix = text.removeprefix(self._prefix), ""
        if self._token_bytes.suffix:  # held back, since any token may be the last and lose its suffix
            text = self._held + text
            kept = text.removesuffix(self._token_bytes.suffix)
            text, self._held = kept, text[len(kept) :]
        return text


def _check_surrogates(text: str) -> None:
    """Raises on lone surrogates, which Python strings may hold but UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"the text contains {text[error.start]!r}, half of a surrogate pair; give valid Unicode."
        ) from None
