"""LoRA through training: from a trained run to a merged one that opens as any other, for every kind of network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import seqwright as sw
from seqwright.core.storage import load_tensors

STEPS = ["training.steps=3", "training.batch_size=4", "model.width=16"]
HEADS = ["model.layers=1", "model.heads=2"]
TAGGED = "the\tD\nold\tA\nman\tN\n\nthey\tP\nman\tV\nboats\tN\n\n"
LABELED = "".join(f"good\ta fine boat {n}\nbad\tan old leak {n}\n" for n in range(30))
PAIRS = "".join(f"one {n}\t{n} one\nthree {n}\t{n} three\n" for n in range(60))
CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "pairs/transformer": ({"pairs": ["pairs.tsv"]}, [*HEADS, "tokenizer.kind=characters"]),
    "pairs/lstm": ({"pairs": ["pairs.tsv"]}, ["tokenizer.kind=characters"]),
    "labeled/gru": ({"labeled": "labeled.tsv"}, []),
    "labeled/bert": ({"labeled": "labeled.tsv"}, HEADS),
    "tagged/lstm": ({"tagged": "tagged.tsv"}, []),
    "images/vit": ({"images": "embedded:digits"}, HEADS),
}


@pytest.mark.parametrize("name", CASES)
def test_lora_fine_tunes_a_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tagged.tsv").write_text(TAGGED * 20, encoding="utf-8")
    Path("labeled.tsv").write_text(LABELED, encoding="utf-8")
    Path("pairs.tsv").write_text(PAIRS, encoding="utf-8")
    files, keys = CASES[name]
    sw.train(**files, model=name.split("/")[1], set=[*STEPS, *keys], run="base")
    lora = ["training.steps=3", "training.batch_size=4", "training.lora_rank=2"]
    run = sw.train(**files, base="base", set=lora, run="adapted")
    assert all(result.holds for result in sw.check(run))
    before, after = (load_tensors(Path(path) / "model.safetensors")[0] for path in ("base", "adapted"))
    assert before.keys() == after.keys()
    changed = {key for key in before if not torch.equal(before[key], after[key])}
    assert any(key.startswith(("encoder.", "reader.")) for key in changed)
    frozen = [key for key in before if key.startswith(("encoder.", "reader.", "decoder.")) and before[key].dim() < 2]
    assert not changed & set(frozen)
