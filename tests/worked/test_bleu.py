"""Worked example 8: precision, recall and BLEU of one sentence, against one reference and two."""

from __future__ import annotations

import pytest

from seqwright.metrics.ngram_overlap import clipped_precision, overlap, sentence_bleu, simplified_bleu, word_overlap

CANDIDATE = ["Tôi", "học", "NLP", "của", "AI", "VIET", "NAM"]
FIRST = ["Tôi", "đang", "học", "lớp", "AI", "của", "AI", "VIET", "NAM"]
SECOND = ["Tôi", "đang", "học", "lớp", "CV", "và", "NLP", "của", "AI"]


def precisions(*references: list[str]) -> list[tuple[int, int]]:
    return [clipped_precision(CANDIDATE, references, order) for order in range(1, 5)]


def test_unigram_precision_recall_and_f1() -> None:
    words = overlap(CANDIDATE, FIRST)
    assert (words.shared, words.candidate, words.reference) == (6, 7, 9)
    assert words.precision == pytest.approx(6 / 7)
    assert words.recall == pytest.approx(6 / 9)
    assert words.f1 == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("references", "matches", "simplified", "standard"),
    [([FIRST], [6, 3, 2, 1], 0.3539, 0.3419), ([FIRST, SECOND], [7, 4, 3, 1], 0.4374, 0.4226)],
)
def test_sentence_and_corpus_bleu(
    references: list[list[str]], matches: list[int], simplified: float, standard: float
) -> None:
    assert precisions(*references) == list(zip(matches, [7, 6, 5, 4], strict=True))
    assert sentence_bleu(CANDIDATE, references, brevity="simplified") == pytest.approx(simplified, abs=5e-5)
    assert sentence_bleu(CANDIDATE, references) == pytest.approx(standard, abs=5e-5)
    corpus = simplified_bleu([" ".join(CANDIDATE)], [[" ".join(reference) for reference in references]])
    assert corpus.value == pytest.approx(100 * simplified, abs=5e-3)


def test_bleu_is_zero_without_a_matching_4_gram() -> None:
    assert precisions(SECOND) == [(5, 7), (2, 6), (1, 5), (0, 4)]
    assert sentence_bleu(CANDIDATE, [SECOND]) == 0
    assert sentence_bleu([], [SECOND]) == 0


def test_corpus_precision_recall_and_f1_sum_counts_over_sentences() -> None:
    outputs = [" ".join(CANDIDATE), "một hai"]
    references = [[" ".join(FIRST), "gì"], ["một ba", "bốn"]]
    scores = {kind: word_overlap(outputs, references, kind).value for kind in ("precision", "recall", "f1")}  # type: ignore[arg-type]
    assert scores == pytest.approx({"precision": 700 / 9, "recall": 700 / 11, "f1": 700 / 10})
    assert word_overlap([""], [["một"]], "f1").value == 0
    assert simplified_bleu(["", "một"], [["một"], ["một"]]).value == 0
