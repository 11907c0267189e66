"""The notebooks of docs/lectures/ and their index, from the table of lectures: `python docs/lectures_page.py`.

A notebook has a cell for each topic of `seqwright explain`, one in which a number is changed, and the commands of its
practice. Cells are run here, in one namespace, and stored with what they display.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

from seqwright.core.storage import write_text
from seqwright.reporting.numbers import duration
from seqwright.studies.explain.catalog import TOPICS
from seqwright.studies.lectures import LECTURES, Lecture

FOLDER = Path(__file__).parent / "lectures"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
INDEX = """# Lectures

Made by `python docs/lectures_page.py`; `seqwright recipes --lectures` prints the same path. Times were measured once,
on a busy CPU core or a shared H200. The notebooks need no data, and display what the shipped classes compute.

| lecture | explained | trained | time |
|---|---|---|---|
"""


def cells(number: int, lecture: Lecture) -> list[tuple[str, str]]:
    """Kind and source of each cell."""
    topic, override, figure = lecture.change
    commands = "\n".join(f"seqwright train {practice.recipe}" for practice in lecture.practice)
    shown = "\n".join(
        f"- `{practice.recipe}`: {practice.shows} ({_time(practice.seconds, practice.hardware)})"
        for practice in lecture.practice
    )
    return [
        ("markdown", f"# {number}. {lecture.title}\n\n{lecture.about}"),
        ("code", "import seqwright as sw"),
        *(
            cell
            for name in lecture.topics
            for cell in (("markdown", f"## {name}\n\n{TOPICS[name].about}"), ("code", f'sw.explain("{name}")'))
        ),
        ("markdown", f"## Change a number\n\nWhat will *{figure}* be with `{override}`? Compute it again."),
        ("code", f'sw.explain("{topic}", set=["{override}"])["{figure}"]'),
        ("markdown", f"## Train it\n\n{shown}\n\n```console\n{commands}\n```"),
    ]


def displayed(source: str, namespace: dict[str, Any]) -> Any:
    """Runs a cell; the value of its last expression, as a notebook displays it."""
    *statements, last = ast.parse(source).body
    if not isinstance(last, ast.Expr):
        statements, last = [*statements, last], None
    exec(compile(ast.Module(statements, []), "cell", "exec"), namespace)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), namespace)


def notebook(number: int, lecture: Lecture) -> dict[str, Any]:
    """The notebook of a lecture with the outputs of its cells (nbformat 4.5)."""
    namespace: dict[str, Any] = {}
    stored = []
    for n, (kind, source) in enumerate(cells(number, lecture)):
        cell = {"cell_type": kind, "id": f"cell-{n}", "metadata": {}, "source": source.splitlines(keepends=True)}
        if kind == "code":
            value = displayed(source, namespace)
            data = None if value is None else {"text/html": value._repr_html_(), "text/plain": value.text()}
            output = {"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": data}
            cell |= {"execution_count": None, "outputs": [] if data is None else [output]}
        stored.append(cell)
    return {"cells": stored, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}


def file_name(number: int, lecture: Lecture) -> str:
    return f"{number:02}-{lecture.name}.ipynb"


def index() -> str:
    """The page with all lectures."""
    rows = []
    for number, lecture in enumerate(LECTURES, 1):
        recipes = "<br>".join(f"`{practice.recipe}`" for practice in lecture.practice)
        times = "<br>".join(_time(practice.seconds, practice.hardware) for practice in lecture.practice)
        topics = " ".join(f"`{topic}`" for topic in lecture.topics)
        rows.append(f"| [{number}. {lecture.title}]({file_name(number, lecture)}) | {topics} | {recipes} | {times} |\n")
    return INDEX + "".join(rows)


def _time(seconds: float, hardware: str) -> str:
    return f"about {duration(seconds)}, {hardware}"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    write_text(FOLDER / "index.md", index())
    for number, lecture in enumerate(LECTURES, 1):
        text = json.dumps(notebook(number, lecture), ensure_ascii=False, indent=1)
        write_text(FOLDER / file_name(number, lecture), text + "\n")
