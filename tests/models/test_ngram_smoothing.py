"""Every smoothing against a naive implementation of its formula, on random corpora."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqwright.core.batch import Source, Vocabulary
from seqwright.models.ngram.model import NGram, NGramConfig
from tests.models.ngram_oracle import Oracle

VOCABULARY = Vocabulary(size=9, unk=0, pad=1, sos=2, eos=3)
PREDICTABLE = (0, 3, 4, 5, 6, 7, 8)
KINDS = ("kneser-ney", "add-k", "mle", "witten-bell", "absolute", "stupid-backoff")

documents = st.lists(st.lists(st.integers(4, 7), max_size=9).map(lambda body: [2, *body, 3]), min_size=1, max_size=8)


def fitted(texts: list[list[int]], **options) -> NGram:
    model = NGram(NGramConfig(**options), VOCABULARY)
    model.fit(SimpleNamespace(ids=np.array([id for text in texts for id in text], np.uint16)))
    return model


def longest(texts: list[list[int]]) -> int:
    return max(map(len, texts))


def histories(texts: list[list[int]], order: int) -> list[list[int]]:
    """Contexts that occur, from the start of each document, and a few that do not."""
    seen = {tuple(text[:i]) for text in texts for i in range(1, len(text))}
    return [list(history) for history in sorted(seen)[:20]] + [[2, 8], [2, 8, 4], [2, 4, 8, 8, 4, 5]]


def distribution(model: NGram, history: list[int]) -> np.ndarray:
    state = model.start(Source.empty(1), capacity=len(history))
    return model.step(torch.tensor([history]), state)[0][0].double().exp().numpy()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40)
@given(texts=documents, order=st.integers(1, 4), cutoff=st.sampled_from([0, 0, 1, 2]))
def test_smoothing_matches_the_oracle_and_sums_to_one(
    kind: str, texts: list[list[int]], order: int, cutoff: int
) -> None:
    order = min(order, longest(texts))
    model = fitted(texts, order=order, smoothing=kind, k=0.3, cutoffs=(0, cutoff))
    oracle = Oracle(texts, order, kind, predictable=PREDICTABLE, discounts=model.discounts, k=0.3, cutoff=cutoff)
    for history in histories(texts, order):
        probabilities = distribution(model, history)
        assert probabilities.sum() == pytest.approx(1, abs=1e-5)
        assert probabilities == pytest.approx([oracle.probability(w, history) for w in range(9)], rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15)
@given(texts=documents, order=st.integers(2, 4))
def test_running_contexts_match_the_oracle_on_one_document(kind: str, texts: list[list[int]], order: int) -> None:
    order = min(order, longest(texts))
    model = fitted(texts, order=order, smoothing=kind, running=True)
    oracle = Oracle(texts, order, kind, predictable=PREDICTABLE, discounts=model.discounts, running=True)
    stream = [id for text in texts for id in text]
    for end in range(1, min(len(stream), 25)):
        if stream[end - 1] != 3:  # nothing is predicted between <eos> and <sos>
            expected = [oracle.probability(w, stream[:end]) for w in range(9)]
            assert distribution(model, stream[:end]) == pytest.approx(expected, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15)
@given(texts=documents, threshold=st.sampled_from([1e-6, 1e-3, 1e-1]))
def test_entropy_pruned_tables_sum_to_one(kind: str, texts: list[list[int]], threshold: float) -> None:
    order = min(3, longest(texts))
    unpruned = fitted(texts, order=order, smoothing=kind)
    pruned = fitted(texts, order=order, smoothing=kind, prune=threshold)
    sizes = [[len(level.key) for level in model.tables.levels] for model in (unpruned, pruned)]
    assert all(after <= before for before, after in zip(*sizes, strict=True))
    for history in histories(texts, order):
        assert distribution(pruned, history).sum() == pytest.approx(1, abs=1e-4)


def test_entropy_pruning_hardly_raises_perplexity() -> None:
    generator = np.random.default_rng(5)
    texts = [[2, *generator.geometric(0.5, 12).clip(max=4) + 3, 3] for _ in range(40)]
    perplexities = []
    for threshold in (0.0, 1e-4, 1e-3, 1e-2):
        model = fitted(texts, order=3, smoothing="witten-bell", prune=threshold)
        scores = [np.log(distribution(model, text[:i])[text[i]]) for text in texts for i in range(1, len(text))]
        perplexities.append((sum(len(level.key) for level in model.tables.levels), np.exp(-np.mean(scores))))
    sizes, values = zip(*perplexities, strict=True)
    assert sizes[0] > sizes[1] > sizes[3]
    assert values[1] < values[0] * 1.02


@pytest.mark.parametrize("kind", KINDS)
def test_counting_with_a_memory_limit_gives_the_same_model(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqwright.models.ngram.scratch.MIN_BLOCK", 50)
    monkeypatch.setattr("seqwright.models.ngram.scratch.BYTES_PER_ROW", 2**27 // 50)
    generator = np.random.default_rng(2)
    texts = [[2, *generator.integers(4, 9, generator.integers(0, 20)), 3] for _ in range(60)]
    texts += [[2, 4, 3]] * 50  # blocks without 4-grams
    unlimited = fitted(texts, order=4, smoothing=kind)
    limited = fitted(texts, order=4, smoothing=kind, memory=2**27)
    assert np.array_equal(unlimited.discounts, limited.discounts)
    for name, tensor in unlimited.state_dict().items():
        assert torch.equal(limited.state_dict()[name], tensor), name
