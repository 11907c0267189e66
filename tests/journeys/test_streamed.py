"""Training on shards that are streamed from a URL, through the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqwright.data.text.streamed import remote_folder
from tests.journeys.commands import finish, records, start, synthetic_text
from tests.journeys.conftest import Command

SETTINGS = [
    *("data.document=line", "data.shuffle_block_tokens=400", "model.layers=1", "model.width=16", "model.heads=2"),
    *("model.context=16", "model.dropout=0", "training.batch_size=4", "training.device=cpu", "training.log_every=1"),
    *("training.schedule=constant", "training.evaluate_every=0", "training.sample_every=0"),
    *("evaluation.baseline=false", "training.optimizer=sgd", "training.warmup_steps=0"),
]
SHARD = 512
CACHE = 8 * SHARD


@pytest.fixture
def prepared(seqwright: Command, workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two corpora that are larger than the cache, with one tokenizer."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(workdir / "cache"))
    monkeypatch.setenv("SEQWRIGHT_SHARD_CACHE_BYTES", str(CACHE))
    remote_folder.cache_clear()
    (workdir / "valid.txt").write_text(synthetic_text(10, 3))
    for number, name in enumerate("ab"):
        (workdir / f"{name}.txt").write_text(synthetic_text(400, number))
        tokenizer = ("--tokenizer", "a/tokenizer.json") if number else ("--set", "tokenizer.size=300")
        result = seqwright("data", "prepare", f"{name}.txt", "--out", name, "--shard-bytes", str(SHARD), *tokenizer)
        assert result.status == 0, result.err
        assert (workdir / name / "ids.bin").stat().st_size > CACHE
    return workdir


def arguments(run: str, steps: int, *names: str, weights: str = "") -> list[str]:
    files = [part for name in names for part in ("--text", name)]
    mixed = (f"data.weights=[{weights}]",) if weights else ()
    settings = [*SETTINGS, f"training.steps={steps}", "tokenizer.file=a/tokenizer.json", *mixed]
    options = [part for setting in settings for part in ("--set", setting)]
    return ["train", *files, "--valid", "valid.txt", "--model", "gpt", "--run", run, *options]


def losses(run: Path) -> dict[int, float]:
    return {record["step"]: record["loss"] for record in records(run, "train")}


@pytest.mark.parametrize("weights", ["", "0.3,0.7"], ids=["one", "mixed"])
def test_streamed_and_resumed_losses_equal_local_ones(weights: str, prepared: Path, seqwright: Command) -> None:
    names = ["a", "b"] if weights else ["a"]
    small = ("--set", "data.shuffle_block_tokens=200") if weights else ()  # two blocks of each corpus fit
    urls = [(prepared / name).as_uri() for name in names]
    local = seqwright(*arguments("local", 12, *names, weights=weights), *small)
    assert local.status == 0, local.err
    for steps in (5, 12):
        streamed = seqwright(*arguments("streamed", steps, *urls, weights=weights), *small)
        assert streamed.status == 0, streamed.err
    assert losses(prepared / "streamed") == losses(prepared / "local")
    assert len(losses(prepared / "local")) == 12
    cached = [path.stat().st_size for path in (prepared / "cache" / "seqwright" / "shards").glob("*.bin")]
    assert 0 < sum(cached) <= CACHE


def test_a_streamed_training_has_the_baseline_of_a_local_one(prepared: Path, seqwright: Command) -> None:
    for run, name in (("local", "a"), ("streamed", (prepared / "a").as_uri())):
        result = seqwright(*arguments(run, 2, name), "--set", "evaluation.baseline=true")
        assert result.status == 0, result.err
    [local], [streamed] = records(prepared / "local", "baseline"), records(prepared / "streamed", "baseline")
    assert streamed | {"seconds": 0} == local | {"seconds": 0}


def test_two_ranks_stream_the_batches_of_one(prepared: Path, seqwright: Command) -> None:
    result = finish(start(*arguments("two", 4, (prepared / "a").as_uri()), "--processes", "2", cwd=prepared))
    assert result.status == 0, result.err
    assert seqwright(*arguments("one", 4, "a")).status == 0
    assert losses(prepared / "two") == pytest.approx(losses(prepared / "one"), rel=1e-6)


def test_what_cannot_be_streamed_is_refused(prepared: Path, seqwright: Command) -> None:
    url = (prepared / "a").as_uri()
    line = ("--set", "data.document=line")
    whole = seqwright("train", "--text", url, "--valid", "valid.txt", "--model", "ngram", "--run", "ngram", *line)
    assert (whole.status, f"{url} is read as a whole here" in whole.err) == (2, True)
    ids = prepared / "a" / "ids.bin"
    ids.write_bytes(bytes([1, 0]) * (ids.stat().st_size // 2))
    damaged = seqwright(*arguments("damaged", 4, url))
    assert damaged.status == 2
    assert f" of {url} (ids.bin, bytes " in damaged.err
    assert "is damaged: its sha256 is not that of index.json, after" in damaged.err
    (prepared / "a" / "index.json").unlink()
    remote_folder.cache_clear()
    missing = seqwright(*arguments("missing", 4, url))
    assert (missing.status, f"{url} has no index.json" in missing.err) == (2, True)
