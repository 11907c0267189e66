"""Every reader of files, with files to mutate: runs, checkpoints, recipes, tokenizers, ARPA, tables, images, shards."""

from __future__ import annotations

import gzip
import io
import json
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import seqwright as sw
from seqwright import build
from seqwright.core.config import ConfigLoader, UserError
from seqwright.core.regular_files import FileRecord
from seqwright.core.storage import read_toml
from seqwright.data.chat import read_conversations
from seqwright.data.images.corpus import ImagesConfig, read_images
from seqwright.data.labeled.rows import LabeledConfig, read_rows
from seqwright.data.parallel.pairs import PairsConfig, read_pairs
from seqwright.data.tagged.corpus import TaggedConfig, read_tagged
from seqwright.data.text.corpora import to_stream
from seqwright.data.text.corpus import read_corpus
from seqwright.data.text.prepare import prepare
from seqwright.data.text.prepared import open_prepared
from seqwright.data.text.suffix_index import IndexedText, build_index, open_index
from seqwright.inspection.where.copying import Searcher
from seqwright.interop.arpa import export_arpa
from seqwright.pipeline import recipe
from seqwright.runs.directory import RunDirectory
from seqwright.runs.manifest import Manifest, records_of
from seqwright.text.importing import import_tokenizer
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig, train
from seqwright.training.trainer_state import TrainerState
from tests.fuzz.mutations import mutated_bytes, mutated_json
from tests.journeys.commands import synthetic_text
from tests.text.test_importing import BPE, LETTERS, RESERVED, UNIGRAM, model

TINY = ("training.steps=2", "training.batch_size=4", "training.sample_every=0", "tokenizer.kind=characters")
SUFFIXES = ("png", "gif", "bmp", "tiff", "jpg", "webp")
Read = Callable[[Path], object]


@dataclass(frozen=True)
class Seed:
    """A file or folder to mutate, and what reads it."""

    path: Path
    read: Read

    def attack(self, folder: Path, rng: random.Random) -> None:
        """Reads a mutated copy; anything but a UserError is a bug."""
        copy = folder / self.path.name
        shutil.rmtree(copy, ignore_errors=True)
        copy.unlink(missing_ok=True) if copy.is_file() else None
        if self.path.is_dir():
            shutil.copytree(self.path, copy)
            files = sorted(path for path in copy.rglob("*") if path.is_file() and path.stat().st_size)
            mutate(rng.choice([path for path in files if path.name != ".lock"]), rng)
        else:
            shutil.copy(self.path, copy)
            mutate(copy, rng)
        if (copy / "environment.json").exists() and rng.random() < 0.8:  # a hostile run has a manifest that fits
            reseal(copy)
        try:
            self.read(copy)
        except UserError:
            return


def reseal(run: Path) -> None:
    """Gives a mutated run and its checkpoints manifests that fit, as an attacker would."""
    with suppress(UserError):
        RunDirectory(run).seal()
    for folder in run.glob("checkpoints/step-*"):
        with suppress(UserError):
            before = Manifest.read(folder)
            files = {path.name: path for path in folder.iterdir() if path.name != "manifest.json"}
            Manifest(files=records_of(files), model=before.model).write(folder)


def mutate(path: Path, rng: random.Random) -> None:
    """Changes a file in place; JSON mostly by value."""
    data = path.read_bytes()
    if path.suffix == ".json" and rng.random() < 0.7:
        path.write_text(json.dumps(mutated_json(json.loads(data), rng), ensure_ascii=rng.random() < 0.5))
    else:
        path.write_bytes(mutated_bytes(data, rng))


def open_run(path: Path) -> None:
    """Lists, opens and asks a run."""
    sw.list_runs(path.parent)
    directory = RunDirectory.open(path)
    directory.notes()
    if checkpoint := directory.checkpoints.latest():
        TrainerState.read(checkpoint.state["progress"])
    run: Any = sw.open(path, device="cpu")
    verb = next(verb for verb in ("generate", "translate", "classify", "tag") if verb in run.verbs)
    if verb == "generate":
        run.generate("the cat", max_tokens=2)
    elif run.settings.data.kind != "images":
        list(getattr(run, verb)(["the cat"]))


def use_tokenizer(tokenizer: Tokenizer) -> None:
    tokenizer.decode(tokenizer.encode("the cat <unk> ▁ é\n"))


def load_recipe(path: Path) -> None:
    table = read_toml(path)
    loader = ConfigLoader(str(path))
    build.model_config(table.get("model", {}) if isinstance(table.get("model"), dict) else {}, loader, task="text")
    recipe.load(path)


def read_shards(path: Path) -> None:
    tokenizer = Tokenizer.open(path / "tokenizer.json")
    stream = open_prepared(path, tokenizer)
    assert int(stream.ids.max()) < tokenizer.size
    tokenizer.decode(stream.ids[:50].tolist())


def search_index(path: Path) -> None:
    """Searches an index of a training text whose hashes fit, as an attacker would have it."""
    with suppress(ValueError, AttributeError, TypeError, KeyError):
        header = json.loads((path / "index.json").read_text())
        header["records"] = {name: vars(FileRecord.of(path / name)) for name in header["records"]}
        (path / "index.json").write_text(json.dumps(header))
    index = open_index(path, "corpus")
    if index is not None:
        tokenizer = train(TokenizerConfig(kind="characters"), [synthetic_text(60)])
        Searcher([index], tokenizer).search([np.array(tokenizer.encode(synthetic_text(2)))], 1)


def seeds(folder: Path) -> dict[str, Seed]:
    """Small valid files of every kind."""
    text = folder / "text.txt"
    text.write_text(synthetic_text(60))
    labeled, tagged, pairs = folder / "labeled.tsv", folder / "tagged.tsv", folder / "pairs.tsv"
    labeled.write_text("cat\tthe cat sat\ndog\tdogs run by\n" * 20)
    tagged.write_text("the\tD\ncat\tN\nsat\tV\n\ndogs\tN\nrun\tV\n\n" * 20)
    pairs.write_text("the cat\tcat the\na dog\tdog a\nbig sea\tsea big\n" * 20)
    gpt = ("model.layers=1", "model.width=16", "model.heads=2", "model.context=16", *TINY)
    lstm = ("model.width=8", "data.batch_tokens=64", 'data.split="tail 10%"', *TINY)
    runs = {
        "gpt": sw.train(text=str(text), set=gpt, run=folder / "gpt"),
        "ngram": sw.train(text=str(text), model="ngram", run=folder / "ngram"),
        "bag": sw.train(labeled=str(labeled), model="bag", run=folder / "bag"),
        "perceptron": sw.train(tagged=str(tagged), model="perceptron", run=folder / "perceptron"),
        "lstm": sw.train(pairs=[str(pairs)], model="lstm", set=lstm, run=folder / "lstm"),
    }
    made = {f"run/{name}": Seed(run.path, open_run) for name, run in runs.items()}
    toml = folder / "recipe.toml"
    shutil.copy(folder / "gpt" / "recipe.toml", toml)
    made["recipe"] = Seed(toml, load_recipe)
    for kind in ("words", "characters", "byte-bpe", "bpe", "unigram", "wordpiece"):
        file = folder / f"{kind}.json"
        file.write_text(train(TokenizerConfig(kind=kind, size=300), [synthetic_text(60)]).json)  # type: ignore[arg-type]
        made[f"tokenizer/{kind}"] = Seed(file, lambda path: use_tokenizer(Tokenizer.open(path)))
        made[f"import/{kind}"] = Seed(file, lambda path: use_tokenizer(import_tokenizer(path, ("<mask>",))))
    for name, kind in (("unigram", UNIGRAM), ("bpe", BPE)):
        file = model(folder / f"{name}.model", [*RESERVED, *LETTERS, ("ab", -2.0, 1)], kind, add_dummy_prefix=1)
        made[f"sentencepiece/{name}"] = Seed(file, lambda path: use_tokenizer(import_tokenizer(path)))
    export_arpa(runs["ngram"], folder / "model.arpa")
    made["arpa"] = Seed(folder / "model.arpa", build.from_arpa)
    return made | tables(folder) | images(folder) | shards(folder, text)


def tables(folder: Path) -> dict[str, Seed]:
    """Corpora of every format."""
    (folder / "rows.csv").write_text('label,text\ncat,"the ""cat"" sat"\ndog,"dogs\nrun"\n' * 5)
    (folder / "rows.jsonl").write_text('{"label": "cat", "text": "the cat"}\n{"label": "dog", "text": "dogs"}\n' * 5)
    (folder / "talk.jsonl").write_text(
        '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n' * 5
    )
    (folder / "tags.jsonl").write_text('{"tokens": ["the", "cat"], "tags": ["D", "N"]}\n' * 5)
    columns = [
        ["1", "the", "the", "DET", *"__", "2", "det", *"__"],
        ["2", "cat", "cat", "NOUN", *"__", "0", "r", *"__"],
    ]
    (folder / "tags.conllu").write_text("".join("\t".join(cells) + "\n" for cells in columns) + "\n")
    (folder / "text.txt.gz").write_bytes(gzip.compress(synthetic_text(10).encode()))
    made = {f"rows/{name}": Seed(folder / name, read_labeled) for name in ("rows.csv", "rows.jsonl", "labeled.tsv")}
    made |= {f"tags/{name}": Seed(folder / name, read_tags) for name in ("tagged.tsv", "tags.jsonl", "tags.conllu")}
    made["pairs"] = Seed(folder / "pairs.tsv", lambda path: read_pairs(str(path), PairsConfig(train=str(path))))
    made["chat"] = Seed(folder / "talk.jsonl", lambda path: read_conversations(str(path)))
    return made | {"gz": Seed(folder / "text.txt.gz", lambda path: read_corpus(str(path), "line", errors="strict"))}


def read_labeled(path: Path) -> object:
    return read_rows(str(path), LabeledConfig(train=str(path)))


def read_tags(path: Path) -> object:
    return read_tagged(str(path), TaggedConfig(train=str(path)))


def images(folder: Path) -> dict[str, Seed]:
    """An image file, an IDX file and an .npz archive."""
    from PIL import Image

    pixels = np.arange(8 * 12, dtype=np.uint8).reshape(8, 12)
    for suffix in SUFFIXES:
        Image.fromarray(pixels).save(folder / f"image.{suffix}")
    (folder / "images.idx").write_bytes(b"\0\0\x08\x03" + np.array([2, 4, 12], ">u4").tobytes() + pixels.tobytes())
    archive = io.BytesIO()
    np.savez_compressed(archive, images=pixels.reshape(2, 4, 12), labels=np.array(["a", "b"]))
    (folder / "images.npz").write_bytes(archive.getvalue())
    names = [*(f"image.{suffix}" for suffix in SUFFIXES), "images.idx", "images.npz"]
    return {
        f"images/{name}": Seed(folder / name, lambda path: read_images(str(path), ImagesConfig(train=str(path))))
        for name in names
    }


def shards(folder: Path, text: Path) -> dict[str, Seed]:
    """A prepared corpus, and the index of one."""
    tokenizer = train(TokenizerConfig(kind="characters"), [text.read_text()])
    prepare([text], folder / "shards", tokenizer, document="line")
    corpus = read_corpus(str(text), "line", errors="strict")
    assert corpus.origins is not None
    build_index(folder / "where", [IndexedText(to_stream(corpus, tokenizer), corpus.origins)], "corpus", block=64)
    return {"shards": Seed(folder / "shards", read_shards), "where": Seed(folder / "where", search_index)}
