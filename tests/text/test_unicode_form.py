"""Unicode forms: text in the other form than the tokenizer learned is recognized, and only that."""

from __future__ import annotations

import unicodedata

import pytest

from seqwright.text.backend import Kind
from seqwright.text.trainers import TokenizerConfig, train
from seqwright.text.unicode_form import better_form

TEXT = "trăm năm trong cõi người ta, chữ tài chữ mệnh khéo là ghét nhau. " * 20
DECOMPOSED = unicodedata.normalize("NFD", TEXT)


@pytest.mark.parametrize("kind", ["characters", "words", "byte-bpe", "bpe", "unigram"])
def test_the_other_form_than_the_tokenizer_learned_is_recognized(kind: Kind) -> None:
    size = {"size": 300} if kind in ("byte-bpe", "bpe", "unigram") else {}
    composed = train(TokenizerConfig(kind=kind, **size), [TEXT])
    decomposed = train(TokenizerConfig(kind=kind, **size), [DECOMPOSED])
    assert better_form(DECOMPOSED, composed) == "NFC"
    assert better_form(TEXT, decomposed) == "NFD"
    assert better_form(TEXT, composed) is None
    assert better_form("plain ascii", composed) is None
    assert better_form(DECOMPOSED, decomposed) is None


def test_a_normalizing_tokenizer_reads_both_forms() -> None:
    tokenizer = train(TokenizerConfig(kind="words", unicode_normalization="nfc"), [TEXT])
    assert better_form(DECOMPOSED, tokenizer) is None
    assert better_form(TEXT, tokenizer) is None


def test_accents_of_words_that_are_known_without_them_are_no_other_form() -> None:
    english = train(TokenizerConfig(kind="byte-bpe", size=400), ["the cafe has a resume of a naive fiancee. " * 40])
    assert better_form("the café has a résumé of a naïve fiancée.", english) is None
