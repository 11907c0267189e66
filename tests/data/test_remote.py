"""Files that `data prepare` reads with the [data] extra: Parquet and Arrow, URLs of fsspec, and damaged ones."""

from __future__ import annotations

import errno
import json
import sys
from pathlib import Path
from typing import Any

import fsspec
import pytest

from seqwright.core.config import UserError
from seqwright.data.columnar import MissingExtraError
from seqwright.data.files import is_remote, read_text, resolve
from seqwright.data.remote import _key, remote_files
from seqwright.data.text.blocks import Blocks, blocks
from seqwright.data.text.streamed import remote_folder

BODIES = ["xin chào 🎉", 'a "quoted" text', "two\nlines", ""]


@pytest.fixture
def table() -> Any:
    arrow = pytest.importorskip("pyarrow", reason="pip install 'seqwright[data]'")
    return arrow.table({"id": range(4), "body": BODIES, "tag": ["x"] * 4})


@pytest.mark.parametrize("size", [1 << 20, 1])
def test_columnar_files_have_the_texts_of_their_column(size: int, table: Any, tmp_path: Path) -> None:
    import pyarrow.ipc
    import pyarrow.parquet

    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    with pyarrow.ipc.new_stream(tmp_path / "b.arrow", table.schema) as writer:
        writer.write_table(table)
    with pyarrow.ipc.new_file(tmp_path / "c.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=3)
    for name in ("a.parquet", "b.arrow", "c.arrow"):
        assert list(Blocks([tmp_path / name], "line", ["body"], size=size)) == BODIES
    with pytest.raises(UserError, match=r"Did you mean 'body'"):
        list(Blocks([tmp_path / "a.parquet"], "line", ["bodie"]))


def test_views_of_strings_and_categories_are_strings(table: Any, tmp_path: Path) -> None:
    import pyarrow.ipc
    import pyarrow.parquet

    body = table["body"]
    kinds = {"views": body.cast("string_view"), "categories": body.dictionary_encode()}
    for name, column in kinds.items():
        made = table.set_column(1, "body", column)
        pyarrow.parquet.write_table(made, tmp_path / f"{name}.parquet")
        with pyarrow.ipc.new_file(tmp_path / f"{name}.arrow", made.schema) as writer:
            writer.write_table(made)
        for suffix in ("parquet", "arrow"):
            assert list(Blocks([tmp_path / f"{name}.{suffix}"], "line", ["body"])) == BODIES


def test_a_damaged_file_is_named_and_left_out_on_request(table: Any, tmp_path: Path) -> None:
    import pyarrow.parquet

    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:100])
    with pytest.raises(UserError, match=r"b\.parquet cannot be read after row 0"):
        list(blocks(tmp_path / "b.parquet", "line"))
    reasons: list[str] = []
    paths = [tmp_path / "b.parquet", tmp_path / "a.parquet"]
    texts = iter(Blocks(paths, "line", ["body"], skipped=reasons.append))
    assert list(texts) == BODIES
    assert len(reasons) == 1


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"a\.parquet needs pyarrow: pip install 'seqwright\[data\]'"):
        list(blocks(tmp_path / "a.parquet", "line"))


def local_copies(url: str, cache: Path) -> list[Path]:
    files = remote_files(url, cache)
    for file in files:
        file.copy()
    return [file.path for file in files]


def test_remote_files_are_copied_once(tmp_path: Path) -> None:
    files = fsspec.filesystem("memory")
    for name, text in (("one/a.jsonl", "first"), ("two/a.jsonl", "second")):
        files.pipe(f"/texts/{name}", json.dumps({"body": text}).encode())
    copies = local_copies("memory://texts/*/a.jsonl", tmp_path)
    assert list(Blocks(copies, "line", ["body"])) == ["first", "second"]
    assert local_copies("memory://texts", tmp_path) == copies
    files.pipe("/texts/one/a.jsonl", json.dumps({"body": "a longer one"}).encode())
    assert list(Blocks(local_copies("memory://texts/one/a.jsonl", tmp_path), "line", ["body"])) == ["a longer one"]
    assert [is_remote(name) for name in ("s3://a/b", "a/b.txt", "C:/texts", "embedded:topics")] == [True, *[False] * 3]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ftp://a.org/texts/a.txt", "ftp://b.org/texts/a.txt"),
        ("github://user:one@main/a.txt", "github://user:two@main/a.txt"),
        ("zip://a.txt::https://a.org/one.zip", "zip://a.txt::https://a.org/two.zip"),
    ],
)
def test_files_of_different_hosts_have_different_copies(one: str, other: str) -> None:
    """fsspec's name of a file may lack its host."""
    assert _key(one, "a.txt") != _key(other, "a.txt")


@pytest.mark.parametrize("url", ["memory://nothing.txt", "nowhere://a.txt"])
def test_urls_that_cannot_be_read_are_named(url: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{url} cannot be read"):
        local_copies(url, tmp_path)


class Refused(Exception):
    """An answer of a web server, as aiohttp raises it."""

    status = 403


class ClientConnectionError(Exception):
    """As aiohttp's, whose subclass ServerDisconnectedError is no OSError."""


class ServerDisconnectedError(ClientConnectionError): ...


@pytest.mark.parametrize(
    "cause",
    [
        ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
        Refused("refused"),
        ServerDisconnectedError("disconnected, refused"),
    ],
)
def test_servers_that_do_not_answer_are_not_missing_files(
    cause: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fsspec's https:// says of both that there is no such file."""

    def info(self: object, path: str) -> None:
        raise FileNotFoundError(path) from cause

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "info", info)
    for read in (
        lambda: local_copies("memory://gone.txt", tmp_path),
        lambda: remote_folder.__wrapped__("memory://gone"),
    ):
        with pytest.raises(UserError, match=r"memory://gone.* cannot be read \(.*refused\)"):
            read()


def test_errors_of_the_source_are_not_those_of_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = fsspec.filesystem("memory")
    files.pipe("/denied.txt", b"text")

    def denied(*arguments: Any, **options: Any) -> None:
        raise PermissionError(errno.EACCES, "access denied")

    monkeypatch.setattr(type(files), "_open", denied)
    with pytest.raises(UserError, match=r"memory://denied\.txt cannot be read \(.*access denied\)"):
        local_copies("memory://denied.txt", tmp_path)


def test_training_names_the_preparation_of_such_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"s3://a/b\.txt is a URL, and only training text .* copy the text to a file"):
        resolve("s3://a/b.txt")
    with pytest.raises(UserError, match="--columns text=NAME --out FOLDER"):
        read_text(tmp_path / "a.parquet")


def test_a_missing_package_of_a_file_system_is_named_and_never_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(url: str) -> None:
        raise ImportError('HTTPFileSystem requires "requests" and "aiohttp" to be installed')

    monkeypatch.setattr("fsspec.core.url_to_fs", missing)
    with pytest.raises(MissingExtraError, match=r'https://x/y.txt needs another package: .*"aiohttp"'):
        remote_files("https://x/y.txt", tmp_path)
