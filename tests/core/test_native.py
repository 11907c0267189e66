"""C sources are compiled once and kept; without a compiler, or with errors, there is no library and no exception."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from seqwright.core import native

compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="this machine has no C compiler")


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv(native.SWITCH, raising=False)
    native.library.cache_clear()
    path = tmp_path / "seven.c"
    path.write_text("int seven(void) { return 7; }\n")
    yield path
    native.library.cache_clear()


@compiler
def test_a_library_is_compiled_once(source: Path) -> None:
    library = native.library(source)
    assert library is not None
    assert library.seven() == 7
    (kept,) = (native.cache_folder() / "native").glob("seven-*.so")
    written = kept.stat().st_mtime_ns
    native.library.cache_clear()
    assert native.library(source) is not None
    assert kept.stat().st_mtime_ns == written
    assert [*kept.parent.iterdir()] == [kept]


@pytest.mark.parametrize(("key", "value"), [(native.SWITCH, "off"), ("CC", "no-such-compiler")])
def test_no_library_without_a_compiler(source: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: str) -> None:
    monkeypatch.setenv(key, value)
    assert native.library(source) is None


@compiler
def test_no_library_where_it_cannot_be_kept(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a user without a home folder, as in containers, or where the folder cannot be written."""

    def homeless(path: str) -> str:
        return path

    with monkeypatch.context() as changed:
        changed.delenv("XDG_CACHE_HOME")
        changed.setattr("os.path.expanduser", homeless)
        assert native.library(source) is None
    native.library.cache_clear()
    (source.parent / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(source.parent / "file"))
    assert native.library(source) is None


@compiler
def test_processes_that_compile_at_once_have_one_library(source: Path) -> None:
    code = "import pathlib, sys; from seqwright.core import native; library = native.library(pathlib.Path(sys.argv[1]))"
    command = [sys.executable, "-c", f"{code}; print(library.seven())", str(source)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate(timeout=100)[0] for process in processes] == ["7\n"] * 3
    folder = native.cache_folder() / "native"
    assert [path.name for path in folder.iterdir()] == [path.name for path in folder.glob("seven-*.so")]


@compiler
def test_sources_are_utf_8_whatever_the_locale(source: Path) -> None:
    source.write_text("/* ≤ 7 */ int seven(void) { return 7; }\n", encoding="utf-8")
    code = "import pathlib, sys; from seqwright.core import native; library = native.library(pathlib.Path(sys.argv[1]))"
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", f"{code}; print(library.seven())", str(source)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert (done.stdout, done.stderr) == ("7\n", "")


@compiler
def test_no_library_of_a_source_with_errors(source: Path) -> None:
    source.write_text("int seven(void) { return }\n")
    assert native.library(source) is None
