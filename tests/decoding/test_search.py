"""The laws of search: a very wide beam equals exact search, rows are batch-invariant, and scores are the model's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import seqwright as sw
from seqwright.core.batch import Batch, Source
from seqwright.core.config import UserError
from seqwright.decoding.exact import exact_search
from seqwright.decoding.generate import generate
from seqwright.decoding.options import Hypothesis, SamplingOptions, SearchOptions
from seqwright.decoding.processors import LogitsProcessors
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
SPECIAL_IDS = {"sos": VOCABULARY.sos, "eos": VOCABULARY.eos, "banned": (VOCABULARY.unk, VOCABULARY.pad, VOCABULARY.sos)}


def run_search(model: object, options: SearchOptions, rows: int = 1, **more: object) -> list[list[Hypothesis]]:
    return search(model, Source.empty(rows), options, **(SPECIAL_IDS | more))  # type: ignore[arg-type]


def assert_same(one: list[list[Hypothesis]], other: list[list[Hypothesis]], *, ties: bool = False) -> None:
    """Equal hypotheses, log-probabilities and scores; with `ties`, ids may differ."""
    if not ties:
        ids_of = [[[(h.ids, h.reason) for h in hypotheses] for hypotheses in outputs] for outputs in (one, other)]
        assert ids_of[0] == ids_of[1]
    for name in ("log_prob", "score"):
        values = [torch.tensor([getattr(h, name) for row in outputs for h in row]).double() for outputs in (one, other)]
        assert_close(*values, rtol=0, atol=1e-5)


@pytest.fixture
def translator() -> Translator:
    torch.manual_seed(3)
    model = Translator().double()
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model.requires_grad_(False)


COUNTED = [name for name, row in SMALL.items() if row["kind"] in ("ngram", "arpa")]
"""n-gram models, whose small counts give equal probabilities."""


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", SMALL)
def test_a_very_wide_beam_equals_exact_search(name: str, rule: str) -> None:
    model = small(name)
    common = {"max_tokens": 3, "n_best": 5, "rank_unfinished": "among" if rule == "power" else "behind"} | RULES[rule]
    wide = run_search(model, SearchOptions(beam_size=8**3, stopping="bound", finished=5, **common))
    assert len(wide[0]) == 5
    assert_same(wide, run_search(model, SearchOptions(kind="exact", **common)), ties=name in COUNTED)


def test_exact_search_prunes_by_bounds() -> None:
    model, options = small("lstm"), SearchOptions(length_penalty="none", kind="exact")
    processors = LogitsProcessors.of([options], eos=VOCABULARY.eos, banned=[0, 1, 2], device="cpu")
    inputs = {"prompt": [VOCABULARY.sos], "limit": 4, "processors": processors}
    result = exact_search(model, Source.empty(1), options, **inputs)
    assert result.proven
    assert result.nodes < 1 + 7 + 7**2 + 7**3
    bounded = exact_search(model, Source.empty(1), options, known=result.best, **inputs)
    assert bounded.best == result.best
    assert bounded.nodes <= result.nodes
    limited = exact_search(
        model, Source.empty(1), SearchOptions(length_penalty="none", kind="exact", max_nodes=1), **inputs
    )
    assert not limited.proven


def test_exact_search_is_not_limited_by_the_recursion_limit() -> None:
    model, deep = small("ngram"), 1100
    options = SearchOptions(kind="exact", max_tokens=deep, min_tokens=deep - 1, length_penalty="none", max_nodes=deep)
    ((best, *_),) = run_search(model, options)
    assert len(best.ids) == deep - 1
    assert best.reason == "end"


@pytest.mark.parametrize("name", SMALL)
def test_beam_search_is_batch_invariant(name: str) -> None:
    model = small(name)
    options = SearchOptions(beam_size=4, n_best=3, max_tokens=6, stopping="bound")
    prompts = [[5, 6, 7], [], [9], [4, 4]]
    batched = run_search(model, options, len(prompts), prompts=prompts)
    alone = [run_search(model, options, prompts=[prompt])[0] for prompt in prompts]
    assert_same(batched, alone)


@pytest.mark.parametrize("stop", ["finished", "bound", "now"])
@pytest.mark.parametrize("groups", [1, 2])
def test_beam_search_with_ragged_sources_is_batch_invariant(translator: Translator, stop: str, groups: int) -> None:
    options = SearchOptions(beam_size=4, n_best=3, beam_groups=groups, stopping=stop, max_tokens=2, length_ratio=2.0)  # type: ignore[arg-type]
    source = sources().select(indices(0, 1, 2, 1, 0, 2))
    batched = search(translator, source, options, sos=1, eos=END)
    assert len({len(hypotheses[0].ids) for hypotheses in batched}) > 1
    assert_same(batched[:3], [batched[4], batched[3], batched[5]])
    for n in range(3):
        assert_same([batched[n]], search(translator, sources().select(indices(n)), options, sos=1, eos=END))


@pytest.mark.parametrize("name", ["ngram", "lstm", "gpt"])
def test_beam_search_log_prob_equals_teacher_forcing(name: str) -> None:
    model = small(name)
    (hypotheses,) = run_search(model, SearchOptions(beam_size=6, n_best=6, max_tokens=7))
    for hypothesis in hypotheses:
        ids = [VOCABULARY.sos, *hypothesis.ids, *([VOCABULARY.eos] if hypothesis.reason == "end" else [])]
        rows = torch.tensor([ids])
        scored, _ = model.score(Batch.of_text(rows[:, :-1], rows[:, 1:]))
        assert hypothesis.log_prob == pytest.approx(scored.sum().item(), abs=1e-4)


@pytest.mark.parametrize(
    "name", [name for name in SMALL if name not in COUNTED]
)  # of equally probable ids, either is greedy
def test_greedy_search_equals_generation_at_temperature_0(name: str) -> None:
    model = small(name)
    prompts = [[5, 6], [7]]
    outputs = run_search(model, SearchOptions(kind="greedy", max_tokens=6), 2, prompts=prompts)
    with_sos = [[VOCABULARY.sos, *prompt] for prompt in prompts]
    generated = generate(
        model, with_sos, SamplingOptions(max_tokens=6, temperature=0), end=VOCABULARY.eos, banned=SPECIAL_IDS["banned"]
    )
    for (hypothesis,), row in zip(outputs, generated, strict=True):
        assert hypothesis.ids == row.ids
        assert hypothesis.reason == row.reason
        assert hypothesis.log_prob == pytest.approx(row.log_prob, abs=1e-4)


def test_beam_search_never_scores_above_exact_search(translator: Translator) -> None:
    widths = [1, 2, 4, 8, 64]
    outputs = [
        search(translator, sources(), SearchOptions(beam_size=w, max_tokens=5, stopping="bound"), sos=1, eos=END)
        for w in widths
    ]
    exact = search(translator, sources(), SearchOptions(kind="exact", max_tokens=5), sos=1, eos=END)
    for n in range(3):
        assert all(hypotheses[n][0].score <= exact[n][0].score + 1e-9 for hypotheses in outputs)


def test_samples_are_drawn_for_each_source(translator: Translator) -> None:
    options = SearchOptions(kind="sample", n_best=5, max_tokens=3, length_ratio=1.0, seed=2)
    batched = search(translator, sources(), options, sos=1, eos=END)
    assert [len(samples) for samples in batched] == [5, 5, 5]
    assert len({tuple(h.ids) for h in batched[0]}) > 1
    for n, samples in enumerate(batched):
        assert samples == sorted(samples, key=lambda h: -h.score)
        assert_same([samples], search(translator, sources().select(indices(n)), options, sos=1, eos=END))
        assert all(len(h.ids) <= 3 + [4, 2, 1][n] for h in samples)


def test_diverse_beam_groups_start_with_different_ids(translator: Translator) -> None:
    diverse = SearchOptions(
        beam_size=3, beam_groups=3, diversity_penalty=50.0, n_best=3, max_tokens=4, stopping="bound"
    )
    for hypotheses in search(translator, sources(), diverse, sos=1, eos=END):
        first_ids = [h.ids[0] if h.ids else None for h in hypotheses]
        assert len(set(first_ids)) == len(first_ids) == 3
    identical = SearchOptions(beam_size=3, beam_groups=3, diversity_penalty=0.0, n_best=3, max_tokens=4)
    greedy = search(translator, sources(), SearchOptions(kind="greedy", max_tokens=4), sos=1, eos=END)
    for hypotheses, (best,) in zip(search(translator, sources(), identical, sos=1, eos=END), greedy, strict=True):
        assert [h.ids for h in hypotheses] == [best.ids]  # three greedy groups agree: duplicates are removed


class AttentionTranslator(Translator):
    """A translator that declares its source attention."""

    @property
    def source_attention(self) -> list[nn.Module]:
        return [self.attend]


def test_coverage_penalty_sums_attention_over_the_output(translator: Translator) -> None:
    model = AttentionTranslator().double().requires_grad_(False)
    model.load_state_dict(translator.state_dict())
    options = SearchOptions(
        beam_size=4, n_best=4, max_tokens=5, coverage_penalty=0.3, length_penalty="none", stopping="bound"
    )
    penalties = []
    for n, hypotheses in enumerate(search(model, sources(), options, sos=1, eos=END)):
        source = sources().select(indices(n))
        for hypothesis in hypotheses:
            if hypothesis.reason != "end":
                continue
            state, attended = model.start(source, capacity=9), torch.zeros(1, source.mask.size(1)).double()
            for id in [1, *hypothesis.ids]:
                _, state = model.step(torch.tensor([[id]]), state)
                memory = state.memory.vectors.unsqueeze(1)
                mask = source.mask[:, None, None]
                attended += model.attend.weights(state.hidden[:, None, None], memory, mask=mask)[0, 0]
            penalty = 0.3 * attended[source.mask].clamp(max=1).log().sum().item()
            penalties.append(penalty)
            assert hypothesis.score == pytest.approx(hypothesis.log_prob + penalty)
    assert min(penalties) < -0.1
    with pytest.raises(UserError, match="coverage_penalty = 0"):
        search(translator, sources(), options, sos=1, eos=END)


def test_empty_batches_and_invalid_search_options(translator: Translator) -> None:
    assert run_search(small("gpt"), SearchOptions(), 0) == []
    with pytest.raises(UserError, match="does not fit the context"):
        run_search(small("gpt"), SearchOptions(), prompts=[[5] * 20])
    with pytest.raises(UserError, match="no <sos>"):
        run_search(small("gpt"), SearchOptions(), sos=None)
    for invalid in (
        {"beam_size": 0},
        {"beam_size": 4, "beam_groups": 3},
        {"n_best": 9},
        {"length_alpha": 1, "coverage_penalty": -1.0},
    ):
        with pytest.raises(UserError):
            SearchOptions(**invalid)  # type: ignore[arg-type]


def test_beam_search_is_limited_by_the_context() -> None:
    model = small("gpt")
    options = SearchOptions(beam_size=3, n_best=3, max_tokens=99, stopping="bound")
    (hypotheses,) = run_search(model, options, prompts=[[5, 6]])
    assert max(len(h.ids) for h in hypotheses) <= model.context - 3 + 1
    (unfinished,) = run_search(model, SearchOptions(beam_size=3, max_tokens=99), prompts=[[5, 6]], eos=None)
    assert (len(unfinished[0].ids), unfinished[0].reason) == (model.context - 3 + 1, "length")


@pytest.mark.parametrize("rule", RULES)
def test_beams_whose_every_continuation_is_blocked_are_cut_off(rule: str) -> None:
    """No unigram may repeat and no <eos> is known: after all seven ids nothing is left to generate."""
    options = SearchOptions(beam_size=3, n_best=2, no_repeat_ngram=1, max_tokens=14, **RULES[rule])  # type: ignore[arg-type]
    special = {"sos": VOCABULARY.sos, "eos": None, "banned": (0, 1, 2, 3)}
    for hypotheses in search(small("lstm"), Source.empty(2), options, **special):  # type: ignore[arg-type]
        assert len(hypotheses) == 2
        for hypothesis in hypotheses:
            assert hypothesis.reason == "length"
            assert sorted(hypothesis.ids) == list(range(4, VOCABULARY.size))
            target = torch.tensor([hypothesis.ids])
            given = torch.tensor([[VOCABULARY.sos, *hypothesis.ids[:-1]]])
            scored, _ = small("lstm").score(Batch.of_text(given, target))
            assert hypothesis.log_prob == pytest.approx(scored.sum().item(), abs=1e-6)


def test_beams_end_as_they_are_where_probabilities_are_zero(tmp_path: Path) -> None:
    """An n-gram without smoothing has nothing to go on with; what it has is an output."""
    (tmp_path / "a.txt").write_text("once only here\n" * 5)
    options = ["tokenizer.kind=words", "model.smoothing=mle", "model.order=3", "data.document=line"]
    run = sw.train(text=str(tmp_path / "a.txt"), model="ngram", set=options, run=tmp_path / "run")
    (outputs,) = run.search(["once only"], beam_size=2, min_tokens=8)
    assert outputs[0].text.strip() == "here"
