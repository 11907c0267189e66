"""Ridge regression and complement naive Bayes of a bag, against scikit-learn, and their selection."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from seqwright.models.bag.complement_nb import ComplementNB, class_counts
from seqwright.models.bag.features import NGramVectorizer
from seqwright.models.bag.model import BagConfig, bag
from seqwright.models.bag.ridge import inverse_document_frequency, ridge_weights
from tests.models.test_bag import WORDS, Corpus, corpus, flat, sizes


def test_ridge_regression_matches_scikit_learn() -> None:
    linear = pytest.importorskip("sklearn.linear_model", reason="scikit-learn is the oracle")
    data = corpus(100, 3)
    _, x = NGramVectorizer.fit_transform(*flat(data.texts), order=2, min_df=1, vocabulary=WORDS)
    scale = inverse_document_frequency(x)
    dense = x @ torch.eye(x.width) * scale
    dense = torch.cat([dense / dense.square().sum(1).mean().sqrt(), torch.ones(len(x), 1)], 1)
    signs = 2.0 * torch.nn.functional.one_hot(data.target, 3) - 1
    oracle = linear.Ridge(alpha=0.5, fit_intercept=False).fit(dense.double().numpy(), signs.numpy())
    weight, bias = ridge_weights(x, scale, data.target, 3, 0.5)
    assert_close(
        (x @ weight + bias).double(), torch.from_numpy(oracle.predict(dense.double().numpy())), atol=1e-3, rtol=0
    )


def test_ridge_regression_is_selected_on_held_out_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """With it the held-out loss is no larger than without; with too many weights for L-BFGS it is used alone."""

    def note() -> str:
        model = bag(BagConfig(order=2), sizes())
        model.fit(corpus())
        accuracy.append(float((model(corpus().batch(np.arange(120))).argmax(1) == corpus().target).float().mean()))
        return model.notes[-1]

    accuracy: list[float] = []
    losses = [float(note().split("loss ")[1].rstrip(")."))]
    monkeypatch.setattr("seqwright.models.bag.selection.MAX_LBFGS_WEIGHTS", 0)
    assert note().startswith("ridge regression with")
    monkeypatch.setattr("seqwright.models.bag.selection.MAX_RIDGE_TEXTS", 0)
    assert "ridge" not in note()
    losses.append(float(note().split("loss ")[1].rstrip(").")))
    assert losses[0] <= losses[1]
    assert min(accuracy) > 0.85


def test_complement_naive_bayes_matches_scikit_learn() -> None:
    """Up to a constant over classes."""
    bayes = pytest.importorskip("sklearn.naive_bayes", reason="scikit-learn is the oracle")
    data = corpus(80, 4)
    _, x = NGramVectorizer.fit_transform(*flat(data.texts), order=2, min_df=1, vocabulary=WORDS)
    x = x.scale_rows(torch.rand(len(x), 1))
    dense = (x @ torch.eye(x.width)).numpy()
    oracle = bayes.ComplementNB(alpha=0.3).fit(dense, data.target.numpy())
    expected = torch.from_numpy(dense @ oracle.feature_log_prob_.T).float()
    ours = ComplementNB.from_counts(class_counts(x, data.target, 4), 0.3)(x)
    assert_close(*(logits - logits.mean(1, keepdim=True) for logits in (ours, expected)), atol=1e-4, rtol=0)


def test_complement_naive_bayes_for_very_many_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Used where there would be too many weights and no l2 is configured; its state dict round-trips."""
    monkeypatch.setattr("seqwright.models.bag.model.MAX_WEIGHTS", 100)
    monkeypatch.setattr("seqwright.models.bag.model.MANY_CLASSES", 5)
    texts = [[n % 6, 6 + noise, n % 6] for n in range(60) for noise in (n % 4,)]
    data, every = Corpus(texts, torch.arange(60) % 6), np.arange(60)
    model, other = (bag(BagConfig(order=2), sizes(count=6)) for _ in range(2))
    model.fit(data)
    assert "complement naive Bayes alone (6 held-out texts: accuracy 100.00 %" in model.notes[-1]
    assert (model(data.batch(every)).argmax(1) == data.target).all()
    other.load_state_dict(model.state_dict())
    assert_close(other(data.batch(every)), model(data.batch(every)))
    regression = bag(BagConfig(order=2, l2=1.0), sizes(count=6))
    regression.fit(data)
    assert regression.complement_nb is None
