"""Embedded pairs from Python's standard library: code → summary, expression → syntax tree, docstring → signature."""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

from seqwright.data.parallel.formats import Pair

Function = ast.FunctionDef | ast.AsyncFunctionDef

EXCLUDED = {"site-packages", "test", "tests", "idle_test", "__pycache__"}
MIN_NODES, MAX_NODES = 4, 24
"""Nodes of the expressions that become trees: smaller ones are trivial, larger ones rare and long."""


def summaries() -> list[Pair]:
    """Pairs of a function without its docstring, and the first line of the docstring."""
    pairs = {}
    for function, documentation in _documented():
        bare = copy.copy(function)
        bare.body = function.body[1:] or [ast.Pass()]
        pairs[ast.unparse(bare)] = documentation.partition("\n")[0]
    return _unique(pairs)


def signatures() -> list[Pair]:
    """Pairs of a function's name with the first paragraph of its docstring, and its signature."""
    pairs = {}
    for function, documentation in _documented():
        paragraph = " ".join(documentation.partition("\n\n")[0].split())
        pairs[f"{function.name}: {paragraph}"] = f"{function.name}({ast.unparse(function.args)})"
    return _unique(pairs)


def expressions() -> list[Pair]:
    """Pairs of an expression and its bracketed syntax tree: `a + 1` → `(BinOp (Name a) (Add) (Constant 1))`."""
    pairs = {}
    for module in _modules():
        for node in ast.walk(module):
            if isinstance(node, ast.expr) and MIN_NODES <= sum(1 for _ in ast.walk(node)) <= MAX_NODES:
                pairs[ast.unparse(node)] = tree(node)
    return _unique({source: target for source, target in pairs.items() if "\n" not in source + target})


def tree(node: ast.AST) -> str:
    """The bracketed form of a syntax tree, without load and store contexts, which the position implies."""
    parts = [type(node).__name__]
    for _, value in ast.iter_fields(node):
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.AST) and not isinstance(item, ast.expr_context):
                parts.append(tree(item))
            elif item is not None and not isinstance(item, ast.AST):
                parts.append(
                    item if isinstance(item, str) and isinstance(node, ast.Name | ast.Attribute) else repr(item)
                )
    return f"({' '.join(parts)})"


@functools.cache
def _modules() -> list[ast.Module]:
    folder = Path(sysconfig.get_path("stdlib"))
    parsed = []
    for path in sorted(folder.rglob("*.py")):
        if EXCLUDED.isdisjoint(path.relative_to(folder).parts) and not path.name.startswith("_sysconfigdata"):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # old escapes in strings
                    parsed.append(ast.parse(path.read_bytes()))
            except (SyntaxError, UnicodeDecodeError):  # templates and the like
                continue
    return parsed


def _documented() -> Iterator[tuple[Function, str]]:
    for module in _modules():
        for node in ast.walk(module):
            if isinstance(node, Function):
                documentation = ast.get_docstring(node)
                if documentation and documentation.strip():
                    yield node, inspect.cleandoc(documentation).strip()


def _unique(pairs: dict[str, str]) -> list[Pair]:
    return [Pair((source,), (target,)) for source, target in pairs.items()]
