"""`seqwright data`, and training on prepared corpora."""

from __future__ import annotations

import hashlib
import json
import lzma
import re
from pathlib import Path

import pytest

from seqwright.data import catalog
from seqwright.runs.directory import RunDirectory
from seqwright.text.trainers import TokenizerConfig, train
from tests.journeys.commands import TINY_GPT, synthetic_text
from tests.journeys.conftest import Command


@pytest.fixture
def root(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data root with one data set of two files, one of which is present."""
    files = {"a.txt": hashlib.sha256(b"text").hexdigest(), "b.txt": "0" * 64}
    made_up = catalog.Dataset(title="made up", task="language model", terms="none", files=files)
    monkeypatch.setattr(catalog, "DATASETS", {"made_up": made_up})
    monkeypatch.setenv("SEQWRIGHT_DATA", str(workdir))
    (workdir / "made_up").mkdir()
    (workdir / "made_up" / "a.txt.xz").write_bytes(lzma.compress(b"text"))
    return workdir


def test_data_lists_the_catalog(root: Path, seqwright: Command) -> None:
    [row] = seqwright("data", "--json").lines
    assert (row["name"], row["there"], row["files"], row["recipes"]) == ("made_up", 1, 2, [])
    assert "1/2" in seqwright("data").out


def test_data_verify_compares_checksums(root: Path, seqwright: Command) -> None:
    assert seqwright("data", "verify", "--json").lines == [{"set": "made_up", "file": "a.txt", "state": "verified"}]
    missing = seqwright("data", "verify", "made_up")
    assert (missing.status, "missing   made_up/b.txt" in missing.out) == (1, True)
    (root / "made_up" / "b.txt").write_bytes(b"other")
    differs = seqwright("data", "verify")
    assert "differs   made_up/b.txt" in differs.out
    assert differs.err == "1 of 2 files match their checksums.\n"
    assert "Did you mean 'made_up'?" in seqwright("data", "verify", "madeup").err


def test_catalog_checksums_match_the_corpora(data_root: Path) -> None:
    for name in ("tiny_shakespeare", "truyen_kieu", "scan"):
        assert {state for _, state in catalog.file_states(name, data_root, verify=True)} == {"verified"}


def test_data_audit_reports_duplicates_and_leaks(workdir: Path, seqwright: Command) -> None:
    (workdir / "own.txt").write_bytes(b"the cat\r\nthe cat\nend\n")
    (workdir / "train.txt").write_text("end\nof it\n")
    report = seqwright("data", "audit", "own.txt", "--against", "train.txt", "--json").json
    assert (report["copies"], report["leaks"]["copies"], len(report["warnings"])) == (1, 1, 2)
    assert "line endings are mixed" in seqwright("data", "audit", "own.txt").out


def test_prepared_corpus_trains_like_the_text(workdir: Path, seqwright: Command) -> None:
    (workdir / "own.json").write_text(train(TokenizerConfig(kind="characters"), [synthetic_text(60)]).json)
    common = ["--valid", "text.txt", *TINY_GPT[2:], "--json"]
    tokenizer = ["--set", "tokenizer.file=own.json"]
    plain = seqwright("train", "--text", "text.txt", *common, *tokenizer, "--run", "plain").json["summary"]
    prepare = ["data", "prepare", "text.txt", "--out", "ids", "--tokenizer", "own.json", "--document", "file", "--json"]
    assert seqwright(*prepare).json == seqwright(*prepare).json  # the second call finds it finished
    from_disk = seqwright("train", "--text", "ids", *common, "--run", "disk").json["summary"]
    assert from_disk["nll"] == plain["nll"]
    assert seqwright("data", "verify", "ids").out == "verified  ids/ids.bin\n"


def test_preparation_records_what_it_skipped(workdir: Path, seqwright: Command) -> None:
    (workdir / "latin.txt").write_bytes(b"na\xefve\n")
    prepare = [
        "data",
        "prepare",
        "text.txt",
        "latin.txt",
        "--out",
        "ids",
        "--set",
        "tokenizer.kind=characters",
        "--json",
    ]
    assert "latin.txt is not UTF-8" in seqwright(*prepare).err
    skipped = seqwright(*prepare, "--skip-unreadable").json["skipped"]
    assert [reason.split(" is not UTF-8")[0] for reason in skipped] == [str(workdir / "latin.txt")]
    assert seqwright(*prepare).json["skipped"] == skipped  # from index.json


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--out", "."], "holds other files"),
        (["--out", "ids"], "name the text column: --columns text=NAME"),
        (["--out", "ids", "--columns", "text=body", "--tokenizer", "none.json"], "none.json"),
        (["--out", "ids", "--columns", "text=body", "--set", "tokenizer.kind=none"], "tokenizer.kind"),
    ],
)
def test_nothing_remote_is_copied_before_wrong_options_are_refused(
    wrong: list[str], message: str, workdir: Path, seqwright: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = pytest.importorskip("fsspec", reason="pip install 'seqwright[data]'").filesystem("memory")
    files.pipe("/wrong-options/a.jsonl", b'{"body": "a text"}')
    monkeypatch.setenv("XDG_CACHE_HOME", str(workdir / "cache"))
    result = seqwright("data", "prepare", "memory://wrong-options", *wrong)
    assert (result.status, message in result.err) == (2, True), result.err
    assert not (workdir / "cache").exists()


def test_tokenizer_hash_mismatch_is_rejected(run_copy: Path, seqwright: Command) -> None:
    path = run_copy / "tokenizer.json"
    table = json.loads(path.read_text())
    vocabulary = table["model"]["vocab"]
    vocabulary["a"], vocabulary["t"] = vocabulary["t"], vocabulary["a"]
    path.write_text(json.dumps(table))
    RunDirectory(run_copy).seal()
    result = seqwright("generate", run_copy, "the")
    assert result.status == 2
    assert "does not fit the weights" in result.err
    hashes = re.findall("[0-9a-f]{64}", result.err)
    assert len(set(hashes)) == 2


def test_corpora_are_mixed_by_sampling_weights(workdir: Path, seqwright: Command) -> None:
    (workdir / "more.txt").write_text(synthetic_text(20, seed=1))
    (workdir / "mix.toml").write_text(
        '[data]\ntrain = ["text.txt", "more.txt"]\nweights = [1, 3]\nsplit = "tail 10%"\n'
    )
    result = seqwright("train", "mix.toml", *TINY_GPT, "--run", "mix")
    assert result.status == 0
    assert "75.0% of what is read" in " ".join(result.err.split())


def test_document_mask_in_packed_windows(workdir: Path, seqwright: Command) -> None:
    """For a text, a mixture and a prepared corpus; evaluated as trained, also after opening the run."""
    document_mask = ["--set", "data.mask_documents=true", *TINY_GPT, "--json"]
    lines = ["--set", "data.document=line"]
    plain = seqwright("train", "--text", "text.txt", *TINY_GPT, *lines, "--json", "--run", "plain").json["summary"]
    masked = seqwright("train", "--text", "text.txt", *document_mask, *lines, "--run", "masked").json["summary"]
    assert masked["nll"] != plain["nll"]
    assert "|documents:apart|" in masked["scores"]["nll"]["signature"]
    assert seqwright("evaluate", "masked", "--json").json["nll"] == masked["nll"]
    more = ["--valid", "text.txt", "--set", "training.micro_batch_size=2", *document_mask]
    seqwright("data", "prepare", "text.txt", "--out", "ids", "--set", "tokenizer.kind=characters")
    disk = ["--text", "ids", *more, "--set", "data.document=line"]
    assert seqwright("train", *disk, "--run", "disk").status == 0
    (workdir / "mix.toml").write_text('[data]\ntrain = ["text.txt", "text.txt"]\nweights = [1, 3]\ndocument = "line"\n')
    assert seqwright("train", "mix.toml", *more, "--run", "mix").status == 0
    result = seqwright("mix", "plain", "masked", "--on", "text.txt", "--run", "both")
    assert (result.status, "the same data.mask_documents" in result.err) == (2, True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["model.kind=lstm"], 'cannot keep its documents apart; take data.examples = "documents"'),
        (["model.kind=feedforward"], 'cannot keep its documents apart; take data.examples = "documents"'),
        (["model.readout=flatten", "model.tied=false"], 'cannot keep its documents apart; take data.examples = "docum'),
        (["model.kind=ngram"], "leave data.mask_documents out"),
        (["data.examples=documents"], 'with examples = "documents" leave it out'),
    ],
)
def test_document_mask_is_rejected_where_unsupported(
    workdir: Path, seqwright: Command, settings: list[str], message: str
) -> None:
    overrides = [item for one in ["data.mask_documents=true", *settings] for item in ("--set", one)]
    result = seqwright("train", "--text", "text.txt", *overrides, "--run", "run")
    assert result.status == 2
    assert message in " ".join(result.err.split())
    assert not (workdir / "run").exists()
