"""C sources are compiled once and kept; without a compiler, or with errors, there is no library and no exception."""

from __future__ import annotations

import shutil
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
def test_no_library_of_a_source_with_errors(source: Path) -> None:
    source.write_text("int seven(void) { return }\n")
    assert native.library(source) is None
