"""Where outputs looked: steps and teacher forcing agree; the coverage penalty is what it says on every translator."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from seqwright.core.config import UserError
from seqwright.decoding.attention_recorder import Attending, alignments, attentive, coverage
from seqwright.decoding.options import SearchOptions
from seqwright.decoding.search import search
from seqwright.models.mixture import Mixture, Product
from tests.contract.kinds import VOCABULARY
from tests.contract.translators import TRANSLATORS, pairs, translator

SILENT = {"gru bottleneck", "gpt", "gpt rotary"}
"""One asks nothing; the others read the source before the target, and attend to both alike."""
ATTENTIVE = [name for name in TRANSLATORS if name not in SILENT]
FACTS = {"sos": VOCABULARY.sos, "eos": VOCABULARY.eos}


@pytest.mark.parametrize("name", ATTENTIVE)
def test_steps_look_where_teacher_forcing_looks(name: str) -> None:
    model, given = translator(name), pairs()
    outputs = [[4, 5, 6], [7], []]
    whole = alignments(model, given.source, outputs, **FACTS)
    watched = Attending(model)
    for n, ids in enumerate(outputs):
        source = given.source.select(torch.tensor([n]))
        state = watched.start(source, capacity=9)
        for t, id in enumerate([VOCABULARY.sos, *ids]):
            log_probs, state = watched.step(torch.tensor([[id]]), state)
            assert_close(state.weights[0, : whole[n].size(1)], whole[n][t])
        assert_close(whole[n].sum(1), torch.ones(len(ids) + 1, dtype=torch.float64))
        plain, _ = model.step(torch.tensor([[VOCABULARY.sos, *ids]]), model.start(source, capacity=9))
        assert_close(log_probs, plain)


@pytest.mark.parametrize("kind", [Mixture, Product])
def test_an_ensemble_looks_where_its_parts_do(kind: type[Mixture]) -> None:
    parts, given, outputs = (
        [translator(name) for name in ("gru additive", "gru bottleneck", "lstm fed")],
        pairs(),
        [[4], [5, 6], []],
    )
    together = alignments(kind(parts, [0.5, 0.3, 0.2]), given.source, outputs, **FACTS)
    first, second = (alignments(part, given.source, outputs, **FACTS) for part in (parts[0], parts[2]))
    for own, one, other in zip(together, first, second, strict=True):
        assert_close(own, (one + other) / 2)
    assert not attentive(kind([parts[1], parts[1]], [0.5, 0.5]))


@pytest.mark.parametrize("name", ["transformer", "gru additive", "lstm fed"])
def test_a_ragged_prompt_looks_as_its_last_real_id_does(name: str) -> None:
    watched, given = Attending(translator(name)), pairs()
    ids, count = torch.tensor([[2, 4, 5], [2, 6, 6], [2, 2, 2]]), torch.tensor([3, 2, 1])
    _, together = watched.step(ids, watched.start(given.source, capacity=9), count)
    for n in range(3):
        source = given.source.select(torch.tensor([n]))
        _, alone = watched.step(ids[n : n + 1, : count[n]], watched.start(source, capacity=9))
        assert_close(together.weights[n], alone.weights[0])


@pytest.mark.parametrize("name", ATTENTIVE)
def test_the_coverage_penalty_by_brute_force(name: str) -> None:
    model, given = translator(name), pairs()
    options = SearchOptions(
        beam_size=40, n_best=6, max_tokens=4, coverage_penalty=0.7, length_penalty="none", stopping="bound"
    )
    penalties = []
    for n, own in enumerate(search(model, given.source, options, **FACTS)):
        source = given.source.select(torch.tensor([n]))
        for hypothesis in own:
            if hypothesis.reason == "end":
                (weights,) = alignments(model, source, [hypothesis.ids], **FACTS)
                penalties.append(0.7 * weights.sum(0).clamp(max=1).log().sum().item())
                assert hypothesis.score == pytest.approx(hypothesis.log_prob + penalties[-1])
    assert penalties
    assert min(penalties) < -0.1


@pytest.mark.parametrize("name", sorted(SILENT))
def test_others_cannot_say(name: str) -> None:
    model = translator(name)
    assert not attentive(model)
    with pytest.raises(UserError, match="coverage = 0"):
        search(model, pairs().source, SearchOptions(coverage_penalty=0.1), **FACTS)


def test_coverage_counts_each_position_once() -> None:
    assert coverage(torch.tensor([[1.0, 0.0], [1.0, 0.0]])) == 0.5
    assert coverage(torch.tensor([[0.5, 0.5], [0.5, 0.5]])) == 1.0
