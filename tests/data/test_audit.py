"""Data audit: counts of an input file, and warnings."""

from __future__ import annotations

import re
from pathlib import Path

from seqwright.data.audit import audit, leaks, warnings

LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"


def test_audit_counts_encoding_line_endings_and_duplicates(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("a мир\r\nb\n\nb\ne\u0301\x07".encode() + b"\xff\xfe\0")
    report = audit(path)
    assert (report["lines"], report["empty_lines"], report["documents"]) == (5, 1, 5)
    assert report["line_ends"] == {"LF": 3, "CRLF": 1, "CR": 0}
    assert (report["not_utf8"], report["first_not_utf8"], report["nul_bytes"]) == (1, 19, 1)
    assert report["control_characters"] == {"U+0007": 1, "U+0000": 1}
    assert report["scripts"] == {"latin": 4, "cyrillic": 1}
    assert (report["copies"], report["lines_not_nfc"], report["longest_line"]) == (1, 1, {"line": 1, "characters": 6})
    messages = " ".join(warnings(report))
    pattern = r"not UTF-8, the first at byte 19.*NUL.*mixed \(3 LF, 1 CRLF\)\..*decomposed.*exact duplicates"
    assert re.search(pattern, messages)


def test_a_file_without_words_is_a_warning(tmp_path: Path) -> None:
    for data in (b"", b"\n \n"):
        (tmp_path / "a.txt").write_bytes(data)
        assert warnings(audit(tmp_path / "a.txt")) == ["the file has no words."]


def test_a_clean_file_has_no_warnings(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one two\nthree\n")
    report = audit(path)
    assert warnings(report) == []
    assert report["words_of_documents"] == {"median": 2, "p90": 2, "p99": 2, "longest": 2}


def test_a_line_of_ten_megabytes_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x" * 10_000_000)
    assert "longer than a million" in warnings(audit(path))[0]


def test_leaks_are_exact_or_near_duplicates() -> None:
    report = leaks(["other", LONG, "plain"], ["new", "Plain", LONG + " eighteen"])
    assert (report["held_out_documents"], report["copies"], report["near_copies"]) == (3, 1, 1)
    assert report["examples_of_copies"][0]["text"].startswith("one two")
