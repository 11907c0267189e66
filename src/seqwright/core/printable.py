"""Text for messages: untrusted text with its control characters escaped, and numbers with their nouns."""

from __future__ import annotations

CONTROL = [*range(0x20), *range(0x7F, 0xA0)]
"""C0 and C1 control characters and DEL: ESC and CSI begin commands to the terminal."""
BIDIRECTIONAL = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
"""Characters that reorder what follows them (CVE-2021-42574)."""
ESCAPES = {code: f"\\u{code:04x}" for code in (*CONTROL, *BIDIRECTIONAL, 0x2028, 0x2029) if chr(code) not in "\n\t"}
"""Escapes as JSON writes them: JSON stays the same value."""


def printable(text: str) -> str:
    """The text with control and bidirectional characters escaped; line ends and tabs stay."""
    return text.translate(ESCAPES)


def quantity(count: int, noun: str) -> str:
    """A count and its noun, which takes an s but for one: "1 file", "1,200 files"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
