"""A vocabulary in which every id is a sign that stands by itself: phrases of ids are then phrases of text."""

from __future__ import annotations

from collections.abc import Sequence

from seqwright.decoding.phrases import Automaton, Phrase, automaton, phrase


def signs(size: int, special_tokens: int) -> list[bytes]:
    """Nothing for the special_tokens, then Chinese signs."""
    return [b"" if id < special_tokens else chr(0x4E00 + id).encode() for id in range(size)]


def forbid(phrases: Sequence[Sequence[int]], pieces: Sequence[bytes], eos: int) -> Automaton:
    return automaton([b"".join(pieces[id] for id in ids) for ids in phrases], pieces, eos)


def require(ids: Sequence[int], pieces: Sequence[bytes], eos: int) -> Phrase:
    return phrase(b"".join(pieces[id] for id in ids), pieces, ids, eos)
