"""Tokenizers: text to ids and back, one tokenizer.json a run."""

from __future__ import annotations

import codecs
import functools
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from tokenizers import normalizers

from seqwright.batch import Vocabulary
from seqwright.config import UserError
from seqwright.storage import write_text
from seqwright.text import lookup
from seqwright.text.backend import byte_names, normal_steps, parse, unescape
from seqwright.text.lookup import Ids

PIECE = 1 << 16
"""Characters handed to the normaliser and the library at once: long texts are encoded in bounded memory."""

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
        self.kind = facts.kind
        self.notes = tuple(notes)
        """What was learnt from part of the text, or could surprise: to be said once, after training."""
        self.size: int = self._backend.get_vocab_size()
        """V, specials included."""
        vocabulary = self._backend.get_vocab()
        self.specials: dict[str, int] = {name: vocabulary[name] for name in facts.specials}
        self.unk = self.specials.get("<unk>")
        self.pad = self.specials.get("<pad>")
        self.sos = self.specials.get("<sos>")
        self.eos = self.specials.get("<eos>")
        self.lossless = facts.kind in ("bytes", "byte-bpe") and facts.normalise == "none" and not facts.lowercase
        """decode(encode(text)) == text for every text. Other kinds give back some texts: see `Encoded.exact`."""
        self.dtype: type[np.unsignedinteger[Any]] = np.uint16 if self.size < 1 << 16 else np.uint32
        self._lowercase = facts.lowercase
        steps = normal_steps(facts)
        self._normaliser = normalizers.Sequence(steps) if steps else None
        self._glue = b" " if facts.kind == "words" else b""
        self._surfaces = self._read_surfaces(vocabulary)
        self._units: dict[str, int] = {}
        if facts.kind in ("words", "characters"):
            self._units = {surface.decode(): id for id, surface in enumerate(self._surfaces) if surface}
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

    def save(self, path: str | Path) -> None:
        write_text(Path(path), self.json)

    @functools.cached_property
    def json(self) -> str:
        """The text of tokenizer.json."""
        return str(self._backend.to_str(pretty=True)) + "\n"

    @functools.cached_property
    def hash(self) -> str:
        """sha256 of what the file says, however it is laid out."""
        canonical = json.dumps(json.loads(self.json), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def vocabulary(self) -> Vocabulary:
        """What models are built for."""
        return Vocabulary(size=self.size, unk=self.unk, pad=self.pad, sos=self.sos, eos=self.eos)

    def encode(self, text: str) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UserError(
                f"character {error.start} of the text is half of a surrogate pair; give whole text."
            ) from error
        ids: list[int] = self.encode_all([text]).ids.tolist()
        return ids

    def encode_all(self, texts: Iterable[str]) -> Encoded:
        """Every text, in one array: the way to encode a corpus."""
        arrays: list[Ids] = [np.zeros(0, self.dtype)]
        lengths: list[int] = []
        unknown, exact = 0, self.kind != "words"
        for batch, owners in _batches(texts):
            normal = [self.normalise(piece) for piece in batch]
            exact = exact and normal == batch
            ids, counts = self._lookup(normal)
            missing = int(np.count_nonzero(ids == self._absent))
            if missing and self.unk is None:
                first = next(unit for piece in normal for unit in self.unknowns(piece))
                raise UserError(
                    f"{first!r} is not in the vocabulary, and there is no <unk>: add it to tokenizer.specials."
                )
            unknown += missing
            arrays.append(ids)
            lengths.extend([0] * (owners[-1] + 1 - len(lengths)))
            for owner, count in zip(owners, counts, strict=True):
                lengths[owner] += count
        return Encoded(ids=np.concatenate(arrays), lengths=lengths, unknown=unknown, exact=exact and not unknown)

    def normalise(self, text: str) -> str:
        """The text that is really encoded: in its normal form, lower-cased."""
        if self._normaliser is None:
            return text
        if text.isascii():  # every normal form of ASCII is itself
            return text.lower() if self._lowercase else text
        return str(self._normaliser.normalize_str(text))

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids; specials leave no trace."""
        joined = b"".join([self._piece(id) for id in ids]).decode(errors="replace")
        return joined.removeprefix(self._glue.decode())

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """How each id looks to a person: specials by name, bytes that are no characters as `\\xe1`."""
        names = {id: name for name, id in self.specials.items()}
        return [names.get(id) or self._surfaces[id].decode(errors="backslashreplace") for id in ids]

    def unknowns(self, text: str) -> Counter[str]:
        """The words or characters of a text that are not in the vocabulary, with their counts."""
        if self.kind in ("bytes", "byte-bpe"):
            return Counter()
        normal = self.normalise(text)
        units = normal.split() if self.kind == "words" else normal
        return Counter(unit for unit in units if unit not in self._units)

    @property
    def _absent(self) -> int:
        """The id that stands for what is not in the vocabulary; past its end where there is no <unk>."""
        return self.size if self.unk is None else self.unk

    def _piece(self, id: int) -> bytes:
        surface = self._surfaces[id]
        return self._glue + surface if surface else b""

    def _read_surfaces(self, vocabulary: Mapping[str, int]) -> list[bytes]:
        """The bytes each id stands for; nothing for specials."""
        surfaces = [b""] * self.size
        byte_of = {name: byte for byte, name in enumerate(byte_names())}
        for name, id in vocabulary.items():
            if name in self.specials:
                continue
            if self.kind in ("bytes", "byte-bpe"):
                surfaces[id] = bytes(byte_of[character] for character in name)
            else:
                surfaces[id] = unescape(name, tuple(self.specials)).encode()
        return surfaces

    def _make_lookup(self) -> lookup.Lookup:
        if self.kind == "byte-bpe":
            return lookup.merged(self._backend, self.dtype)
        if self.kind == "bytes":
            return lookup.utf8_bytes(self._surfaces.index(b"\0"), self.dtype)
        table = lookup.words if self.kind == "words" else lookup.characters
        return table(self._units, self._absent, self.dtype)


class Decoder:
    """Ids to text one at a time, for streams: what it gives, joined, is `decode` of all the ids."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._glue = tokenizer._glue.decode()

    def feed(self, id: int) -> str:
        """The characters that this id completes; maybe none."""
        return self._emit(self._utf8.decode(self._tokenizer._piece(id)))

    def finish(self) -> str:
        """What an unfinished character is shown as."""
        return self._emit(self._utf8.decode(b"", final=True))

    def _emit(self, text: str) -> str:
        if text and self._glue:  # the first word has nothing before it
            text, self._glue = text.removeprefix(self._glue), ""
        return text


def pieces(text: str, size: int = PIECE) -> Iterator[str]:
    """A text in parts of about `size` characters that are encoded as they would be together."""
    start = 0
    while len(text) - start > size and (border := _BORDER.search(text, start + size)):
        yield text[start : border.start()]
        start = border.start()
    yield text[start:]


def _batches(texts: Iterable[str], size: int = 64 * PIECE) -> Iterator[tuple[list[str], list[int]]]:
    """Pieces of texts, and the number of the text each belongs to, a bounded amount at a time."""
    batch: list[str] = []
    owners: list[int] = []
    room = size
    for owner, text in enumerate(texts):
        for piece in pieces(text):
            batch.append(piece)
            owners.append(owner)
            room -= len(piece)
            if room <= 0:
                yield batch, owners
                batch, owners, room = [], [], size
    if batch:
        yield batch, owners
