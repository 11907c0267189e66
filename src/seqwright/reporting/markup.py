"""HTML and SVG by construction: every tag is closed and all text is escaped, because nothing else can be written."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

# Control characters and lone surrogates are not allowed in HTML (and the latter not in UTF-8), but models emit them.
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


class Html(str):
    """Text that is markup already: it passes `escape` unchanged."""

    __slots__ = ()


def escape(text: object) -> Html:
    """Any value as harmless markup; control characters become their pictures (␀, ␛), what has none becomes �."""
    if isinstance(text, Html):
        return text
    return Html(html.escape(FORBIDDEN.sub(_picture, str(text))))


def element(tag: str, *children: object, **attributes: object) -> Html:
    """`<tag attributes>children</tag>`; an attribute `class_` is written class, `stroke_width` stroke-width.

    Attributes that are None or False are left out; True stands bare.
    """
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Html(f"<{tag}{written}>{join(children)}</{tag}>")


def image(source: str, description: str) -> Html:
    """A picture, the one element here that has no end."""
    return Html(f'<img src="{escape(source)}" alt="{escape(description)}">')


def join(parts: Iterable[object]) -> Html:
    """The parts one after the other, each escaped unless it is markup."""
    return Html("".join(map(escape, parts)))


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else "�"
