"""The tables of laws × kinds: the largest difference of each law on each small model of the contract tests, in float64.

python benchmarks/laws.py > docs/laws.md
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.contract import encoders, taggers
from tests.contract.kinds import SMALL, batch, small
from tests.contract.translators import TRANSLATORS, pairs, translator

from seqwright.core.batch import Batch
from seqwright.studies.encoder_laws import ENCODER_LAWS
from seqwright.studies.laws import LAWS, Law
from seqwright.studies.training_laws import TRAINING_LAWS

ABOUT = """Made by `python benchmarks/laws.py`: the largest difference between two ways to the same numbers, for every
law on every kind of the contract tests. Neural kinds are computed in float64; counted kinds keep float32 tables, and
the laws of training do not concern them.
"""

Rows = Mapping[str, tuple[Callable[[], Any], Callable[[], Batch]]]
"""A small model of each kind, and what it is asked."""

SPEAKERS: Rows = {name: (lambda name=name: small(name), batch) for name in SMALL} | {
    f"{name} (pairs)": (lambda name=name: translator(name), pairs) for name in TRANSLATORS
}
READERS: Rows = (
    {name: (lambda name=name: encoders.classifier(name, segments=2), encoders.texts) for name in encoders.CLASSIFIERS}
    | {"bag": (encoders.bag, encoders.texts), "mixture": (encoders.mixture, encoders.texts)}
    | {f"{name} (masked)": (lambda name=name: encoders.filler(name), encoders.blanks) for name in encoders.MASKED}
    | {f"{name} (tagged)": (lambda name=name: taggers.tagger(name), taggers.sentences) for name in taggers.TAGGERS}
)


def main() -> None:
    print("# Laws × kinds\n")
    print(ABOUT)
    table("Models that are asked for the next id", SPEAKERS, LAWS | TRAINING_LAWS)
    table("Readers: classifiers, masked language models and taggers", READERS, ENCODER_LAWS | TRAINING_LAWS)


def table(title: str, rows: Rows, laws: Mapping[str, Law]) -> None:
    """A row for each kind, a column for each law."""
    print(f"## {title}\n")
    for number, name in enumerate(laws, 1):
        print(f"{number}. {name}")
    print("\n| kind | " + " | ".join(map(str, range(1, len(laws) + 1))) + " |\n|---|" + "---|" * len(laws))
    for name, (build, given) in rows.items():
        model = build()
        cells = []
        for law, ask in laws.items():
            if law in TRAINING_LAWS and not isinstance(model, torch.nn.Module):
                cells.append("")
                continue
            with torch.no_grad():
                cells.append(f"{ask(model, given()):.0e}".replace("0e+00", "0"))
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    print()


if __name__ == "__main__":
    main()
