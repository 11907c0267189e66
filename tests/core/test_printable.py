"""Text for a terminal: control characters are escaped before bars are colored."""

from __future__ import annotations

import re

import pytest

from seqwright.core.printable import BACKGROUNDS, printable, shaded

COLORS = re.compile(r"\x1b\[(0|30;48;5;\d+|38;5;\d+)m")


def test_bars_are_colored_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    text = printable("the▁ cat█ \x1b[31msat▅\n -1.0  ████|\n 2.0      |██\n|cows▂ 5% ")
    colored = shaded(text)
    assert COLORS.sub("", colored) == text
    assert colored.startswith(f"the▁ \x1b[30;48;5;{BACKGROUNDS[-1]}mcat\x1b[0m█ ")
    assert "\x1b[38;5;33m████\x1b[0m|" in colored
    assert "|\x1b[38;5;208m██\x1b[0m" in colored
    assert "\\u001b[31msat" in text
    monkeypatch.setenv("NO_COLOR", "1")
    assert shaded(text) == text
