"""The laws, run over every kind in float64."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from seqwright import build
from seqwright.core.protocols import Autoregressive, Counted
from seqwright.studies.encoder_laws import ENCODER_LAWS
from seqwright.studies.laws import LAWS
from seqwright.studies.training_laws import TRAINING_LAWS

from .encoders import CLASSIFIERS, MASKED
from .kinds import SMALL, batch, small
from .taggers import TAGGERS
from .translators import TRANSLATORS


def test_the_page_of_laws_has_every_law_and_kind() -> None:
    page = (Path(__file__).parents[2] / "docs" / "laws.md").read_text(encoding="utf-8")
    again = "run `python benchmarks/laws.py > docs/laws.md`"
    laws = [*LAWS, *TRAINING_LAWS, *ENCODER_LAWS, *TRAINING_LAWS]
    assert re.findall(r"^\d+\. (.+)$", page, re.M) == laws, again
    speakers = [*SMALL, *(f"{name} (pairs)" for name in TRANSLATORS)]
    readers = [*CLASSIFIERS, "bag", "mixture", *(f"{name} (masked)" for name in MASKED)]
    readers += [f"{name} (tagged)" for name in TAGGERS]
    assert re.findall(r"^\| (\w.*?) \|", page, re.M) == ["kind", *speakers, "kind", *readers], again


def test_every_kind_has_a_row() -> None:
    assert set(build.task_spec("text").models) == {str(row["kind"]) for row in SMALL.values()}


@pytest.mark.parametrize("name", SMALL)
def test_it_satisfies_the_protocols(name: str) -> None:
    model = small(name)
    assert isinstance(model, Autoregressive)
    kind = SMALL[name]["kind"]
    if kind in build.COUNTED:
        assert isinstance(model, Counted)
    elif kind not in build.DERIVED:
        # a module's parts are not class attributes, which is all that isinstance looks at from Python 3.12 on
        assert all(hasattr(model, part) for part in ("hidden", "head", "parameters"))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", SMALL)
def test_law(name: str, law: str) -> None:
    model = small(name)
    tolerance = 1e-9 if isinstance(model, torch.nn.Module) else 1e-5
    with torch.no_grad():
        assert LAWS[law](model, batch()) <= tolerance


@pytest.mark.parametrize("law", TRAINING_LAWS)
@pytest.mark.parametrize("name", [n for n, row in SMALL.items() if row["kind"] not in {*build.COUNTED, *build.DERIVED}])
def test_training_law(name: str, law: str) -> None:
    assert TRAINING_LAWS[law](small(name), batch()) <= 1e-9
