"""Lines that are decoded as they arrive: the same as those of the whole text, in any encoding."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqwright.core.config import UserError
from seqwright.core.warning import SeqwrightWarning
from seqwright.data.files import read_text
from seqwright.data.lines import LineDecoder, lines_of
from tests.data.test_files import written

LINES = ["Überraschung", "", "naïve, déjà vu", "plain"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1252", "utf-16", "utf-16-le", "utf-32"])
@pytest.mark.parametrize("size", [4, 7, 1000])
def test_lines_of_blocks_in_any_encoding(encoding: str, size: int) -> None:
    data = "\r\n".join(LINES).encode(encoding)
    decoder = LineDecoder("a", encoding)
    lines = [line for at in range(0, len(data), size) for line in decoder.feed(data[at : at + size])]
    assert lines + decoder.finish() == LINES


def test_lines_of_a_file_that_is_utf8_after_all_are_pointed_out_once(tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt", "déjà vu\nà la carte\n".encode())
    with pytest.warns(SeqwrightWarning, match="valid UTF-8, but read as latin-1; --set data.encoding=utf-8") as caught:
        lines = [*lines_of(path, "latin-1"), *lines_of(path, "utf-8")]
    assert lines[::2] == ["dÃ©jÃ\xa0 vu", "déjà vu"]
    assert len(caught) == 1
    marked = written(tmp_path / "b.txt", "\ufeffdéjà vu\n".encode())
    assert list(lines_of(marked, "latin-1")) == [read_text(marked, encoding="latin-1")[0].rstrip()] == ["déjà vu"]


def test_standard_input_is_utf8_or_in_the_encoding_of_the_training_files() -> None:
    decoder = LineDecoder("standard input", "latin-1", piped=True)
    assert decoder.feed("déjà\n".encode() + "déjà\n".encode("latin-1")) == ["déjà", "déjà"]


@pytest.mark.parametrize(
    ("encoding", "data", "message"),
    [
        ("utf-8", "a\nna\xefve\n".encode("latin-1"), "line 2: not UTF-8 .* as in --set data.encoding=latin-1"),
        ("latin-1", "a\n".encode("utf-16"), "is UTF-16, as spreadsheets write it; add --set data.encoding=utf-16"),
        (None, "na\xefve\n".encode("latin-1"), "line 1: not UTF-8 .* save it as UTF-8, or convert it"),
        ("utf-16", b"\xff\xfea\0\0", "not UTF-16 after line 0"),
        ("latin-1", b"PK\x03\x04\x14\0", r"is a ZIP archive, as spreadsheets \(.xlsx, .ods\)"),
        ("utf-8", b"%PDF-1.7\n", "a.txt is a PDF; save its text"),
    ],
)
def test_undecodable_lines_name_the_next_move(encoding: str | None, data: bytes, message: str) -> None:
    decoder = LineDecoder("a.txt", encoding)
    with pytest.raises(UserError, match=message):
        assert decoder.feed(data) + decoder.finish()


def test_undecodable_lines_are_replaced_with_a_warning() -> None:
    with pytest.warns(SeqwrightWarning, match="line 1 has bytes that are invalid"):
        assert LineDecoder("a.txt", "utf-8", "replace").feed(b"na\xefve\n\xff\n") == ["na\ufffdve", "\ufffd"]


ROWS = {
    "Cyrillic": ["Небо", "", "синее"],
    "CJK": ["天空", "蓝色的天", "ਊ"],  # the last one has the byte of a line feed twice
    "Latin": ["naïve", "", "déjà vu", "plain"],
}
ENCODINGS = {
    "Cyrillic": ["utf-16-le", "utf-16-be", "utf-16", "utf-8", "cp1251"],
    "CJK": ["utf-16-le", "utf-16-be", "utf-16", "utf-8"],
    "Latin": ["utf-16-le", "utf-16-be", "utf-16", "utf-8", "cp037", "latin-1"],
}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(("script", "encoding"), [(key, name) for key, names in ENCODINGS.items() for name in names])
def test_lines_of_a_file_are_those_of_its_text(tmp_path: Path, script: str, encoding: str, end: str) -> None:
    path = written(tmp_path / "a.txt", "".join(row + end for row in ROWS[script]).encode(encoding))
    text = read_text(path, encoding=encoding)[0]
    assert list(lines_of(path, encoding)) == text.replace("\r\n", "\n").split("\n")[:-1] == ROWS[script]


def test_only_the_first_byte_order_mark_of_a_file_is_dropped(tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt", "\ufeffa\n\ufeffb\n".encode("utf-16-be"))
    assert (
        list(lines_of(path, "utf-16-be")) == read_text(path, encoding="utf-16-be")[0].splitlines() == ["a", "\ufeffb"]
    )


def test_a_file_of_utf8_that_is_read_as_utf16_is_pointed_out(tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt", "olé!\n".encode())
    with pytest.warns(SeqwrightWarning, match="is valid UTF-8, but read as utf-16-le; --set data.encoding=utf-8"):
        assert list(lines_of(path, "utf-16-le")) == [read_text(path, encoding="utf-16-le")[0]]
