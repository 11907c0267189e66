"""HTML and SVG builders: tags are always closed and text is always escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

# Control characters and lone surrogates are not allowed in HTML (and the latter not in UTF-8), but models emit them.
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


class Html(str):
    """A string of markup, which `escape` returns unchanged."""

    __slots__ = ()


def escape(text: object) -> Html:
    """Any value as escaped text; control characters become their Unicode pictures (␀, ␛) or �."""
    if isinstance(text, Html):
        return text
    return Html(html.escape(FORBIDDEN.sub(_control_picture, str(text))))


def element(tag: str, *children: object, **attributes: object) -> Html:
    """`<tag attributes>children</tag>`; the keyword `class_` becomes class, `stroke_width` becomes stroke-width.

    Attributes that are None or False are omitted; True is written without a value.
    """
    rendered = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Html(f"<{tag}{rendered}>{join(children)}</{tag}>")


def image(source: str, description: str) -> Html:
    """An <img> tag, the only void element here."""
    return Html(f'<img src="{escape(source)}" alt="{escape(description)}">')


def join(parts: Iterable[object]) -> Html:
    """The concatenated parts, each escaped unless it is markup."""
    return Html("".join(map(escape, parts)))


def _control_picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else "�"
