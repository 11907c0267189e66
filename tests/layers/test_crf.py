"""CRF: loss, Viterbi path and marginals against enumeration of all tag paths."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from seqwright.core.batch import IGNORE
from seqwright.layers.crf import CRFHead

TAGS, WIDTH = 3, 4


def crf(seed: int = 0) -> CRFHead:
    torch.manual_seed(seed)
    head = CRFHead(WIDTH, TAGS).double()
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    return head


def path_score(head: CRFHead, scores: Tensor, path: tuple[int, ...]) -> Tensor:
    """The score of a tag path, summed term by term."""
    total = head.first[path[0]] + head.last[path[-1]]
    for word, tag in enumerate(path):
        total = total + scores[word, tag]
    for before, after in pairwise(path):
        total = total + head.transitions[before, after]
    return total


def all_paths(head: CRFHead, hidden: Tensor) -> dict[tuple[int, ...], Tensor]:
    scores = head(hidden)
    return {path: path_score(head, scores, path) for path in product(range(TAGS), repeat=len(hidden))}


@pytest.mark.parametrize("words", [1, 2, 5])
def test_crf_loss_viterbi_and_marginals_equal_enumeration(words: int) -> None:
    head = crf(words)
    hidden = torch.randn(1, words, WIDTH, dtype=torch.float64)
    target = torch.randint(TAGS, (1, words))
    paths = all_paths(head, hidden[0])
    log_z = torch.stack(list(paths.values())).logsumexp(0)
    total, count = head.loss(hidden, target)
    assert count == words
    assert_close(total, log_z - paths[tuple(target[0].tolist())])
    assert tuple(head.predict(hidden)[0].tolist()) == max(paths, key=lambda path: paths[path].item())
    marginals = torch.zeros(words, TAGS, dtype=torch.float64)
    for path, value in paths.items():
        for word, tag in enumerate(path):
            marginals[word, tag] += (value - log_z).exp().detach()
    assert_close(head.probabilities(hidden, torch.ones(1, words, dtype=torch.bool))[0], marginals)


def test_crf_padding_and_other_rows_change_nothing() -> None:
    head = crf()
    lengths = [4, 1, 0, 3]
    hidden = torch.randn(len(lengths), 5, WIDTH, dtype=torch.float64)
    real = torch.arange(5) < torch.tensor(lengths).unsqueeze(1)
    target = torch.randint(TAGS, real.shape).masked_fill(~real, IGNORE)
    total, count = head.loss(hidden, target)
    alone = [head.loss(hidden[n : n + 1, :k], target[n : n + 1, :k])[0] for n, k in enumerate(lengths)]
    assert count == sum(lengths)
    assert_close(total, torch.stack(alone).sum())
    together = head.predict(hidden, real)
    for n, k in enumerate(lengths):
        assert torch.equal(together[n, :k], head.predict(hidden[n : n + 1, :k])[0])
        assert not together[n, k:].any()


def test_crf_without_transitions_is_a_softmax_per_word() -> None:
    head = crf()
    for part in (head.transitions, head.first, head.last):
        torch.nn.init.zeros_(part)
    hidden = torch.randn(2, 6, WIDTH, dtype=torch.float64)
    target = torch.randint(TAGS, (2, 6))
    expected = torch.nn.functional.cross_entropy(head(hidden).flatten(0, 1), target.flatten(), reduction="sum")
    assert_close(head.loss(hidden, target)[0], expected)
    assert torch.equal(head.predict(hidden), head(hidden).argmax(-1))


def test_crf_loss_of_long_rows_is_finite_in_float32() -> None:
    head = crf().float()
    hidden = 30 * torch.randn(1, 400, WIDTH)
    total, _ = head.loss(hidden, torch.randint(TAGS, (1, 400)))
    total.backward()
    assert total.isfinite()
    assert head.transitions.grad is not None
    assert head.transitions.grad.isfinite().all()
