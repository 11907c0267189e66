"""What `--labeled FILE` reaches without a recipe, beside the linear models that everyone knows.

python benchmarks/classify_rivals.py [--rows 100 500 2000 0] [--sets atis sst2] [--set model.words=2]
python benchmarks/classify_rivals.py --speed [--json FILE]

The rivals are scikit-learn's LinearSVC, LogisticRegression and MultinomialNB on TF-IDF of words (1-2-grams) and of
letters within words (2-5-grams), as they are usually set up: sublinear counts, C = 1 and 10, a smoothing of 0.1. All
learn from the same rows of a training file, drawn with a fixed seed (0: all of them), and answer the same test rows.
Test rows with labels that were not drawn count as wrong. Data from SEQWRIGHT_DATA; names of languages need Babel.

`--speed` times the questions of ATIS instead: training beside TF-IDF of words and a LinearSVC whose C is found by
5-fold cross-validation, and the classification of 50,000 lines beside the pipeline above, in turns.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline, make_union
from sklearn.svm import LinearSVC

import seqwright as sw
from seqwright.data.files import read_text, resolve
from seqwright.data.labeled.rows import read_rows
from seqwright.data.samples.labels import languages
from seqwright.pipeline.recipe import load

Rows = list[tuple[str, str]]
"""Label and text."""
TEST = 2000
"""Rows held back where a set has no test part."""
LINES = 50_000
"""Lines that --speed classifies."""


def of_recipe(name: str, train: str, test: str) -> tuple[Rows, Rows]:
    """The files of a recipe, read as it says."""
    data = load(name).data
    return tuple([(row.label, row.texts[0]) for row in read_rows(file, data).rows] for file in (train, test))  # type: ignore[return-value]


def parted(rows: Rows) -> tuple[Rows, Rows]:
    drawn = sorted(set(rows))
    random.Random(1).shuffle(drawn)
    return drawn[TEST:], drawn[:TEST]


def domains(spaced: bool = True) -> tuple[Rows, Rows]:
    """Where Vietnamese sentences come from; without spaces, a script that sets no words apart."""
    rows: Rows = []
    for name in ("basic", "news", "wiki-alt"):
        lines = read_text(resolve(f"envi_vlsp20/{name}.train.vi.xz"))[0].split("\n")
        chosen = random.Random(1).sample([line for line in lines if line.strip()], 2500)
        rows += [(name, line if spaced else line.replace(" ", "")) for line in chosen]
    return parted(rows)


def modules() -> tuple[Rows, Rows]:
    """Which module of the standard library three lines are from: code, many classes."""
    rows: Rows = []
    for path in sorted(Path(os.__file__).parent.glob("*.py")):
        lines = read_text(path, "replace")[0].split("\n")
        parts = [" ".join(line.strip() for line in lines[n : n + 3]) for n in range(0, len(lines), 3)]
        parts = [part for part in parts if len(part) > 30]
        if len(parts) >= 150:
            rows += [(path.stem, part.replace("\t", " ")) for part in random.Random(1).sample(parts, 100)]
    return parted(rows)


def three_words() -> tuple[Rows, Rows]:
    """Which language the first three words of a sentence are of."""
    rows: Rows = []
    files = {"en": "multi30k/train.en.xz", "de": "multi30k/train.de.xz", "fr": "multi30k/train.fr.xz"}
    for language, file in (files | {"vi": "envi_vlsp20/basic.train.vi.xz"}).items():
        lines = read_text(resolve(file))[0].split("\n")
        rows += [(language, " ".join(line.split()[:3])) for line in random.Random(1).sample(lines, 2500) if line]
    return parted(rows)


def stress() -> tuple[Rows, Rows]:
    """Which syllable of an English word is stressed, of how many: classes that hang on a word's whole shape."""
    rows: Rows = []
    for line in read_text(resolve("cmudict/cmudict.dict.xz"))[0].split("\n"):
        word, *sounds = line.split(" #")[0].split() or [""]
        if word.isalpha():
            pattern = "".join(digit for sound in sounds for digit in sound if digit.isdigit())
            rows.append((pattern.replace("2", "0") or "-", word))
    common = {label for label, many in Counter(label for label, _ in rows).items() if many > 100}
    return parted(random.Random(1).sample([row for row in rows if row[0] in common], 10_000))


def misspelled(rows: Rows, seed: int) -> Rows:
    """Every sixteenth letter doubled, dropped or swapped with the next."""
    drawn = random.Random(seed)

    def slipped(text: str) -> str:
        letters = list(text)
        for n in range(len(letters) - 1):
            if drawn.random() < 1 / 16:
                pair = letters[n : n + 2]
                letters[n : n + 2] = drawn.choice((pair[::-1], ["", pair[1]], [pair[0] * 2, pair[1]]))
        return "".join(letters)

    return [(label, slipped(text)) for label, text in rows]


def sst(kind: str) -> tuple[Rows, Rows]:
    return of_recipe(
        {"binary": "sst2", "fine": "sst5"}[kind], *(f"sst/stsa.{kind}.{part}.txt.xz" for part in ("train", "test"))
    )


SETS: dict[str, Callable[[], tuple[Rows, Rows]]] = {
    "atis": lambda: of_recipe("atis-intents", "atis/train.tsv.xz", "atis/test.tsv.xz"),
    "sst2": lambda: sst("binary"),
    "sst5": lambda: sst("fine"),
    "misspelled": lambda: tuple(misspelled(rows, seed) for seed, rows in enumerate(sst("binary"))),  # type: ignore[return-value]
    "cola": lambda: of_recipe("cola", "glue/CoLA/train.tsv.xz", "glue/CoLA/dev.tsv.xz"),
    "languages": lambda: parted(languages()),
    "domains": domains,
    "unspaced": lambda: domains(spaced=False),
    "modules": modules,
    "three-words": three_words,
    "stress": stress,
    "glue-sst2": lambda: of_recipe("glue-sst2", "glue/SST-2/train.tsv.xz", "glue/SST-2/dev.tsv.xz"),
    "imdb": lambda: of_recipe("imdb-bag", "imdb/train.tsv.xz", "imdb/test.tsv.xz"),
}


def ours(train: Rows, test: Rows, options: Sequence[str]) -> float:
    """The accuracy of a run that was told nothing but its files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, rows in (("train", train), ("test", test)):
            lines = [f"{label}\t{text}" for label, text in rows]
            Path(folder, f"{name}.tsv").write_text("\n".join(lines), encoding="utf-8", newline="\n")
        run = sw.train(labeled=f"{folder}/train.tsv", run=f"{folder}/run", set=options)
        return float(run.evaluate(f"{folder}/test.tsv", resamples=0, unknown="wrong")["accuracy"])


def rival(model: Any) -> Any:
    """A linear model on TF-IDF of words and of letters within words."""
    words = TfidfVectorizer(token_pattern=r"\w+|[^\w\s]", ngram_range=(1, 2), sublinear_tf=True)
    letters = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True)
    return make_pipeline(make_union(words, letters), model)


def rivals(train: Rows, test: Rows) -> list[float]:
    """The accuracies of LinearSVC, logistic regression and naive Bayes."""
    found = []
    for model in (LinearSVC(C=1.0), LogisticRegression(C=10.0, max_iter=300), MultinomialNB(alpha=0.1)):
        made = rival(model)
        made.fit([text for _, text in train], [label for label, _ in train])
        said = made.predict([text for _, text in test])
        found.append(100 * float(np.mean([one == label for one, (label, _) in zip(said, test, strict=True)])))
    return found


@dataclass(frozen=True)
class Seconds:
    clock: float
    cpu: float

    @classmethod
    def of(cls, work: Callable[[], object]) -> Seconds:
        clock, cpu = time.perf_counter(), time.process_time()
        work()
        return cls(time.perf_counter() - clock, time.process_time() - cpu)

    @classmethod
    def median(cls, rounds: Sequence[Seconds]) -> Seconds:
        return cls(statistics.median(one.clock for one in rounds), statistics.median(one.cpu for one in rounds))


def speed(rounds: int, json_file: Path | None) -> None:
    """Prints medians of training and classification, ours and scikit-learn's, and their ratios."""
    train, test = SETS["atis"]()
    texts, labels = [text for _, text in train], [label for label, _ in train]
    lines = [text for _, text in itertools.islice(itertools.cycle(test), LINES)]
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    grid = GridSearchCV(make_pipeline(words, LinearSVC()), {"linearsvc__C": [0.1, 0.3, 1.0, 3.0, 10.0]}, cv=5)
    both = rival(LinearSVC(C=1.0)).fit(texts, labels)
    taken: dict[str, list[Seconds]] = {name: [] for name in ("train", "grid search", "classify", "pipeline")}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "train.tsv")
        file.write_text("\n".join(f"{label}\t{text}" for label, text in train), encoding="utf-8", newline="\n")
        for n in range(rounds):
            taken["train"].append(Seconds.of(lambda n=n: sw.train(labeled=str(file), run=f"{folder}/{n}")))
            taken["grid search"].append(Seconds.of(lambda: grid.fit(texts, labels)))
            run = sw.open(f"{folder}/{n}")
            taken["classify"].append(Seconds.of(lambda run=run: list(run.classify(lines))))
            taken["pipeline"].append(Seconds.of(lambda: both.predict(lines)))
    medians = {name: Seconds.median(values) for name, values in taken.items()}
    ours, theirs = medians["train"], medians["grid search"]
    print(
        f"training on {len(train):,} questions: {ours.clock:.1f} s ({ours.cpu:.1f} of CPU), grid search"
        f" {theirs.clock:.1f} ({theirs.cpu:.1f}): {ours.clock / theirs.clock:.2f} times its time"
        f" ({ours.cpu / theirs.cpu:.2f} of CPU)"
    )
    ours, theirs = medians["classify"], medians["pipeline"]
    print(
        f"classification: {LINES / ours.clock:,.0f} lines/s, pipeline {LINES / theirs.clock:,.0f}:"
        f" {theirs.clock / ours.clock:.2f} times its rate ({theirs.cpu / ours.cpu:.2f} by CPU time)"
    )
    if json_file:
        table = {name: asdict(seconds) for name, seconds in medians.items()}
        json_file.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100, 500, 2000])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=[name for name in SETS if name != "imdb"])
    parser.add_argument("--set", dest="options", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--alone", action="store_true", help="Leave the rivals out.")
    parser.add_argument("--speed", action="store_true", help="Time training and classification instead.")
    parser.add_argument("--rounds", type=int, default=3, help="Of --speed.")
    parser.add_argument("--json", type=Path, help="Also write the results of --speed to this file.")
    asked = parser.parse_args()
    if asked.speed:
        speed(asked.rounds, asked.json)
        return
    scores = []
    for name in asked.sets:
        whole, test = SETS[name]()
        for many in asked.rows:
            train = random.Random(5).sample(whole, many) if 0 < many < len(whole) else whole
            start = time.process_time()
            own = ours(train, test, asked.options)
            took = time.process_time() - start
            scores.append([own, *([float("nan")] * 3 if asked.alone else rivals(train, test))])
            print(f"{name:11} {len(train):6} rows: {_table(scores[-1])} ({took:.1f} s)", flush=True)
    print(f"mean: {_table(np.mean(scores, 0))}")


def _table(scores: Sequence[float]) -> str:
    names = ("ours", "LinearSVC", "logistic", "naive Bayes")
    return ", ".join(f"{name} {score:.2f}" for name, score in zip(names, scores, strict=True))


if __name__ == "__main__":
    main()
