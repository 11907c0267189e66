"""Mutated files end in a UserError or are read: no other exception, ever.

`make test` runs a short form; `make fuzz MINUTES=10` goes on from other seeds and prints those that failed. Add them to
`corpus.txt`, one `reader seed` per line, so that they are repeated for ever.
"""

from __future__ import annotations

import os
import random
import sys
import time
import warnings
from pathlib import Path

import pytest

from tests.fuzz.readers import Seed, seeds

ROUNDS = 12
"""Mutations per reader in the short form."""
CORPUS = Path(__file__).with_name("corpus.txt")


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seed]:
    return seeds(tmp_path_factory.mktemp("seeds"))


def failures_of(name: str, seed: Seed, numbers: range | list[int], folder: Path) -> list[str]:
    """What other exceptions than UserError mutations with these numbers end in."""
    failed = []
    for number in numbers:
        try:
            with warnings.catch_warnings(action="ignore"):
                seed.attack(folder, random.Random(f"{name} {number}"))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # panics of Rust libraries are no Exceptions
            failed.append(f"{name} {number}: {type(error).__name__}: {str(error)[:200]}")
    return failed


def test_mutated_files_are_read_or_refused(readers: dict[str, Seed], tmp_path: Path) -> None:
    found = [failed for name, seed in readers.items() for failed in failures_of(name, seed, range(ROUNDS), tmp_path)]
    assert not found, "\n".join(found)


def test_what_was_once_found_stays_mended(readers: dict[str, Seed], tmp_path: Path) -> None:
    lines = [line.split() for line in CORPUS.read_text().splitlines() if line and not line.startswith("#")]
    found = [failed for name, number in lines for failed in failures_of(name, readers[name], [int(number)], tmp_path)]
    assert not found, "\n".join(found)


@pytest.mark.skipif("FUZZ_MINUTES" not in os.environ, reason="run by `make fuzz`")
def test_mutated_files_for_minutes(
    readers: dict[str, Seed], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deadline = time.monotonic() + 60 * float(os.environ["FUZZ_MINUTES"])
    start = number = int(os.environ.get("FUZZ_SEED", time.time()))
    failed: dict[str, list[str]] = {name: [] for name in readers}
    while time.monotonic() < deadline:
        for name, seed in readers.items():
            failed[name] += failures_of(name, seed, [number], tmp_path)
        number += 1
    found = [line for lines in failed.values() for line in lines]
    with capsys.disabled():
        sys.stdout.write("\n" + table(number - start, failed))
    assert not found, "\n".join(found)


def table(mutations: int, failed: dict[str, list[str]]) -> str:
    """The number of mutations and of tracebacks by reader, and of all."""
    rows = [(name, mutations, len(lines)) for name, lines in failed.items()]
    rows.append(("all", sum(row[1] for row in rows), sum(row[2] for row in rows)))
    lines = [f"{name:24}{count:>10,}{tracebacks:>12,}" for name, count, tracebacks in rows]
    return "\n".join([f"{'reader':24}{'mutations':>10}{'tracebacks':>12}", *lines, ""])
