"""The documentation: pages made from the code are current, notebooks run, and the site loads nothing from elsewhere."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from seqwright.studies.lectures import LECTURES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "object": "data"}
"""Elements that make a browser fetch a file, with the attribute that names it."""
UNUSED = (
    *("unpkg.com/mermaid@", "unpkg.com/resize-observer-polyfill"),
    *("api.github.com/repos/", "api.github.com/users/", "${e}/api/v4/projects/"),
)
"""What Material's script would load for diagrams, for browsers before 2020 and for a linked repository: none here."""


def test_the_page_of_commands_is_current() -> None:
    page = runpy.run_path(str(DOCS / "commands_page.py"))["page"]()
    again = "run `python docs/commands_page.py > docs/commands.md`"
    assert (DOCS / "commands.md").read_text(encoding="utf-8") == page, again


def test_the_tables_of_the_api_are_current() -> None:
    written = runpy.run_path(str(DOCS / "api_page.py"))["written"]
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    assert written(page) == page, "run `python docs/api_page.py`"


def test_the_page_of_results_is_current() -> None:
    page = runpy.run_path(str(DOCS / "results_page.py"))["page"]()
    again = "run `python docs/results_page.py > docs/results.md`"
    assert (DOCS / "results.md").read_text(encoding="utf-8") == page, again


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path: Path, tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="notebooks need the extra [dev]")
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    shown = sum(len(cell.outputs) for cell in notebook.cells if cell.cell_type == "code")
    client = NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}})
    client.execute()  # raises the error of the first cell that fails
    html = [
        o.data["text/html"] for c in notebook.cells for o in c.get("outputs", ()) if "text/html" in o.get("data", {})
    ]
    assert shown > 0, "store the notebook with its outputs: the site shows them"
    assert any("<table>" in part for part in html)


def test_notebooks_of_the_lectures_are_current_and_run() -> None:
    script = runpy.run_path(str(DOCS / "lectures_page.py"))
    again = "run `python docs/lectures_page.py`"
    assert (DOCS / "lectures" / "index.md").read_text(encoding="utf-8") == script["index"](), again
    for number, lecture in enumerate(LECTURES, 1):
        text = (DOCS / "lectures" / script["file_name"](number, lecture)).read_text(encoding="utf-8")
        assert "/home/" not in text
        stored = json.loads(text)["cells"]
        cells = script["cells"](number, lecture)
        assert [(cell["cell_type"], "".join(cell["source"])) for cell in stored] == cells, again
        namespace: dict[str, object] = {}
        for cell in stored:
            value = script["displayed"]("".join(cell["source"]), namespace) if cell["cell_type"] == "code" else None
            assert [output["output_type"] for output in cell.get("outputs", ())] == ["execute_result"] * (
                value is not None
            )
            if value is not None:
                assert "<figure" in value._repr_html_()


class Loads(HTMLParser):
    """Addresses that a page makes a browser fetch; plain links are not."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if attributes.get("rel") not in ("canonical", "next", "prev"):
            self.addresses.append(attributes.get(LOADED.get(tag, ""), "") or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="the site needs the extra [docs]")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")}
    pages |= {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.ipynb")}
    assert {path.relative_to(site) for path in site.rglob("*.html")} >= pages
    notebook = (site / "notebooks" / "language-model.html").read_text(encoding="utf-8")
    assert "ngram, which continues text" in notebook  # an output
    assert len(json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]) > len(pages)


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        page = Loads()
        page.feed(path.read_text(encoding="utf-8"))
        outside = [address for address in page.addresses if re.match(r"(https?:)?//", address)]
        assert not outside, f"{path.relative_to(site)} loads {outside}"
        assert 'class="mermaid"' not in path.read_text(encoding="utf-8")
    for path in site.rglob("*.css"):
        outside = re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\"']*", path.read_text(encoding="utf-8"))
        assert not outside, f"{path.relative_to(site)} loads {outside}"
    for path in (site / "assets").rglob("*.js"):
        script = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        hosts = re.findall(r"[\"'`]https?://([^\"'`]+)", script)
        outside = [host for host in hosts if not host.startswith(UNUSED)]
        assert not outside, f"{path.relative_to(site)} may load {outside}"
