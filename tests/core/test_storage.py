"""Atomic storage: round trips, crashes during a write, full disks and damaged files."""

import json
import os
import resource
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from seqwright.core import storage
from seqwright.core.config import UserError
from seqwright.core.safetensors_chunks import DTYPES
from seqwright.core.storage import (
    append_jsonl,
    atomic_directory,
    load_tensors,
    read_json,
    read_jsonl,
    read_text,
    recover,
    remove_directory,
    save_tensors,
    tensor_shapes,
    write_json,
    write_text,
)


def test_text_and_json_round_trip(tmp_path: Path) -> None:
    write_text(tmp_path / "new" / "a.txt", "một\r\n\x00")
    assert (tmp_path / "new" / "a.txt").read_bytes() == "một\r\n\x00".encode()
    write_json(tmp_path / "a.json", {"x": [1, 0.1, None, "é"]})
    assert read_json(tmp_path / "a.json") == {"x": [1, 0.1, None, "é"]}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "new"]


def test_json_nan_and_infinity_become_null(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"perplexity": float("inf"), "loss": [float("nan"), 1.5]})
    assert read_json(tmp_path / "a.json") == {"perplexity": None, "loss": [None, 1.5]}


def test_failed_atomic_write_leaves_the_old_file_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path / "a", "old")
    monkeypatch.setattr(storage, "sync", lambda path: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_text(tmp_path / "a", "new")
    assert read_text(tmp_path / "a") == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_device_or_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="is a device or a pipe"):
        write_text(tmp_path / "pipe", "new")
    assert (tmp_path / "pipe").is_fifo()
    assert len(list(tmp_path.iterdir())) == 1


def test_jsonl_append_drops_a_partial_line(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    append_jsonl(log, {"step": 1})
    append_jsonl(log, {"step": 2, "text": "a\nb\u2028c"})
    complete = log.read_bytes()
    log.write_bytes(complete + b'{"step": 3, "los')
    assert [record["step"] for record in read_jsonl(log, "step")] == [1, 2]
    append_jsonl(log, {"step": 3})
    assert log.read_bytes() == complete + b'{"step": 3}\n'
    log.write_bytes(b'{"st')
    append_jsonl(log, {"step": 1})
    assert read_jsonl(log, "step") == [{"step": 1}]


@pytest.mark.parametrize("line", ['{"st', "3", "[]", "{}", '{"other": 2}'])
def test_jsonl_damaged_line_is_reported(tmp_path: Path, line: str) -> None:
    (tmp_path / "log").write_text(f'{{"step": 1}}\n{line}\n{{"step": 3}}\n')
    with pytest.raises(UserError, match=r"log is damaged at line 2.*Delete that line"):
        read_jsonl(tmp_path / "log", "step")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.uint8])
def test_tensors_round_trip_with_their_dtypes(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {"a": torch.arange(6).reshape(2, 3).to(dtype), "scalar": torch.ones((), dtype=dtype)}
    tensors |= {"empty": torch.zeros(0, 3, dtype=dtype), "also empty": torch.zeros(0, 3, dtype=dtype)}
    save_tensors(tmp_path / "t.safetensors", tensors, {"kind": "gpt"})
    loaded, metadata = load_tensors(tmp_path / "t.safetensors")
    assert metadata == {"kind": "gpt"}
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == dtype
        assert torch.equal(loaded[name], tensor)


def test_tied_tensors_are_stored_once_and_tied_again(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.randn(50, 40))
    save_tensors(tmp_path / "t.safetensors", {"embedding": weight, "head": weight, "other": torch.ones(3)})
    assert (tmp_path / "t.safetensors").stat().st_size < 1.5 * weight.nbytes
    loaded, metadata = load_tensors(tmp_path / "t.safetensors")
    assert metadata == {}
    assert torch.equal(loaded["head"], weight)
    assert loaded["head"].data_ptr() == loaded["embedding"].data_ptr()


def test_views_of_one_storage_round_trip(tmp_path: Path) -> None:
    x = torch.arange(12.0)
    tensors = {"all": x, "square": x.view(3, 4), "turned": x.view(3, 4).T, "part": x[2:5], "wide": x[:1].expand(4)}
    save_tensors(tmp_path / "t.safetensors", tensors)
    loaded, _ = load_tensors(tmp_path / "t.safetensors")
    save_tensors(tmp_path / "again.safetensors", loaded)
    for again in (loaded, load_tensors(tmp_path / "again.safetensors")[0]):
        assert again.keys() == tensors.keys()
        assert all(torch.equal(again[name], tensor) for name, tensor in tensors.items())


@pytest.mark.parametrize("size", [0, 1])
def test_contiguous_tensors_of_stride_0_round_trip(tmp_path: Path, size: int) -> None:
    broadcast = torch.tensor([5]).as_strided((size,), (0,))
    assert broadcast.is_contiguous()
    save_tensors(tmp_path / "t.safetensors", {"one": broadcast})
    loaded, _ = load_tensors(tmp_path / "t.safetensors")
    assert loaded["one"].tolist() == [5] * size


def test_safetensors_file_mode_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        save_tensors(tmp_path / "t.safetensors", {"a": torch.ones(1)})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "t.safetensors").stat().st_mode) == 0o644


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "x.pkl", "last.ckpt"])
def test_pickle_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="may be a pickle, which can run code"):
        load_tensors(tmp_path / name)


@pytest.mark.parametrize("size", [0, 5, 40, -1])
def test_truncated_safetensors_is_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "t.safetensors"
    save_tensors(path, {"a": torch.ones(10)})
    path.write_bytes(path.read_bytes()[:size])
    for read in (load_tensors, tensor_shapes):
        with pytest.raises(UserError, match=r"t\.safetensors is damaged.*Restore it"):
            read(path)


def test_safetensors_of_other_programs_load(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "t.safetensors")
    assert torch.equal(load_tensors(tmp_path / "t.safetensors")[0]["a"], torch.ones(2))


def test_missing_and_damaged_json_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a\.json is missing"):
        read_json(tmp_path / "a.json")
    for damage in (b"{", b"\xff\xfe", b""):
        (tmp_path / "a.json").write_bytes(damage)
        with pytest.raises(UserError, match=r"a\.json is damaged"):
            read_json(tmp_path / "a.json")
    with pytest.raises(UserError, match="is a folder"):
        read_json(tmp_path)


def test_atomic_directory_is_complete_or_absent(tmp_path: Path) -> None:
    with atomic_directory(tmp_path / "d") as folder:
        write_text(folder / "sub" / "a", "1")
        assert not (tmp_path / "d").exists()
    assert read_text(tmp_path / "d" / "sub" / "a") == "1"

    with pytest.raises(ZeroDivisionError), atomic_directory(tmp_path / "d") as folder:
        write_text(folder / "b", str(1 / 0))
    assert [p.name for p in (tmp_path / "d").iterdir()] == ["sub"]

    with atomic_directory(tmp_path / "d") as folder:
        write_text(folder / "b", "2")
    assert [p.name for p in (tmp_path / "d").iterdir()] == ["b"]
    assert [p.name for p in tmp_path.iterdir()] == ["d"]


def test_recover_removes_leftovers_and_restores_a_replaced_directory(tmp_path: Path) -> None:
    (tmp_path / ".tmp-0a1b2c3d-d").mkdir()
    (tmp_path / ".tmp-0a1b2c3d-d" / "half").touch()
    (tmp_path / ".old-0a1b2c3d-lost-folder").mkdir()
    (tmp_path / ".old-0a1b2c3e-there").mkdir()
    (tmp_path / "there").mkdir()
    (tmp_path / "kept").touch()
    recover(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kept", "lost-folder", "there"]
    remove_directory(tmp_path / "there")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kept", "lost-folder"]


def test_recover_keeps_hidden_files_of_other_programs(tmp_path: Path) -> None:
    for name in (".tmp", ".tmpX1y2Z3", ".tmp-notes", ".old-thesis", ".tmp-0a1b2c3d-file"):
        (tmp_path / name).touch()
    for name in (".tmp-folder", ".old-folder", ".tmp-0A1B2C3D-folder"):
        (tmp_path / name).mkdir()
    before = sorted(tmp_path.iterdir())
    recover(tmp_path)
    assert sorted(tmp_path.iterdir()) == before


def test_recover_removes_partially_written_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(storage, "release", killed)  # called after every chunk
    monkeypatch.setattr(storage.shutil, "rmtree", lambda path: None)  # killed: no cleanup runs
    with pytest.raises(KeyboardInterrupt):
        save_tensors(tmp_path / "t.safetensors", {"a": torch.ones(1)})
    monkeypatch.undo()
    assert len(list(tmp_path.rglob("*"))) == 2
    recover(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_tensors_are_written_as_the_library_writes_them(tmp_path: Path) -> None:
    tensors = {str(dtype): torch.arange(6).to(dtype).reshape(2, 3) for dtype in DTYPES} | {
        "empty": torch.empty(0, 4),
        "scalar": torch.tensor(3.5),
    }
    save_tensors(tmp_path / "t.safetensors", tensors)
    loaded = load_file(tmp_path / "t.safetensors")
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)


@pytest.fixture
def small_disk() -> Iterator[None]:
    """A file size limit, which fails as a full disk does: in the middle of a write."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_disk")
def test_full_disk_is_reported_and_leaves_no_partial_file(tmp_path: Path) -> None:
    large = {"a": torch.zeros(5000)}
    with pytest.raises(UserError, match=r"no room to write .*t\.safetensors: [^,]*\. Raise the limit"):
        save_tensors(tmp_path / "t.safetensors", large)
    with pytest.raises(UserError, match=r"no room to write .*a\.txt"):
        write_text(tmp_path / "a.txt", "x" * 20_000)
    with (
        pytest.raises(UserError, match=r"no room to write .*/d/t\.safetensors"),
        atomic_directory(tmp_path / "d") as folder,
    ):
        save_tensors(folder / "t.safetensors", large)
    assert list(tmp_path.iterdir()) == []

    for step in range(4):
        append_jsonl(tmp_path / "log.jsonl", {"step": step, "text": "x" * 2000})
    with pytest.raises(UserError, match="no room"):
        append_jsonl(tmp_path / "log.jsonl", {"step": 4, "text": "x" * 2000})
    assert len([json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]) == 4


def test_unwritable_path_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot write .*file/a"):
        write_text(tmp_path / "file" / "a", "x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match=r"cannot write .*folder"):
        write_text(tmp_path / "folder", "x")
