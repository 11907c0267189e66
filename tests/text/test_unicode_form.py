"""Unicode forms: decomposed text is recognized where the tokenizer learned composed text, and only there."""

from __future__ import annotations

import unicodedata

import pytest

from seqwright.text.backend import Kind
from seqwright.text.trainers import TokenizerConfig, train
from seqwright.text.unicode_form import is_misread

TEXT = "trăm năm trong cõi người ta, chữ tài chữ mệnh khéo là ghét nhau. " * 20
DECOMPOSED = unicodedata.normalize("NFD", TEXT)


@pytest.mark.parametrize("kind", ["characters", "words", "byte-bpe", "bpe", "unigram"])
def test_decomposed_text_is_misread_by_a_tokenizer_of_composed_text(kind: Kind) -> None:
    size = {"size": 300} if kind in ("byte-bpe", "bpe", "unigram") else {}
    composed = train(TokenizerConfig(kind=kind, **size), [TEXT])
    decomposed = train(TokenizerConfig(kind=kind, **size), [DECOMPOSED])
    assert is_misread(DECOMPOSED, composed)
    assert not is_misread(TEXT, composed)
    assert not is_misread("plain ascii", composed)
    assert not is_misread(DECOMPOSED, decomposed)


def test_a_normalizing_tokenizer_reads_both_forms() -> None:
    assert not is_misread(DECOMPOSED, train(TokenizerConfig(kind="words", unicode_normalization="nfc"), [TEXT]))
