"""Text metrics: sacrebleu's numbers, edit distance and ROUGE against brute force, and significance tests."""

from __future__ import annotations

import itertools
import random
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from seqwright.core.config import UserError
from seqwright.metrics.counts import Counts, by_length, percentage, prf_formula, scores, scores_json
from seqwright.metrics.edit_distance import edit_distance, error_rate, lcs_length
from seqwright.metrics.ngram_overlap import rouge
from seqwright.metrics.score import bootstrap
from seqwright.metrics.significance import compare
from seqwright.metrics.translation import bleu, chrf, exact_match, ter
from seqwright.metrics.utilities import UTILITIES, pairwise_bleu, pairwise_chrf, pairwise_f1

WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "under", "mat", "tree", ",", "."]
ITEMS = st.lists(st.sampled_from("abcd"), max_size=7)


def texts(count: int, seed: int) -> list[str]:
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=generator.randint(4, 12))) for _ in range(count)]


def corrupted(originals: list[str], rate: float, seed: int) -> list[str]:
    """The texts with a share of the words replaced."""
    generator = random.Random(seed)
    return [" ".join(generator.choice(WORDS) if generator.random() < rate else w for w in t.split()) for t in originals]


TRUTH = texts(60, 1)
OTHER = corrupted(TRUTH, 0.2, 2)
OUTPUTS = corrupted(TRUTH, 0.3, 3)
REFERENCES = [[one, other] for one, other in zip(TRUTH, OTHER, strict=True)]


def test_bleu_chrf_ter_equal_sacrebleu() -> None:
    streams = [TRUTH, OTHER]
    assert bleu(OUTPUTS, REFERENCES).value == pytest.approx(sacrebleu.corpus_bleu(OUTPUTS, streams).score)
    assert chrf(OUTPUTS, REFERENCES).value == pytest.approx(sacrebleu.corpus_chrf(OUTPUTS, streams).score)
    assert ter(OUTPUTS, REFERENCES).value == pytest.approx(sacrebleu.corpus_ter(OUTPUTS, streams).score)
    plain = bleu(OUTPUTS, REFERENCES, tokenize="none", lowercase=True)
    expected = sacrebleu.corpus_bleu(OUTPUTS, streams, tokenize="none", lowercase=True).score
    assert plain.value == pytest.approx(expected)
    assert "tok:none" in plain.signature
    assert "case:lc" in plain.signature
    assert "nrefs:2" in bleu(OUTPUTS, REFERENCES).signature


def test_bleu_with_a_ragged_number_of_references() -> None:
    ragged = [references[: 1 + n % 2] for n, references in enumerate(REFERENCES)]
    streams = [TRUTH, [None if n % 2 == 0 else other for n, other in enumerate(OTHER)]]
    assert bleu(OUTPUTS, ragged).value == pytest.approx(sacrebleu.corpus_bleu(OUTPUTS, streams).score)


@pytest.mark.parametrize("metric", [bleu, chrf, ter, exact_match])
def test_text_counts_add_up_and_have_intervals(metric) -> None:
    counts: Counts = metric(OUTPUTS, REFERENCES)
    parts = [metric(OUTPUTS[:20], REFERENCES[:20]).rows, metric(OUTPUTS[20:], REFERENCES[20:]).rows]
    assert np.array_equal(np.concatenate(parts), counts.rows)
    score = scores([counts], resamples=200, seed=1)[counts.name]
    assert score.low is not None
    assert score.high is not None
    assert score.low <= score.value <= score.high
    assert score.low < score.high
    best = metric(TRUTH, REFERENCES).value
    assert best == pytest.approx(0 if counts.better < 0 else 100)


def test_unpaired_outputs_and_references_are_refused() -> None:
    for outputs, references in [(["a"], []), (["a"], [[]]), ([], [])]:
        with pytest.raises(UserError):
            bleu(outputs, references)


@given(ITEMS, ITEMS)
def test_edit_distance_equals_brute_force(one: list[str], other: list[str]) -> None:
    @cache
    def distance(n: int, m: int) -> int:
        if not n or not m:
            return n + m
        same = one[n - 1] == other[m - 1]
        return min(distance(n - 1, m) + 1, distance(n, m - 1) + 1, distance(n - 1, m - 1) + (not same))

    assert edit_distance(one, other) == distance(len(one), len(other))


@given(ITEMS, ITEMS)
def test_lcs_length_equals_brute_force(one: list[str], other: list[str]) -> None:
    def holds(sequence: tuple[str, ...]) -> bool:
        rest = iter(other)
        return all(item in rest for item in sequence)

    longest = max(n for n in range(len(one) + 1) if any(map(holds, itertools.combinations(one, n))))
    assert lcs_length(one, other) == longest


def test_error_rate() -> None:
    counts = error_rate([["k", "ae", "t"], ["d", "ao"]], [[["k", "ah", "t"], ["k", "ae"]], [["d", "ao", "g"]]])
    assert counts.rows.tolist() == [[1, 3], [1, 3]]
    assert counts.value == pytest.approx(100 / 3)
    assert counts.better == -1


def test_rouge_by_hand() -> None:
    # The example of Lin (2004): equal ROUGE-2, but only the first candidate keeps the word order.
    reference = [["police killed the gunman"]]
    for candidate, one, two, longest in [
        ("police kill the gunman", 75, 100 / 3, 75),
        ("the gunman kill police", 75, 100 / 3, 50),
    ]:
        f1 = [rouge([candidate], reference, kind).value for kind in ("1", "2", "L")]  # type: ignore[arg-type]
        assert f1 == pytest.approx([one, two, longest])
    assert rouge(["Police!"], [["nothing", "police"]], "1").value == 100
    assert rouge([""], [["police"]], "L").value == 0


def test_significance_of_a_real_difference_and_a_tie() -> None:
    good, bad = (corrupted(TRUTH, rate, 5) for rate in (0.1, 0.4))
    alike = corrupted(TRUTH, 0.1, 6)
    for metric in (bleu, chrf, ter):
        clear = compare(metric(good, REFERENCES), metric(bad, REFERENCES), trials=200)
        assert clear.verdict == "better"
        assert 0 < clear.low < clear.value < clear.high
        assert compare(metric(bad, REFERENCES), metric(good, REFERENCES), trials=200).verdict == "worse"
        assert compare(metric(good, REFERENCES), metric(alike, REFERENCES), trials=200).verdict == "tie"
    same = compare(bleu(good, REFERENCES), bleu(good, REFERENCES), trials=50)
    assert (same.value, same.p) == (0, 1)
    with pytest.raises(UserError, match="same examples"):
        compare(bleu(good, REFERENCES), chrf(good, REFERENCES))


def test_scores_by_length_bucket() -> None:
    counts = exact_match(["a", "b", "c", "d"], [["a"], ["x"], ["c"], ["d"]])
    assert by_length(counts, [3, 9, 10, 70]) == [("0-9", 2, 50.0), ("10-19", 1, 100.0), ("50+", 1, 100.0)]
    assert by_length(counts.select(np.array([0, 1])), [49, 50]) == [("40-49", 1, 100.0), ("50+", 1, 0.0)]


def accuracy_counts(*rows: int) -> Counts:
    counted = np.stack([np.array(rows), np.ones(len(rows))], 1).astype(np.float64)
    return Counts(name="accuracy", rows=counted, formula=percentage, signature="accuracy")


def test_formulas_with_zero_denominators_are_zero() -> None:
    nothing = np.zeros((1, 3))
    assert percentage(nothing)[0] == 0
    assert [prf_formula(kind)(nothing)[0] for kind in ("precision", "recall", "f1")] == [0, 0, 0]  # type: ignore[arg-type]


def test_scores_json_uses_resamples_and_seed() -> None:
    counts = accuracy_counts(*[0, 1] * 20)
    for options in ({"resamples": 50, "seed": 1}, {"resamples": 50, "seed": 2}, {"resamples": 0, "seed": 1}):
        result = scores_json([counts], SimpleNamespace(**options))
        assert result["accuracy"] == 50
        ((low, high),) = bootstrap([(counts.rows, counts.formula)], **options)
        assert result["scores"]["accuracy"] == {"value": 50, "low": low, "high": high, "signature": "accuracy"}


def test_pairwise_mbr_utilities_equal_sacrebleu() -> None:
    candidates = [*TRUTH[:5], OUTPUTS[0], "", "ab"]
    matrix = pairwise_chrf(candidates)
    for i, j in itertools.product(range(len(candidates)), repeat=2):
        assert 100 * matrix[i, j] == pytest.approx(sacrebleu.sentence_chrf(candidates[i], [candidates[j]]).score)
    words = pairwise_f1(["a b b", "b c", ""])
    assert words.tolist() == [[1, 0.4, 0], [0.4, 1, 0], [0, 0, 0]]
    sentence = sacrebleu.sentence_bleu(OUTPUTS[0], [TRUTH[0]], smooth_method="none", use_effective_order=False).score
    assert 100 * pairwise_bleu([OUTPUTS[0], TRUTH[0]])[0, 1] == pytest.approx(sentence)
    assert all(utility(candidates).shape == (len(candidates), len(candidates)) for utility in UTILITIES.values())


@pytest.mark.parametrize(("right", "ends"), [(100, (97, 100)), (0, (0, 3))])
def test_percentages_at_their_ends_have_the_bound_of_the_rule_of_three(right: int, ends: tuple[float, float]) -> None:
    rows = np.stack([np.arange(100) < right, np.ones(100)], 1).astype(float)
    counts = [Counts(name="accuracy", rows=rows, formula=percentage, signature="accuracy")]
    score = scores(counts, resamples=100, seed=1)["accuracy"]
    assert (score.low, score.high) == ends
    few = scores([counts[0].select(np.arange(5))], resamples=100, seed=1)["accuracy"]
    assert (few.low, few.high) == (None, None)
