"""Labeled bracketing scores of constituency trees (PARSEVAL, Black et al. 1991)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from seqwright.metrics.counts import PRF, Counts, prf_formula
from seqwright.metrics.translation import References, check_pairs

Bracket = tuple[str, int, int]
"""(label, start, end) of a constituent in words, the end exclusive."""

# Words of Python trees may be quoted strings, which contain brackets and spaces.
_TOKENS = re.compile(r"""[()]|[a-zA-Z]{0,2}(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")|[^\s()]+""")


def labeled_brackets(tree: str) -> Counter[Bracket]:
    """Constituents of `(label word (label word …) …)`; empty for unbalanced brackets or a missing label."""
    brackets: list[Bracket] = []
    open_brackets: list[tuple[str, int]] = []
    words, tokens = 0, iter(_TOKENS.findall(tree))
    for token in tokens:
        if token == "(":
            label = next(tokens, ")")
            if label in ("(", ")") or (brackets and not open_brackets):  # no label, or a second tree
                return Counter()
            open_brackets.append((label, words))
        elif not open_brackets:
            return Counter()
        elif token == ")":
            label, first = open_brackets.pop()
            brackets.append((label, first, words))
        else:
            words += 1
    return Counter() if open_brackets else Counter(brackets)


def bracket_score(outputs: Sequence[str], references: References, kind: PRF) -> Counts:
    """Corpus precision, recall or F1 of labeled brackets, 0 to 100, each tree against its best reference by F1."""
    check_pairs(outputs, references)
    rows = [
        max((_matched(labeled_brackets(output), labeled_brackets(reference)) for reference in tree_references), key=_f1)
        for output, tree_references in zip(outputs, references, strict=True)
    ]
    name = f"bracket_{kind}"
    return Counts(
        name=name,
        rows=np.array(rows, np.float64).reshape(-1, 3),
        formula=prf_formula(kind),
        signature=f"{name}|labeled|malformed:no brackets",
    )


def _matched(output: Counter[Bracket], reference: Counter[Bracket]) -> tuple[int, int, int]:
    """(matched, predicted, gold) brackets."""
    return (output & reference).total(), output.total(), reference.total()


def _f1(counts: tuple[int, int, int]) -> float:
    return 2 * counts[0] / max(1, counts[1] + counts[2])
