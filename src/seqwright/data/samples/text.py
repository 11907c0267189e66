"""Embedded texts that every Python installation has: its reference manual and standard library; no downloads."""

from __future__ import annotations

import ast
import json
import sysconfig
from collections.abc import Callable
from pathlib import Path

from seqwright.core.config import UserError, did_you_mean

PREFIX = "embedded:"
QUESTIONS = ("What is {} for?", "What does {} do?", "Tell me about {}.")


def is_embedded(name: str) -> bool:
    """Whether a name is `embedded:NAME` rather than a path."""
    return name.startswith(PREFIX)


def embedded_text(name: str) -> str:
    """The text of the dataset `embedded:NAME`."""
    key = name.removeprefix(PREFIX)
    if key not in TEXTS:
        raise UserError(f"no embedded text '{key}'.{did_you_mean(key, TEXTS)}")
    return TEXTS[key]()


def topics() -> str:
    """The topics of Python's reference manual that `help()` shows: about half a million characters of English."""
    from pydoc_data.topics import topics as chapters

    return "\n".join(chapters[name] for name in sorted(chapters))


def standard_library() -> str:
    """The top-level modules of Python's standard library: several million characters of source code."""
    folder = Path(sysconfig.get_path("stdlib"))
    sources = [path for path in sorted(folder.glob("*.py")) if not path.name.startswith("_sysconfigdata")]
    return "\n".join(path.read_text(encoding="utf-8") for path in sources)


def questions() -> str:
    """Conversations about the standard library as JSON lines: questions, answered by first paragraphs of docstrings."""
    folder = Path(sysconfig.get_path("stdlib"))
    lines: list[str] = []
    for path in sorted(folder.glob("[a-z]*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        definitions = [n for n in module.body if isinstance(n, ast.ClassDef | ast.FunctionDef) and n.name[0] != "_"]
        nodes = [(path.stem, module), *((f"{path.stem}.{node.name}", node) for node in definitions)]
        for name, node in nodes:
            if docstring := ast.get_docstring(node):
                question = QUESTIONS[len(lines) % len(QUESTIONS)].format(name)
                answer = " ".join(docstring.split("\n\n")[0].split())
                messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
                lines.append(json.dumps({"messages": messages}, ensure_ascii=False))
    return "\n".join(lines)


TEXTS: dict[str, Callable[[], str]] = {
    "topics": topics,
    "standard-library": standard_library,
    "questions": questions,
}
