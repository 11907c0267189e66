"""Received and damaged runs: what is read is what was written, and a hostile file harms nothing."""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from seqwright.core.config import UserError
from seqwright.core.storage import load_tensors, save_tensors
from seqwright.runs.directory import RunDirectory
from seqwright.runs.environment import commit, environment
from tests.journeys.commands import TINY_GPT, records
from tests.journeys.conftest import Command

BOUND = ("model.safetensors", "tokenizer.json", "recipe.toml", "summary.json", "environment.json", "log.jsonl")


def flip_bit(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("name", BOUND)
def test_every_flipped_bit_of_a_run_is_refused(run_copy: Path, name: str) -> None:
    intact = (run_copy / name).read_bytes()
    rng = random.Random(name)
    for _ in range(30):
        flip_bit(run_copy / name, rng)
        with pytest.raises(UserError, match=name.replace(".", r"\.") + "|has run format|was made by"):
            RunDirectory.open(run_copy)
        (run_copy / name).write_bytes(intact)
    RunDirectory.open(run_copy)


def test_every_command_refuses_damaged_weights(seqwright: Command, run_copy: Path) -> None:
    flip_bit(run_copy / "model.safetensors", random.Random(1))
    for command in (["evaluate", "run"], ["generate", "run", "a"], ["score", "run", "text.txt"], ["check", "run"]):
        result = seqwright(*command)
        assert result.status == 2
        assert "run/model.safetensors is damaged" in result.err


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_a_flipped_bit_in_a_checkpoint_falls_back_to_the_one_before(
    seqwright: Command, run_copy: Path, name: str
) -> None:
    flip_bit(run_copy / "checkpoints" / "step-00000006" / name, random.Random(name))
    result = seqwright("train", "--run", "run", "--set", "training.steps=8")
    assert result.status == 0, result.err
    assert "went back to step 5" in result.err
    assert any("went back to step 5" in note["text"] for note in records(run_copy, "note"))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_weights_are_refused(seqwright: Command, run_copy: Path, value: float) -> None:
    tensors, about = load_tensors(run_copy / "model.safetensors")
    next(iter(tensors.values())).view(-1)[0] = value
    save_tensors(run_copy / "model.safetensors", tensors, about)
    RunDirectory(run_copy).seal()
    result = seqwright("evaluate", "run")
    assert result.status == 2
    assert "has values that are not finite" in result.err


def test_heads_are_bound_to_the_weights(seqwright: Command, run_copy: Path) -> None:
    """Two heads or four have the same weight shapes: only a hash tells the models apart."""
    recipe = run_copy / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("heads = 2", "heads = 4"))
    assert seqwright("evaluate", "run").status == 2


def test_labels_are_bound_to_the_weights(seqwright: Command, workdir: Path) -> None:
    (workdir / "labeled.tsv").write_text("cat\tthe cat sat\ndog\tdogs run by\n" * 20)
    assert seqwright("train", "--labeled", "labeled.tsv", "--model", "bag", "--run", "run").status == 0
    before = seqwright("evaluate", "run", "--on", "labeled.tsv", "--json").json["fingerprint"]
    labels = json.loads((workdir / "run" / "labels.json").read_text())
    (workdir / "run" / "labels.json").write_text(json.dumps(labels | {"names": labels["names"][::-1]}))
    result = seqwright("classify", "run", "dogs run")
    assert result.status == 2
    assert "run/labels.json is damaged" in result.err
    assert seqwright("check", "run", "--accept").status == 0
    assert seqwright("evaluate", "run", "--on", "labeled.tsv", "--json").json["fingerprint"] != before


def test_a_resumed_run_needs_the_tokenizer_of_its_checkpoint(seqwright: Command, run_copy: Path) -> None:
    for name in ("summary.json", "model.safetensors", "manifest.json"):
        (run_copy / name).unlink()
    tokenizer = run_copy / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace('"version": "1.0"', '"version":  "1.0"'))
    result = seqwright("train", "--run", "run")
    assert result.status == 2
    assert "tokenizer.json is not what step 6 was trained with." in result.err


def test_scores_name_the_model_they_belong_to(seqwright: Command, run_copy: Path) -> None:
    fingerprint = json.loads((run_copy / "summary.json").read_text())["fingerprint"]
    assert seqwright("evaluate", "run", "--json").json["fingerprint"] == fingerprint
    assert f"|model:{fingerprint[:8]}" in seqwright("evaluate", "run").out


def test_an_additional_file_is_no_part_of_a_run(run_copy: Path) -> None:
    (run_copy / "source-tokenizer.json").write_bytes((run_copy / "tokenizer.json").read_bytes())
    with pytest.raises(UserError, match=r"source-tokenizer\.json is damaged: manifest\.json does not list it"):
        RunDirectory.open(run_copy)


def test_a_missing_manifest_is_refused(seqwright: Command, run_copy: Path) -> None:
    (run_copy / "manifest.json").unlink()
    result = seqwright("evaluate", "run")
    assert result.status == 2
    assert "run/manifest.json is missing." in result.err


@pytest.mark.parametrize("moment", ["recipe", "weights", "log", "summary"])
def test_a_kill_between_the_manifest_and_a_file_is_no_damage(
    run_copy: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest announces a file before it is replaced, so both the old and the new one open."""
    run = RunDirectory.open(run_copy)
    replace = Path.replace
    names = {"recipe": "recipe.toml", "weights": "model.safetensors", "log": "log.jsonl", "summary": "summary.json"}

    def killed(path: Path, target: Path) -> Path:
        if path.name == names[moment]:
            raise KeyboardInterrupt
        return replace(path, target)

    for kill in (killed, replace):
        monkeypatch.setattr(Path, "replace", kill)
        try:
            if moment == "recipe":
                run.write_recipe(run.recipe_path.read_text().replace("steps = 6", "steps = 7"))
            elif moment == "weights":
                tensors, about = load_tensors(run.model_path)
                run.save_model({name: tensor * 2 for name, tensor in tensors.items()}, about)
            elif moment == "log":
                run.rewind(3)
            else:
                run.finish(run.summary() | {"seconds": 9.0}, "")
        except KeyboardInterrupt:
            pass
        RunDirectory.open(run_copy)
    monkeypatch.undo()
    flip_bit(run_copy / names[moment], random.Random(0))
    with pytest.raises(UserError):
        RunDirectory.open(run_copy)


def link(path: Path, outside: Path) -> None:
    if path.is_dir():
        path.rename(outside / path.name)
    elif path.exists():
        path.replace(outside / path.name)
    else:
        (outside / path.name).write_text("precious")
    path.symlink_to(outside / path.name)


@pytest.mark.parametrize(
    "name", [".lock", "log.jsonl", "checkpoints", "tensorboard", "recipe.toml", "model.safetensors", "summary.json"]
)
def test_a_received_run_writes_nothing_through_a_link(
    seqwright: Command, run_copy: Path, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (run_copy / ".lock").unlink(missing_ok=True)
    if name == "tensorboard":
        (run_copy / name).mkdir()
    link(run_copy / name, outside)
    before = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
    for command in (["train", "--run", "run"], ["train", "--run", "run", "--set", "training.steps=8"]):
        result = seqwright(*command)
        assert result.status == 2
        assert f"run/{name} is a link; runs and prepared data hold regular files only." in result.err
    assert {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["log.jsonl", "model.safetensors", "environment.json", "checkpoints/latest"])
def test_a_fifo_in_a_run_does_not_hang(seqwright: Command, run_copy: Path, name: str) -> None:
    (run_copy / name).unlink()
    os.mkfifo(run_copy / name)
    assert seqwright("evaluate", "run").status == 2


def test_training_into_a_folder_with_a_linked_lock_is_refused(seqwright: Command, workdir: Path) -> None:
    (workdir / "victim").write_text("")
    (workdir / "run").mkdir()
    (workdir / "run" / ".lock").symlink_to(workdir / "victim")
    assert seqwright("train", "--text", "text.txt", *TINY_GPT, "--run", "run").status == 2
    assert (workdir / "victim").read_text() == ""


def test_no_code_of_a_repository_runs(seqwright: Command, workdir: Path) -> None:
    """`git describe --dirty` runs core.fsmonitor; the commit is read from files instead."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(workdir)]
    for command in (["init", "-q"], ["add", "text.txt"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *command], check=True, capture_output=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    (workdir / "hook").write_text(f"#!/bin/sh\ntouch {workdir}/executed\n")
    (workdir / "hook").chmod(0o755)
    subprocess.run([*git, "config", "core.fsmonitor", str(workdir / "hook")], check=True)
    assert seqwright("train", "--text", "text.txt", "--model", "ngram", "--run", "run").status == 0
    assert not (workdir / "executed").exists()
    assert json.loads((workdir / "run" / "environment.json").read_text())["commit"] == head
    subprocess.run([*git, "-c", "core.fsmonitor=false", "pack-refs", "--all"], check=True)
    assert commit(workdir / "run") == head
    subprocess.run([*git, "-c", "core.fsmonitor=false", "worktree", "add", "-q", "tree"], check=True)
    assert commit(workdir / "tree") == head
    for damage in ("ref: refs/heads/none", "", "x" * 40, "ref: ../../../../../etc/passwd", "ref: " + "a" * 300):
        (workdir / ".git" / "HEAD").write_text(damage)
        assert commit(workdir) is None


def test_the_environment_names_the_sources() -> None:
    assert len(environment()["sources"]) == 64


def test_a_prepared_folder_names_a_dtype_of_ids_only(seqwright: Command, workdir: Path) -> None:
    """dtype "O" would read the ids as addresses of objects."""
    assert seqwright("data", "prepare", "text.txt", "--out", "ids").status == 0
    train = (
        "train",
        "--text",
        "ids",
        "--set",
        "tokenizer.file=ids/tokenizer.json",
        "--set",
        "data.document=line",
        *TINY_GPT[2:],
        "--run",
        "run",
    )
    index = json.loads((workdir / "ids" / "index.json").read_text())
    damages = [{"dtype": "O"}, {"dtype": "float64"}, {"ids": -1}, {"unended": [[1]]}, {"bytes": "many"}, {"mine": 1}]
    for damage in damages:
        (workdir / "ids" / "index.json").write_text(json.dumps(index | damage))
        result = seqwright(*train)
        assert result.status == 2, damage
        assert "ids/index.json is damaged" in result.err or "is missing or cut short" in result.err
    (workdir / "ids" / "index.json").write_text(json.dumps(index))
    ids = (workdir / "ids" / "ids.bin").read_bytes()
    flip_bit(workdir / "ids" / "ids.bin", random.Random(0))
    result = seqwright(*train)
    assert result.status == 2
    assert "ids.bin is damaged: its sha256 is not that of index.json" in result.err
    beyond = b"\xff\xff" + ids[2:]
    (workdir / "ids" / "ids.bin").write_bytes(beyond)
    hashed = index | {"sha256": hashlib.sha256(beyond).hexdigest()}
    (workdir / "ids" / "index.json").write_text(json.dumps(hashed))
    assert "has ids beyond its vocabulary" in seqwright(*train).err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("summary.json", '{"kind": "gpt", "parameters": "many", "steps": 1, "seconds": 1}'),
        ("summary.json", "[" * 100_000),
        ("recipe.toml", "x = " + "[" * 100_000),
        ("recipe.toml", "model = 3\n"),
        ("environment.json", '{"format": []}'),
        ("tokenizer.json", '{"model": {"vocab": {"a": 300000000}}}'),
        ("tokenizer.json", "[]"),
        ("log.jsonl", '{"kind": ["x"]}\n'),
        ("log.jsonl", '{"kind": "note"}\n'),
        ("log.jsonl", '{"kind": "train", "step": "first"}\n'),
        ("manifest.json", '{"files": {"../../secret": {"size": 1, "sha256": ""}}}'),
        ("manifest.json", '{"files": []}'),
    ],
)
def test_hostile_run_files_are_refused(seqwright: Command, run_copy: Path, name: str, text: str) -> None:
    (run_copy / name).write_text(text)
    if name != "manifest.json":
        RunDirectory(run_copy).seal()
    for command in (["evaluate", "run"], ["train", "--run", "run", "--set", "training.steps=8"]):
        assert seqwright(*command).status == 2
    assert "run" in seqwright("runs", ".").out


@pytest.mark.parametrize(
    ("files", "command", "message"),
    [
        ({"a.txt.gz": gzip.compress(bytes(3000))}, ["train", "--text", "a.txt.gz"], "SEQWRIGHT_MAX_DECOMPRESSED_BYTES"),
        ({"a.txt.xz": lzma.compress(b"x" * 3000)}, ["score", "run", "a.txt.xz"], "SEQWRIGHT_MAX_DECOMPRESSED_BYTES"),
        (
            {"a.gz": gzip.compress(b"x " * 3000)},
            ["data", "prepare", "a.gz", "--out", "o"],
            "SEQWRIGHT_MAX_DECOMPRESSED_BYTES",
        ),
    ],
)
def test_decompression_is_limited(
    seqwright: Command,
    run_copy: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, bytes],
    command: list[str],
    message: str,
) -> None:
    for name, data in files.items():
        Path(name).write_bytes(data)
    monkeypatch.setenv("SEQWRIGHT_MAX_DECOMPRESSED_BYTES", "1000")
    result = seqwright(*command)
    assert result.status == 2
    assert message in result.err


HOSTILE = "\x1b]0;pwned\x07\x9b31m\u202e"
"""Sets the title of a terminal, colors it with an 8-bit CSI, and reverses what follows."""


def test_no_text_commands_the_terminal(seqwright: Command, run_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("hostile.txt").write_text(f"the cat {HOSTILE}sat\n" * 3)
    rows = "".join(f"{label}\t{HOSTILE} the {label[:3]} {n}\n" for n in range(20) for label in (HOSTILE, "dog"))
    Path("labeled.tsv").write_text(rows)
    assert seqwright("train", "--labeled", "labeled.tsv", "--model", "bag", "--run", "labels").status == 0
    commands = [
        ["score", "run", "hostile.txt"],
        ["score", "run", "hostile.txt", "--keep-below", "1e9"],
        ["generate", "run", HOSTILE, "--max-tokens", "3"],
        ["tokenize", "run", "hostile.txt"],
        ["data", "audit", "hostile.txt"],
        ["classify", "labels", "hostile.txt"],
        ["evaluate", "labels", "--on", "labeled.tsv"],
        ["score", "run", "hostile.txt", "--json"],
        ["generate", HOSTILE],
    ]
    for terminal in (True, False):
        monkeypatch.setattr("_pytest.capture.CaptureIO.isatty", lambda self: terminal)  # noqa: B023
        shown = [seqwright(*command) for command in commands]
        for command, result in zip(commands, shown, strict=True):
            text = result.out + result.err
            assert "Traceback" not in text
            if terminal:
                assert "\x1b]" not in text, command
                assert not set(text) & {"\x07", "\x9b", "\u202e"}, command
        if not terminal:
            assert HOSTILE in shown[0].out


LONG = "a" * 300


@pytest.mark.parametrize(
    "command",
    [
        ["train", "--text", "text.txt", "--set", "data.kind=[]"],
        ["train", "--text", "text.txt", "--set", "model.kind=[]"],
        ["train", "--text", "text.txt", "--set", "tokenizer.kind={}"],
        ["train", "--text", "text.txt", "--set", "training.steps=" + "9" * 5000],
        ["train", "--text", "text.txt", "--set", "x=" + "[" * 3000],
        ["train", "--text", "text.txt", "--model", "ngram", "--set", f"name={LONG}"],
        ["train", "--text", "text.txt", "--model", "ngram", "--run", LONG],
        ["train", "--text", LONG],
        ["train", LONG],
        ["evaluate", LONG],
        ["runs", LONG],
        ["tokenize", "run", LONG + "/a"],
        ["data", "prepare", "text.txt", "--out", LONG],
        ["import", f"{LONG}.arpa", "--run", "imported"],
        ["export", "run", "a.arpa", "--to", "arpa"],
    ],
    ids=lambda command: " ".join(command)[:60],
)
def test_odd_arguments_are_errors_with_one_sentence(seqwright: Command, run_copy: Path, command: list[str]) -> None:
    assert seqwright(*command).status == 2


def test_search_audit_of_nothing(seqwright: Command, run_copy: Path) -> None:
    assert seqwright("search-audit", "run").status == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_device_as_standard_output(run_copy: Path) -> None:
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            [sys.executable, "-m", "seqwright", "runs", "."], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert process.returncode == 2
    assert process.stderr.startswith("error: No space left on device.")


def test_a_folder_in_the_place_of_weights(seqwright: Command, run_copy: Path) -> None:
    (run_copy / "model.safetensors").unlink()
    (run_copy / "model.safetensors").mkdir()
    assert "model.safetensors is a folder" in seqwright("evaluate", "run").err


def test_an_idx_header_that_overflows(seqwright: Command, workdir: Path) -> None:
    (workdir / "images.idx").write_bytes(b"\0\0\x08\x04" + b"\xff" * 16)
    assert "is damaged: its header declares" in seqwright("train", "--images", "images.idx").err


def test_a_received_run_reads_no_file_that_its_user_has_not_named(
    seqwright: Command, trained: Path, workdir: Path
) -> None:
    received = shutil.copytree(trained, workdir / "received")
    outside = str(trained.parent / "text.txt")
    more = ("train", "--run", received, "--set", "training.steps=8")
    for command in (more, ("train", "--run", received), ("evaluate", received)):
        result = seqwright(*command)
        assert result.status == 2
        assert outside in result.err
        assert "--trust" in result.err
    assert seqwright("evaluate", received, "--on", "text.txt").status == 0
    assert seqwright("generate", received, "the", "--max-tokens", "2").status == 0
    assert seqwright("evaluate", received, "--trust").status == 0
    assert seqwright(*more, "--trust").status == 0
    assert seqwright("train", "--run", trained).status == 0
    recipe = received / "recipe.toml"
    text = recipe.read_text()
    for name in ("$SEQWRIGHT_DATA/../../../../../../etc/passwd", "s3://bucket/prepared"):
        recipe.write_text(text.replace(outside, name))
        RunDirectory(received).seal()
        for command in (more, ("evaluate", received)):
            result = seqwright(*command)
            assert (result.status, "--trust" in result.err) == (2, True)


def test_a_certificate_holds_for_the_checked_model_only(seqwright: Command, run_copy: Path) -> None:
    assert seqwright("check", "run", "--save").status == 0
    certificate = json.loads((run_copy / "certificate.json").read_text())
    summary = json.loads((run_copy / "summary.json").read_text())
    assert certificate["holds"]
    assert certificate["fingerprint"] == summary["fingerprint"]
    assert certificate["files"]["model.safetensors"]["size"] == (run_copy / "model.safetensors").stat().st_size
    assert certificate["environment"]["sources"]
    assert "laws hold" in seqwright("runs", ".").out
    assert certificate["laws"][0]["law"] in (run_copy / "report.html").read_text()
    assert seqwright("train", "--run", "run", "--set", "training.steps=8").status == 0
    assert "laws hold" not in seqwright("runs", ".").out
