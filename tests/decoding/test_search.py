"""The laws of search: a very wide beam is exact, a row is as if alone, and what is found scores what the model says."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqwright.core.batch import Batch, Source
from seqwright.core.config import UserError
from seqwright.decoding.generate import generate
from seqwright.decoding.options import Hypothesis, SearchOptions
from seqwright.decoding.sampling import SamplingOptions
from seqwright.decoding.search import search
from tests.contract.kinds import SMALL, VOCABULARY, small
from tests.core.test_state import Translator, indices, sources

RULES = {
    "none": {"length_penalty": "none"},
    "power": {"length_penalty": "power", "length_alpha": 0.7},
    "gnmt": {"length_penalty": "gnmt", "length_alpha": 1.2},
    "average": {"length_penalty": "average"},
    "reward": {"length_penalty": "reward", "length_alpha": 0.8},
}
END = 6  # where this translator ends at many lengths
FACTS = {"sos": VOCABULARY.sos, "eos": VOCABULARY.eos, "banned": (VOCABULARY.unk, VOCABULARY.pad, VOCABULARY.sos)}


def looked_for(model: object, options: SearchOptions, rows: int = 1, **more: object) -> list[list[Hypothesis]]:
    return search(model, Source.empty(rows), options, **(FACTS | more))  # type: ignore[arg-type]


def same(one: list[list[Hypothesis]], other: list[list[Hypothesis]], *, ties: bool = False) -> None:
    """Equal hypotheses with equal numbers; where outputs tie, which of them is found is left open."""
    if not ties:
        assert [[(h.ids, h.reason) for h in own] for own in one] == [[(h.ids, h.reason) for h in own] for own in other]
    for name in ("log_prob", "score"):
        numbers = [torch.tensor([getattr(h, name) for own in found for h in own]).double() for found in (one, other)]
        assert_close(*numbers, rtol=0, atol=1e-5)


@pytest.fixture
def translator() -> Translator:
    torch.manual_seed(3)
    made = Translator().double()
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    return made.requires_grad_(False)


COUNTED = [name for name, row in SMALL.items() if row["kind"] in ("ngram", "arpa")]
"""Kinds whose small counts tie."""


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", SMALL)
def test_a_very_wide_beam_is_exact(name: str, rule: str) -> None:
    model = small(name)
    common = {"max_tokens": 3, "n_best": 5, "rank_unfinished": "among" if rule == "power" else "behind"} | RULES[rule]
    wide = looked_for(model, SearchOptions(beam_size=8**3, stopping="bound", finished=5, **common))
    assert len(wide[0]) == 5
    same(wide, looked_for(model, SearchOptions(kind="exact", **common)), ties=name in COUNTED)


def test_leaving_out_what_cannot_win_saves_work() -> None:
    from seqwright.decoding.bans import Rules
    from seqwright.decoding.exact import exact_search

    model, rules = small("lstm"), Rules(eos=VOCABULARY.eos, banned=torch.tensor([0, 1, 2]))
    facts = {"prompt": [VOCABULARY.sos], "most": 4, "rules": rules}
    options = SearchOptions(length_penalty="none", kind="exact")
    found = exact_search(model, Source.empty(1), options, **facts)
    assert found.proven
    assert found.nodes < 1 + 7 + 7**2 + 7**3
    again = exact_search(model, Source.empty(1), options, known=found.best, **facts)
    assert again.best == found.best
    assert again.nodes <= found.nodes
    short = exact_search(
        model, Source.empty(1), SearchOptions(length_penalty="none", kind="exact", max_nodes=1), **facts
    )
    assert not short.proven


def test_exact_search_goes_deeper_than_pythons_stack() -> None:
    model, deep = small("ngram"), 1100
    options = SearchOptions(kind="exact", max_tokens=deep, min_tokens=deep - 1, length_penalty="none", max_nodes=deep)
    ((found, *_),) = looked_for(model, options)
    assert len(found.ids) == deep - 1
    assert found.reason == "end"


@pytest.mark.parametrize("name", SMALL)
def test_rows_are_searched_as_if_alone(name: str) -> None:
    model = small(name)
    options = SearchOptions(beam_size=4, n_best=3, max_tokens=6, stopping="bound")
    prompts = [[5, 6, 7], [], [9], [4, 4]]
    together = looked_for(model, options, len(prompts), prompts=prompts)
    alone = [looked_for(model, options, prompts=[prompt])[0] for prompt in prompts]
    same(together, alone)


@pytest.mark.parametrize("stop", ["finished", "bound", "now"])
@pytest.mark.parametrize("groups", [1, 2])
def test_sources_of_any_length_are_searched_as_if_alone(translator: Translator, stop: str, groups: int) -> None:
    options = SearchOptions(beam_size=4, n_best=3, beam_groups=groups, stopping=stop, max_tokens=2, length_ratio=2.0)  # type: ignore[arg-type]
    source = sources().select(indices(0, 1, 2, 1, 0, 2))
    together = search(translator, source, options, sos=1, eos=END)
    assert len({len(own[0].ids) for own in together}) > 1
    same(together[:3], [together[4], together[3], together[5]])
    for n in range(3):
        same([together[n]], search(translator, sources().select(indices(n)), options, sos=1, eos=END))


@pytest.mark.parametrize("name", ["ngram", "lstm", "gpt"])
def test_what_is_found_has_the_models_own_probability(name: str) -> None:
    model = small(name)
    (found,) = looked_for(model, SearchOptions(beam_size=6, n_best=6, max_tokens=7))
    for hypothesis in found:
        ids = [VOCABULARY.sos, *hypothesis.ids, *([VOCABULARY.eos] if hypothesis.reason == "end" else [])]
        rows = torch.tensor([ids])
        scored, _ = model.score(Batch.of_text(rows[:, :-1], rows[:, 1:]))
        assert hypothesis.log_prob == pytest.approx(scored.sum().item(), abs=1e-4)


@pytest.mark.parametrize("name", [name for name in SMALL if name not in COUNTED])  # of tied words, either is greedy
def test_greedy_is_what_generation_says_at_temperature_0(name: str) -> None:
    model = small(name)
    prompts = [[5, 6], [7]]
    found = looked_for(model, SearchOptions(kind="greedy", max_tokens=6), 2, prompts=prompts)
    framed = [[VOCABULARY.sos, *prompt] for prompt in prompts]
    said = generate(
        model, framed, SamplingOptions(max_tokens=6, temperature=0), end=VOCABULARY.eos, banned=FACTS["banned"]
    )
    for (hypothesis,), row in zip(found, said, strict=True):
        assert hypothesis.ids == row.ids
        assert hypothesis.reason == row.reason
        assert hypothesis.log_prob == pytest.approx(row.log_prob, abs=1e-4)


def test_a_wider_beam_with_an_exact_stop_is_no_worse_here(translator: Translator) -> None:
    widths = [1, 2, 4, 8, 64]
    scores = [
        search(translator, sources(), SearchOptions(beam_size=w, max_tokens=5, stopping="bound"), sos=1, eos=END)
        for w in widths
    ]
    exact = search(translator, sources(), SearchOptions(kind="exact", max_tokens=5), sos=1, eos=END)
    for n in range(3):
        assert all(found[n][0].score <= exact[n][0].score + 1e-9 for found in scores)


def test_samples_are_drawn_for_each_source(translator: Translator) -> None:
    options = SearchOptions(kind="sample", n_best=5, max_tokens=3, length_ratio=1.0, seed=2)
    together = search(translator, sources(), options, sos=1, eos=END)
    assert [len(own) for own in together] == [5, 5, 5]
    assert len({tuple(h.ids) for h in together[0]}) > 1
    for n, own in enumerate(together):
        assert own == sorted(own, key=lambda h: -h.score)
        same([own], search(translator, sources().select(indices(n)), options, sos=1, eos=END))
        assert all(len(h.ids) <= 3 + [4, 2, 1][n] for h in own)


def test_groups_say_different_things(translator: Translator) -> None:
    apart = SearchOptions(beam_size=3, beam_groups=3, diversity_penalty=50.0, n_best=3, max_tokens=4, stopping="bound")
    for own in search(translator, sources(), apart, sos=1, eos=END):
        firsts = [h.ids[0] if h.ids else None for h in own]
        assert len(set(firsts)) == len(firsts) == 3
    alike = SearchOptions(beam_size=3, beam_groups=3, diversity_penalty=0.0, n_best=3, max_tokens=4)
    greedy = search(translator, sources(), SearchOptions(kind="greedy", max_tokens=4), sos=1, eos=END)
    for own, (best,) in zip(search(translator, sources(), alike, sos=1, eos=END), greedy, strict=True):
        assert [h.ids for h in own] == [best.ids]  # three greedy groups agree, and are told once


class Telling(Translator):
    """A translator that says where it looked."""

    @property
    def source_attention(self) -> list[nn.Module]:
        return [self.attend]


def test_coverage_is_attention_summed_over_the_output(translator: Translator) -> None:
    model = Telling().double().requires_grad_(False)
    model.load_state_dict(translator.state_dict())
    options = SearchOptions(
        beam_size=4, n_best=4, max_tokens=5, coverage_penalty=0.3, length_penalty="none", stopping="bound"
    )
    penalties = []
    for n, own in enumerate(search(model, sources(), options, sos=1, eos=END)):
        source = sources().select(indices(n))
        for hypothesis in own:
            if hypothesis.reason != "end":
                continue
            state, had = model.start(source, capacity=9), torch.zeros(1, source.mask.size(1)).double()
            for id in [1, *hypothesis.ids]:
                _, state = model.step(torch.tensor([[id]]), state)
                memory = state.memory.vectors.unsqueeze(1)
                had += model.attend.weights(state.hidden[:, None, None], memory, mask=source.mask[:, None, None])[0, 0]
            penalty = 0.3 * had[source.mask].clamp(max=1).log().sum().item()
            penalties.append(penalty)
            assert hypothesis.score == pytest.approx(hypothesis.log_prob + penalty)
    assert min(penalties) < -0.1
    with pytest.raises(UserError, match="coverage = 0"):
        search(translator, sources(), options, sos=1, eos=END)


def test_nothing_to_search_and_bad_wishes(translator: Translator) -> None:
    assert looked_for(small("gpt"), SearchOptions(), 0) == []
    with pytest.raises(UserError, match="does not fit the context"):
        looked_for(small("gpt"), SearchOptions(), prompts=[[5] * 20])
    with pytest.raises(UserError, match="no <sos>"):
        looked_for(small("gpt"), SearchOptions(), sos=None)
    for bad in (
        {"beam_size": 0},
        {"beam_size": 4, "beam_groups": 3},
        {"n_best": 9},
        {"length_alpha": 1, "coverage_penalty": -1.0},
    ):
        with pytest.raises(UserError):
            SearchOptions(**bad)  # type: ignore[arg-type]


def test_a_search_fills_the_context_and_no_more() -> None:
    model = small("gpt")
    (found,) = looked_for(
        model, SearchOptions(beam_size=3, n_best=3, max_tokens=99, stopping="bound"), prompts=[[5, 6]]
    )
    assert max(len(h.ids) for h in found) <= model.context - 3 + 1
    (cut,) = looked_for(model, SearchOptions(beam_size=3, max_tokens=99), prompts=[[5, 6]], eos=None)
    assert (len(cut[0].ids), cut[0].reason) == (model.context - 3 + 1, "length")
