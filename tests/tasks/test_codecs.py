"""Codecs: saved to a run directory and opened from it, they are what was learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqwright as sw
from seqwright import build
from seqwright.data.samples.images import embedded_images
from seqwright.runs.directory import RunDirectory
from seqwright.tasks.captioning import task as captioning

STEPS = ["training.steps=1", "training.batch_size=2", "evaluation.resamples=0"]
DATA: dict[str, tuple[dict[str, Any], list[str]]] = {
    "text": ({"text": "embedded:topics", "model": "lstm"}, ["model.width=8"]),
    "pairs": ({"pairs": ["pairs.tsv"], "model": "gru"}, ["model.width=8", "tokenizer.joint=false"]),
    "labeled": ({"labeled": ["labeled.tsv"], "model": "mlp"}, []),
    "tagged": ({"tagged": ["tagged.tsv"], "model": "gru"}, ["model.width=8"]),
    "masked": ({"masked": "embedded:topics", "model": "lstm"}, ["model.width=8"]),
    "chat": ({"chat": "embedded:questions", "model": "lstm"}, ["model.width=8"]),
    "images": ({"images": "embedded:digits", "model": "gru"}, ["model.width=8"]),
    "captions": ({"recipe": "digit-captions"}, ["model.width=8"]),
    "denoising": ({"recipe": "topics-bart"}, ["model.width=8", "model.heads=1"]),
}


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("pairs.tsv").write_text("".join(f"a b{n}\tB{n} A\n" for n in range(40)))
    Path("labeled.tsv").write_text("".join(f"good\ta fine film {n}\nbad\ta dull film {n}\n" for n in range(40)))
    Path("tagged.tsv").write_text("time\tN\nflies\tV\n\nan\tD\narrow\tN\n\n" * 12)
    return tmp_path


def trained(kind: str) -> sw.Run:
    data, keys = DATA[kind]
    options = dict(data)
    return sw.train(options.pop("recipe", None), set=[*STEPS, *keys], run=Path("runs") / kind, **options)


def test_every_task_is_here() -> None:
    assert DATA.keys() == build.TASKS.keys()


@pytest.mark.parametrize("kind", DATA)
def test_a_codec_opens_as_it_was_saved(kind: str, workdir: Path) -> None:
    run = trained(kind)
    copy = RunDirectory(workdir / "copy")
    copy.path.mkdir()
    run.codec.save(copy)
    for path in copy.path.iterdir():
        assert path.read_bytes() == (run.path / path.name).read_bytes()
    assert type(run.codec).open(copy).sizes == run.codec.sizes


def test_captioning_packs_its_weights_once(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained("captions")
    packed: list[Any] = []
    monkeypatch.setattr(captioning, "optimize_for_inference", lambda model: packed.append(model) or model)
    pixels, captions = embedded_images("embedded:digit-captions")
    np.savez("few.npz", images=pixels[:2], captions=np.array(captions[:2]))
    assert len(list(run.caption(["few.npz"] * 2))) == 4
    assert packed == [run.model]
