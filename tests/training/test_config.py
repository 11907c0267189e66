"""Training hyperparameters: invalid values are refused, all problems in one message."""

from __future__ import annotations

import pytest

from seqwright.core.config import UserError
from seqwright.training.config import TrainingConfig


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 5, "epochs": 1.0}, "steps or epochs, not both"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"micro_batch_size": 0}, "micro_batch_size must be at least 1"),
        ({"learning_rate": -1.0}, "learning_rate must not be below 0"),
        ({"max_grad_norm": -1.0}, "max_grad_norm must not be below 0"),
        ({"epochs": 0.0}, "epochs must be above 0"),
        ({"beta1": 1.0}, "beta1 must be at least 0 and below 1, not 1.0"),
        ({"beta2": 1.5}, "beta2 must be at least 0 and below 1"),
        ({"bptt_jitter": 2.0}, "bptt_jitter varies sequence_length: set it too"),
        ({"ema_decay": 0.9, "asgd_trigger": 5}, "give ema_decay or asgd_trigger, not both"),
        ({"ema_decay": 1.0}, "ema_decay must be at least 0 and below 1"),
        (
            {"keep_last": 0, "final_lr_ratio": 2.0},
            "keep_last must be at least 1, not 0; final_lr_ratio must be between 0 and 1",
        ),
    ],
)
def test_training_config_refuses_invalid_values(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        TrainingConfig(**options)  # type: ignore[arg-type]
