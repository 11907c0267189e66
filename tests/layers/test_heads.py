"""The token head: logits, log-probabilities, scores and predictions that agree with each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from seqwright.core.batch import IGNORE
from seqwright.layers.encoder import last_real
from seqwright.layers.heads import ClassHead, MultiLabelHead, RegressionHead, TokenHead
from seqwright.tasks.images.task import errors, normal


def test_its_answers_agree() -> None:
    torch.manual_seed(0)
    head = TokenHead(4, 7).double()
    hidden = torch.randn(2, 3, 4, dtype=torch.float64)
    target = torch.randint(7, (2, 3))
    log_probs = head(hidden).log_softmax(-1)
    assert_close(head.log_probs(hidden), log_probs)
    assert_close(head.score(hidden, target), log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1))
    total, count = head.loss(hidden, target)
    assert_close(total, -head.score(hidden, target).sum())
    assert count == 6
    assert torch.equal(head.predict(hidden), log_probs.argmax(-1))


def test_nothing_is_kept_of_logits_while_nobody_learns() -> None:
    head, hidden = TokenHead(4, 7), torch.randn(2, 3, 4)
    with torch.inference_mode():
        found = head.log_probs(hidden)
    assert_close(found, head(hidden).log_softmax(-1).detach())


def test_only_known_classes_are_learned() -> None:
    torch.manual_seed(0)
    head, hidden = ClassHead(4, 3).double(), torch.randn(2, 2, 4, dtype=torch.float64)
    target = torch.tensor([[0, IGNORE], [2, 1]])
    log_probs = head(hidden).log_softmax(-1)
    own = torch.stack([log_probs[0, 0, 0], log_probs[1, 0, 2], log_probs[1, 1, 1]])
    total, count = head.loss(hidden, target)
    assert_close(total, -own.sum())
    assert count == 3
    even = torch.stack([log_probs[0, 0], log_probs[1, 0], log_probs[1, 1]]).mean(-1)
    assert_close(head.loss(hidden, target, smoothing=0.1)[0], -(0.9 * own + 0.1 * even).sum())


def test_labels_are_so_many_yes_or_no() -> None:
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


def test_log_probabilities_are_taken_in_float32_at_least() -> None:
    head = TokenHead(4, 7).bfloat16()
    hidden = torch.randn(2, 4).bfloat16()
    assert head.log_probs(hidden).dtype == torch.float32
    assert head.score(hidden, torch.tensor([1, 2])).dtype == torch.float32


def test_the_last_real_vector_of_each_row() -> None:
    x = torch.arange(12.0).view(2, 3, 2)
    assert last_real(x, None).tolist() == [[4, 5], [10, 11]]
    assert last_real(x, torch.tensor([1, 3])).tolist() == [[0, 1], [10, 11]]


def test_numbers_are_learned_and_measured_in_one_unit() -> None:
    """nats of a normal distribution that has density 1 in its middle, in training and in the scores of pictures."""
    torch.manual_seed(1)
    head, hidden, target = RegressionHead(6, 4), torch.randn(3, 5, 6), torch.randn(3, 5, 4)
    target[0, 2] = IGNORE
    total, count = head.loss(hidden, target)
    answer, real = head(hidden), target != IGNORE
    wanted = -torch.distributions.Normal(answer[real], (2 * torch.pi) ** -0.5).log_prob(target[real]).sum()
    assert_close(total, wanted)
    assert count == real.sum() == 3 * 5 * 4 - 4
    sums = errors(answer.detach().numpy(), target.numpy()).sum(0, keepdims=True)
    assert normal(np.float64(sums))[0] == pytest.approx((wanted / count).item(), rel=1e-5)
