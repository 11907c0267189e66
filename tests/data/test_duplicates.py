"""Copies: found word for word and nearly, with the similarity that counting stretches gives."""

from __future__ import annotations

import numpy as np
import pytest

from seqwright.data.duplicates import STRETCH, copies, minhash

GENERATOR = np.random.default_rng(0)
WORDS = [f"w{number}" for number in range(5000)]


def made_up(length: int = 60) -> list[str]:
    return GENERATOR.choice(WORDS, length).tolist()


def jaccard(first: list[str], second: list[str]) -> float:
    sets = [{tuple(words[i : i + STRETCH]) for i in range(len(words) - STRETCH + 1)} for words in (first, second)]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def changed(words: list[str], places: int) -> list[str]:
    return [f"new{i}" if i < places else word for i, word in enumerate(words)]


def test_copies_are_found_but_for_space_and_case() -> None:
    [copy] = copies(["The  cat sat", "a dog", "the cat\tsat", "", ""])
    assert (copy.number, copy.earlier, copy.similarity) == (2, 0, 1.0)


def test_near_copies_are_found_among_many() -> None:
    documents = [made_up() for _ in range(300)]
    planted = {300 + n: (n * 7, changed(documents[n * 7], 3)) for n in range(20)}
    found = copies([" ".join(words) for words in [*documents, *(words for _, words in planted.values())]])
    assert {(copy.number, copy.earlier) for copy in found} == {(n, of) for n, (of, _) in planted.items()}


def test_different_documents_are_no_copies() -> None:
    assert copies([" ".join(made_up()) for _ in range(300)]) == []
    assert copies(["she said so .", "he said so .", "he said so too ."]) == []


@pytest.mark.parametrize("places", [2, 10, 25])
def test_similarity_is_the_share_of_common_stretches(places: int) -> None:
    words = made_up(400)
    pairs = [(words, changed(words, places * 8))]
    signatures = minhash([one for pair in pairs for one in pair])
    estimate = np.mean(signatures[0] == signatures[1])
    exact = jaccard(*pairs[0])
    assert estimate == pytest.approx(exact, abs=4 * (exact * (1 - exact) / 64) ** 0.5 + 1e-9)
