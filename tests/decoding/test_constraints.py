"""Required and forbidden phrases, minimum length and n-gram blocking hold in every output of every search."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqwright.core.batch import Source
from seqwright.core.config import UserError
from seqwright.decoding.filters import repeated_ngrams
from seqwright.decoding.options import Hypothesis, SearchOptions
from seqwright.decoding.search import search
from tests.contract.kinds import VOCABULARY, small
from tests.decoding.signs import character_pieces, forbid, require

WORDS = st.integers(4, VOCABULARY.size - 1)
PHRASES = st.lists(st.lists(WORDS, min_size=1, max_size=3), max_size=3)
TEXTS = st.lists(WORDS, max_size=12)
MODEL = small("lstm")
PIECES = character_pieces(VOCABULARY.size, 4)


def run_search(
    options: SearchOptions,
    rows: int = 1,
    forbidden: list[list[int]] | None = None,
    required: list[list[list[int]]] | None = None,
    **more: object,
) -> list[list[Hypothesis]]:
    inputs = {"sos": VOCABULARY.sos, "eos": VOCABULARY.eos, "banned": [0, 1, 2]} | more
    inputs["forbidden"] = None if forbidden is None else forbid(forbidden, PIECES, 3)
    inputs["required"] = None if required is None else [[require(ids, PIECES, 3) for ids in row] for row in required]
    return search(MODEL, Source.empty(rows), options, **inputs)  # type: ignore[arg-type]


def contains(text: list[int], phrase: list[int]) -> bool:
    return any(text[n : n + len(phrase)] == phrase for n in range(len(text) - len(phrase) + 1))


@given(st.lists(PHRASES, min_size=1, max_size=3), st.integers(1, 5))
def test_required_phrases_occur_in_every_output(required: list[list[list[int]]], width: int) -> None:
    outputs = run_search(SearchOptions(beam_size=width, n_best=width, max_tokens=11), len(required), required=required)
    for hypotheses, phrases in zip(outputs, required, strict=True):
        assert hypotheses
        for (
            hypothesis
        ) in hypotheses:  # three phrases of three words fit: the fullest bank wins one of them at every step
            assert all(contains(hypothesis.ids, phrase) for phrase in phrases)


@pytest.mark.parametrize("kind", [{"kind": "greedy"}, {"beam_size": 1}, {"beam_size": 3}])
def test_outputs_that_contain_their_required_phrases_stay(kind: dict[str, object]) -> None:
    """Phrases from the middle: a beam filled by progress towards them alone would begin with them."""
    options = SearchOptions(max_tokens=8, min_tokens=7, no_repeat_ngram=1, **kind)  # type: ignore[arg-type]
    plain = run_search(options, 2, prompts=[[5], [6]])
    middle = [[hypotheses[0].ids[3:5]] for hypotheses in plain]
    assert all(len(phrase) == 2 for (phrase,) in middle)
    assert run_search(options, 2, prompts=[[5], [6]], required=middle) == plain


def test_greedy_search_reaches_required_phrases_by_beam() -> None:
    options = SearchOptions(kind="greedy", beam_size=6, max_tokens=8)
    ((plain,),) = run_search(options, prompts=[[5]])
    absent = next(id for id in range(4, VOCABULARY.size) if id not in plain.ids)
    required = [[[absent, absent]]]
    searched = run_search(replace(options, kind="beam"), prompts=[[5]], required=required)
    assert run_search(options, prompts=[[5]], required=required) == searched
    assert contains(searched[0][0].ids, required[0][0])


@given(TEXTS, st.integers(1, 4))
def test_no_repeat_ngram_blocks_exactly_the_repeated_ngrams(text: list[int], size: int) -> None:
    padded = torch.tensor([[*text, 9, 9]], dtype=torch.long)
    blocked = repeated_ngrams(padded, torch.tensor([len(text)]), size, VOCABULARY.size)[0]
    ngrams = {tuple(text[n : n + size]) for n in range(len(text) - size + 1)}
    for id in range(VOCABULARY.size):
        repeats = len(text) >= size - 1 and tuple([*text, id][-size:]) in ngrams
        assert bool(blocked[id]) == repeats


@pytest.mark.parametrize("kind", ["beam", "greedy", "exact"])
def test_constraints_hold_in_every_kind_of_search(kind: str) -> None:
    common = {"kind": kind, "max_tokens": 6, "min_tokens": 3, "no_repeat_ngram": 2, "max_nodes": 200}
    unconstrained = run_search(SearchOptions(kind=kind, max_tokens=6, min_tokens=5, max_nodes=200))[0][0].ids  # type: ignore[arg-type]
    (hypotheses,) = run_search(SearchOptions(**common), forbidden=[unconstrained[1:3]])  # type: ignore[arg-type]
    for hypothesis in hypotheses:
        bigrams = list(zip(hypothesis.ids, hypothesis.ids[1:], strict=False))
        assert len(hypothesis.ids) >= 3
        assert len(set(bigrams)) == len(bigrams)
        assert tuple(unconstrained[1:3]) not in bigrams


@pytest.mark.parametrize("rule", [{"required": [[[7, 8]]]}, {"forbidden": [[7], [5, 6]]}, {}])
@pytest.mark.parametrize("no_repeat", [0, 1])
def test_a_very_wide_beam_equals_exact_search_under_constraints(rule: dict[str, object], no_repeat: int) -> None:
    common = {"max_tokens": 3, "n_best": 3, "no_repeat_ngram": no_repeat}
    wide = run_search(SearchOptions(beam_size=7**3, stopping="bound", finished=3, **common), **rule)  # type: ignore[arg-type]
    exact = run_search(SearchOptions(kind="exact", **common), **rule)  # type: ignore[arg-type]
    assert [h.ids for h in wide[0]] == [h.ids for h in exact[0]]


def test_empty_required_phrases_change_nothing() -> None:
    options = SearchOptions(beam_size=4, n_best=4, max_tokens=6)
    plain = run_search(options, 2, prompts=[[5], [6]])
    assert run_search(options, 2, prompts=[[5], [6]], required=[[], []]) == plain
    mixed = run_search(options, 2, prompts=[[5], [6]], required=[[], [[7]]])
    assert [h.ids for h in mixed[0]] == [h.ids for h in plain[0]]
    assert all(7 in h.ids for h in mixed[1] if h.reason == "end")


def test_incompatible_constraints_are_refused() -> None:
    with pytest.raises(UserError, match="use a beam"):
        run_search(SearchOptions(kind="sample"), forbidden=[[5]])
    with pytest.raises(UserError, match="beam_groups = 1"):
        run_search(SearchOptions(beam_size=4, beam_groups=2), required=[[[5]]])
