"""Reference values of KenLM (lmplz, modified Kneser-Ney) on public corpora, to all printed digits."""

from __future__ import annotations

import lzma
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from seqwright.core.batch import IGNORE, Batch, Vocabulary
from seqwright.models.ngram.model import NGram, NGramConfig

SPECIAL_TOKENS = 4  # <unk> <pad> <sos> <eos>

PTB_DISCOUNTS = """
0.25656 0.82888 1.26492
0.727802 1.09876 1.4713
0.868879 1.25462 1.44822
0.942828 1.38314 1.43173
0.959671 1.3879 1.24171
"""


def read(path: Path) -> str:
    return lzma.open(path, "rt", encoding="utf-8", newline="\n").read()


def encode(sentences: list[list[str]], ids: dict[str, int], *, ended: bool = True) -> np.ndarray:
    """Ids framed by <sos> and <eos>; an empty vocabulary `ids` is filled, otherwise new words are unknown."""
    build = not ids
    framed = []
    for sentence in sentences:
        if build:
            for word in sentence:
                ids.setdefault(word, len(ids) + SPECIAL_TOKENS)
        framed += [2, *(ids.get(word, 0) for word in sentence), *([3] if ended else [])]
    return np.array(framed)


def lines(path: Path) -> list[list[str]]:
    return [line.split() for line in read(path).removesuffix("\n").split("\n")]


def fitted(ids: np.ndarray, words: int, order: int, **options) -> NGram:
    vocabulary = Vocabulary(size=words + SPECIAL_TOKENS, unk=0, pad=1, sos=2, eos=3)
    model = NGram(NGramConfig(order=order, **options), vocabulary)
    model.fit(SimpleNamespace(ids=ids))
    return model


def nats(model: NGram, ids: np.ndarray) -> tuple[float, int]:
    """Mean negative log-likelihood and the number of predictions."""
    stream = torch.from_numpy(ids)[None]
    target = stream[:, 1:].clone()
    target[target == 2] = IGNORE
    batch = Batch.of_text(stream[:, :-1], target)
    return -model.score(batch)[0].double().sum().item() / batch.count, batch.count


@pytest.fixture(scope="module")
def ptb(data_root: Path) -> tuple[np.ndarray, np.ndarray, int]:
    ids: dict[str, int] = {}
    train = encode(lines(data_root / "ptb" / "ptb.train.txt.xz"), ids)
    return train, encode(lines(data_root / "ptb" / "ptb.test.txt.xz"), ids), len(ids)


@pytest.mark.parametrize(("order", "perplexity"), [(2, 185.7049), (3, 148.2815), (4, 142.7156), (5, 141.1862)])
def test_kneser_ney_perplexity_on_penn_treebank(
    ptb: tuple[np.ndarray, np.ndarray, int], order: int, perplexity: float
) -> None:
    train, test, words = ptb
    mean, count = nats(fitted(train, words, order), test)
    assert count == 82430
    assert f"{math.exp(mean):.4f}" == f"{perplexity:.4f}"


def test_kneser_ney_discounts_and_types_on_penn_treebank(ptb: tuple[np.ndarray, np.ndarray, int]) -> None:
    train, _, words = ptb
    model = fitted(train, words, 5)
    assert [len(level.key) for level in model.tables.levels] == [10002 + 1, 264990, 586558, 717733, 737952]  # <pad>
    printed = [" ".join(f"{discount:.6g}" for discount in row[1:]) for row in model.discounts]
    assert printed == PTB_DISCOUNTS.split("\n")[1:-1]
    assert model.notes == []


def test_kneser_ney_perplexity_on_wikitext(data_root: Path) -> None:
    ids: dict[str, int] = {}
    train = encode(lines(data_root / "wikitext2" / "wiki.train.tokens.xz"), ids)
    test = encode(lines(data_root / "wikitext2" / "wiki.test.tokens.xz"), ids)
    mean, count = nats(fitted(train, len(ids), 5), test)
    assert count == 245569
    assert math.exp(mean) == pytest.approx(220.1386, rel=1e-6)


@pytest.mark.parametrize(("order", "figure"), [(5, 1.5612), (7, 1.5165)])
def test_kneser_ney_on_shakespeare_characters(data_root: Path, order: int, figure: float) -> None:
    text = read(data_root / "tiny_shakespeare" / "input.txt.xz")
    cut = int(len(text) * 0.9)
    ids: dict[str, int] = {}
    train = encode([list(text[:cut])], ids)
    test = encode([list(text[cut:])], ids, ended=False)
    model = fitted(train, len(ids), order)
    mean, count = nats(model, test)
    assert count == 111540
    assert f"{mean:.4f}" == f"{figure:.4f}"
    assert [("1-grams" in note, "0.5, 1 and 1.5" in note) for note in model.notes] == [(True, True)]
