"""Wrong kinds of arguments in Python are errors that name the next move, and what NumPy and pandas hold is read."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import seqwright as sw
from seqwright.core.wording import on_command_line
from tests.journeys.conftest import Command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("python")
    rows = [f"{('good', 'bad')[n % 2]}\t{('fine', 'dull')[n % 2]} film {n}" for n in range(60)]
    (path / "rows.tsv").write_text("\n".join(rows) + "\n")
    (path / "text.txt").write_text("the cat sat on the mat\n" * 40)
    sw.train(labeled=str(path / "rows.tsv"), run=path / "bag")
    sw.train(text=path / "text.txt", model="ngram", run=path / "ngram", progress=None)  # type: ignore[arg-type]
    return path


CALLS: list[tuple[Callable[[Any, Any, str], Any], str]] = [
    (lambda bag, lm, file: lm.generate(5), r"5 \(int\) is no text; give a string"),
    (lambda bag, lm, file: lm.generate(Path("a.txt")), r"is no text; give what is in it: path\.read_text\(\)"),
    (lambda bag, lm, file: lm.generate("a", 5), r"takes prompts, and options by name, not 2 arguments"),
    (lambda bag, lm, file: bag.classify(None), r"None \(NoneType\) is no text"),
    (lambda bag, lm, file: bag.classify([{"text": "a"}]), r'give its text, as in row\["text"\]'),
    (lambda bag, lm, file: bag.classify(["a", float("nan")]), r"nan \(float\) is no text"),
    (lambda bag, lm, file: bag.classify("a", explain="yes"), r"explain is True or False, not 'yes' \(str\)"),
    (lambda bag, lm, file: bag.evaluate(file, columns="text=a"), r"open\(RUN, columns=…\)\.evaluate\(…\)"),
    (lambda bag, lm, file: bag.evaluate(file, set="a=b"), r"open\(RUN, set=…\)\.evaluate"),
    (lambda bag, lm, file: bag.evaluate(file, skip_bad_rows=True), r'set=\["data\.bad_rows=skip"\]'),
    (lambda bag, lm, file: bag.evaluate(data=file), r"name the data with on=…"),
    (lambda bag, lm, file: bag.evaluate(file, label_errors=5), r"run\.label_errors\(on, limit=5\)"),
    (lambda bag, lm, file: bag.evaluate(file, json=True), r"\.as_json\(\)"),
    (lambda bag, lm, file: bag.evaluate(file, file), r"several texts or files are a list"),
    (lambda bag, lm, file: bag.evaluate([]), r"on=\[\] names no file; name one, or leave it out"),
    (lambda bag, lm, file: lm.evaluate(()), r"on=\(\) names no file"),
    (lambda bag, lm, file: bag.label_errors([]), r"on=\[\] names no file"),
    (lambda bag, lm, file: lm.evaluate(""), r"an empty name is no file; name one, or the folder that holds them\.$"),
    (lambda bag, lm, file: bag.evaluate(file, progress=True), r"progress is a subclass of .*, or None, not True"),
    (lambda bag, lm, file: bag.label_errors(file, "3"), r"limit is a whole number, not '3'"),
    (lambda bag, lm, file: bag.label_errors(file, 0), r"limit must be at least 1"),
    (lambda bag, lm, file: bag.label_errors(file, n=4), r"label_errors has no option 'n'"),
    (lambda bag, lm, file: bag.inspect(5), r"inspect: text is a string, not 5"),
    (lambda bag, lm, file: lm.where(5), r"5 \(int\) is no text"),
    (lambda bag, lm, file: lm.tokenizer.encode(5), r"is no text"),
    (lambda bag, lm, file: lm.tokenizer.decode("x"), r"are no ids; give a list of numbers from 0"),
    (lambda bag, lm, file: lm.tokenizer.tokens([10**9]), r"are no ids"),
    (lambda bag, lm, file: lm.tokenizer.decode([-100]), r"are no ids"),
    (lambda bag, lm, file: sw.open(None), r"open: path is the path of a file or folder, not None"),  # type: ignore[arg-type]
    (lambda bag, lm, file: sw.open(bag.path, columns=5), r"columns=5 names no columns"),  # type: ignore[arg-type]
    (lambda bag, lm, file: sw.train(5), r"train: recipe is .* not 5 \(int\)"),  # type: ignore[arg-type]
    (lambda bag, lm, file: sw.train(text=file, minutes="5"), r"minutes is a number, not '5'"),  # type: ignore[arg-type]
    (lambda bag, lm, file: sw.train(text=file, run=5), r"run is the path of a file or folder"),  # type: ignore[arg-type]
    (lambda bag, lm, file: sw.train(text=""), r"an empty name is no file"),
    (lambda bag, lm, file: sw.train(labeled=[{"label": "a"}]), r"Texts and rows of yours go into a file"),
    (lambda bag, lm, file: sw.compare(5), r"a run is opened by the path of its folder, not int"),
    (lambda bag, lm, file: sw.mix(5, "x"), r"not 5 \(int\)"),
    (lambda bag, lm, file: sw.plan("shakespeare-cpu", gpus="x"), r"gpus is a whole number"),  # type: ignore[arg-type]
    (lambda bag, lm, file: sw.explain(5), r"explain: topic is a string"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "message"), CALLS)
def test_wrong_arguments_are_errors_of_ours(folder: Path, call: Callable[[Any, Any, str], Any], message: str) -> None:
    with pytest.raises(sw.UserError, match=message):
        call(sw.open(folder / "bag"), sw.open(folder / "ngram"), str(folder / "rows.tsv"))


class Frame:
    """What iterating over a pandas.DataFrame yields: the names of its columns."""

    def __iter__(self) -> Any:
        return iter(["text"])

    def iterrows(self) -> None: ...


def test_values_of_numpy_and_columns_are_read_and_tables_are_not(folder: Path) -> None:
    bag, lm = sw.open(folder / "bag"), sw.open(folder / "ngram")
    texts = ["a fine film", "a dull film"]
    assert bag.classify(np.array(texts)) == bag.classify(texts)
    assert type(bag.classify(np.str_("fine")).texts[0]) is str
    assert lm.generate("the", max_tokens=np.int64(3), temperature=np.float32(0.5), seed=np.int64(2)) == lm.generate(
        "the", max_tokens=3, temperature=0.5, seed=2
    )
    with pytest.raises(sw.UserError, match=r"a table \(Frame\) is no list of texts; give a column: classify\(table\["):
        bag.classify(Frame())
    assert bag.evaluate(folder / "rows.tsv", progress=None)["accuracy"] == 100
    assert bag.classify("fine", explain=np.array([1]).any()).explanation is not None


class Row(NamedTuple):
    """As `pandas.DataFrame.itertuples` yields them."""

    text: str


def test_rows_with_named_columns_are_texts(folder: Path) -> None:
    bag, lm = sw.open(folder / "bag"), sw.open(folder / "ngram")
    rows = [Row("a fine film"), Row("a dull film")]
    assert bag.classify(rows) == bag.classify([row.text for row in rows])
    assert lm.score(Row("the cat"))[0].log_prob == lm.score("the cat").log_prob


def test_an_open_file_has_the_scores_of_its_lines_as_an_iterator(folder: Path) -> None:
    lm = sw.open(folder / "ngram")
    (folder / "lines.txt").write_bytes(b"the cat\r\nthe dog\n")
    with (folder / "lines.txt").open(newline="") as file:
        scored = lm.score(file)
        assert isinstance(scored, Iterator)
        assert [line.text for line in scored] == ["the cat", "the dog"]
    with (folder / "lines.txt").open() as file:
        continued = lm.generate(file, max_tokens=2)
        assert isinstance(continued, Iterator)
        assert len(list(continued)) == 2


def test_an_empty_text_is_classified_with_a_warning(folder: Path) -> None:
    bag = sw.open(folder / "bag")
    with pytest.warns(sw.SeqwrightWarning, match="an empty text says nothing of its label") as said:
        bag.classify(["a fine film", " ", ""])
    assert len(said) == 1


def test_arguments_of_language_models_are_named(folder: Path) -> None:
    lm = sw.open(folder / "ngram")
    for call, said in (
        (lambda: lm.generate("the cat", seeds=3), "seeds are a list, one for each prompt; seed=3 is that of all"),
        (lambda: lm.score([["the cat"]]), "is several texts, and a language model reads one at a time"),
        (lambda: lm.back_off("abc"), "'a' is no id below"),
        (lambda: lm.back_off([999_999]), "999999 is no id below"),
    ):
        with pytest.raises(sw.UserError, match=said):
            call()


def test_signatures_are_inspected_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bag = sw.open(folder / "bag")
    bag.classify("fine", explain=True)
    sw.load("shakespeare-cpu")

    def inspected(*inputs: Any, **options: Any) -> Any:
        raise AssertionError("inspected once more")

    monkeypatch.setattr(inspect, "signature", inspected)
    bag.classify("fine", explain=True)
    sw.load("shakespeare-cpu")


def test_ladder_says_how_its_files_are_named(folder: Path, seqwright: Command) -> None:
    result = seqwright("ladder", folder / "text.txt")
    assert result.status == 2
    assert f"as in --text {folder / 'text.txt'}" in result.err


def test_training_prints_its_progress_where_that_is_wanted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, wanted in (("silent", False), ("printed", True)):
        sw.train(text=folder / "text.txt", model="ngram", run=folder / name, progress=wanted)  # type: ignore[arg-type]
        assert ("held out for validation" in capsys.readouterr().err) == wanted
    keys = ["model.width=4", "tokenizer.kind=characters"]
    with on_command_line(False):
        sw.train(text=folder / "text.txt", model="lstm", set=keys, minutes=0.001, run=folder / "timed", progress=True)  # type: ignore[arg-type]
    assert "minutes=N for another budget" in capsys.readouterr().err


def test_functions_of_the_package_are_named_where_a_run_is_asked_for_them(folder: Path) -> None:
    run = sw.open(folder / "ngram")
    with pytest.raises(AttributeError, match=r"the package has it: seqwright\.check\(…\)"):
        run.check()
