"""Output heads: logits, log-probabilities, losses and predictions are consistent with each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from seqwright.core.batch import IGNORE
from seqwright.layers.encoder import last_real
from seqwright.layers.heads import ClassHead, MultiLabelHead, RegressionHead, TokenHead
from seqwright.layers.mixture_of_softmaxes import MixtureOfSoftmaxes
from seqwright.tasks.images.scores import gaussian_nll, squared_errors


@pytest.mark.parametrize("head", [TokenHead(4, 7), MixtureOfSoftmaxes(4, 7, 3)], ids=["softmax", "mixture"])
def test_token_head_log_probs_score_loss_and_predictions_agree(head: TokenHead | MixtureOfSoftmaxes) -> None:
    torch.manual_seed(0)
    head = head.double()
    hidden = torch.randn(2, 3, 4, dtype=torch.float64)
    target = torch.randint(7, (2, 3))
    log_probs = head(hidden).log_softmax(-1)
    assert_close(head.log_probs(hidden), log_probs)
    assert_close(head.score(hidden, target), log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1))
    total, count = head.loss(hidden, target)
    assert_close(total, -head.score(hidden, target).sum())
    assert count == 6
    smoothed = head.loss(hidden, target, 0.1)[0]
    assert_close(smoothed, 0.9 * total - 0.1 * log_probs.mean(-1).sum())
    assert torch.equal(head.predict(hidden), log_probs.argmax(-1))
    some = target.clone()
    some[0, 1] = IGNORE
    assert head.score(hidden, some)[0, 1] == 0
    assert head.loss(hidden, some)[1] == 5


def test_mixture_of_softmaxes_has_a_higher_rank_than_the_width() -> None:
    """Yang et al. (2018): log-probabilities of one softmax have rank at most width + 1 over contexts."""
    torch.manual_seed(0)
    hidden = 3 * torch.randn(50, 2, dtype=torch.float64)
    ranks = [
        torch.linalg.matrix_rank(head.double().log_probs(hidden), rtol=1e-9).item()
        for head in (TokenHead(2, 20, bias=False), MixtureOfSoftmaxes(2, 20, 5, bias=False))
    ]
    assert ranks[0] == 3
    assert ranks[1] > 10


def test_token_head_log_probs_in_inference_mode_are_the_same() -> None:
    head, hidden = TokenHead(4, 7), torch.randn(2, 3, 4)
    with torch.inference_mode():
        log_probs = head.log_probs(hidden)
    assert_close(log_probs, head(hidden).log_softmax(-1).detach())


def test_class_head_loss_ignores_unlabeled_targets_and_smooths_labels() -> None:
    torch.manual_seed(0)
    head, hidden = ClassHead(4, 3).double(), torch.randn(2, 2, 4, dtype=torch.float64)
    target = torch.tensor([[0, IGNORE], [2, 1]])
    log_probs = head(hidden).log_softmax(-1)
    target_log_probs = torch.stack([log_probs[0, 0, 0], log_probs[1, 0, 2], log_probs[1, 1, 1]])
    total, count = head.loss(hidden, target)
    assert_close(total, -target_log_probs.sum())
    assert count == 3
    uniform = torch.stack([log_probs[0, 0], log_probs[1, 0], log_probs[1, 1]]).mean(-1)
    assert_close(head.loss(hidden, target, smoothing=0.1)[0], -(0.9 * target_log_probs + 0.1 * uniform).sum())


def test_multi_label_head_loss_is_binary_cross_entropy() -> None:
    torch.manual_seed(0)
    head, hidden = MultiLabelHead(4, 3).double(), torch.randn(2, 4, dtype=torch.float64)
    target = torch.tensor([[1.0, 0, IGNORE], [0, 1, 1]], dtype=torch.float64)
    yes, no = head(hidden).sigmoid().log(), (-head(hidden)).sigmoid().log()
    total, count = head.loss(hidden, target)
    assert count == 5
    right = torch.stack([yes[0, 0], no[0, 1], no[1, 0], yes[1, 1], yes[1, 2]])
    wrong = torch.stack([no[0, 0], yes[0, 1], yes[1, 0], no[1, 1], no[1, 2]])
    assert_close(total, -right.sum())
    assert_close(head.loss(hidden, target, smoothing=0.2)[0], -(0.9 * right + 0.1 * wrong).sum())
    assert torch.equal(head.predict(hidden), yes > no)


def test_token_head_log_probs_are_at_least_float32() -> None:
    head = TokenHead(4, 7).bfloat16()
    hidden = torch.randn(2, 4).bfloat16()
    assert head.log_probs(hidden).dtype == torch.float32
    assert head.score(hidden, torch.tensor([1, 2])).dtype == torch.float32


def test_last_real_is_the_last_position_without_padding() -> None:
    x = torch.arange(12.0).view(2, 3, 2)
    assert last_real(x, None).tolist() == [[4, 5], [10, 11]]
    assert last_real(x, torch.tensor([1, 3])).tolist() == [[0, 1], [10, 11]]


def test_regression_head_loss_and_scores_have_one_unit() -> None:
    """Nats of a normal distribution with density 1 at its mean, in the loss and in image scores."""
    torch.manual_seed(1)
    head, hidden, target = RegressionHead(6, 4), torch.randn(3, 5, 6), torch.randn(3, 5, 4)
    target[0, 2] = IGNORE
    total, count = head.loss(hidden, target)
    predicted, real = head(hidden), target != IGNORE
    expected = -torch.distributions.Normal(predicted[real], (2 * torch.pi) ** -0.5).log_prob(target[real]).sum()
    assert_close(total, expected)
    assert count == real.sum() == 3 * 5 * 4 - 4
    sums = squared_errors(predicted.detach().numpy(), target.numpy()).sum(0, keepdims=True)
    assert gaussian_nll(np.float64(sums))[0] == pytest.approx((expected / count).item(), rel=1e-5)
