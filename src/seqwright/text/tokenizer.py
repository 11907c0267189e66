"""Tokenizers: text to ids and back, one tokenizer.json a run."""

from __future__ import annotations

import codecs
import functools
import hashlib
import json
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from tokenizers import normalizers

from seqwright.core.batch import Vocabulary
from seqwright.core.config import UserError
from seqwright.text import lookup
from seqwright.text.backend import MARK, SPLIT_AT_SPACE, normal_steps, parse, simplify, structural_steps
from seqwright.text.lookup import Ids
from seqwright.text.token_bytes import BYTE, surfaces

PIECE = 1 << 16
"""Characters handed to the normalizer and the library at once: long texts are encoded in bounded memory."""

ROLES = {
    "unk": ("<unk>", "[UNK]"),
    "pad": ("<pad>", "[PAD]"),
    "sos": ("<sos>", "<s>", "<bos>", "[CLS]"),
    "eos": ("<eos>", "</s>", "[SEP]", "<|endoftext|>"),
    "mask": ("<mask>", "[MASK]"),
}
"""What each reserved id is called, here and elsewhere."""

# No kind joins a character to the white space after it, so nothing changes when a text is cut there.
_BORDER = re.compile(r"(?<=\S)(?=[ \n])")


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """Many texts as ids, one after the other."""

    ids: Ids
    lengths: list[int]
    """Ids of each text."""
    unknown: int
    """Ids that are <unk>."""
    exact: bool
    """Whether decoding gives these very texts back: only then do bits per byte mean anything."""


class Tokenizer:
    """Text to ids and back. Specials come from framing only: no text, whatever it says, is encoded as one."""

    def __init__(self, text: str, notes: Sequence[str] = ()):
        """Of the text of a tokenizer.json."""
        self._backend, facts = parse(text)
        self._facts = facts
        self._table = json.loads(text)
        self.kind = facts.kind
        self.imported = facts.imported
        """Made elsewhere: the library does all of it, on whole texts."""
        self.notes = tuple(notes)
        """What was learned from part of the text, or could surprise: to be said once, after training."""
        vocabulary = self._backend.get_vocab()
        self._surfaces = surfaces(self._table, facts, vocabulary)
        self.size = len(self._surfaces.pieces)
        """V, special_tokens included."""
        self.special_tokens: dict[str, int] = {name: vocabulary[name] for name in facts.special_tokens}
        self.unk, self.pad, self.sos, self.eos, self.mask = (self._role(*names) for names in ROLES.values())
        self.lossless = (
            facts.kind in ("bytes", "byte-bpe")
            and facts.unicode_normalization == "none"
            and not (facts.lowercase or facts.imported)
        )
        """decode(encode(text)) == text for every text. Other kinds give back some texts: see `Encoded.exact`."""
        self.dtype: type[np.unsignedinteger[Any]] = np.uint16 if self.size < 1 << 16 else np.uint32
        forms = normal_steps(replace(facts, pretokenizer="white-space"))
        self._normalizer = normalizers.Sequence(forms) if forms else None
        self._steps = None if facts.imported else structural_steps(facts)
        self._lookup = self._make_lookup()

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """The tokenizer of a tokenizer.json."""
        try:
            return cls(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path} cannot be read as a tokenizer.json: {error}.") from error
        except UserError as error:
            raise UserError(f"{path}: {error}") from error

    @functools.cached_property
    def json(self) -> str:
        """The text of tokenizer.json: what the file said, not what this version of the library makes of it."""
        return json.dumps(self._table, indent=2, ensure_ascii=False) + "\n"

    @functools.cached_property
    def hash(self) -> str:
        """sha256 of what the file says, however it is laid out."""
        canonical = json.dumps(self._table, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def signature(self) -> str:
        """What a score's signature says of it: `byte-bpe-8000-1a2b3c4d`."""
        return f"{self.kind}-{self.size}-{self.hash[:8]}"

    @property
    def padding(self) -> int:
        """The id that fills rows up: never attended nor predicted, so without <pad> any will do."""
        return 0 if self.pad is None else self.pad

    @functools.cached_property
    def sizes(self) -> NDArray[np.int64]:
        """(V, 3): bytes and characters that each id stands for, and how many decoding drops where a text begins so.

        What is dropped are spaces: before the first word, or after the last, which every text has that has a first.
        """
        lead, trail = self._surfaces.lead.encode(), self._surfaces.trail.encode()
        counts = []
        for piece in self._surfaces.pieces:
            dropped = len(piece) - len(piece.removeprefix(lead)) + len(trail) * bool(piece)
            # A character is counted at its first byte: the others begin with the bits 10.
            counts.append((len(piece), sum(byte & 0xC0 != 0x80 for byte in piece), dropped))
        return np.array(counts, np.int64).reshape(-1, 3)

    @property
    def spelled(self) -> Sequence[bytes]:
        """The bytes that each id stands for; none for special_tokens."""
        return self._surfaces.pieces

    @functools.cached_property
    def plain(self) -> NDArray[np.bool_]:
        """(V,): which ids stand for text; the others are special_tokens."""
        return np.array([bool(piece) for piece in self._surfaces.pieces])

    @functools.cached_property
    def _borders(self) -> NDArray[np.bool_]:
        """(2, V): whether a word begins at each id wherever it stands, and whether one begins after it."""
        pieces, marked = self._surfaces.pieces, bool(self._surfaces.trail)
        # White space belongs to the word after it, but where a mark ends every word.
        first = [not piece or (piece[:1].isspace() and not marked) for piece in pieces]
        after = [not piece or (piece[-1:].isspace() and (marked or not piece.isspace())) for piece in pieces]
        return np.array([first, after], bool)

    def words_begin(self, ids: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
        """(..., S): where a word begins among ids (..., S); a special is one of its own."""
        first, after = self._borders
        begun = np.ones(ids.shape, bool)
        begun[..., 1:] = after[ids[..., :-1]]
        return begun | first[ids]

    @functools.cached_property
    def _signs(self) -> NDArray[np.int8]:
        """(V,), of characters: 1 for those that words are made of, 2 for signs, 0 for white space and special_tokens."""
        texts = [piece.decode(errors="replace") for piece in self._surfaces.pieces]
        # Marks are written with letters: vowels of Thai and Devanagari, accents in decomposed forms.
        inside = [bool(text) and (text.isalnum() or unicodedata.category(text[0])[0] == "M") for text in texts]
        signs = [1 if own else 2 * (bool(text) and not text.isspace()) for own, text in zip(inside, texts, strict=True)]
        if self.unk is not None:
            signs[self.unk] = 1  # a letter that is not known is one all the same
        return np.array(signs, np.int8)

    def word_marks(self, ids: NDArray[np.integer[Any]], starts: NDArray[np.integer[Any]]) -> NDArray[np.int8]:
        """Of characters, texts one after the other from these starts on: 1 where a word begins, 2 where it goes on, 0
        where there is none. A word is a run of letters and digits, or a sign."""
        kinds = self._signs[ids]
        before = np.concatenate([kinds[:1], kinds[:-1]])
        before[starts[starts < len(ids)]] = 0
        return np.where(kinds == 0, 0, np.where((kinds == 1) & (before == 1), 2, 1)).astype(np.int8)

    @property
    def vocabulary(self) -> Vocabulary:
        """What models are built for."""
        return Vocabulary(size=self.size, unk=self.unk, pad=self.pad, sos=self.sos, eos=self.eos, mask=self.mask)

    def reserves(self, name: str) -> bool:
        """Whether there is such a reserved token, under this name or another of the usual ones."""
        role = next((role for role, names in ROLES.items() if name in names), None)
        return name in self.special_tokens or (role is not None and getattr(self, role) is not None)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.encode_all([text]).ids.tolist()
        return ids

    def encode_all(self, texts: Iterable[str]) -> Encoded:
        """Every text, in one array: the way to encode a corpus."""
        arrays: list[Ids] = [np.zeros(0, self.dtype)]
        lengths: list[int] = []
        unknown, exact = 0, self.kind not in SPLIT_AT_SPACE or self.imported
        whole = sys.maxsize if self.imported else PIECE  # how others split is not ours to know
        for batch, owners in _batches(texts, whole):
            for piece in batch:
                _refuse_halves(piece)
            normal = [self.normalize(piece) for piece in batch]
            ids, counts = self._lookup(normal)
            exact = exact and self._is_exact(batch, normal, ids, counts)
            missing = int(np.count_nonzero(ids == self._absent))
            if missing and self.unk is None:
                first = next(unit for piece in batch for unit in self.unknowns(piece))
                raise UserError(
                    f"{first!r} is not in the vocabulary, and there is no <unk>: add it to tokenizer.special_tokens."
                )
            unknown += missing
            arrays.append(ids)
            lengths.extend([0] * (owners[-1] + 1 - len(lengths)))
            for owner, count in zip(owners, counts, strict=True):
                lengths[owner] += count
        return Encoded(ids=np.concatenate(arrays), lengths=lengths, unknown=unknown, exact=exact and not unknown)

    def word_starts(self, texts: Iterable[str]) -> NDArray[np.bool_]:
        """Which ids of `encode_all` begin a word; no piece reaches over from one word to the next."""
        starts = [np.zeros(0, np.bool_)]
        for batch, _ in _batches(texts, sys.maxsize if self.imported else PIECE):
            starts.append(self._word_starts([self.normalize(piece) for piece in batch]))
        return np.concatenate(starts)

    @functools.cached_property
    def whole(self) -> frozenset[int]:
        """Ids that stand for themselves and cannot be cut: special_tokens, tokens that were added, bytes of a fallback."""
        added = {token["id"] for token in self._table["added_tokens"]}
        falls_back = bool(self._table["model"].get("byte_fallback"))
        names = self._backend.get_vocab().items() if falls_back else ()
        return frozenset(added | {id for name, id in names if BYTE.fullmatch(name)})

    def normalize(self, text: str) -> str:
        """The text that is really encoded: in its normal form, lower-cased, its punctuation set apart."""
        if self.imported:
            return text
        if self._normalizer is not None:
            if not text.isascii():
                text = str(self._normalizer.normalize_str(text))
            elif self._facts.lowercase:  # every normal form of ASCII is itself
                text = text.lower()
        return simplify(text, self._facts)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids; special_tokens leave no trace."""
        joined = b"".join([self._surfaces.pieces[id] for id in ids]).decode(errors="replace")
        return joined.removeprefix(self._surfaces.lead).removesuffix(self._surfaces.trail)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """How each id looks to a person: special_tokens by name, bytes that are no characters as `\\xe1`."""
        return [self._shown(id) for id in ids]

    def unknowns(self, text: str) -> Counter[str]:
        """The words or characters of a text that are not in the vocabulary, with their counts."""
        if self.kind in ("bytes", "byte-bpe"):
            return Counter()
        normal = self.normalize(text)
        units = Counter(normal.split() if self.kind in ("words", "wordpiece") else normal)
        if self.kind in ("words", "characters"):
            return Counter({unit: count for unit, count in units.items() if unit not in self._units})
        return Counter({unit: count for unit, count in units.items() if self._absent in self._lookup([unit])[0]})

    @functools.cached_property
    def _units(self) -> dict[str, int]:
        """The words or characters, with their ids."""
        pieces = self._surfaces.pieces
        lead = self._surfaces.lead
        return {piece.decode().removeprefix(lead): id for id, piece in enumerate(pieces) if piece}

    @functools.cached_property
    def _word_starts(self) -> lookup.Starts:
        return lookup.word_starts(self._backend, self._steps)

    @property
    def _absent(self) -> int:
        """The id that stands for what is not in the vocabulary; past its end where there is no <unk>."""
        return self.size if self.unk is None else self.unk

    def _role(self, *names: str) -> int | None:
        return next((self.special_tokens[name] for name in names if name in self.special_tokens), None)

    def _shown(self, id: int) -> str:
        if not (piece := self._surfaces.pieces[id]):
            return str(self._backend.id_to_token(id))
        if self.kind == "wordpiece" or self._surfaces.trail:
            return str(self._backend.id_to_token(id)).replace(MARK, "</w>")
        shown = piece.decode(errors="backslashreplace")
        return shown.removeprefix(" ") if self.kind == "words" else shown

    def _is_exact(self, texts: Sequence[str], normal: Sequence[str], ids: Ids, counts: Sequence[int]) -> bool:
        """Whether these ids give these texts back."""
        if not self.imported:
            return texts == normal and (self.kind != "unigram" or not any(MARK in text for text in texts))
        borders = np.cumsum(counts)[:-1]
        return [self.decode(own.tolist()) for own in np.split(ids, borders)] == texts

    def _make_lookup(self) -> lookup.Lookup:
        if self.kind == "bytes":
            return lookup.utf8_bytes(self._surfaces.pieces.index(b"\0"), self.dtype)
        if self.kind in ("words", "characters"):
            table = lookup.words if self.kind == "words" else lookup.characters
            return table(self._units, self._absent, self.dtype)
        if not self.imported:
            return lookup.merged(self._backend, self.dtype, self._steps)
        found = lookup.merged(self._backend, self.dtype, self._steps)
        return lookup.guarded(found, list(self.special_tokens.values()), self._absent)


class Decoder:
    """Ids to text one at a time, for streams: what it gives, joined, is `decode` of all the ids."""

    def __init__(self, tokenizer: Tokenizer, after: str = ""):
        """Of a text that follows another one."""
        self._surfaces = tokenizer._surfaces
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        # A first word has nothing before it, or a space already.
        self._lead = self._surfaces.lead if not after or after[-1].isspace() else ""
        self._held = ""

    def feed(self, id: int) -> str:
        """The characters that this id completes; maybe none."""
        return self._emit(self._utf8.decode(self._surfaces.pieces[id]))

    def finish(self) -> str:
        """What an unfinished character is shown as."""
        return (self._emit(self._utf8.decode(b"", final=True)) + self._held).removesuffix(self._surfaces.trail)

    def _emit(self, text: str) -> str:
        if text and self._lead:
            text, self._lead = text.removeprefix(self._lead), ""
        if self._surfaces.trail:  # the last one has nothing after it, and any may be the last
            text = self._held + text
            kept = text.removesuffix(self._surfaces.trail)
            text, self._held = kept, text[len(kept) :]
        return text


def pieces(text: str, size: int = PIECE) -> Iterator[str]:
    """A text in parts of about `size` characters that are encoded as they would be together."""
    start = 0
    while len(text) - start > size and (border := _BORDER.search(text, start + size)):
        yield text[start : border.start()]
        start = border.start()
    yield text[start:]


def _refuse_halves(text: str) -> None:
    """Raises where a text cannot be written as UTF-8; Python alone lets halves of surrogate pairs be characters."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UserError(
                f"the text holds {text[error.start]!r}, half of a surrogate pair; give whole text."
            ) from None


def _batches(texts: Iterable[str], piece: int, size: int = 64 * PIECE) -> Iterator[tuple[list[str], list[int]]]:
    """Pieces of texts, and the number of the text each belongs to, a bounded amount at a time."""
    batch: list[str] = []
    owners: list[int] = []
    room = size
    for owner, text in enumerate(texts):
        for part in pieces(text, piece):
            batch.append(part)
            owners.append(owner)
            room -= len(part)
            if room <= 0:
                yield batch, owners
                batch, owners, room = [], [], size
    if batch:
        yield batch, owners
