"""Rules on what is said hold in every output of every search, and cost nothing where they ask for nothing."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqwright.core.batch import Source
from seqwright.core.config import UserError
from seqwright.decoding.bans import without_repeats
from seqwright.decoding.options import Hypothesis, SearchOptions
from seqwright.decoding.search import search
from tests.contract.kinds import VOCABULARY, small
from tests.decoding.signs import forbid, require, signs

WORDS = st.integers(4, VOCABULARY.size - 1)
PHRASES = st.lists(st.lists(WORDS, min_size=1, max_size=3), max_size=3)
TEXTS = st.lists(WORDS, max_size=12)
MODEL = small("lstm")
PIECES = signs(VOCABULARY.size, 4)


def looked_for(
    options: SearchOptions,
    rows: int = 1,
    forbidden: list[list[int]] | None = None,
    required: list[list[list[int]]] | None = None,
    **more: object,
) -> list[list[Hypothesis]]:
    facts = {"sos": VOCABULARY.sos, "eos": VOCABULARY.eos, "banned": [0, 1, 2]} | more
    facts["forbidden"] = None if forbidden is None else forbid(forbidden, PIECES, 3)
    facts["required"] = None if required is None else [[require(ids, PIECES, 3) for ids in own] for own in required]
    return search(MODEL, Source.empty(rows), options, **facts)  # type: ignore[arg-type]


def holds(text: list[int], phrase: list[int]) -> bool:
    return any(text[n : n + len(phrase)] == phrase for n in range(len(text) - len(phrase) + 1))


@given(st.lists(PHRASES, min_size=1, max_size=3), st.integers(1, 5))
def test_what_is_required_is_said(required: list[list[list[int]]], width: int) -> None:
    together = looked_for(SearchOptions(beam_size=width, n_best=width, max_tokens=11), len(required), required=required)
    for own, phrases in zip(together, required, strict=True):
        assert own
        for hypothesis in own:  # three phrases of three words fit: the fullest bank wins one of them at every step
            assert all(holds(hypothesis.ids, phrase) for phrase in phrases)


@given(TEXTS, st.integers(1, 4))
def test_no_run_is_said_twice(text: list[int], size: int) -> None:
    left = without_repeats(torch.zeros(1, VOCABULARY.size), torch.tensor([text], dtype=torch.long), size)[0]
    runs = {tuple(text[n : n + size]) for n in range(len(text) - size + 1)}
    for id in range(VOCABULARY.size):
        again = len(text) >= size - 1 and tuple([*text, id][-size:]) in runs
        assert bool(left[id].isfinite()) == (not again)


@pytest.mark.parametrize("kind", ["beam", "greedy", "exact"])
def test_searches_keep_the_rules(kind: str) -> None:
    common = {"kind": kind, "max_tokens": 6, "min_tokens": 3, "no_repeat_ngram": 2, "max_nodes": 200}
    free = looked_for(SearchOptions(kind=kind, max_tokens=6, min_tokens=5, max_nodes=200))[0][0].ids  # type: ignore[arg-type]
    (own,) = looked_for(SearchOptions(**common), forbidden=[free[1:3]])  # type: ignore[arg-type]
    for hypothesis in own:
        runs = list(zip(hypothesis.ids, hypothesis.ids[1:], strict=False))
        assert len(hypothesis.ids) >= 3
        assert len(set(runs)) == len(runs)
        assert tuple(free[1:3]) not in runs


@pytest.mark.parametrize("rule", [{"required": [[[7, 8]]]}, {"forbidden": [[7], [5, 6]]}, {}])
@pytest.mark.parametrize("no_repeat", [0, 1])
def test_a_very_wide_beam_is_exact_under_rules(rule: dict[str, object], no_repeat: int) -> None:
    common = {"max_tokens": 3, "n_best": 3, "no_repeat_ngram": no_repeat}
    wide = looked_for(SearchOptions(beam_size=7**3, stopping="bound", finished=3, **common), **rule)  # type: ignore[arg-type]
    exact = looked_for(SearchOptions(kind="exact", **common), **rule)  # type: ignore[arg-type]
    assert [h.ids for h in wide[0]] == [h.ids for h in exact[0]]


def test_nothing_required_changes_nothing() -> None:
    options = SearchOptions(beam_size=4, n_best=4, max_tokens=6)
    plain = looked_for(options, 2, prompts=[[5], [6]])
    assert looked_for(options, 2, prompts=[[5], [6]], required=[[], []]) == plain
    mixed = looked_for(options, 2, prompts=[[5], [6]], required=[[], [[7]]])
    assert [h.ids for h in mixed[0]] == [h.ids for h in plain[0]]
    assert all(7 in h.ids for h in mixed[1] if h.reason == "end")


def test_wishes_that_make_no_sense() -> None:
    with pytest.raises(UserError, match="use a beam"):
        looked_for(SearchOptions(kind="sample"), forbidden=[[5]])
    with pytest.raises(UserError, match="groups = 1"):
        looked_for(SearchOptions(beam_size=4, beam_groups=2), required=[[[5]]])
