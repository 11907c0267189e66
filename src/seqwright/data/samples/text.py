"""Text that every Python has: the language's own reference and its standard library. No files, no network."""

from __future__ import annotations

import ast
import json
import sysconfig
from collections.abc import Callable
from pathlib import Path

from seqwright.core.config import UserError, did_you_mean

PREFIX = "embedded:"
ASKED = ("What is {} for?", "What does {} do?", "Tell me about {}.")


def is_embedded(name: str) -> bool:
    return name.startswith(PREFIX)


def embedded_text(name: str) -> str:
    """The text that `embedded:NAME` stands for."""
    key = name.removeprefix(PREFIX)
    if key not in TEXTS:
        raise UserError(f"no embedded text '{key}'.{did_you_mean(key, TEXTS)}")
    return TEXTS[key]()


def topics() -> str:
    """The chapters of Python's reference manual that `help()` shows: about half a million characters of English."""
    from pydoc_data.topics import topics as chapters

    return "\n".join(chapters[name] for name in sorted(chapters))


def standard_library() -> str:
    """The modules at the top of Python's standard library: several million characters of source code."""
    folder = Path(sysconfig.get_path("stdlib"))
    sources = [path for path in sorted(folder.glob("*.py")) if not path.name.startswith("_sysconfigdata")]
    return "\n".join(path.read_text(encoding="utf-8") for path in sources)


def questions() -> str:
    """What the parts of the standard library are for, asked, and answered by the first lines of their descriptions."""
    folder = Path(sysconfig.get_path("stdlib"))
    lines: list[str] = []
    for path in sorted(folder.glob("[a-z]*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        parts = [n for n in module.body if isinstance(n, ast.ClassDef | ast.FunctionDef) and n.name[0] != "_"]
        named = [(path.stem, module), *((f"{path.stem}.{part.name}", part) for part in parts)]
        for name, part in named:
            if described := ast.get_docstring(part):
                question = ASKED[len(lines) % len(ASKED)].format(name)
                answer = " ".join(described.split("\n\n")[0].split())
                messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
                lines.append(json.dumps({"messages": messages}, ensure_ascii=False))
    return "\n".join(lines)


TEXTS: dict[str, Callable[[], str]] = {
    "topics": topics,
    "standard-library": standard_library,
    "questions": questions,
}
