"""Phrases are found in every cut and at the edges of words only, and searches keep what is asked of them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqwright.core.batch import Source
from seqwright.core.config import UserError
from seqwright.decoding.constraints import constraints_of
from seqwright.decoding.options import Hypothesis, SearchOptions
from seqwright.decoding.phrases import LETTERS, automaton, phrase
from seqwright.decoding.search import search
from tests.contract.kinds import VOCABULARY, small

EOS = 3
TEXT = ["a", "b", "ab", " a", " ", "b ", "-"]
PIECES = [b"", b"", b"", b"", *(piece.encode() for piece in TEXT)]
HALVES = [*PIECES, *("é„。".encode()[n : n + 1] for n in range(8)), "é".encode(), "mạ".encode()]
PHRASES = ["a", "b", "ab", "aa", "a b", "b-a", "é", "aé", "-", "。a", "ab ab"]
MODEL = small("lstm")


def stands(phrase: bytes, text: bytes) -> bool:
    """Whether a phrase stands in a text, read off the text itself."""
    letters = list(
        itertools.accumulate(text, lambda last, byte: last if 0x80 <= byte < 0xC0 else byte in LETTERS, initial=False)
    )
    for place in range(len(text) - len(phrase) + 1):
        end = place + len(phrase)
        inside = [letters[at] and at < len(text) and letters[at + 1] for at in (place, end)]
        if text[place:end] == phrase and not any(inside):
            return True
    return False


@given(
    st.lists(st.sampled_from(PHRASES), min_size=1, max_size=3), st.lists(st.integers(4, len(HALVES) - 1), max_size=9)
)
def test_a_phrase_is_found_however_it_is_cut(phrases: list[str], ids: list[int]) -> None:
    sought = [text.encode() for text in phrases]
    found = automaton(sought, HALVES, EOS)
    text = b"".join(HALVES[id] for id in ids)
    expected = any(stands(phrase, text) for phrase in sought)
    assert found.ends[found.read(ids)] == expected
    assert found.said[found.read([*ids, EOS])] == expected


@pytest.mark.parametrize(("text", "letter"), [("aé ñ ạ я Ω ש 한 ế ü 7 ß", True), (" -.„“«…。猫の🙂+", False)])
def test_what_counts_as_a_letter(text: str, letter: bool) -> None:
    assert {character.encode()[0] in LETTERS for character in text.replace(" ", "" if letter else " ")} == {letter}


def looked_for(
    options: SearchOptions, forbidden: tuple[str, ...] = (), required: tuple[str, ...] = ()
) -> list[Hypothesis]:
    never = automaton([text.encode() for text in forbidden], PIECES, EOS) if forbidden else None
    wanted = [phrase(text.encode(), PIECES, usual(text), EOS) for text in required]
    facts: dict[str, Any] = {"sos": VOCABULARY.sos, "eos": EOS, "banned": [0, 1, 2], "prompts": [[], []]}
    found = search(MODEL, Source.empty(2), options, forbidden=never, required=[wanted, wanted], **facts)
    assert [one.ids for one in found[0]] == [one.ids for one in found[1]]
    return found[0]


def usual(text: str) -> list[int]:
    """A cut into as few pieces as can be."""
    for size in range(1, len(text) + 1):
        for pieces in itertools.product(TEXT, repeat=size):
            if "".join(pieces) == text:
                return [4 + TEXT.index(piece) for piece in pieces]
    raise AssertionError(text)


def text_of(ids: list[int]) -> bytes:
    return b"".join(PIECES[id] for id in ids)


@pytest.mark.parametrize(
    ("forbidden", "required"),
    [(("a",), ()), (("ab", "b"), ()), ((), ("ab",)), ((), ("a", "b")), (("a b",), ("b",)), (("-",), ("ab a",))],
)
@pytest.mark.parametrize("kind", ["beam", "exact"])
def test_searches_find_the_best_text_that_is_allowed(
    forbidden: tuple[str, ...], required: tuple[str, ...], kind: str
) -> None:
    length = 3
    every = looked_for(SearchOptions(kind="exact", max_tokens=length, n_best=9**length, rank_unfinished="among"))
    allowed = [
        one
        for one in every
        if not any(stands(text.encode(), text_of(one.ids)) for text in forbidden)
        and all(stands(text.encode(), text_of(one.ids)) for text in required)
    ]
    options = {
        "max_tokens": length,
        "n_best": 3,
        "rank_unfinished": "among",
        "stopping": "bound",
        "beam_size": 7**length,
        "finished": 3,
    }
    found = looked_for(SearchOptions(kind=kind, **options), forbidden, required)  # type: ignore[arg-type]
    assert [one.ids for one in found] == [one.ids for one in allowed[:3]]
    assert [one.log_prob for one in found] == pytest.approx([one.log_prob for one in allowed[:3]])


@given(
    st.lists(st.sampled_from(["a", "b", "ab", "a b", "-", "aa"]), max_size=2, unique=True),
    st.lists(st.sampled_from(["ab", "b a", "bb"]), max_size=1),
    st.integers(1, 5),
    st.integers(3, 9),
)
def test_no_beam_says_what_is_forbidden(forbidden: list[str], required: list[str], width: int, length: int) -> None:
    kept = [text for text in required if not any(stands(ban.encode(), text.encode()) for ban in forbidden)]
    options = SearchOptions(beam_size=width, n_best=width, max_tokens=length, min_tokens=2)
    for one in looked_for(options, tuple(forbidden), tuple(kept)):
        assert not any(stands(text.encode(), text_of(one.ids)) for text in forbidden)
        if one.reason == "end":
            assert all(stands(text.encode(), text_of(one.ids)) for text in kept)


def test_words_that_cannot_be_gone_on_with_are_not_begun() -> None:
    words = [b"", b"", b"", b"", b" a", b" b"]
    table = constraints_of(automaton([b"a"], words, EOS), [()], [[2]], "cpu")
    assert table is not None
    # After " a" come only an end or a space: both would complete it.
    assert table.barred[0].tolist() == [False, False, False, False, True, False]


def test_progress_is_counted_in_usual_pieces() -> None:
    found = phrase(b"ab b", PIECES, [6, 8, 5], EOS)
    assert found.cuts == (2, 3, 4)
    table = constraints_of(None, [[found]], [[2]], "cpu")
    assert table is not None
    states = [table.first]
    for id in (4, 5, 8, 5, 10):  # a, b, space, b, -
        states.append(table.after(states[-1], torch.tensor([id])))
    assert [int(table.bank(state)) for state in states] == [0, 0, 1, 2, 3, 4]
    assert [bool(table.met(state)) for state in states] == [False, False, False, False, True, True]
    likely = torch.zeros(1, len(PIECES))
    likely[0, [5, 9]] = -1.0
    assert table.advancing(likely, states[1]).tolist() == [[9]]  # not "b": "b " goes further
    assert table.advancing(likely, states[-1]).tolist() == [[-1]]


def test_what_is_begun_with_counts() -> None:
    found = phrase(b"ab", PIECES, [6], EOS)
    table = constraints_of(None, [[found], []], [[2, 6, 8], [2]], "cpu")
    assert table is not None
    assert table.occurred[table.first[:, 1]].tolist() == [True, True]  # of the second nothing is required
    with pytest.raises(UserError, match="already contains a forbidden phrase"):
        constraints_of(automaton([b"ab"], PIECES, EOS), [()], [[2, 6, 8]], "cpu")
    assert constraints_of(None, [(), ()], [[2], [2]], "cpu") is None


def test_a_closed_phrase_has_no_other_end() -> None:
    found = automaton([b"ab"], PIECES, EOS)
    pieced, whole = [4, 5, 4], [6, 4]  # a b a, ab a
    assert [found.said[found.read(ids)] for ids in (pieced, whole)] == [False, False]
    closed = found.closed([6])
    assert [closed.said[closed.read(ids)] for ids in (pieced, whole)] == [False, True]
    assert not closed.said[closed.read([4, *whole])]  # "aab" never was the word


def test_tables_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    found = automaton([b"Donaudampfschifffahrt", b"Hund", "Straßenbahn".encode()], HALVES, EOS)
    assert len(found.said) <= 21 + 4 + 12 + 4
    assert found.following.dtype == np.int32
    monkeypatch.setattr("seqwright.decoding.phrases.MOST", found.following.size)
    with pytest.raises(UserError, match=r"4 phrases .* leave out all but [123],"):
        automaton([b"Donaudampfschifffahrt", b"Hund", "Straßenbahn".encode(), b"zu"], HALVES, EOS)
