"""Labeled bracketing (PARSEVAL): cases by hand, and Python's own parser as the oracle."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from seqwright.data.samples.python_pairs import tree
from seqwright.metrics.brackets import bracket_score, labeled_brackets

GOLD = "(S (NP the cat) (VP sat (PP on (NP a mat))))"
GUESS = "(S (NP the cat) (VP sat (PP on) (NP a mat)))"


def test_bracket_precision_recall_f1_by_hand() -> None:
    assert labeled_brackets(GOLD) == Counter([("S", 0, 6), ("NP", 0, 2), ("VP", 2, 6), ("PP", 3, 6), ("NP", 4, 6)])
    precision, recall, f1 = (bracket_score([GUESS], [[GOLD]], kind).value for kind in ("precision", "recall", "f1"))
    assert (precision, recall, f1) == (80.0, 80.0, 80.0)
    shorter = "(S (NP the cat) (VP sat))"  # S and VP span other words
    assert bracket_score([shorter], [[GOLD]], "precision").value == pytest.approx(100 / 3)
    assert bracket_score([shorter], [[GOLD]], "recall").value == 20.0
    assert bracket_score([shorter], [[GOLD]], "f1").value == 25.0
    assert bracket_score([shorter], [[GOLD, shorter]], "f1").value == 100.0


def test_bracket_counts_add_up_over_trees() -> None:
    both = bracket_score([GUESS, "(S"], [[GOLD], [GOLD]], "f1")
    assert both.value == pytest.approx(100 * 2 * 4 / (5 + 10))
    assert both.rows.tolist() == [[4, 5, 5], [0, 0, 5]]


@pytest.mark.parametrize("broken", ["", "(", "(S", "(S a))", "S a", ")", "(S a) (S b)", "(S a) b", "((S a))", "()"])
def test_malformed_tree_has_no_brackets(broken: str) -> None:
    assert not labeled_brackets(broken)


def spans(node: ast.AST, words: int = 0) -> tuple[list[tuple[str, int, int]], int]:
    """Oracle: constituents from the syntax tree itself."""
    constituents, first = [], words
    for _, value in ast.iter_fields(node):
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.expr_context) or item is None:
                continue
            if isinstance(item, ast.AST):
                inner, words = spans(item, words)
                constituents += inner
            else:
                words += 1
    return [*constituents, (type(node).__name__, first, words)], words


@pytest.mark.parametrize(
    "code",
    [
        "a + 1",
        "f(x, y=2)[0].b",
        "'a (b' + \"it's) \" + b'(\\'' + rf'{x!r:>3}'",
        "lambda *a, k=(): {**a, 'k': not k}",
        "-x ** 2 < 3.5 <= ...",
    ],
)
def test_brackets_of_code_equal_its_syntax_tree(code: str) -> None:
    node = ast.parse(code, mode="eval").body
    assert labeled_brackets(tree(node)) == Counter(spans(node)[0])
    assert bracket_score([tree(node)], [[tree(node)]], "f1").value == 100.0
