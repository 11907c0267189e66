"""Limits on what a file may make this process do, and the environment variable that raises each.

A received file of some kilobytes can stand for gigabytes of memory: a decompression bomb, one vocabulary id of 3e8,
an image header of 100,000 × 100,000 pixels. Every limit is far above real data and has a name in its message.
"""

from __future__ import annotations

import os

from seqwright.core.config import UserError

DEFAULTS = {
    "SEQWRIGHT_MAX_JSON_BYTES": 1 << 30,
    "SEQWRIGHT_MAX_VOCABULARY": 1 << 23,
    "SEQWRIGHT_MAX_PIXELS": 100_000_000,
    "SEQWRIGHT_MAX_DECOMPRESSED_BYTES": 1 << 31,
    "SEQWRIGHT_MAX_BUFFER_BYTES": 1 << 29,
    "SEQWRIGHT_MAX_PARAMETER_TENSORS": 10_000,
    "SEQWRIGHT_JOIN_SECONDS": 300,
    "SEQWRIGHT_SHARD_CACHE_BYTES": 8 << 30,
}
"""Bytes of a JSON or TOML file; token ids; pixels of one image; bytes of one decompressed file or line; bytes of the
tables that a model computes (sinusoids, rotations); parameter tensors of a model to train; seconds that a rank
waits for the others to join; bytes of the cache of streamed shards."""


def limit(name: str) -> int:
    """The limit of this name: its environment variable, or the default."""
    text = os.environ.get(name)
    if text is None:
        return DEFAULTS[name]
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text)):
        raise UserError(
            f"{name} is {text[:40]!r}; set it to a whole number above 0, as in {name}={2 * DEFAULTS[name]}."
        )
    return int(text)


def check_limit(name: str, value: int, what: str) -> None:
    """Raises UserError where `value` is above the limit of this name; `what` names the file and its unit."""
    if value > limit(name):
        raise UserError(f"{what}, above the limit of {limit(name):,}; set {name} higher if you trust the file.")
