"""Train, compare, look inside and ship sequence models on your own data, from counting n-grams to GPT.

import seqwright as sw
run = sw.open("runs/x")
run.generate("Once upon a time")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from seqwright.api import load as load
    from seqwright.api import open as open
    from seqwright.api import train as train
    from seqwright.config import UserError as UserError

_HOMES = {"load": "api", "open": "api", "train": "api", "UserError": "config"}


def __getattr__(name: str) -> Any:  # torch is heavy: it is imported by the first verb that needs it
    if name not in _HOMES:
        raise AttributeError(f"module 'seqwright' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(f"seqwright.{_HOMES[name]}"), name)
