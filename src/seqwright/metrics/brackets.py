"""Trees in brackets: how many labeled constituents two trees share (PARSEVAL, Black et al. 1991)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from seqwright.metrics.counts import Agreement, Counts, agreement
from seqwright.metrics.translation import References, check_pairs

Bracket = tuple[str, int, int]
"""A label, and the words it spans: from, and up to but without."""

# A quoted word may hold brackets and spaces of its own.
_PARTS = re.compile(r"""[()]|[a-zA-Z]{0,2}(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")|[^\s()]+""")


def labeled_brackets(tree: str) -> Counter[Bracket]:
    """The constituents of `(label word (label word …) …)`; none where brackets do not match or a label is missing."""
    found: list[Bracket] = []
    open_brackets: list[tuple[str, int]] = []
    words, parts = 0, iter(_PARTS.findall(tree))
    for part in parts:
        if part == "(":
            label = next(parts, ")")
            if label in ("(", ")") or (found and not open_brackets):  # nameless, or a second tree
                return Counter()
            open_brackets.append((label, words))
        elif not open_brackets:
            return Counter()
        elif part == ")":
            label, first = open_brackets.pop()
            found.append((label, first, words))
        else:
            words += 1
    return Counter() if open_brackets else Counter(found)


def bracket_score(outputs: Sequence[str], references: References, kind: Agreement) -> Counts:
    """Precision, recall or F1 of labeled brackets over all trees, 0 to 100, each against the nearest reference."""
    check_pairs(outputs, references)
    rows = [
        max((_shared(labeled_brackets(output), labeled_brackets(reference)) for reference in several), key=_f1)
        for output, several in zip(outputs, references, strict=True)
    ]
    name = f"bracket_{kind}"
    return Counts(
        name=name,
        rows=np.array(rows, np.float64).reshape(-1, 3),
        formula=agreement(kind),
        signature=f"{name}|labeled|malformed:no brackets",
    )


def _shared(output: Counter[Bracket], reference: Counter[Bracket]) -> tuple[int, int, int]:
    return (output & reference).total(), output.total(), reference.total()


def _f1(counts: tuple[int, int, int]) -> float:
    return 2 * counts[0] / max(1, counts[1] + counts[2])
