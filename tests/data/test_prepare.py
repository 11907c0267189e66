"""Prepared corpora: the ids of reading everything at once, under any block size, workers and interruptions."""

from __future__ import annotations

import csv
import errno
import json
import re
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqwright.core import storage
from seqwright.core.config import UserError
from seqwright.core.progress import Progress
from seqwright.data.text import prepare as module
from seqwright.data.text.blocks import Blocks, blocks
from seqwright.data.text.corpora import origins_of
from seqwright.data.text.corpus import Document, read_corpus
from seqwright.data.text.prepare import prepare, train_tokenizer
from seqwright.data.text.prepared import open_prepared, read_index, verify
from seqwright.data.text.stream import make_stream
from seqwright.text.trainers import TokenizerConfig, train

TEXT = "một con mèo  \n\n\tsat on the mat\nthe cat sat\r\n\n" * 40 + "end"
KINDS: list[Document] = ["line", "blank-line", "file"]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for number, path in enumerate(paths):
        path.write_bytes((TEXT[number:] * (number + 1)).encode())
    return paths


@given(text=st.text(alphabet="ab \n\rế").filter(str.strip), size=st.integers(1, 9), kind=st.sampled_from(KINDS))
def test_blocks_concatenate_to_the_text(
    text: str, size: int, kind: Document, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("blocks") / "a.txt"
    path.write_bytes(text.encode())
    read = "".join(block.text for block in blocks(path, kind, size))
    assert read == text.replace("\r\n", "\n")


@pytest.mark.parametrize("document", KINDS)
@pytest.mark.parametrize("kind", ["byte-bpe", "unigram", "words", "bpe"])
def test_prepared_ids_equal_those_of_reading_at_once(files, tmp_path, kind, document) -> None:
    corpus = read_corpus([str(path) for path in files], document, errors="strict")
    tokenizer = train(TokenizerConfig(kind=kind, size=None if kind == "words" else 400), corpus.documents)
    at_once = make_stream(corpus, tokenizer)
    stream = prepare(files, tmp_path / "out", tokenizer, document=document, block=900)
    assert stream.ids.tolist() == at_once.ids.tolist()
    assert stream.documents == at_once.documents
    assert stream.lossy or stream.sizes.tolist() == at_once.sizes.tolist()
    assert (stream.unknown, stream.lossy, stream.fingerprint) == (at_once.unknown, at_once.lossy, at_once.fingerprint)
    assert isinstance(stream.ids, np.memmap)
    assert verify(tmp_path / "out")


@pytest.mark.parametrize("document", ["line", "file"])
def test_prepared_surface_sizes_add_up_to_the_text(tmp_path, document) -> None:
    texts = ["một con mèo\n\nsat" * 30, "the cat\n" * 50, "no end"]
    paths = [tmp_path / f"{number}.txt" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text.encode())
    stream = prepare(paths, tmp_path / "out", train(TokenizerConfig(size=300), texts), document=document, block=100)
    text = "".join(texts)
    assert stream.lossy is None
    assert stream.sizes.sum(0).tolist() == [len(text.encode()), len(text)]


@pytest.mark.slow
def test_prepared_ids_do_not_depend_on_workers(files, tmp_path) -> None:
    tokenizer = train(TokenizerConfig(size=300), [TEXT])
    one = prepare(files, tmp_path / "one", tokenizer, document="file", block=500)
    two = prepare(files, tmp_path / "two", tokenizer, document="file", block=500, workers=2)
    assert np.array_equal(one.ids, two.ids)


def test_an_interrupted_preparation_resumes(files, tmp_path, monkeypatch) -> None:
    tokenizer = train(TokenizerConfig(size=300), [TEXT])
    uninterrupted = prepare(files, tmp_path / "whole", tokenizer, document="line", block=300)
    done: list[int] = []

    class Stop(Progress):
        def record(self, record: dict[str, Any]) -> None:
            done.append(record["bytes"])
            if len(done) == 4:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(files, tmp_path / "out", tokenizer, document="line", block=300, progress=Stop())
    (tmp_path / "out" / "parts" / "00004.bin").write_bytes(b"torn")
    encoded: list[str] = []
    work = module._work
    monkeypatch.setattr(module, "_work", lambda block, *rest: (encoded.append(block.text), work(block, *rest))[1])
    resumed = prepare(files, tmp_path / "out", tokenizer, document="line", block=300)
    assert np.array_equal(resumed.ids, uninterrupted.ids)
    total = sum(1 for path in files for _ in blocks(path, "line", 300))
    assert len(encoded) == total - 4
    assert not (tmp_path / "out" / "parts").exists()


def test_another_shard_size_keeps_what_is_encoded(files, tmp_path, monkeypatch) -> None:
    """Of an interrupted preparation and of a complete one; the index is that of a preparation with the new size."""
    tokenizer = train(TokenizerConfig(size=300), [TEXT])
    prepare(files, tmp_path / "expected", tokenizer, document="line", block=300, shard=64)

    def interrupted(*rest: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "_join", interrupted)
        with pytest.raises(KeyboardInterrupt):
            prepare(files, tmp_path / "out", tokenizer, document="line", block=300, shard=32)
    monkeypatch.setattr(module, "_work", lambda *block: pytest.fail("a block is encoded again"))
    for shard in (128, 64):
        prepare(files, tmp_path / "out", tokenizer, document="line", block=300, shard=shard)
    assert read_index(tmp_path / "out") == read_index(tmp_path / "expected")
    (tmp_path / "out" / "ids.bin").write_bytes(b"odd")
    with pytest.raises(UserError, match=r"ids\.bin is missing or cut short"):
        prepare(files, tmp_path / "out", tokenizer, document="line", block=300, shard=128)


def test_a_shard_is_written_as_soon_as_it_is_encoded(tmp_path, monkeypatch) -> None:
    """The first shard is on disk before a later block turns out to be unreadable, however many are pending."""
    (tmp_path / "a.txt").write_bytes(b"a\n" * 10 + b"b\n" * 10 + b"\xff\n" * 10)
    tokenizer = train(TokenizerConfig(kind="bytes"), [])
    submitted: list[Future] = []

    class Pool(ThreadPoolExecutor):
        def submit(self, *work):
            submitted.append(super().submit(*work))
            if len(submitted) == 1:
                submitted[0].result()
            return submitted[-1]

    monkeypatch.setattr(module, "_pool", lambda workers, used: Pool(1, initializer=module._load, initargs=(used.json,)))
    with pytest.raises(UserError, match="not UTF-8"):
        prepare([tmp_path / "a.txt"], tmp_path / "out", tokenizer, document="line", block=20, workers=8)
    assert (tmp_path / "out" / "parts" / "00000.json").exists()


def test_a_full_disk_is_an_error_and_preparation_resumes(files, tmp_path, monkeypatch) -> None:
    tokenizer = train(TokenizerConfig(size=300), [TEXT])
    sync = storage.sync

    def full(path: Path) -> None:
        if path.name.endswith("00003.bin"):
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(path)

    monkeypatch.setattr(storage, "sync", full)
    with pytest.raises(UserError, match=r"no room to write .*00003\.bin"):
        prepare(files, tmp_path / "out", tokenizer, document="line", block=300)
    monkeypatch.setattr(storage, "sync", sync)
    prepare(files, tmp_path / "out", tokenizer, document="line", block=300)
    assert verify(tmp_path / "out")


def test_another_tokenizer_is_refused_with_both_hashes(files, tmp_path) -> None:
    first, second = (train(TokenizerConfig(size=size), [TEXT]) for size in (270, 271))
    prepare(files, tmp_path / "out", first, document="line")
    with pytest.raises(UserError, match=f"{first.hash[:16]}.*{second.hash[:16]}.*tokenizer.file"):
        open_prepared(tmp_path / "out", second)
    with pytest.raises(UserError, match=f"tokenizer was {first.hash}, now {second.hash}"):
        prepare(files, tmp_path / "out", second, document="line")


def test_verify_detects_damage(files, tmp_path) -> None:
    tokenizer = train(TokenizerConfig(size=300), [TEXT])
    prepare(files, tmp_path / "out", tokenizer, document="line")
    path = tmp_path / "out" / "ids.bin"
    data = bytearray(path.read_bytes())
    data[7] ^= 1
    path.write_bytes(data)
    assert not verify(tmp_path / "out")
    path.write_bytes(data[:-1])
    with pytest.raises(UserError, match="cut short"):
        open_prepared(tmp_path / "out", tokenizer)
    with pytest.raises(UserError, match="other files"):
        prepare(files, tmp_path, tokenizer, document="line")


def test_json_lines_are_read_in_blocks(tmp_path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": f"số {n}\nlines"}) + "\n" for n in range(50)), encoding="utf-8")
    texts = list(Blocks([path], "line", ["text"], size=64))
    assert texts == [f"số {n}\nlines" for n in range(50)]
    with path.open("a") as file:
        file.write('{"txt": "x"}\n')
    with pytest.raises(UserError, match="line 51 has no key 'text'"):
        list(Blocks([path], "line", ["text"], size=64))


FIELDS = st.text(alphabet='ab", \n\r\tế', max_size=7)


@given(
    rows=st.lists(st.tuples(FIELDS, FIELDS), min_size=1, max_size=9),
    size=st.integers(1, 40),
    column=st.sampled_from(["text", "2"]),
    end=st.sampled_from(["\n", "\r\n"]),
    suffix=st.sampled_from([".csv", ".tsv"]),
)
def test_tables_in_blocks_equal_the_table(rows, size, column, end, suffix, tmp_path_factory) -> None:
    path = tmp_path_factory.mktemp("table") / f"a{suffix}"
    with path.open("w", encoding="utf-8", newline="") as file:
        if suffix == ".csv":
            csv.writer(file, lineterminator=end, quoting=csv.QUOTE_ALL).writerows([("id", "text"), *rows])
        else:
            plain = [[re.sub(r"[\t\n\r]", " ", field) for field in row] for row in rows]
            file.writelines("\t".join(row) + end for row in [["id", "text"], *plain])
    at_once = read_corpus(str(path), "line", errors="strict", columns=[column]).documents
    assert list(Blocks([path], "line", [column], size=size)) == at_once
    if suffix == ".csv":
        assert at_once[-len(rows) :] == [text for _, text in rows]


def test_a_prepared_table_equals_the_table(tmp_path) -> None:
    path = tmp_path / "a.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "n"), ("long " * 50, "0"), *((f'"số" {n},\nlines', n) for n in range(50))])
    corpus = read_corpus(str(path), "line", errors="strict", columns=["text"])
    tokenizer = train(TokenizerConfig(size=300), corpus.documents)
    stream = prepare([path], tmp_path / "out", tokenizer, document="line", columns=["text"], block=64)
    assert stream.ids.tolist() == make_stream(corpus, tokenizer).ids.tolist()
    assert stream.documents == 51


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "text,n\n" + "x,1\n" * 30 + 'y"z,1\n"u"v,1\n' + "x,1\n" * 90, "line 33 is no CSV"),
        ("a.csv", "text,n\n" + "x,1\n" * 30 + "x\n" + "x,1\n" * 90, "line 32 has 1 comma-separated"),
        ("a.tsv", "text\tn\n" + "x\t1\n" * 30 + "x\n" + "x\t1\n" * 90, "line 32 has 1 tab-separated"),
        ("a.tsv", "text;n\n" + "x;1\n" * 90, r"has no column 'text': .*\(is it separated by semicolons\?\)"),
        ("a.csv", "\n\n", "has only blank lines"),
    ],
)
def test_malformed_table_lines_are_errors_with_their_line(tmp_path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=message):
        list(Blocks([tmp_path / name], "line", ["text"], size=64))


def test_tokenizer_is_trained_on_a_sample_with_a_note(tmp_path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("the cat sat on the mat\n" * 200_000)
    tokenizer = train_tokenizer(TokenizerConfig(size=300, sample_bytes=1_500_000), [path], "line")
    assert tokenizer.notes == ("byte-bpe was trained on about 33.3% of the text (tokenizer.sample_bytes).",)
    assert tokenizer.tokens(tokenizer.encode("the cat"))[-1] == " cat"


def test_decoding_errors_in_blocks_are_refused_with_their_position(tmp_path) -> None:
    path = tmp_path / "a.txt"
    for data, message in [
        (b"ab\0", "NUL at byte 2"),
        (b"ab\xff", "near byte 2"),
        (b"ab\xe1", "very end"),
        (b"", "empty"),
    ]:
        path.write_bytes(data)
        with pytest.raises(UserError, match=message):
            list(blocks(path, "line"))


@pytest.mark.parametrize("blank", ["", "\n \n\n"])
@pytest.mark.parametrize("document", KINDS)
def test_a_file_without_text_is_skipped_in_a_folder_a_list_and_a_preparation(
    tmp_path: Path, document: Document, blank: str
) -> None:
    texts = {"a.txt": "one\n\ntwo\n", "b.txt": blank, "c.txt": "three"}
    (tmp_path / "texts").mkdir()
    paths = [tmp_path / "texts" / name for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text)
    folder = read_corpus(str(tmp_path / "texts"), document, errors="strict")
    listed = read_corpus([str(path) for path in paths], document, errors="strict")
    with_text = read_corpus([str(paths[0]), str(paths[2])], document, errors="strict")
    assert folder.documents == listed.documents == with_text.documents
    assert folder.notes == listed.notes == (f"{paths[1]} has no text and is skipped.",)
    tokenizer = train_tokenizer(TokenizerConfig(kind="bytes"), paths, document)
    prepared = prepare(paths, tmp_path / "ids", tokenizer, document=document, block=4)
    assert prepared.fingerprint == make_stream(with_text, tokenizer).fingerprint
    assert prepared.documents == len(with_text.documents)
    assert read_index(tmp_path / "ids").skipped == list(folder.notes)
    assert origins_of(tmp_path / "ids").places.tolist() == origins_of(with_text).places.tolist()
    with pytest.raises(UserError, match=r"b\.txt (is empty|has only blank lines); name a file with text"):
        prepare([paths[1]], tmp_path / "none", tokenizer, document=document)
