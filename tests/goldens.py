"""Goldens: every family trained for a few steps, and what must not move when the code is rearranged.

A refactor that should not change numbers is shown not to: losses, scores, outputs and weights of small trainings over
every kind of model and every task are written down once and compared afterwards.

    python tests/goldens.py capture         # writes tests/goldens.jsonl
    python tests/goldens.py                 # trains again and compares; exit status 1 where something moved
    python tests/goldens.py --only pairs    # some of them

On the machine that captured them, numbers are equal to the last bit. Elsewhere other kernels round otherwise:
`--tolerance` says how far losses and scores may differ, and texts drawn from them may differ with them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # sums are taken in one order

import torch

import seqwright as sw
from seqwright.core.storage import load_tensors

FILE = Path(__file__).with_suffix(".jsonl")
SHORT = ("training.steps=6", "training.batch_size=4", "training.log_every=1", "training.evaluate_every=3")
GPT = ("model.layers=2", "model.width=32", "model.heads=2", "model.context=32")
PINNED = ("model.positions=learned", "training.optimizer=adamw", "training.learning_rate=0.001953")
"""Keys whose defaults for users' texts may be tuned without moving these numbers."""
RECURRENT = ("model.width=32",)
TIMED = ("seconds", "tokens_per_second")
TOPICS = {"text": "embedded:topics"}
LANGUAGES = {"labeled": "embedded:languages"}
TOKENS = {"tagged": "embedded:python-tokens"}
SENTENCE = "the value of a function is called"
RENAMED: dict[str, str] = {"spelt.": "words."}
"""Weights that have another name now: old part of a name → new part."""


def language(run: Any) -> Iterator[Any]:
    yield [
        one.text for one in run.generate(["The ", "a list is"], max_tokens=24, temperature=0.8, top_p=0.9, seeds=[3, 4])
    ]
    yield [
        one.text for one in run.generate(["The "], max_tokens=24, repetition_penalty=1.3, no_repeat_ngram=3, top_k=20)
    ]
    yield [[one.text, one.log_prob] for one in run.search("The ", beam_size=3, max_tokens=6, n_best=2)]
    yield [one.log_prob for one in run.score([SENTENCE, "Tiếng Việt"])]


def translation(run: Any) -> Iterator[Any]:
    sources = [SENTENCE, "a function"]
    for options in ({"kind": "greedy"}, {"kind": "beam", "beam_size": 4, "n_best": 2}, {"kind": "sample", "n_best": 2}):
        said = run.translate(sources, max_tokens=12, length_ratio=0.2, **options)
        yield [[one.text, [other.text for other in one.others], one.log_prob, one.reason] for one in said]


def classes(run: Any) -> Iterator[Any]:
    yield [[one.label, one.probabilities] for one in run.classify(["Deutschland", "Việt Nam"])]


def tags(run: Any) -> Iterator[Any]:
    yield [[one.tags, one.probabilities] for one in run.tag(["def first ( self ) :", "x = 3"])]


def blanks(run: Any) -> Iterator[Any]:
    found = run.fill("the <mask> of a <mask>")
    yield [found.text, [[guess.token, guess.probability] for blank in found.blanks for guess in blank]]


def talk(run: Any) -> Iterator[Any]:
    yield run.chat("What is json for?", max_tokens=12, temperature=0).content


def nothing(run: Any) -> Iterator[Any]:
    yield from ()


def text(model: str, *keys: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    pinned = (*(PINNED if model == "gpt" else ()), *(() if model == "neural-bigram" else ("model.dropout=0.05",)))
    return TOPICS | {"model": model}, ("tokenizer.kind=byte-bpe", "tokenizer.size=512", *SHORT, *pinned, *keys)


def pairs(model: str, *keys: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    few = (
        "tokenizer.kind=characters",
        'data.split="documents 3%"',
        "data.batch_tokens=256",
        "decoding.length_ratio=0.5",
    )
    pinned = ("training.optimizer=adamw", "training.learning_rate=0.002")
    return {"pairs": "reversed.tsv", "model": model}, (*SHORT, *few, *pinned, *keys)


def labeled(model: str, *keys: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    return LANGUAGES | {"model": model}, ("tokenizer.kind=characters", "data.split=stratified 5%", *SHORT, *keys)


def tagged(model: str, *keys: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    return TOKENS | {"model": model}, ("data.split=tail 10%", *SHORT, *keys)


def shipped(recipe: str, *keys: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    return {"recipe": recipe}, (*SHORT, *keys)


CASES: dict[str, tuple[tuple[dict[str, Any], tuple[str, ...]], Callable[[Any], Iterator[Any]]]] = {
    "text/ngram": ((TOPICS | {"model": "ngram"}, ('data.split="tail 5%"', "data.refit=false")), language),
    "text/neural-bigram": (text("neural-bigram", *RECURRENT), language),
    "text/feedforward": (text("feedforward", *RECURRENT), language),
    "text/rnn": (text("rnn", *RECURRENT), language),
    "text/lstm": (text("lstm", *RECURRENT, "model.dropout=0.2"), language),
    "text/gru": (text("gru", *RECURRENT), language),
    "text/gpt": (text("gpt", *GPT, "model.dropout=0.2", "training.ema_decay=0.9"), language),
    "text/gpt-llama": (
        text(
            "gpt",
            *GPT,
            "model.positions=rope",
            "model.norm=rmsnorm",
            "model.activation=swiglu",
            "model.kv_heads=1",
            "model.bias=false",
            "model.qk_norm=true",
            "training.schedule=wsd",
            "training.label_smoothing=0.1",
        ),
        language,
    ),
    "text/gpt-post": (
        text("gpt", *GPT, "model.norm_position=post", "model.positions=t5", "model.attention_window=9"),
        language,
    ),
    "text/recipe": (shipped("python-reference", *GPT), language),
    "text/lecture-1": (shipped("lecture-generation-way1"), nothing),
    "text/lecture-2": (shipped("lecture-generation-way2"), nothing),
    "text/lecture-transformer-2": (shipped("lecture-generation-transformer-way2"), nothing),
    "pairs/transformer": (
        pairs("transformer", "model.width=32", "model.layers=2", "model.heads=2", "model.context=64"),
        translation,
    ),
    "pairs/rnn": (pairs("rnn", *RECURRENT, "model.attention=dot"), translation),
    "pairs/lstm": (pairs("lstm", *RECURRENT, "model.attention=concat", "model.input_feeding=true"), translation),
    "pairs/lstm-bottleneck": (pairs("lstm", *RECURRENT, "model.attention=none"), translation),
    "pairs/gru": (pairs("gru", *RECURRENT, "model.attention=additive"), translation),
    "pairs/gpt": (pairs("gpt", *GPT[:3], "model.context=128"), translation),
    "pairs/recipe": (shipped("dates-en-vi", 'data.split="documents 1%"'), translation),
    "labeled/bag": ((LANGUAGES | {"model": "bag"}, ()), classes),
    "labeled/mlp": (labeled("mlp"), classes),
    "labeled/cnn": (labeled("cnn"), classes),
    "labeled/rnn": (labeled("rnn", *RECURRENT), classes),
    "labeled/lstm": (labeled("lstm", *RECURRENT), classes),
    "labeled/gru": (labeled("gru", *RECURRENT), classes),
    "labeled/transformer": (labeled("transformer", *GPT[:3]), classes),
    "labeled/gpt": (labeled("gpt", *GPT[:3]), classes),
    "labeled/bert": (labeled("bert", *GPT[:3]), classes),
    "tagged/perceptron": ((TOKENS | {"model": "perceptron"}, ('data.split="tail 96%"',)), tags),
    "tagged/lstm": (tagged("lstm", *RECURRENT, "model.crf=true"), tags),
    "tagged/gru": (tagged("gru", *RECURRENT), tags),
    "tagged/transformer": (tagged("transformer", *GPT[:3]), tags),
    "tagged/bert": (tagged("bert", *GPT[:3]), tags),
    "masked/bert": (shipped("topics-bert", *GPT[:3]), blanks),
    "masked/lstm": (
        (
            {"masked": "embedded:topics", "model": "lstm"},
            ("tokenizer.size=512", *SHORT, *RECURRENT, "model.dropout=0.05"),
        ),
        blanks,
    ),
    "denoising/transformer": (shipped("topics-bart", *GPT[:3]), nothing),
    "images/vit": (shipped("digits", *GPT[:3]), nothing),
    "images/vit-inpaint": (shipped("digits-inpaint", *GPT[:3]), nothing),
    "images/lstm": (({"images": "embedded:digits", "model": "lstm"}, (*SHORT, *RECURRENT)), nothing),
    "images/frames": (shipped("digit-strips"), nothing),
    "captions/lstm": (shipped("digit-captions", *RECURRENT), nothing),
}


def reversed_pairs(path: Path) -> None:
    """Sources and targets without files: words, and the same words from the last to the first."""
    words = SENTENCE.split()
    rows = [[words[(n * k + k) % len(words)] for k in range(1, 3 + n % 4)] for n in range(600)]
    path.write_text("".join(f"{' '.join(row)}\t{' '.join(row[::-1])}\n" for row in rows), encoding="utf-8")


def trained(name: str, folder: Path) -> Any:
    (asked, keys), _ = CASES[name]
    asked = dict(asked)
    if "pairs" in asked:
        reversed_pairs(folder / asked["pairs"])
        asked["pairs"] = [str(folder / asked["pairs"])]
    return sw.train(asked.pop("recipe", None), set=keys, run=folder / name.replace("/", "-"), **asked)


def golden(run: Any, ask: Callable[[Any], Iterator[Any]]) -> dict[str, Any]:
    """What a run must not change: its log, its scores, its weights, what it says."""
    tensors, _ = load_tensors(run.directory.model_path)
    kept = [one for one in run.directory.records() if one["kind"] in ("train", "epoch", "evaluation", "sample")]
    return {
        "log": [{key: value for key, value in one.items() if key not in (*TIMED, "image")} for one in kept],
        "scores": {name: score["value"] for name, score in run.directory.summary().get("scores", {}).items()},
        "weights": {name: [list(t.shape), *moments(t)] for name, t in tensors.items()},
        "outputs": list(ask(run)),
    }


def moments(tensor: torch.Tensor) -> list[float]:
    """Sum and sum of squares: enough to tell tensors apart, however their elements are typed."""
    wide = tensor.double()
    wide = wide[wide.isfinite()]
    return [wide.sum().item(), wide.square().sum().item()]


def mixtures(folder: Path) -> Iterator[tuple[str, Any, Callable[[Any], Iterator[Any]]]]:
    """Kinds that are made of trained runs, and runs that begin with others."""
    topics = folder / "held-out.txt"
    topics.write_text(SENTENCE * 50, encoding="utf-8")
    yield (
        "mixed/text",
        sw.mix([folder / "text-gpt", folder / "text-lstm"], folder / "mixed-text", on=str(topics)),
        language,
    )
    both = [folder / "pairs-gru", folder / "pairs-lstm-bottleneck"]
    yield "mixed/pairs", sw.mix(both, folder / "mixed-pairs", geometric=True), translation
    languages = folder / "languages.tsv"
    languages.write_text("de\tDeutschland\nvi\tViệt Nam\nfr\tFrance\n" * 9, encoding="utf-8")
    parts = [folder / "labeled-bag", folder / "labeled-cnn"]
    yield "mixed/labeled", sw.mix(parts, folder / "mixed-labeled", on=str(languages)), classes
    base = folder / "text-recipe"
    keys = ("training.epochs=0.1", *SHORT[1:])
    assistant = sw.train(chat="embedded:questions", base=base, set=(*keys, "training.lora_rank=4"), run=folder / "chat")
    yield "begun/chat", assistant, talk
    begun = sw.train(labeled="embedded:languages", base=base, set=(*SHORT,), run=folder / "begun-labeled")
    yield "begun/labeled", begun, classes


def differences(old: Any, new: Any, tolerance: float, where: str = "") -> Iterator[str]:
    """Every place where two goldens differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            if key not in old or key not in new:
                yield f"{where}/{key} is {'new' if key in new else 'gone'}"
            else:
                yield from differences(old[key], new[key], tolerance, f"{where}/{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for n, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, tolerance, f"{where}[{n}]")
    elif isinstance(old, float) and isinstance(new, float):
        if not (old == new or math.isclose(old, new, rel_tol=tolerance, abs_tol=tolerance)):
            yield f"{where}: {old!r} was, {new!r} is"
    elif old != new:
        yield f"{where}: {old!r} was, {new!r} is"


def renamed(weights: dict[str, Any]) -> dict[str, Any]:
    """Weights by the names they have now."""
    found = {}
    for name, value in weights.items():
        for old, new in RENAMED.items():
            name = name.replace(old, new)
        found[name] = value
    return found


def machine() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__.split("+")[0],
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", nargs="?", choices=["compare", "capture"], default="compare")
    parser.add_argument("--only", default="", help="names that hold this")
    parser.add_argument("--tolerance", type=float, default=0.0)
    asked = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        chosen = [case for case in CASES if asked.only in case]
        for case in chosen:
            begun = time.perf_counter()
            found[case] = golden(trained(case, folder), CASES[case][1])
            print(f"trained {case} in {time.perf_counter() - begun:.1f} s", file=sys.stderr)
        if len(chosen) == len(CASES):
            found |= {case: golden(run, ask) for case, run, ask in mixtures(folder)}
    found = json.loads(json.dumps(found))
    if asked.verb == "capture":
        lines = [json.dumps({"machine": machine()}), *(json.dumps({case: kept}) for case, kept in found.items())]
        FILE.write_text("\n".join(lines) + "\n")
        print(f"{len(found)} goldens in {FILE}")
        return 0
    kept = {key: value for line in FILE.read_text().splitlines() for key, value in json.loads(line).items()}
    if kept["machine"] != machine():
        print(f"captured on {kept['machine']}, compared on {machine()}: use --tolerance.")
    moved = 0
    for case, new in found.items():
        old = kept[case]
        old["weights"] = renamed(old["weights"])
        places = list(differences(old, new, asked.tolerance))
        moved += bool(places)
        print(f"{case}: {'equal' if not places else f'{len(places)} differences'}")
        for place in places[:5]:
            print(f"    {place[:300]}")
    print(f"{len(found) - moved} of {len(found)} equal")
    return 1 if moved else 0


if __name__ == "__main__":
    sys.exit(main())
