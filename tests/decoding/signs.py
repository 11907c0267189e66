"""A vocabulary of one Chinese character per id: each is a word by itself, so phrases of ids are phrases of text."""

from __future__ import annotations

from collections.abc import Sequence

from seqwright.decoding.phrases import Automaton, Phrase, automaton, phrase


def character_pieces(size: int, special_tokens: int) -> list[bytes]:
    """The bytes of each id: empty for special tokens, then Chinese characters."""
    return [b"" if id < special_tokens else chr(0x4E00 + id).encode() for id in range(size)]


def forbid(phrases: Sequence[Sequence[int]], pieces: Sequence[bytes], eos: int) -> Automaton:
    """The automaton of forbidden phrases of ids."""
    return automaton([b"".join(pieces[id] for id in ids) for ids in phrases], pieces, eos)


def require(ids: Sequence[int], pieces: Sequence[bytes], eos: int) -> Phrase:
    """A required phrase of ids."""
    return phrase(b"".join(pieces[id] for id in ids), pieces, ids, eos)
