"""Text for messages: untrusted text with its control characters escaped, and numbers with their nouns."""

from __future__ import annotations

import os
import re

CONTROL = [*range(0x20), *range(0x7F, 0xA0)]
"""C0 and C1 control characters and DEL: ESC and CSI begin commands to the terminal."""
BIDIRECTIONAL = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
"""Characters that reorder what follows them (CVE-2021-42574)."""
ESCAPES = {code: f"\\u{code:04x}" for code in (*CONTROL, *BIDIRECTIONAL, 0x2028, 0x2029) if chr(code) not in "\n\t"}
"""Escapes as JSON writes them: JSON stays the same value."""


BARS = "▁▂▃▄▅▆▇█"
BACKGROUNDS = (None, 230, 229, 222, 215, 208, 202, 166)
"""xterm colors behind a word for each height of its bar: light yellow to orange, under black text."""
BELOW, ABOVE = 33, 208
"""xterm colors of bars to the left and to the right of |: blue and orange, which the color-blind tell apart."""
SHADED = re.compile(rf"(?P<below>█+)\|(?!█)|\|(?P<above>█+)|(?P<word>[^\s|]+?)(?P<bar>[{BARS}])(?=\s|$)")


def shaded(text: str) -> str:
    """Escaped text with the colors of its bars, for a terminal; as it is where NO_COLOR is set, or TERM is dumb."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb":
        return text
    return SHADED.sub(_shade, text)


def _shade(match: re.Match[str]) -> str:
    if match["below"]:
        return f"\x1b[38;5;{BELOW}m{match['below']}\x1b[0m|"
    if match["above"]:
        return f"|\x1b[38;5;{ABOVE}m{match['above']}\x1b[0m"
    background = BACKGROUNDS[BARS.index(match["bar"])]
    return match[0] if background is None else f"\x1b[30;48;5;{background}m{match['word']}\x1b[0m{match['bar']}"


def printable(text: str) -> str:
    """The text with control and bidirectional characters escaped; line ends and tabs stay."""
    return text.translate(ESCAPES)


def quantity(count: int, noun: str) -> str:
    """A count and its noun, which takes an s but for one: "1 file", "1,200 files"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def first_line(error: BaseException) -> str:
    """The first line of an error, at most 200 characters of it, or the name of its class."""
    return next(iter(str(error).splitlines()), "")[:200] or type(error).__name__
