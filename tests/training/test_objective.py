"""R-Drop: no effect without dropout, a symmetric KL divergence with it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch.testing import assert_close

from seqwright.core.batch import IGNORE
from seqwright.layers.heads import TokenHead
from seqwright.training.objective import Objective, symmetric_kl

from ..contract.translators import pairs, translator


def losses(name: str, r_drop: float, *, training: bool) -> tuple[float, float]:
    model = translator(name).train(training)
    torch.manual_seed(1)
    total, count, _ = Objective(model, r_drop=r_drop)(pairs())
    assert count == pairs().count
    return total.item(), Objective(model.eval())(pairs())[0].item()


def test_r_drop_without_dropout_equals_the_plain_loss() -> None:
    total, plain = losses("transformer", 5.0, training=False)
    assert abs(total - plain) < 1e-9


def test_r_drop_with_dropout_grows_with_alpha() -> None:
    light, heavy = (losses("transformer", alpha, training=True)[0] for alpha in (1e-9, 5.0))
    assert heavy > light + 1e-3


def test_symmetric_kl_is_the_mean_of_both_directions() -> None:
    torch.manual_seed(0)
    head = TokenHead(4, 7).double()
    hidden1, hidden2 = torch.randn(2, 3, 4).double(), torch.randn(2, 3, 4).double()
    target = torch.tensor([[1, 2, IGNORE], [3, IGNORE, IGNORE]])
    p, q = (head(hidden[target != IGNORE]).log_softmax(-1) for hidden in (hidden1, hidden2))
    expected = [F.kl_div(b, a, reduction="sum", log_target=True) for a, b in ((p, q), (q, p))]
    assert_close(symmetric_kl(head, hidden1, hidden2, target), sum(expected) / 2)
