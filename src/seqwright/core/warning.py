"""Warnings about results, in Python's own way; the command line prints each as one line on standard error."""

from __future__ import annotations

import warnings

from seqwright.core.wording import worded


class SeqwrightWarning(UserWarning):
    """Something that a user should know about a result: an unfinished model, text in another Unicode form."""


def warn(text: str) -> None:
    """Issues a SeqwrightWarning on behalf of the caller of the function that calls this."""
    warnings.warn(worded(text), SeqwrightWarning, stacklevel=3)
