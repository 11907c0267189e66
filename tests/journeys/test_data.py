"""The data command, and training from what it prepared."""

from __future__ import annotations

import hashlib
import json
import lzma
import re
from pathlib import Path

import pytest

from seqwright.data import catalog
from seqwright.text.trainers import TokenizerConfig, train
from tests.journeys.commands import TINY_GPT, text_of
from tests.journeys.conftest import Command


@pytest.fixture
def root(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data root with one set, of two files, one of which is there."""
    files = {"a.txt": hashlib.sha256(b"text").hexdigest(), "b.txt": "0" * 64}
    made_up = catalog.Dataset(title="made up", task="language model", terms="none", files=files)
    monkeypatch.setattr(catalog, "DATASETS", {"made_up": made_up})
    monkeypatch.setenv("SEQWRIGHT_DATA", str(here))
    (here / "made_up").mkdir()
    (here / "made_up" / "a.txt.xz").write_bytes(lzma.compress(b"text"))
    return here


def test_what_is_known_and_there_is_listed(root: Path, seqwright: Command) -> None:
    [row] = seqwright("data", "--json").lines
    assert (row["name"], row["there"], row["files"], row["recipes"]) == ("made_up", 1, 2, [])
    assert "1/2" in seqwright("data").out


def test_files_are_verified(root: Path, seqwright: Command) -> None:
    assert seqwright("data", "verify", "--json").lines == [{"set": "made_up", "file": "a.txt", "state": "verified"}]
    missing = seqwright("data", "verify", "made_up")
    assert (missing.status, "missing   made_up/b.txt" in missing.out) == (1, True)
    (root / "made_up" / "b.txt").write_bytes(b"other")
    differs = seqwright("data", "verify")
    assert "differs   made_up/b.txt" in differs.out
    assert differs.err == "1 of 2 files are as they should be.\n"
    assert "Did you mean 'made_up'?" in seqwright("data", "verify", "madeup").err


def test_the_checksums_are_those_of_the_files(data_root: Path) -> None:
    for name in ("tiny_shakespeare", "truyen_kieu", "scan"):
        assert {state for _, state in catalog.file_states(name, data_root, verify=True)} == {"verified"}


def test_a_file_is_audited(here: Path, seqwright: Command) -> None:
    (here / "own.txt").write_bytes(b"the cat\r\nthe cat\nend\n")
    (here / "train.txt").write_text("end\nof it\n")
    found = seqwright("data", "audit", "own.txt", "--against", "train.txt", "--json").json
    assert (found["copies"], found["leaks"]["copies"], len(found["warnings"])) == (1, 1, 2)
    said = seqwright("data", "audit", "own.txt").out
    assert "line endings are mixed" in said


def test_a_prepared_text_trains_as_the_text_does(here: Path, seqwright: Command) -> None:
    (here / "own.json").write_text(train(TokenizerConfig(kind="characters"), [text_of(60)]).json)
    common = ["--valid", "text.txt", *TINY_GPT[2:], "--json"]
    own = ["--set", "tokenizer.file=own.json"]
    plain = seqwright("train", "--text", "text.txt", *common, *own, "--run", "plain").json["summary"]
    prepare = ["data", "prepare", "text.txt", "--out", "ids", "--tokenizer", "own.json", "--document", "file", "--json"]
    assert seqwright(*prepare).json == seqwright(*prepare).json  # the second finds it done
    from_disk = seqwright("train", "--text", "ids", *common, "--run", "disk").json["summary"]
    assert from_disk["nll"] == plain["nll"]
    assert seqwright("data", "verify", "ids").out == "verified  ids/ids.bin\n"


def test_a_tokenizer_that_does_not_fit_the_run_is_refused(copy: Path, seqwright: Command) -> None:
    path = copy / "tokenizer.json"
    table = json.loads(path.read_text())
    vocabulary = table["model"]["vocab"]
    vocabulary["a"], vocabulary["t"] = vocabulary["t"], vocabulary["a"]
    path.write_text(json.dumps(table))
    said = seqwright("generate", copy, "the")
    assert said.status == 2
    assert "does not fit the weights" in said.err
    hashes = re.findall("[0-9a-f]{64}", said.err)
    assert len(set(hashes)) == 2


def test_corpora_are_mixed_by_weight(here: Path, seqwright: Command) -> None:
    (here / "more.txt").write_text(text_of(20, seed=1))
    (here / "mix.toml").write_text('[data]\ntrain = ["text.txt", "more.txt"]\nweights = [1, 3]\nsplit = "tail 10%"\n')
    said = seqwright("train", "mix.toml", *TINY_GPT, "--run", "mix")
    assert said.status == 0
    assert "75.0% of what is read" in " ".join(said.err.split())


def test_documents_of_packed_windows_are_kept_apart(here: Path, seqwright: Command) -> None:
    """From a text, a mixture and a prepared folder; measured as it was trained, and the same after it is opened."""
    apart = ["--set", "data.mask_documents=true", *TINY_GPT, "--json"]
    lines = ["--set", "data.document=line"]
    plain = seqwright("train", "--text", "text.txt", *TINY_GPT, *lines, "--json", "--run", "plain").json["summary"]
    masked = seqwright("train", "--text", "text.txt", *apart, *lines, "--run", "masked").json["summary"]
    assert masked["nll"] != plain["nll"]
    assert "|documents:apart|" in masked["scores"]["nll"]["signature"]
    assert seqwright("evaluate", "masked", "--json").json["nll"] == masked["nll"]
    more = ["--valid", "text.txt", "--set", "training.micro_batch_size=2", *apart]
    seqwright("data", "prepare", "text.txt", "--out", "ids", "--set", "tokenizer.kind=characters")
    disk = ["--text", "ids", *more, "--set", "data.document=line"]
    assert seqwright("train", *disk, "--run", "disk").status == 0
    (here / "mix.toml").write_text('[data]\ntrain = ["text.txt", "text.txt"]\nweights = [1, 3]\ndocument = "line"\n')
    assert seqwright("train", "mix.toml", *more, "--run", "mix").status == 0
    said = seqwright("mix", "plain", "masked", "--on", "text.txt", "--run", "both")
    assert (said.status, "the same data.mask_documents" in said.err) == (2, True)


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
def test_documents_that_cannot_be_kept_apart(here: Path, seqwright: Command, settings: list[str], message: str) -> None:
    given = [item for one in ["data.mask_documents=true", *settings] for item in ("--set", one)]
    said = seqwright("train", "--text", "text.txt", *given, "--run", "run")
    assert said.status == 2
    assert message in " ".join(said.err.split())
    assert not (here / "run").exists()
