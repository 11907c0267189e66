"""A comparison, shown: as tables for the terminal, as a page and in notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.table import Table

from seqwright.core.storage import write_text
from seqwright.reporting.terminal import as_text
from seqwright.studies.compare import page, text
from seqwright.studies.compare.results import Results


class Comparison(Results):
    """Results of a comparison: `sw.compare(["runs/ngram", "runs/gpt"], on="test.txt").verdict`."""

    def printed(self) -> Iterator[str | Table]:
        """Lines and tables for the terminal, in order."""
        return text.printed(self)

    def __str__(self) -> str:
        return as_text(self.printed())

    def html(self) -> str:
        """The comparison as a self-contained page."""
        return page.comparison_page(self)

    def write_html(self, path: str | Path) -> Path:
        """Writes the page."""
        write_text(Path(path), self.html())
        return Path(path)

    def _repr_html_(self) -> str:
        return page.notebook_view(self)
