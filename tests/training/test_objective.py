"""R-Drop: no effect without dropout, a symmetric KL divergence with it. AR and TAR against their formulas."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from seqwright.core.batch import IGNORE, Batch
from seqwright.core.config import UserError
from seqwright.layers.heads import TokenHead
from seqwright.training.objective import Objective, position_kl, symmetric_kl

from ..contract.kinds import small
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
    unselected = position_kl(head, hidden1, hidden2) * (target != IGNORE)  # as on a GPU
    assert_close(unselected.sum(), sum(expected) / 2)


def test_activation_regularization_is_the_mean_square_and_the_mean_squared_change() -> None:
    """AR and TAR are means over features, summed over real positions; the padded end of a row has none."""
    model = small("lstm narrower tied")
    ids = torch.tensor([[2, 5, 7, 4], [2, 8, 9, 1]])
    target = torch.tensor([[5, 7, 4, 6], [8, 9, IGNORE, IGNORE]])
    batch = Batch.of_text(ids, target)
    h, _ = model.hidden(batch)
    real = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
    ar = sum(h[row, t].square().mean() for row, t in real)
    tar = sum((h[row, t] - h[row, t - 1]).square().mean() for row, t in real if t)
    plain = Objective(model)(batch)[0]
    assert_close(Objective(model, activation_l2=2.0)(batch)[0], plain + 2 * ar)
    assert_close(Objective(model, temporal_activation_l2=3.0)(batch)[0], plain + 3 * tar)


def test_activation_regularization_is_refused_without_a_recurrent_network() -> None:
    for name in ("gpt", "rnn flatten"):
        with pytest.raises(UserError, match="rnn, lstm or gru"):
            Objective(small(name), activation_l2=2.0)
