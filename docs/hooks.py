"""MkDocs hooks: notebooks become Markdown pages with their stored outputs; decisions get a list of their titles."""

from __future__ import annotations

import json
import re
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the page of every notebook, in place of the file itself, and the list of decisions, decisions.md."""
    titles = []
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            files.remove(file)
            text = notebook_page(json.loads(file.content_string))
            files.append(File.generated(config, file.src_uri.replace(".ipynb", ".md"), content=text))
        elif file.src_uri.startswith("decisions/"):
            title = file.content_string.partition("\n")[0].removeprefix("# ")
            titles.append(f"- [{title}]({file.src_uri})")
    index = "# Design decisions\n\nOne page per choice: the situation, the choice, what was refused, what follows.\n\n"
    files.append(File.generated(config, "decisions.md", content=index + "\n".join(sorted(titles))))
    return files


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lets the navigation name notebooks by their files."""
    config.nav = json.loads(json.dumps(config.nav).replace(".ipynb", ".md"))
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to notebooks, which are right in the repository, lead to their pages."""
    return markdown.replace(".ipynb)", ".md)")


def notebook_page(notebook: dict[str, Any]) -> str:
    """Cells in order: Markdown as it is, code fenced, outputs as the notebook stores them."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        parts += [shown for output in cell.get("outputs", ()) if (shown := output_of(output))]
    return "\n\n".join(parts) + "\n"


def output_of(output: dict[str, Any]) -> str:
    """Standard output and values of a cell; HTML (`_repr_html_`) where a value has it. Warnings are left out."""
    if output["output_type"] == "stream":
        return fenced("".join(output["text"])) if output["name"] == "stdout" else ""
    data = output.get("data", {})
    if "text/html" in data:
        # Markdown ends a block of HTML at an empty line.
        return re.sub(r"\n\s*\n", "\n", "".join(data["text/html"]))
    return fenced("".join(data.get("text/plain", ())))


def fenced(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```" if text.strip() else ""
