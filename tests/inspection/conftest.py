"""Tiny runs of every kind that inspection has views for, trained once for all tests."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import seqwright as sw
from seqwright.runs.run import Run

Runs = dict[str, Run]
TEXT = "the cat sat on the dog"
SOURCES = {
    "tagger": "the cat sat",
    "crf": "the cat sat",
    "perceptron": "the cat sat",
    "classifier": "the good dog",
    "bag": "the good dog",
}


@pytest.fixture(scope="package")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder: Path = tmp_path_factory.mktemp("runs")
    files = {
        "text.txt": "the cat sat on the mat\nthe dog sat on the cat\n" * 20,
        "source.txt": "the cat sat\nthe dog ran\n" * 20,
        "target.txt": "die Katze sass\nder Hund läuft\n" * 20,
        "labels.tsv": "".join(f"good\tthe good cat {n}\nbad\tthe bad dog {n}\n" for n in range(20)),
        "tags.tsv": "the\tD\ncat\tN\nsat\tV\n\nthe\tD\ndog\tN\nran\tV\n\n" * 10,
    }
    for name, content in files.items():
        (folder / name).write_text(content)
    text, source, target, labels, tags = (str(folder / name) for name in files)
    pixels = np.random.default_rng(1).integers(0, 256, (40, 4, 6), np.uint8)
    sides = np.array(["left", "right"])[np.arange(40) % 2]
    np.savez(folder / "images.npz", images=pixels, labels=sides)
    np.savez(folder / "captions.npz", images=pixels, captions=np.char.add("the ", sides))
    messages = [{"role": "user", "content": "cat?"}, {"role": "assistant", "content": "dog."}]
    (folder / "talks.jsonl").write_text(f"{json.dumps({'messages': messages})}\n" * 20)
    small = ["training.steps=2", "training.batch_size=2", "training.sample_every=0", "model.width=8"]
    words = "tokenizer.kind=words"
    blocks = [*small, words, "model.layers=2", "model.heads=2", "model.context=16"]
    sw.train(text=text, model="ngram", set=[words], run=folder / "ngram")
    same = f"tokenizer.file={folder}/ngram/tokenizer.json"
    recurrent = [*small, words, same, "model.layers=2", "training.sequence_length=8"]
    split = ["data.split=tail 10%", words]
    trained = {
        "gpt": {"text": text, "model": "gpt", "set": [*blocks, same, "training.sequence_length=8"]},
        "gru": {"text": text, "model": "gru", "set": recurrent},
        "mogrifier": {"text": text, "model": "lstm", "set": [*recurrent, "model.mogrifier_rounds=2"]},
        "transformer": {"pairs": [source, target], "set": [*blocks, *split]},
        "prefix": {"pairs": [source, target], "model": "gpt", "set": [*blocks, *split]},
        "seq2seq": {
            "pairs": [source, target],
            "model": "lstm",
            "set": [*small, *split, "model.layers=2", "model.input_feeding=true"],
        },
        "classifier": {"labeled": labels, "model": "lstm", "set": small},
        "bag": {"labeled": labels, "model": "bag", "set": []},
        "tagger": {"tagged": tags, "model": "gru", "set": small},
        "crf": {"tagged": tags, "model": "gru", "set": [*small, "model.crf=true"]},
        "perceptron": {"tagged": tags, "model": "perceptron", "set": []},
        "masked": {"masked": text, "set": [*blocks, "training.sequence_length=8"]},
        "chat": {"chat": str(folder / "talks.jsonl"), "set": [*blocks, words, *split[:1]]},
        "bart": {
            "recipe": "topics-bart",
            "set": [*blocks, f"data.train={text}", "data.document=line", "data.length=8"],
        },
        "vit": {"images": str(folder / "images.npz"), "set": [*small, "model.layers=2", "model.heads=2"]},
        "mae": {
            "recipe": "digits-mae",
            "set": [
                *small,
                f"data.train={folder}/images.npz",
                "model.layers=2",
                "model.heads=2",
                "model.decoder_layers=1",
            ],
        },
        "captioner": {"captions": str(folder / "captions.npz"), "set": [*small, "model.layers=2", "model.heads=2"]},
    }
    for name, options in trained.items():
        sw.train(run=folder / name, **options)  # type: ignore[arg-type]
    return {name: sw.open(folder / name, device="cpu") for name in ("ngram", *trained)}
