"""Ridge regression and complement naive Bayes in a bag: what scikit-learn finds, chosen where it suits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from seqwright.models.bag.complement_nb import Complement, counted
from seqwright.models.bag.features import Grams
from seqwright.models.bag.model import BagConfig, bag
from seqwright.models.bag.ridge import rarity, weights
from tests.models.test_bag import WORDS, Corpus, corpus, flat, sizes


def test_ridge_regression_is_that_of_scikit_learn() -> None:
    linear = pytest.importorskip("sklearn.linear_model", reason="scikit-learn is the oracle")
    data = corpus(100, 3)
    _, x = Grams.of(*flat(data.texts), order=2, min_df=1, vocabulary=WORDS)
    scale = rarity(x)
    dense = x @ torch.eye(x.width) * scale
    dense = torch.cat([dense / dense.square().sum(1).mean().sqrt(), torch.ones(len(x), 1)], 1)
    signs = 2.0 * torch.nn.functional.one_hot(data.target, 3) - 1
    oracle = linear.Ridge(alpha=0.5, fit_intercept=False).fit(dense.double().numpy(), signs.numpy())
    weight, bias = weights(x, scale, data.target, 3, 0.5)
    assert_close(
        (x @ weight + bias).double(), torch.from_numpy(oracle.predict(dense.double().numpy())), atol=1e-3, rtol=0
    )


def test_held_out_texts_decide_about_ridge_regression(monkeypatch: pytest.MonkeyPatch) -> None:
    """With it the held-out loss is no larger than without; where weights are too many to descend with it is all."""

    def noted() -> str:
        model = bag(BagConfig(order=2), sizes())
        model.fit(corpus())
        right.append(float((model(corpus().batch(np.arange(120))).argmax(1) == corpus().target).float().mean()))
        return model.notes[-1]

    right: list[float] = []
    losses = [float(noted().split("loss ")[1].rstrip(")."))]
    monkeypatch.setattr("seqwright.models.bag.selection.DESCENDED", 0)
    assert noted().startswith("ridge regression with")
    monkeypatch.setattr("seqwright.models.bag.selection.DUAL", 0)
    assert "ridge" not in noted()
    losses.append(float(noted().split("loss ")[1].rstrip(").")))
    assert losses[0] <= losses[1]
    assert min(right) > 0.85


def test_complement_naive_bayes_is_that_of_scikit_learn() -> None:
    """Up to what it says of all classes alike."""
    bayes = pytest.importorskip("sklearn.naive_bayes", reason="scikit-learn is the oracle")
    data = corpus(80, 4)
    _, x = Grams.of(*flat(data.texts), order=2, min_df=1, vocabulary=WORDS)
    x = x.scaled(torch.rand(len(x), 1))
    dense = (x @ torch.eye(x.width)).numpy()
    oracle = bayes.ComplementNB(alpha=0.3).fit(dense, data.target.numpy())
    expected = torch.from_numpy(dense @ oracle.feature_log_prob_.T).float()
    mine = Complement.of(counted(x, data.target, 4), 0.3)(x)
    assert_close(*(own - own.mean(1, keepdim=True) for own in (mine, expected)), atol=1e-4, rtol=0)


def test_very_many_classes_are_counted_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where weights would be too many and no l2 was asked for; kept and loaded as any other bag."""
    monkeypatch.setattr("seqwright.models.bag.model.MOST_WEIGHTS", 100)
    monkeypatch.setattr("seqwright.models.bag.model.SEVERAL", 5)
    texts = [[n % 6, 6 + luck, n % 6] for n in range(60) for luck in (n % 4,)]
    data, every = Corpus(texts, torch.arange(60) % 6), np.arange(60)
    model, other = (bag(BagConfig(order=2), sizes(count=6)) for _ in range(2))
    model.fit(data)
    assert "complement naive Bayes alone (6 held-out texts: accuracy 100.00 %" in model.notes[-1]
    assert (model(data.batch(every)).argmax(1) == data.target).all()
    other.load_state_dict(model.state_dict())
    assert_close(other(data.batch(every)), model(data.batch(every)))
    regression = bag(BagConfig(order=2, l2=1.0), sizes(count=6))
    regression.fit(data)
    assert regression.complement is None
