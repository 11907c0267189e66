"""The demo: every network sees the same number of tokens, or has the same minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqwright.core.progress import Progress
from seqwright.studies.demo import demo, demo_recipes


def test_networks_of_the_demo_have_one_budget() -> None:
    recipes = demo_recipes()
    networks = [settings.training for name, settings in recipes.items() if name != "ngram"]
    tokens = {training.steps * training.batch_size * training.sequence_length for training in networks}
    assert tokens == {1_024_000}
    minutes = [settings.training.minutes for name, settings in demo_recipes(minutes=10).items() if name != "ngram"]
    assert minutes == [2.0] * 5


def test_the_time_of_the_demo_is_announced_before_it_is_spent(tmp_path: Path) -> None:
    class Notes(Progress):
        def note(self, text: str) -> None:
            raise KeyboardInterrupt(text)

    with pytest.raises(KeyboardInterrupt, match="six models, about five minutes"):
        demo(tmp_path / "demo", Notes())
