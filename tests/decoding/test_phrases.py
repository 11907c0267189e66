"""Phrase automata match every segmentation at word boundaries only; searches satisfy lexical constraints."""

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
from seqwright.decoding.phrases import LETTER_LEAD_BYTES, automaton, phrase
from seqwright.decoding.search import search
from tests.contract.kinds import VOCABULARY, small

EOS = 3
TOKENS = ["a", "b", "ab", " a", " ", "b ", "-"]
PIECES = [b"", b"", b"", b"", *(piece.encode() for piece in TOKENS)]
BYTE_PIECES = [*PIECES, *("é„。".encode()[n : n + 1] for n in range(8)), "é".encode(), "mạ".encode()]
PHRASES = ["a", "b", "ab", "aa", "a b", "b-a", "é", "aé", "-", "。a", "ab ab"]
MODEL = small("lstm")


def occurs(phrase: bytes, text: bytes) -> bool:
    """Whether a phrase occurs in a text at word boundaries, by scanning the text."""
    letters = list(
        itertools.accumulate(
            text, lambda last, byte: last if 0x80 <= byte < 0xC0 else byte in LETTER_LEAD_BYTES, initial=False
        )
    )
    for start in range(len(text) - len(phrase) + 1):
        end = start + len(phrase)
        inside = [letters[at] and at < len(text) and letters[at + 1] for at in (start, end)]
        if text[start:end] == phrase and not any(inside):
            return True
    return False


@given(
    st.lists(st.sampled_from(PHRASES), min_size=1, max_size=3),
    st.lists(st.integers(4, len(BYTE_PIECES) - 1), max_size=9),
)
def test_automaton_matches_phrases_in_any_segmentation(phrases: list[str], ids: list[int]) -> None:
    patterns = [text.encode() for text in phrases]
    table = automaton(patterns, BYTE_PIECES, EOS)
    text = b"".join(BYTE_PIECES[id] for id in ids)
    expected = any(occurs(phrase, text) for phrase in patterns)
    assert table.occurs_at_end[table.read(ids)] == expected
    assert table.occurred[table.read([*ids, EOS])] == expected


@pytest.mark.parametrize(("text", "letter"), [("aé ñ ạ я Ω ש 한 ế ü 7 ß", True), (" -.„“«…。猫の🙂+", False)])
def test_letters_are_recognized_by_their_lead_byte(text: str, letter: bool) -> None:
    assert {character.encode()[0] in LETTER_LEAD_BYTES for character in text.replace(" ", "" if letter else " ")} == {
        letter
    }


def constrained_search(
    options: SearchOptions, forbidden: tuple[str, ...] = (), required: tuple[str, ...] = ()
) -> list[Hypothesis]:
    banned = automaton([text.encode() for text in forbidden], PIECES, EOS) if forbidden else None
    phrases = [phrase(text.encode(), PIECES, shortest_segmentation(text), EOS) for text in required]
    inputs: dict[str, Any] = {"sos": VOCABULARY.sos, "eos": EOS, "banned": [0, 1, 2], "prompts": [[], []]}
    outputs = search(MODEL, Source.empty(2), options, forbidden=banned, required=[phrases, phrases], **inputs)
    assert [h.ids for h in outputs[0]] == [h.ids for h in outputs[1]]
    return outputs[0]


def shortest_segmentation(text: str) -> list[int]:
    """The segmentation into the fewest tokens."""
    for size in range(1, len(text) + 1):
        for pieces in itertools.product(TOKENS, repeat=size):
            if "".join(pieces) == text:
                return [4 + TOKENS.index(piece) for piece in pieces]
    raise AssertionError(text)


def text_of(ids: list[int]) -> bytes:
    return b"".join(PIECES[id] for id in ids)


@pytest.mark.parametrize(
    ("forbidden", "required"),
    [(("a",), ()), (("ab", "b"), ()), ((), ("ab",)), ((), ("a", "b")), (("a b",), ("b",)), (("-",), ("ab a",))],
)
@pytest.mark.parametrize("kind", ["beam", "exact"])
def test_constrained_search_finds_the_best_allowed_outputs(
    forbidden: tuple[str, ...], required: tuple[str, ...], kind: str
) -> None:
    length = 3
    all_outputs = constrained_search(
        SearchOptions(kind="exact", max_tokens=length, n_best=9**length, rank_unfinished="among")
    )
    allowed = [
        h
        for h in all_outputs
        if not any(occurs(text.encode(), text_of(h.ids)) for text in forbidden)
        and all(occurs(text.encode(), text_of(h.ids)) for text in required)
    ]
    options = {
        "max_tokens": length,
        "n_best": 3,
        "rank_unfinished": "among",
        "stopping": "bound",
        "beam_size": 7**length,
        "finished": 3,
    }
    outputs = constrained_search(SearchOptions(kind=kind, **options), forbidden, required)  # type: ignore[arg-type]
    assert [h.ids for h in outputs] == [h.ids for h in allowed[:3]]
    assert [h.log_prob for h in outputs] == pytest.approx([h.log_prob for h in allowed[:3]])


@given(
    st.lists(st.sampled_from(["a", "b", "ab", "a b", "-", "aa"]), max_size=2, unique=True),
    st.lists(st.sampled_from(["ab", "b a", "bb"]), max_size=1),
    st.integers(1, 5),
    st.integers(3, 9),
)
def test_forbidden_phrases_never_occur(forbidden: list[str], required: list[str], width: int, length: int) -> None:
    compatible = [text for text in required if not any(occurs(ban.encode(), text.encode()) for ban in forbidden)]
    options = SearchOptions(beam_size=width, n_best=width, max_tokens=length, min_tokens=2)
    for hypothesis in constrained_search(options, tuple(forbidden), tuple(compatible)):
        assert not any(occurs(text.encode(), text_of(hypothesis.ids)) for text in forbidden)
        if hypothesis.reason == "end":
            assert all(occurs(text.encode(), text_of(hypothesis.ids)) for text in compatible)


def test_ids_that_must_complete_a_forbidden_phrase_are_barred() -> None:
    words = [b"", b"", b"", b"", b" a", b" b"]
    table = constraints_of(automaton([b"a"], words, EOS), [()], [[2]], "cpu")
    assert table is not None
    # Only <eos> or a space can follow " a", and both complete the forbidden word.
    assert table.barred[0].tolist() == [False, False, False, False, True, False]


def test_progress_is_counted_in_tokens_of_the_usual_segmentation() -> None:
    required = phrase(b"ab b", PIECES, [6, 8, 5], EOS)
    assert required.piece_ends == (2, 3, 4)
    table = constraints_of(None, [[required]], [[2]], "cpu")
    assert table is not None
    states = [table.first]
    for id in (4, 5, 8, 5, 10):  # a, b, space, b, -
        states.append(table.after(states[-1], torch.tensor([id])))
    assert [int(table.bank(state)) for state in states] == [0, 0, 1, 2, 3, 4]
    assert [bool(table.met(state)) for state in states] == [False, False, False, False, True, True]
    log_probs = torch.zeros(1, len(PIECES))
    log_probs[0, [5, 9]] = -1.0
    assert table.advancing(log_probs, states[1]).tolist() == [[9]]  # not "b": "b " advances further
    assert table.advancing(log_probs, states[-1]).tolist() == [[-1]]


def test_prompts_count_towards_constraints() -> None:
    required = phrase(b"ab", PIECES, [6], EOS)
    table = constraints_of(None, [[required], []], [[2, 6, 8], [2]], "cpu")
    assert table is not None
    assert table.occurred[table.first[:, 1]].tolist() == [True, True]  # the second source has no required phrase
    with pytest.raises(UserError, match="already contains a forbidden phrase"):
        constraints_of(automaton([b"ab"], PIECES, EOS), [()], [[2, 6, 8]], "cpu")
    assert constraints_of(None, [(), ()], [[2], [2]], "cpu") is None


def test_without_end_boundary_a_single_token_completes_a_phrase() -> None:
    table = automaton([b"ab"], PIECES, EOS)
    two_tokens, one_token = [4, 5, 4], [6, 4]  # a b a, ab a
    assert [table.occurred[table.read(ids)] for ids in (two_tokens, one_token)] == [False, False]
    unbounded = table.without_end_boundary([6])
    assert [unbounded.occurred[unbounded.read(ids)] for ids in (two_tokens, one_token)] == [False, True]
    assert not unbounded.occurred[unbounded.read([4, *one_token])]  # "aab" is another word


def test_automaton_tables_are_small_and_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    table = automaton([b"Donaudampfschifffahrt", b"Hund", "Straßenbahn".encode()], BYTE_PIECES, EOS)
    assert len(table.occurred) <= 21 + 4 + 12 + 4
    assert table.transitions.dtype == np.int32
    monkeypatch.setattr("seqwright.decoding.phrases.MAX_TABLE_ENTRIES", table.transitions.size)
    with pytest.raises(UserError, match=r"4 phrases .* leave out all but [123],"):
        automaton([b"Donaudampfschifffahrt", b"Hund", "Straßenbahn".encode(), b"zu"], BYTE_PIECES, EOS)


def test_a_phrase_that_the_tokenizer_normalizes_is_one_piece() -> None:
    assert phrase(b"AB", PIECES, [6], EOS).piece_ends == (2,)
    assert phrase(b"ab b", PIECES, [6, 8, 5], EOS).piece_ends[-1] == 4
