"""Tiny runs of every kind that inspection has views for, trained once for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

import seqwright as sw
from seqwright.runs.run import Run

Runs = dict[str, Run]


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
        "perceptron": {"tagged": tags, "model": "perceptron", "set": []},
        "masked": {"masked": text, "set": [*blocks, "training.sequence_length=8"]},
    }
    for name, options in trained.items():
        sw.train(run=folder / name, **options)  # type: ignore[arg-type]
    return {name: sw.open(folder / name, device="cpu") for name in ("ngram", *trained)}
