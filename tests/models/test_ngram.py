"""N-gram language model: the lecture's example, decoding state, serialization, back-off trace and user errors."""

from __future__ import annotations

import math
import resource
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from seqwright.core.batch import IGNORE, Batch, Source, Vocabulary
from seqwright.core.config import UserError
from seqwright.core.progress import Progress
from seqwright.core.protocols import Autoregressive, Counted
from seqwright.core.storage import load_tensors, save_tensors
from seqwright.models.ngram import native_queries, text_scoring
from seqwright.models.ngram.model import NGram, NGramConfig
from seqwright.models.ngram.text_scoring import sorted_log_probs, text_log_probs
from seqwright.models.ngram.trace import continuations, total, trace

COWS = (
    "the cows eat grass / our cows eat hay daily / factory-farm cows eat corn / "
    "on an organic farm , cows eat hay and / do your cows eat grass or corn ? / what do cows eat if they have / "
    "cows eat corn when there is no / "
    "which cows eat which foods depends / if cows eat grass / when cows eat corn their stomachs / "
    "should we let cows eat corn ?"
)
SPECIAL_TOKENS = ("<unk>", "<pad>", "<sos>", "<eos>")


class Cows:
    """The lecture's corpus and an n-gram model of it."""

    def __init__(self, **options):
        sentences = [line.split() for line in COWS.split(" / ")]
        words = sorted({word for sentence in sentences for word in sentence})
        self.id = {word: id for id, word in enumerate((*SPECIAL_TOKENS, *words))}
        self.ids = np.array([self.id[w] for s in sentences for w in ("<sos>", *s, "<eos>")])
        self.model = NGram(NGramConfig(**options), Vocabulary(size=len(self.id), unk=0, pad=1, sos=2, eos=3))
        self.model.fit(SimpleNamespace(ids=self.ids))

    def batch(self, text: str) -> Batch:
        ids = torch.tensor([[self.id[word] for word in text.split()]])
        return Batch.of_text(ids[:, :-1], ids[:, 1:])

    def next(self, text: str) -> torch.Tensor:
        batch = self.batch(f"{text} <eos>")
        return self.model.step(batch.input, self.model.start(batch.source, capacity=99))[0][0].exp()


def test_trigram_mle_matches_the_lecture() -> None:
    cows = Cows(order=3, smoothing="mle")
    p = cows.next("cows eat")
    for food, count in {"corn": 4, "grass": 3, "hay": 2, "if": 1, "which": 1}.items():
        assert p[cows.id[food]].item() == pytest.approx(count / 11)
    assert p.sum().item() == pytest.approx(1)
    seen = continuations(cows.model.tables, [cows.id["cows"], cows.id["eat"]])
    assert [continuation.count for continuation in seen] == [4, 3, 2, 1, 1]


def test_bigram_mle_sentence_probability_matches_the_lecture() -> None:
    cows = Cows(order=2, smoothing="mle")
    scores, _ = cows.model.score(cows.batch("<sos> cows eat corn <eos>"))
    assert scores.exp()[0].tolist() == pytest.approx([1 / 11, 1, 4 / 11, 1 / 5])
    assert scores.sum().exp().item() == pytest.approx(0.006612, abs=5e-7)


def test_mle_maximizes_likelihood() -> None:
    cows = Cows(order=3, smoothing="mle")
    counts = np.array([4, 3, 2, 1, 1])
    best = cows.next("cows eat")[[cows.id[w] for w in ("corn", "grass", "hay", "if", "which")]].double().numpy()
    best /= best.sum()  # tables are float32
    generator = np.random.default_rng(0)
    for scale in (1e-3, 1e-2, 0.1, 1.0):
        perturbed = best * np.exp(scale * generator.normal(size=(1000, 5)))
        perturbed /= perturbed.sum(1, keepdims=True)
        assert (np.log(perturbed) @ counts <= np.log(best) @ counts).all()


def test_samples_from_the_distribution_pass_a_chi_squared_test() -> None:
    cows = Cows(order=3, smoothing="mle")
    p = cows.next("cows eat").double()
    samples = torch.multinomial(p, 5000, replacement=True, generator=torch.Generator().manual_seed(1))
    observed = torch.bincount(samples, minlength=len(p))
    assert observed[p == 0].sum() == 0
    expected = 5000 * p[p > 0]
    assert (
        (observed[p > 0] - expected) ** 2 / expected
    ).sum() < 18.47  # 0.1 % of samples exceed it, 4 degrees of freedom


def test_add_k_smoothing_matches_the_formula() -> None:
    cows = Cows(order=3, smoothing="add-k", k=0.5)
    predictable = len(cows.id) - 2
    p = cows.next("cows eat")
    assert p[cows.id["corn"]].item() == pytest.approx(4.5 / (11 + 0.5 * predictable))
    assert p[cows.id["daily"]].item() == pytest.approx(0.5 / (11 + 0.5 * predictable))
    unseen = cows.next("corn corn")
    assert unseen[cows.id["corn"]].item() == pytest.approx(1 / predictable)
    assert unseen[cows.id["<sos>"]] == 0
    assert unseen[cows.id["<pad>"]] == 0


def test_ngram_satisfies_the_autoregressive_and_counted_protocols() -> None:
    model = Cows(order=2).model
    assert isinstance(model, Autoregressive)
    assert isinstance(model, Counted)


def test_unfitted_ngram_is_uniform_over_predictable_ids() -> None:
    model = NGram(NGramConfig(order=3), Vocabulary(size=8, unk=0, pad=1, sos=2, eos=3))
    log_probs, state = model.step(torch.tensor([[2, 5]]), model.start(Source.empty(1), capacity=9))
    assert_close(log_probs.exp()[0], torch.tensor([1, 0, 0, 1, 1, 1, 1, 1]) / 6)
    assert state.rows.shape == (1, 2)


def test_closed_vocabulary_gives_unk_probability_zero() -> None:
    open_, closed = Cows(order=3).next("cows eat"), Cows(order=3, unknown=False).next("cows eat")
    assert open_[0] > 0
    assert closed[0] == 0
    assert closed.sum().item() == pytest.approx(1)


def test_contexts_restart_at_document_boundaries_unless_running() -> None:
    for running in (False, True):
        cows = Cows(order=4, smoothing="witten-bell", running=running)
        after_grass = cows.next("eat grass <eos> <sos>")
        at_start = cows.next("<sos>")
        assert (after_grass - at_start).abs().max().item() > 1e-3 if running else torch.equal(after_grass, at_start)
        assert after_grass.sum().item() == pytest.approx(1)


def test_score_with_padding_and_targets_other_than_the_next_input() -> None:
    cows = Cows(order=3)
    ids = cows.batch("<sos> cows eat corn <eos>")
    input = torch.cat([ids.input, torch.full((1, 2), 1)], 1)
    target = torch.cat([ids.target, torch.full((1, 2), IGNORE)], 1)
    target[0, 1] = cows.id["grass"]  # not the next input
    scores, _ = cows.model.score(Batch.of_text(input, target))
    log_probs = cows.model(Batch.of_text(input, target))
    expected = log_probs.gather(-1, target.clamp(min=0)[..., None])[..., 0]
    assert_close(scores, torch.where(target == IGNORE, 0, expected))


@pytest.mark.parametrize("way", ["sorted by 1", "sorted by 2", "sorted by 3", "compiled", "compiled, indexed"])
@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_running_text_is_scored_as_position_by_position(monkeypatch, order: int, way: str) -> None:
    """Law: bit for bit, by numpy and by compiled C, with and without an index of prefixes."""
    if way.startswith("sorted"):
        monkeypatch.setattr(text_scoring, "functions", lambda: None)
        monkeypatch.setattr(text_scoring, "SORTED_IDS", int(way[-1]))
    elif native_queries.functions() is None:
        pytest.skip("this machine has no C compiler")
    monkeypatch.setattr(native_queries, "QUERIES_PER_NGRAM", 0 if way.endswith("indexed") else math.inf)
    cows = Cows(order=order)
    generator = np.random.default_rng(0)
    rows = np.stack([np.roll(cows.ids, shift)[:20] for shift in (0, 7, 30)])
    rows[generator.random(rows.shape) < 0.1] = 0
    batch = Batch.of_text(*map(torch.from_numpy, (rows[:, :-1], np.where(rows[:, 1:] == 2, IGNORE, rows[:, 1:]))))
    tables = cows.model.tables
    contexts = tables.advance(rows[:, :-1], tables.empty_contexts(3))
    expected = np.where(batch.target == IGNORE, 0, tables.log_prob(contexts, batch.target.clamp(min=0).numpy()))
    assert np.array_equal(cows.model.score(batch)[0], expected)
    state = cows.model.start(batch.source, capacity=99)
    parts = []
    for part in (slice(0, 1), slice(1, 3), slice(3, 19)):
        scores, state = cows.model.score(Batch.of_text(batch.input[:, part], batch.target[:, part]), state)
        parts.append(scores)
    assert np.array_equal(torch.cat(parts, 1), expected)


@pytest.mark.parametrize("order", [4, 6])
def test_the_end_of_a_row_is_no_id_of_another(order: int) -> None:
    """(h, end) and (h + 1, id 0) are neighbors in the order of contexts, and different n-grams."""
    generator = np.random.default_rng(0)
    for _ in range(20):
        model = NGram(NGramConfig(order=order, smoothing="witten-bell"), Vocabulary(size=3))
        model.fit(SimpleNamespace(ids=generator.integers(0, 3, 200)))
        text = generator.integers(0, 3, (3, 25))
        expected = model.tables.log_prob(
            model.tables.advance(text, model.tables.empty_contexts(3))[:, :, :-1], text[:, 1:]
        )
        for log_probs in (text_log_probs(model.tables, text), sorted_log_probs(model.tables, text)):
            np.testing.assert_allclose(log_probs, expected, atol=1e-6)


@pytest.mark.parametrize("smoothing", ["kneser-ney", "add-k", "mle", "witten-bell", "absolute", "stupid-backoff"])
@pytest.mark.parametrize("compact", [False, True])
def test_state_dict_round_trip(tmp_path, smoothing: str, compact: bool) -> None:
    cows = Cows(order=3, smoothing=smoothing, compact=compact)
    save_tensors(tmp_path / "model.safetensors", cows.model.state_dict())
    loaded = NGram(cows.model.config, cows.model.vocabulary)
    loaded.load_state_dict(load_tensors(tmp_path / "model.safetensors")[0])
    batch = cows.batch("<sos> do cows eat corn or hay daily <eos>")
    assert torch.equal(loaded(batch), cows.model(batch))
    assert (loaded.tables.levels[1].count is None) == compact


@pytest.mark.parametrize("text", ["cows eat corn", "daily cows eat", "and and", "<sos> which"])
@pytest.mark.parametrize("smoothing", ["kneser-ney", "witten-bell", "stupid-backoff", "add-k"])
def test_trace_sums_to_the_log_probability(text: str, smoothing: str) -> None:
    cows = Cows(order=3, smoothing=smoothing)
    context = [cows.id[word] for word in text.split()]
    for id in range(3, len(cows.id)):
        steps = trace(cows.model.tables, context, id, cows.model.discounts)
        assert math.exp(total(steps)) == pytest.approx(cows.next(text)[id].item(), rel=1e-5)
        assert [step.log_prob is None for step in steps] == [True] * (len(steps) - 1) + [False]


def test_trace_names_the_order_and_count_of_the_hit() -> None:
    cows = Cows(order=3)
    steps = trace(cows.model.tables, [cows.id["cows"], cows.id["eat"]], cows.id["corn"], cows.model.discounts)
    assert len(steps) == 1
    assert steps[0].count == 4
    assert steps[0].discount == cows.model.discounts[2, 3]
    steps = trace(cows.model.tables, [cows.id["hay"], cows.id["eat"]], cows.id["corn"], cows.model.discounts)
    assert [step.seen for step in steps] == [False, True]
    assert steps[1].context == (cows.id["eat"],)


def test_invalid_configs_and_corpora_are_refused() -> None:
    vocabulary = Vocabulary(size=8, unk=0, pad=1, sos=2, eos=3)
    with pytest.raises(UserError, match="nothing to count"):
        NGram(NGramConfig(), vocabulary).fit(SimpleNamespace(ids=np.array([2])))
    with pytest.raises(UserError, match="nothing to count"):
        NGram(NGramConfig(), vocabulary).fit(SimpleNamespace(ids=np.array([], np.uint16)))
    with pytest.raises(UserError, match="try order = 3"):
        NGram(NGramConfig(order=5), vocabulary).fit(SimpleNamespace(ids=np.array([2, 4, 3, 2, 3])))
    for options, reason in (
        ({"order": 0}, "try 3"),
        ({"k": 0.0}, "mle"),
        ({"discount_fallback": (0.5, 1.0)}, "three discounts"),
        ({"cutoffs": (1, 0)}, r"try \[0, 0, 1\]"),
        ({"prune": -1.0}, "try 1e-8"),
        ({"memory": 10}, "too little"),
    ):
        with pytest.raises(UserError, match=reason):
            NGramConfig(**options)


def test_discount_fallback_is_noted() -> None:
    (note,) = Cows(order=2).model.notes
    assert note.startswith("The discounts of 1-grams, 2-grams cannot")
    assert "0.5, 1 and 1.5" in note


class Recorded(Progress):
    """Records notes and stages."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.stages: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def stage(self, text: str) -> None:
        self.stages.append(text)


def test_text_beyond_memory_is_counted_in_temporary_files_whose_space_is_stated(monkeypatch) -> None:
    cows, progress = Cows(order=3), Recorded()
    in_memory = cows.model.state_dict()
    cows.model.fit(SimpleNamespace(ids=cows.ids), progress)
    assert not progress.notes
    monkeypatch.setattr("seqwright.models.ngram.model.DEFAULT_MEMORY", 1000)
    monkeypatch.setattr("seqwright.models.ngram.scratch.MIN_BLOCK", 10)
    monkeypatch.setattr("seqwright.models.ngram.meter.INTERVAL", 0)
    cows.model.fit(SimpleNamespace(ids=cows.ids), progress)
    assert "TMPDIR" in progress.notes[0]
    assert any("counting 2-grams: " in stage and "tokens/s" in stage for stage in progress.stages)
    assert all(torch.equal(cows.model.state_dict()[name], tensor) for name, tensor in in_memory.items())


def test_temporary_files_without_room_are_a_user_error(monkeypatch) -> None:
    cows = Cows(order=3)
    monkeypatch.setattr("seqwright.models.ngram.model.DEFAULT_MEMORY", 1000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))  # fails as a full disk does
    try:
        with pytest.raises(UserError, match="set TMPDIR"):
            cows.model.fit(SimpleNamespace(ids=cows.ids))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
