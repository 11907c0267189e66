"""Reading files: exact text, decoding errors with their position, compression, and path resolution."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path
from typing import Any

import pytest

from seqwright.core.config import UserError
from seqwright.core.warning import SeqwrightWarning
from seqwright.data.files import as_list, check_encoding, read_text, resolve


class Table:
    """Stands for a table of another library."""


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ([("a", "b")], r"\('a', 'b'\) \(tuple\)"),
        ([{"role": "user"}], r"\(dict\)"),
        ({"a": 1}, r"\(dict\)"),
        (5, r"5 \(int\)"),
        (b"a text", r"b'a text' \(bytes\)"),
        (Table(), r"\(Table\)"),
    ],
)
def test_values_that_are_no_files_are_named(value: Any, shown: str) -> None:
    with pytest.raises(UserError, match=rf"{shown} is no file; give the path of a file"):
        as_list(value)


def test_names_paths_and_none_are_lists_of_names(tmp_path: Path) -> None:
    assert as_list(None) == as_list(()) == []
    assert as_list("a") == ["a"]
    assert as_list(["a", Path("b")]) == ["a", "b"]
    with pytest.raises(UserError, match="A text or a row of yours goes into a file first"):
        resolve("a text")


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("name", "compress"), [("a.txt", bytes), ("a.txt.gz", gzip.compress), ("a.txt.xz", lzma.compress)]
)
def test_text_is_read_exactly(tmp_path: Path, name: str, compress: object) -> None:
    text = "một\r\nhai\n\u2028ba\x85\rbốn 🙂"
    assert read_text(written(tmp_path / name, compress(text.encode()))) == (text, [])  # type: ignore[operator]


def test_a_byte_order_mark_is_dropped_once(tmp_path: Path) -> None:
    assert read_text(written(tmp_path / "a", "\ufeff\ufeffa".encode())) == ("\ufeffa", [])


def test_a_line_of_ten_megabytes_is_read(tmp_path: Path) -> None:
    text, _ = read_text(written(tmp_path / "a", b"x" * 10_000_000))
    assert len(text) == 10_000_000


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (
            b"ab\ncd\xffe",
            r"0xff at byte 5 \(line 2\); it looks like latin-1: add --set data\.encoding=latin-1.*errors=replace",
        ),
        (b"costs 5 \x80 today", "it looks like cp1252: add --set data.encoding=cp1252"),
        ("Привет мир".encode("cp1251"), "name its encoding, as in --set data.encoding=cp1251"),
        (b"\xef\xbb\xbfab\xe1\xbb", "0xe1 at byte 5"),
        ("a\tb".encode("utf-16"), "is UTF-16, as spreadsheets write it; add --set data.encoding=utf-16"),
        (b"ab\0c", r"has 1 NUL byte, the first at byte 2 \(line 1\); --set data.errors=replace"),
        (b"a\0b\0c", "binary or UTF-16: NUL at byte 1"),
    ],
)
def test_decoding_errors_are_refused_with_their_position(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_text(written(tmp_path / "a.txt", data))


def test_replaced_decoding_errors_are_counted(tmp_path: Path) -> None:
    assert read_text(written(tmp_path / "a", "\ufffd".encode() + b"\xffb\0"), "replace") == (
        "\ufffd\ufffdb\ufffd",
        [f"{tmp_path / 'a'}: 2 decoding errors were replaced by U+FFFD."],
    )


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "UTF8", "utf-8-sig"])
def test_text_is_read_in_its_encoding(tmp_path: Path, encoding: str) -> None:
    path = written(tmp_path / "a", "olé\r\n".encode(encoding))
    assert read_text(path, encoding=encoding) == ("olé\r\n", [])


def test_utf8_read_in_another_encoding_is_pointed_out(tmp_path: Path) -> None:
    with pytest.warns(SeqwrightWarning, match="is valid UTF-8, but read as latin-1; --set data.encoding=utf-8"):
        assert read_text(written(tmp_path / "a", "olé".encode()), encoding="latin-1")[0] == "olÃ©"


@pytest.mark.parametrize("encoding", ["latin_one", "base64", "rot13", "a\0b", ""])
def test_names_that_are_no_text_encodings_are_refused(encoding: str) -> None:
    with pytest.raises(UserError, match="no encoding"):
        check_encoding(encoding)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.gz", b"plain"),
        ("a.xz", b"plain"),
        ("b.gz", gzip.compress(b"long enough to cut", mtime=0)[:-9]),
        ("b.xz", lzma.compress(b"long enough to cut")[:-9]),
    ],
)
def test_damaged_compressed_files_are_refused(tmp_path: Path, name: str, data: bytes) -> None:
    with pytest.raises(UserError, match="cannot be decompressed"):
        read_text(written(tmp_path / name, data))


def test_reading_a_folder_as_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a folder"):
        read_text(tmp_path)


def test_paths_resolve_beside_the_recipe_then_under_the_data_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, root = tmp_path / "recipe", tmp_path / "root"
    recipe.mkdir()
    root.mkdir()
    monkeypatch.setenv("SEQWRIGHT_DATA", str(root))
    under_root = written(root / "corpus.txt", b"x")
    assert resolve("corpus.txt", recipe) == under_root
    beside = written(recipe / "corpus.txt", b"x")
    assert resolve("corpus.txt", recipe) == beside
    assert resolve(str(under_root), recipe) == under_root
    with pytest.raises(UserError) as error:
        resolve("corpsu.txt", recipe)
    assert str(recipe / "corpsu.txt") in str(error.value)
    assert str(root / "corpsu.txt") in str(error.value)
    assert f"Did you mean '{recipe / 'corpus.txt'}'?" in str(error.value)
    with pytest.raises(UserError) as error:
        resolve("core.tsv", recipe)
    assert "Did you mean" not in str(error.value)


def test_a_path_with_the_data_root_prefix_resolves_there_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    root.mkdir()
    written(tmp_path / "corpus.txt", b"another")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEQWRIGHT_DATA", str(root))
    with pytest.raises(UserError, match=r"no file .*root/corpus\.txt\.$"):
        resolve("$SEQWRIGHT_DATA/corpus.txt")
    under_root = written(root / "corpus.txt", b"x")
    assert resolve("$SEQWRIGHT_DATA/corpus.txt") == under_root
    monkeypatch.delenv("SEQWRIGHT_DATA")
    with pytest.raises(UserError, match=r"SEQWRIGHT_DATA is not set; set it to the folder that holds corpus\.txt"):
        resolve("$SEQWRIGHT_DATA/corpus.txt")


def test_an_unset_data_root_is_named_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEQWRIGHT_DATA", raising=False)
    with pytest.raises(UserError, match=r"SEQWRIGHT_DATA .* is not set"):
        resolve("far/away.txt", tmp_path)
