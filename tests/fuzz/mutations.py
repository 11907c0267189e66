"""Mutations of files: flipped bits, cut and repeated parts, odd values, deep nesting; a function of the seed."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

INTERESTING = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 3 * 10**8, 10**30, 0.5, -1e308, 1e308),
    *("", "x", "O", "\0", "../../etc/passwd", "\x1b[31m", "a" * 5000, "<unk>", "▁", "é"),
    *([], [[]], {}, {"a": {}}, [None], ["a", "a"], [1, 2]),
)
BYTES = (b"\0", b"\xff", b"\xff\xff\xff\xff", b"\n", b"\t", b'"', b"[" * 2000, b"{", b"-", b"9" * 400, b"\x80\x80\x80")


def mutated_bytes(data: bytes, rng: random.Random) -> bytes:
    """The data with one to four local changes."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(changed) + 1)
        end = min(len(changed), at + rng.choice((1, 2, 8, 64)))
        kind = rng.randrange(6)
        if kind == 0 and changed:
            changed[min(at, len(changed) - 1)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del changed[at:end]
        elif kind == 2:
            changed[at:at] = changed[at:end] * rng.choice((1, 2, 50))
        elif kind == 3:
            changed[at:end] = rng.choice(BYTES)
        elif kind == 4:
            changed[at:end] = rng.randbytes(end - at)
        else:
            del changed[at:]
    return bytes(changed)


def mutated_json(value: Any, rng: random.Random) -> Any:
    """The value with one to three parts replaced, removed, renamed or nested."""
    value = json.loads(json.dumps(value))
    for _ in range(rng.randint(1, 3)):
        holders = [holder for holder in _holders(value) if holder]
        if not holders:
            return copy.deepcopy(rng.choice(INTERESTING))
        holder = rng.choice(holders)
        key = rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
        kind = rng.randrange(6)
        if kind <= 2:
            holder[key] = copy.deepcopy(rng.choice(INTERESTING))
        elif kind == 3:
            del holder[key]
        elif kind == 4 and isinstance(holder, dict):
            holder[f"{key}_"] = holder.pop(key)
        else:
            holder[key] = [holder[key]] if rng.random() < 0.5 else {"x": holder[key]}
    return value


def _holders(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [value, *(holder for item in list(value.values())[:50] for holder in _holders(item))]
    if isinstance(value, list):
        return [value, *(holder for item in value[:50] for holder in _holders(item))]
    return []
