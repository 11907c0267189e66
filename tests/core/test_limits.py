"""Limits on received files: each names the environment variable that raises it."""

from pathlib import Path

import numpy as np
import pytest

from seqwright.core.config import UserError
from seqwright.core.limits import DEFAULTS, limit
from seqwright.core.storage import read_json, write_text
from seqwright.data.images.files import decode
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig, train


def test_limits_are_raised_by_their_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, default in DEFAULTS.items():
        monkeypatch.delenv(name, raising=False)
        assert limit(name) == default
        monkeypatch.setenv(name, "12")
        assert limit(name) == 12
        for wrong in ("", "0", "-1", "1e9", "９", "1" * 30):
            monkeypatch.setenv(name, wrong)
            with pytest.raises(UserError, match=name):
                limit(name)


def test_json_bytes_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQWRIGHT_MAX_JSON_BYTES", "10")
    write_text(tmp_path / "a.json", "[0, 1, 2, 3]")
    with pytest.raises(UserError, match=r"a\.json has 12 bytes.*set SEQWRIGHT_MAX_JSON_BYTES higher"):
        read_json(tmp_path / "a.json")


def test_ids_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    text = train(TokenizerConfig(kind="characters"), ["abc"]).json
    with pytest.raises(UserError, match=r"the id 300,000,000, above .* SEQWRIGHT_MAX_VOCABULARY"):
        Tokenizer(text.replace('"c": 6', '"c": 300000000'))
    monkeypatch.setenv("SEQWRIGHT_MAX_VOCABULARY", "300000000")
    assert '"c": 6' in text


def test_pixels_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.zeros((20, 30), np.uint8)).save(tmp_path / "a.png")
    assert decode(tmp_path / "a.png", None).shape == (20, 30, 1)
    monkeypatch.setenv("SEQWRIGHT_MAX_PIXELS", "599")
    with pytest.raises(UserError, match=r"30 × 20 pixels.*SEQWRIGHT_MAX_PIXELS"):
        decode(tmp_path / "a.png", None)
