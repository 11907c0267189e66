"""The table of laws × kinds: the largest difference of each law on each small model of the contract tests, in float64.

python benchmarks/laws.py > docs/laws.md
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.contract.kinds import SMALL, batch, small
from tests.contract.translators import TRANSLATORS, pairs, translator

from seqwright.studies.laws import LAWS
from seqwright.studies.training_laws import TRAINING_LAWS

ABOUT = """Made by `python benchmarks/laws.py`: the largest difference between two ways to the same numbers, for every
law on every kind of the contract tests. Neural kinds are computed in float64; counted kinds keep float32 tables, and
the laws of training do not concern them.
"""


def main() -> None:
    laws = LAWS | TRAINING_LAWS
    print("# Laws × kinds\n")
    print(ABOUT)
    for number, name in enumerate(laws, 1):
        print(f"{number}. {name}")
    print("\n| kind | " + " | ".join(map(str, range(1, len(laws) + 1))) + " |\n|---|" + "---|" * len(laws))
    rows = dict.fromkeys(SMALL, (small, batch)) | {f"{name} (pairs)": (translator, pairs) for name in TRANSLATORS}
    for name, (build, given) in rows.items():
        model = build(name.removesuffix(" (pairs)"))
        cells = []
        for law, ask in laws.items():
            if law in TRAINING_LAWS and not isinstance(model, torch.nn.Module):
                cells.append("")
                continue
            with torch.no_grad():
                cells.append(f"{ask(model, given()):.0e}".replace("0e+00", "0"))
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
