"""Code blocks of README.md and docs/ are tests: they run in order, in one folder for each file, as a reader would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser
from tests import preloaded

ROOT = Path(__file__).parent


def run_shell(example: Example) -> None:
    """Runs a `sh` block with this environment's seqwright, preloaded; a failing command fails the test."""
    folder = example.namespace["folder"]
    paths = (str(preloaded.folder()), str(Path(sys.executable).parent), os.environ["PATH"])
    environment = os.environ | {"PATH": os.pathsep.join(paths)}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", example.parsed], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{example.parsed}\n{done.stdout}\n{done.stderr}"


def set_up(namespace: dict[str, Any]) -> None:
    import shutil
    import tempfile

    namespace["before"] = Path.cwd()
    namespace["folder"] = Path(tempfile.mkdtemp())
    shutil.copy(ROOT / "README.md", namespace["folder"])
    os.chdir(namespace["folder"])


def tear_down(namespace: dict[str, Any]) -> None:
    import shutil

    from seqwright import build

    build.REGISTERED.clear()  # encoders that a page registered
    os.chdir(namespace["before"])
    shutil.rmtree(namespace["folder"])


pytest_collect_file = Sybil(
    parsers=[CodeBlockParser(language="sh", evaluator=run_shell), PythonCodeBlockParser(), SkipParser()],
    patterns=["README.md", "docs/*.md", "docs/tutorials/*.md"],
    setup=set_up,
    teardown=tear_down,
).pytest()
