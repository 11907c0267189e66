"""The audit of a user's own file: what is counted, and what is warned of."""

from __future__ import annotations

import re
from pathlib import Path

from seqwright.data.audit import audit, leaks, warnings

LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"


def test_everything_odd_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("a мир\r\nb\n\nb\ne\u0301\x07".encode() + b"\xff\xfe\0")
    found = audit(path)
    assert (found["lines"], found["empty_lines"], found["documents"]) == (5, 1, 5)
    assert found["line_ends"] == {"LF": 3, "CRLF": 1, "CR": 0}
    assert (found["not_utf8"], found["first_not_utf8"], found["nul_bytes"]) == (1, 19, 1)
    assert found["control_characters"] == {"U+0007": 1, "U+0000": 1}
    assert found["scripts"] == {"latin": 4, "cyrillic": 1}
    assert (found["copies"], found["lines_not_nfc"], found["longest_line"]) == (1, 1, {"line": 1, "characters": 6})
    said = " ".join(warnings(found))
    assert re.search(r"not UTF-8, the first at byte 19.*NUL.*mixed \(3 LF, 1 CRLF\).*decomposed.*repeat", said)


def test_a_file_of_nothing_is_said_to_be_one(tmp_path: Path) -> None:
    for data in (b"", b"\n \n"):
        (tmp_path / "a.txt").write_bytes(data)
        assert warnings(audit(tmp_path / "a.txt")) == ["there is not a word in it."]


def test_a_clean_file_has_no_warnings(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one two\nthree\n")
    found = audit(path)
    assert warnings(found) == []
    assert found["words_of_documents"] == {"median": 2, "p90": 2, "p99": 2, "longest": 2}


def test_a_line_of_ten_megabytes_is_pointed_out(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x" * 10_000_000)
    assert "longer than a million" in warnings(audit(path))[0]


def test_leaks_are_exact_or_near() -> None:
    found = leaks(["other", LONG, "plain"], ["new", "Plain", LONG + " eighteen"])
    assert (found["held_out_documents"], found["copies"], found["near_copies"]) == (3, 1, 1)
    assert found["examples_of_copies"][0]["text"].startswith("one two")
