"""Recipes for a user's own data: sizes that suit the text, stated in full so that they can be changed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqwright import build
from seqwright.data.files import COMPRESSED, expand, read_text, resolve
from seqwright.data.samples.labels import embedded_labels
from seqwright.data.samples.text import embedded_text, is_embedded
from seqwright.data.text.prepare import is_prepared, read_index

KILO, MEGA = 1_000, 1_000_000

# Up to this many bytes of text: byte-bpe vocabulary, GPT layers, width, heads and context, dropout.
GPT_SIZES: list[tuple[float, dict[str, Any]]] = [
    (20 * KILO, {"size": 300, "layers": 2, "width": 64, "heads": 2, "context": 32, "dropout": 0.1}),
    (200 * KILO, {"size": 512, "layers": 3, "width": 96, "heads": 3, "context": 64, "dropout": 0.1}),
    (2 * MEGA, {"size": 1024, "layers": 4, "width": 128, "heads": 4, "context": 128, "dropout": 0.05}),
    (20 * MEGA, {"size": 4096, "layers": 6, "width": 256, "heads": 8, "context": 256, "dropout": 0.0}),
    (200 * MEGA, {"size": 8192, "layers": 8, "width": 512, "heads": 8, "context": 512, "dropout": 0.0}),
    (float("inf"), {"size": 16384, "layers": 12, "width": 768, "heads": 12, "context": 1024, "dropout": 0.0}),
]


def text_recipe(
    files: Sequence[str],
    valid: Sequence[str] = (),
    *,
    kind: str = build.task_spec("text").default_model,
    tokenizer: str = "byte-bpe",
) -> dict[str, Any]:
    """The tables of a recipe for a language model of some files; `--set` goes on top of them."""
    build.pick_trained(kind, "text")
    size = sum(_bytes(file) for file in files)
    sizes = next(sizes for most, sizes in GPT_SIZES if size <= most)
    data: dict[str, Any] = {"kind": "text", "train": list(files)}
    if valid:
        data["valid"] = list(valid)
    elif kind not in build.COUNTED and not _tokenizers(files):
        data["split"] = "tail 5%"
    table: dict[str, Any] = {
        "name": name_of(files, kind),
        "data": data,
        "tokenizer": {"kind": tokenizer} | ({"size": sizes["size"]} if tokenizer == "byte-bpe" else {}),
        "model": {"kind": kind},
    }
    if _tokenizers(files):  # a prepared text is encoded already, with the tokenizer beside it
        table["tokenizer"] = {"file": str(_tokenizers(files)[0])}
    if kind in build.COUNTED:
        return table
    if kind == "gpt":
        table["model"] |= {key: value for key, value in sizes.items() if key != "size"}
        table["training"] = {
            "batch_size": 16 if size < 20 * MEGA else 32,
            "steps": _steps(size),
            "learning_rate": _rate(sizes["width"]),
        }
    else:
        width = 2 * sizes["width"]
        table["model"] |= {"width": width} | ({"dropout": sizes["dropout"]} if kind != "neural-bigram" else {})
        table["training"] = {
            "batch_size": 16,
            "sequence_length": 64 if size > 200 * KILO else 16,
            "steps": _steps(size),
            "learning_rate": 2e-3,
        }
    return table


# Up to this many bytes of both sides: joint byte-bpe vocabulary, layers, width, heads, dropout, tokens of a step.
TRANSFORMER_SIZES: list[tuple[float, dict[str, Any]]] = [
    (40 * KILO, {"size": 400, "layers": 2, "width": 64, "heads": 2, "dropout": 0.1, "batch_tokens": 512}),
    (400 * KILO, {"size": 1000, "layers": 2, "width": 96, "heads": 4, "dropout": 0.2, "batch_tokens": 1024}),
    (8 * MEGA, {"size": 8000, "layers": 4, "width": 128, "heads": 4, "dropout": 0.3, "batch_tokens": 2048}),
    (80 * MEGA, {"size": 16000, "layers": 6, "width": 256, "heads": 4, "dropout": 0.2, "batch_tokens": 4096}),
    (float("inf"), {"size": 32000, "layers": 6, "width": 512, "heads": 8, "dropout": 0.1, "batch_tokens": 8192}),
]


def pairs_recipe(
    files: Sequence[str],
    valid: Sequence[str] = (),
    *,
    kind: str = build.task_spec("pairs").default_model,
    tokenizer: str = "byte-bpe",
) -> dict[str, Any]:
    """The tables of a recipe for a translator between some files; `--set` goes on top of them."""
    build.pick_trained(kind, "pairs")
    size = sum(_bytes(file) for file in files)
    sizes = next(sizes for most, sizes in TRANSFORMER_SIZES if size <= most)
    data: dict[str, Any] = {"kind": "pairs", "train": list(files), "batch_tokens": sizes["batch_tokens"]}
    data |= {"valid": list(valid)} if valid else {"split": "documents 3%"}
    model = {"kind": kind, "layers": sizes["layers"], "width": sizes["width"], "dropout": sizes["dropout"]}
    if kind in ("transformer", "gpt"):
        model |= {"heads": sizes["heads"], "ffn_width": 2 * sizes["width"]}
    else:
        model |= {"layers": 1, "width": 2 * sizes["width"]}
    return {
        "name": name_of(files, kind),
        "data": data,
        "tokenizer": {"kind": tokenizer} | ({"size": sizes["size"]} if tokenizer == "byte-bpe" else {}),
        "model": model,
        "training": {
            "steps": _steps(2 * size),
            "learning_rate": _rate(sizes["width"]),
            "label_smoothing": 0.1,
            "weight_decay": 0.01,
            "beta2": 0.98,
        },
    }


# Up to this many characters of tagged words: passes over them, trainings that are averaged, share of hidden features.
# None takes much more than two minutes of one CPU core.
PERCEPTRON_SIZES: list[tuple[float, dict[str, Any]]] = [
    (300 * KILO, {"epochs": 32, "averaged_models": 4, "feature_dropout": 0.2}),
    (3 * MEGA, {"epochs": 16, "averaged_models": 4, "feature_dropout": 0.1}),
    (12 * MEGA, {"epochs": 8, "averaged_models": 2, "feature_dropout": 0.1}),
    (float("inf"), {"epochs": 5, "averaged_models": 1}),
]
# Up to this many characters of tagged words: width, embedding, filters over letters, dropout, sentences of a step,
# epochs.
TAGGER_SIZES: list[tuple[float, dict[str, Any]]] = [
    (20 * KILO, {"width": 64, "embedding": 32, "char_features": 16, "dropout": 0.2, "batch_size": 8, "epochs": 60}),
    (200 * KILO, {"width": 128, "embedding": 64, "char_features": 32, "dropout": 0.3, "batch_size": 16, "epochs": 30}),
    (4 * MEGA, {"width": 256, "embedding": 128, "char_features": 48, "dropout": 0.4, "batch_size": 32, "epochs": 12}),
    (
        float("inf"),
        {"width": 400, "embedding": 200, "char_features": 64, "dropout": 0.4, "batch_size": 64, "epochs": 8},
    ),
]
FEWEST_STEPS = 400
"""Of a small tagger, however few its sentences are."""
FEWEST_SENTENCES, MANY_SENTENCES = 20, 200
"""With fewer, all are needed to learn from; with as many, a choice all over the file holds out some for certain."""
BLANK = re.compile(r"\n[ \t\r]*\n")
"""What parts sentences, whatever ends their lines."""
SPAN = re.compile(r"[\t\n \"][BI]-\S")
"""What tells tags that mark spans, in any of the formats."""


def tagged_recipe(
    files: Sequence[str],
    valid: Sequence[str] = (),
    *,
    kind: str = build.task_spec("tagged").default_model,
    tokenizer: str = "words",
) -> dict[str, Any]:
    """The tables of a recipe for a tagger of some files; `--set` goes on top of them."""
    texts = [read_text(resolve(file), "replace")[0] for file in files if not is_embedded(file)]
    size = sum(map(len, texts)) or MEGA
    build.pick_trained(kind, "tagged")
    sentences = sum(map(_sentences, texts)) if texts else FEWEST_SENTENCES
    data: dict[str, Any] = {"kind": "tagged", "train": list(files)}
    if valid:
        data["valid"] = list(valid)
    elif sentences >= FEWEST_SENTENCES:
        share = 5 if kind in build.COUNTED else 10  # who counts needs a score only
        data["split"] = f"tail {share}%" if sentences < MANY_SENTENCES else f"documents {share}%"
    table: dict[str, Any] = {
        "name": f"{Path(files[0].removeprefix('embedded:')).name.split('.')[0]}-{kind}",
        "data": data,
        "tokenizer": {"kind": tokenizer} | ({"lowercase": True} if tokenizer == "words" else {}),
        "model": {"kind": kind},
    }
    if kind in build.COUNTED:
        table["model"] |= next(sizes for most, sizes in PERCEPTRON_SIZES if size <= most)
        return table
    sizes = next(dict(sizes) for most, sizes in TAGGER_SIZES if size <= most)
    batch, epochs = sizes.pop("batch_size"), sizes.pop("epochs")
    steps = max(FEWEST_STEPS, epochs * sentences // batch)
    table["training"] = {"batch_size": batch, "steps": steps, "learning_rate": 2e-3, "weight_decay": 0.01}
    if kind in ("transformer", "gpt", "bert"):
        sizes["width"] = sizes.pop("embedding")
        table["training"]["learning_rate"] = 1e-3
    if tokenizer == "words":
        data["word_dropout"] = 0.25
    table["model"] |= sizes | {"crf": any(SPAN.search(text) for text in texts)}
    return table


def chat_recipe(
    files: Sequence[str],
    valid: Sequence[str] = (),
    *,
    kind: str = build.task_spec("chat").default_model,
    tokenizer: str = "byte-bpe",
) -> dict[str, Any]:
    """The tables of a recipe for an assistant of some files of conversations."""
    table = text_recipe(files, valid, kind=kind, tokenizer=tokenizer)
    table["data"] |= {"kind": "chat"}
    if "split" in table["data"]:
        table["data"]["split"] = "tail 10%"
    if "context" in table["model"]:
        table["model"]["context"] *= 2  # a question must fit beside its answer
    return table


# Up to this many labeled texts: width, epochs.
CLASSIFIER_SIZES: list[tuple[float, dict[str, Any]]] = [
    (1 * KILO, {"width": 64, "epochs": 40}),
    (10 * KILO, {"width": 128, "epochs": 12}),
    (100 * KILO, {"width": 256, "epochs": 6}),
    (float("inf"), {"width": 256, "epochs": 3}),
]


LETTERS = 8 * MEGA
"""Characters of labeled texts up to which a bag counts letters and words; of more, words alone say as much."""
FEW_TEXTS = 2000
"""Labeled texts of which none is held out where a model is counted."""


def labeled_recipe(
    files: Sequence[str],
    valid: Sequence[str] = (),
    *,
    kind: str = build.task_spec("labeled").default_model,
    tokenizer: str | None = None,
) -> dict[str, Any]:
    """The tables of a recipe for a classifier of labeled texts."""
    build.pick_trained(kind, "labeled")
    texts = [text for file in files for text in _labeled_texts(file)]
    lines = len(texts)
    letters = kind == "bag" and tokenizer in (None, "characters") and sum(map(len, texts)) <= LETTERS
    tokenizer = tokenizer or ("words" if _spaced(texts) and not letters else "characters")
    sizes = next(sizes for most, sizes in CLASSIFIER_SIZES if lines <= most)
    data: dict[str, Any] = {"kind": "labeled", "train": list(files)}
    # Who stops by what is held out needs some two hundred, where there are so many; who counts needs a score only, and
    # of a small file every row.
    counted = kind in build.COUNTED
    share = max(1, min(5, 100 * 500 // max(1, lines))) if counted else min(20, max(5, 100 * 200 // max(1, lines)))
    if valid:
        data["valid"] = list(valid)
    elif lines >= (FEW_TEXTS if counted else 10):
        data["split"] = f"stratified {share}%"
    if counted:  # an n-gram's words may all be rare
        split = {"pretokenizer": "basic-english"} if tokenizer == "words" else {}
        return {
            "name": name_of(files, kind),
            "data": data,
            "tokenizer": {"kind": tokenizer} | split,
            "model": {"kind": kind} | ({"order": 5, "words": 2, "smoothing": 0.3} if letters else {}),
        }
    model: dict[str, Any] = {"kind": kind, "head_dropout": 0.5}
    if kind in ("rnn", "lstm", "gru"):
        model |= {"width": sizes["width"], "embedding": 128, "dropout": 0.3}
    elif kind in ("transformer", "gpt"):
        model |= {"layers": 2, "width": sizes["width"], "context": 512, "dropout": 0.3}
    words = {"pretokenizer": "basic-english", "min_frequency": 2, "size": 30_000} if tokenizer == "words" else {}
    return {
        "name": name_of(files, kind),
        "data": data,
        "tokenizer": {"kind": tokenizer} | words,
        "model": model,
        "training": {"epochs": sizes["epochs"], "batch_size": 32, "learning_rate": 1e-3, "patience": 4},
    }


def masked_recipe(
    files: Sequence[str],
    valid: Sequence[str] = (),
    *,
    kind: str = build.task_spec("masked").default_model,
    tokenizer: str = "byte-bpe",
) -> dict[str, Any]:
    """The tables of a recipe for a masked language model of some files: the sizes of a GPT, and twice its steps,
    since only one token in seven is learned from."""
    build.pick_trained(kind, "masked")
    table = text_recipe(files, valid, kind="gpt" if kind == "bert" else kind, tokenizer=tokenizer)
    table["data"] |= {"kind": "masked"}
    table["model"] |= {"kind": kind}
    if kind == "bert":  # pre-LN, because so little text does not reward the long warm-up that post-LN needs
        table["model"] |= {"norm_position": "pre"}
    table["training"]["steps"] *= 2
    return table | {"name": name_of(files, kind)}


KEPT = {"training": ("batch_size", "steps", "epochs", "patience", "label_smoothing"), "model": ("head_dropout",)}
"""What a recipe for a user's data still says of a model that begins with a run."""
CUT = ("patch", "size")
"""What pictures are cut by: an encoder that was trained on other patches is of no use."""


def kinds_of(base: dict[str, Any], task: str) -> dict[str, str]:
    """The kinds of model and tokenizer that a recipe for a user's data should suit where it begins with a run."""
    usable = build.task_spec(task).models.keys() - {*build.COUNTED, *build.DERIVED}
    kinds = {"kind": base["model"]["kind"], "tokenizer": base.get("tokenizer", {}).get("kind")}
    return {key: kind for key, kind in kinds.items() if kind and (key == "tokenizer" or kind in usable)}


def fine_tuned(table: dict[str, Any], base: dict[str, Any], path: Path) -> dict[str, Any]:
    """The same recipe, begun with a run: its model and tokenizer, and a tenth of its rate."""
    rate = base["training"]["learning_rate"] / 10
    asked = table.get("training", {})  # what is counted has none
    training = {key: asked[key] for key in KEPT["training"] if key in asked}
    model = {key: table["model"][key] for key in KEPT["model"] if key in table["model"]}
    data = {key: base["data"][key] for key in CUT if key in base["data"] and key in table["data"]}
    return table | {
        "data": table["data"] | data,
        "model": model | {"from": str(path)},
        "training": training | {"learning_rate": rate},
    }


def name_of(files: Sequence[str], kind: str) -> str:
    """That of the first file, and the kind of model."""
    return f"{Path(files[0].removeprefix('embedded:')).name.split('.')[0]}-{kind}"


def _steps(size: int) -> int:
    """More text, more steps: from a few hundred to some tens of thousands."""
    return int(min(20_000, max(300, 1000 * (size / MEGA) ** 0.5)) // 100 * 100)


def _rate(width: int) -> float:
    """Wider models want smaller steps."""
    return round(min(2e-3, 0.25 / width), 6)


def _tokenizers(files: Sequence[str]) -> list[Path]:
    """Those of prepared folders."""
    folders = [resolve(file) for file in files if not is_embedded(file)]
    return [folder / "tokenizer.json" for folder in folders if is_prepared(folder)]


def _labeled_texts(file: str) -> list[str]:
    """The rows of a labeled file, or of an embedded one, more or less."""
    if is_embedded(file):
        return [text for _, text in embedded_labels(file)]
    return [line for path in expand(resolve(file))[0] for line in read_text(path, "replace")[0].splitlines()]


def _sentences(text: str) -> int:
    """About how many: blank lines part them, or each has a line, as objects and words beside their tags do."""
    first = text.split("\n", 1)[0]
    a_line = first.startswith("{") or ("\t" in first and " " in first)
    return len(BLANK.findall(text)) or (text.count("\n") if a_line else 1)


def _spaced(texts: Sequence[str]) -> bool:
    """Whether words are set apart: in unspaced scripts hardly one character in twenty is a space."""
    some = texts[:: max(1, len(texts) // 1000)]
    return sum(text.count(" ") for text in some) > sum(map(len, some)) / 20


def _bytes(file: str) -> int:
    if is_embedded(file):
        return len(embedded_text(file))
    if is_prepared(resolve(file)):
        return read_index(resolve(file)).bytes
    # Compressed text must be opened to know its size; plain text need not be.
    return sum(
        len(read_text(path, "replace")[0]) if path.suffix in COMPRESSED else path.stat().st_size
        for path in expand(resolve(file))[0]
    )
