"""Duplicate detection: exact and near, with the Jaccard similarity of shingles."""

from __future__ import annotations

import numpy as np
import pytest

from seqwright.data.duplicates import SHINGLE, find_duplicates, minhash

GENERATOR = np.random.default_rng(0)
WORDS = [f"w{number}" for number in range(5000)]


def random_document(length: int = 60) -> list[str]:
    return GENERATOR.choice(WORDS, length).tolist()


def jaccard(first: list[str], second: list[str]) -> float:
    sets = [{tuple(words[i : i + SHINGLE]) for i in range(len(words) - SHINGLE + 1)} for words in (first, second)]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def changed(words: list[str], places: int) -> list[str]:
    return [f"new{i}" if i < places else word for i, word in enumerate(words)]


def test_exact_duplicates_up_to_white_space_and_case() -> None:
    [duplicate] = find_duplicates(["The  cat sat", "a dog", "the cat\tsat", "", ""])
    assert (duplicate.number, duplicate.earlier, duplicate.similarity) == (2, 0, 1.0)


def test_near_duplicates_are_found_among_many() -> None:
    documents = [random_document() for _ in range(300)]
    planted = {300 + n: (n * 7, changed(documents[n * 7], 3)) for n in range(20)}
    duplicates = find_duplicates([" ".join(words) for words in [*documents, *(words for _, words in planted.values())]])
    assert {(duplicate.number, duplicate.earlier) for duplicate in duplicates} == {
        (n, of) for n, (of, _) in planted.items()
    }


def test_different_documents_are_no_duplicates() -> None:
    assert find_duplicates([" ".join(random_document()) for _ in range(300)]) == []
    assert find_duplicates(["she said so .", "he said so .", "he said so too ."]) == []


@pytest.mark.parametrize("places", [2, 10, 25])
def test_minhash_estimates_jaccard_similarity(places: int) -> None:
    words = random_document(400)
    pairs = [(words, changed(words, places * 8))]
    signatures = minhash([document for pair in pairs for document in pair])
    estimate = np.mean(signatures[0] == signatures[1])
    exact = jaccard(*pairs[0])
    assert estimate == pytest.approx(exact, abs=4 * (exact * (1 - exact) / 64) ** 0.5 + 1e-9)
