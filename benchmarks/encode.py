"""Encoding a text by each of our tokenizers, beside the plain call of the `tokenizers` library on the same file.

The text is named by the user, or is the source code of Python's standard library. Both encode the same lines to
the same ids, in turns, on one thread; the best of some rounds counts, in CPU time.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # read when the library is first used

import tokenizers

from seqwright.data.samples.text import embedded_text
from seqwright.text.trainers import SUBWORDS, TokenizerConfig, train

KINDS = ("words", "characters", "bytes", *SUBWORDS)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.process_time()
    found = work()
    return time.process_time() - begun, found


def compared(kind: str, lines: list[str], *, size: int, rounds: int) -> dict[str, Any]:
    """CPU seconds of both, and whether the ids are the same."""
    tokenizer = train(TokenizerConfig(kind=kind, size=size if kind in SUBWORDS else None), lines)
    peer = tokenizers.Tokenizer.from_str(tokenizer.json)
    peer.encode_special_tokens = True
    ours, theirs = [], []
    for _ in range(rounds):
        seconds, encoded = timed(lambda: tokenizer.encode_batch(lines))
        ours.append(seconds)
        seconds, plain = timed(lambda: [one.ids for one in peer.encode_batch_fast(lines, add_special_tokens=False)])
        theirs.append(seconds)
    size_in_mb = sum(len(line.encode()) for line in lines) / 1e6
    return {
        "kind": kind,
        "vocabulary": tokenizer.size,
        "same_ids": encoded.ids.tolist() == [id for ids in plain for id in ids],
        "mb_per_second": round(size_in_mb / min(ours), 2),
        "library_mb_per_second": round(size_in_mb / min(theirs), 2),
        "ratio": round(min(theirs) / min(ours), 2),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--text", type=Path, help="a plain text file; the standard library unless given")
    arguments.add_argument("--megabytes", type=float, default=4.0, help="how much of it is taken, repeated if need be")
    arguments.add_argument("--size", type=int, default=8000, help="vocabulary of the kinds that learn pieces")
    arguments.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS)
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    text = given.text.read_text(encoding="utf-8") if given.text else embedded_text("embedded:standard-library")
    wanted = int(given.megabytes * 1e6)
    lines = (text * -(-wanted // len(text)))[:wanted].split("\n")
    for kind in given.kinds:
        print(json.dumps(compared(kind, lines, size=given.size, rounds=given.rounds)))


if __name__ == "__main__":
    main()
