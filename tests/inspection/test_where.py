"""`where`: matches with file and line for every run trained on text, how much is copied, and wrong input."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import seqwright as sw
from seqwright.core.config import UserError
from seqwright.core.storage import to_json
from seqwright.data.text.origins import Origin
from seqwright.data.text.suffix_index import Match
from seqwright.inspection.where.copying import Searcher, copying_statistics, match_lengths
from seqwright.inspection.where.training_text import training_index

from .conftest import Runs

COPIED = "dog sat on the cat"


@pytest.mark.parametrize("kind", ["ngram", "gpt", "gru", "masked"])
def test_given_text_is_found_with_file_and_line(runs: Runs, kind: str) -> None:
    result = runs[kind].where(["the unseen " + COPIED, "nowhere"], min_tokens=4)
    (match,) = result.matches
    assert (match.text, match.tokens, match.unit) == (COPIED, 5, "line")
    text = Path(match.file).read_text().split("\n")
    assert COPIED in text[match.number - 1]
    assert [len(text.matches) for text in result.texts] == [1, 0]
    assert result.texts[0].marked.endswith(f" ⟦{COPIED}⟧")
    assert result.held_out is None


@pytest.mark.parametrize("kind", ["ngram", "gpt", "gru"])
def test_samples_are_shown_as_text_json_and_page(runs: Runs, kind: str) -> None:
    result = runs[kind].where(samples=3, max_tokens=10, min_tokens=2)
    page, parsed = result.html(), json.loads(to_json(result.as_json()))
    assert len(parsed["texts"]) == 3
    assert parsed["copying"]["shares"]["2"] == result.copying.share(2)
    assert "How much is copied" in result.text()
    assert "Content-Security-Policy" in page
    assert not re.search(r"(src|href)=\"(?!#|data:)", page)
    assert result._repr_html_()
    if kind == "ngram":
        assert "fitted on it, too" in result.notes[0]
    else:
        assert result.held_out is not None


def test_training_text_as_held_out_text_is_copied_but_for_its_ends(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "copy.txt").write_text("the cat sat on the mat\nthe unseen dog\n")
    result = runs["gpt"].where(on=str(tmp_path / "copy.txt"), min_tokens=2)
    assert [text.text for text in result.texts] == ["the cat sat on the mat", "the dog"]
    assert [text.lengths.tolist() for text in result.texts] == [[6] * 6, [1, 0, 1]]
    ids = runs["gpt"].stream(str(tmp_path / "copy.txt")).ids.astype(np.int64)
    lengths = Searcher([training_index(runs["gpt"])], runs["gpt"].tokenizer).lengths([ids])
    assert lengths[0].tolist() == [6] * 6 + [1, 0, 1]


def test_mixture_is_searched_in_the_texts_of_all_parts(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "tuning.txt").write_text("the cat sat\n")
    (tmp_path / "other.txt").write_text("the mat sat on the dog\nthe cat sat on the mat\n" * 4)
    keys = ["tokenizer.kind=words", f"tokenizer.file={runs['ngram'].path}/tokenizer.json"]
    other = sw.train(text=str(tmp_path / "other.txt"), model="ngram", set=keys, run=tmp_path / "other")
    parts = [runs["gpt"].path, other.path]
    mixed = sw.mix(parts, tmp_path / "mixed", on=str(tmp_path / "tuning.txt"))
    result = mixed.where([COPIED, "mat sat on the dog", "dog sat on the dog"], min_tokens=4)
    files = [[Path(match.file).name for match in text.matches] for text in result.texts]
    assert files == [["text.txt"], ["other.txt"], ["text.txt", "other.txt"]]
    assert [match.occurrences for match in result.texts[1].matches] == [4]
    assert "all of them are searched" in result.notes[0]
    assert "hold out different texts" in mixed.where(samples=1, max_tokens=4).notes[-1]
    for path in (mixed.path, other.path):
        shutil.copytree(path, tmp_path / "received" / path.name)
    received = sw.open(tmp_path / "received" / "mixed", device="cpu")  # opens the parts beside it only
    assert received.where("mat sat on the dog", min_tokens=4).matches == list(result.texts[1].matches)
    shutil.rmtree(tmp_path / "received" / "other")
    assert "other is not searched: " in received.where("the mat", min_tokens=1).notes[0]
    other.path.rename(tmp_path / "moved")
    assert "other is not searched: " in mixed.where("the mat", min_tokens=1).notes[0]
    same = sw.mix([runs["gpt"].path, runs["gru"].path], tmp_path / "same", on=str(tmp_path / "tuning.txt"))
    assert same.where(COPIED, min_tokens=4).notes == ()


def test_index_is_built_once_and_survives_its_text(runs: Runs, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes("một hai ba bốn\r\n\r\n🙂 năm sáu bảy\r\n".encode() * 3)
    run = sw.train(text=str(text), model="ngram", set=["tokenizer.kind=words"], run=tmp_path / "run")
    moved = text.rename(tmp_path / "moved.txt")
    with pytest.raises(UserError, match=r"was moved: no file .*text.txt"):
        run.where("năm sáu")
    text.write_text("another text\n" * 10)
    with pytest.raises(UserError, match="have changed since it was trained"):
        run.where("năm sáu")
    moved.rename(text)
    found = run.where("🙂 năm sáu", min_tokens=1).matches[0]
    assert (found.tokens, found.number % 3) == (3, 0)
    text.unlink()
    assert run.where("🙂 năm sáu", min_tokens=1).matches[0] == found
    (run.path / "where" / "ids.bin").write_bytes(b"damaged")
    with pytest.raises(UserError, match="was moved"):
        run.where("năm sáu")


def test_held_out_text_that_was_moved_is_noted(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("one two three\n" * 30)
    keys = ["tokenizer.kind=words", "data.refit=false"]
    run = sw.train(text=str(text), model="ngram", set=keys, run=tmp_path / "run")
    assert run.where(samples=2, max_tokens=4).held_out is not None
    text.unlink()
    (note,) = run.where(samples=2, max_tokens=4).notes
    assert "since it was moved: no file" in note


def test_first_word_is_found_within_a_line_of_byte_level_bpe(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the quick brown fox\n" * 20)
    keys = ["tokenizer.kind=byte-bpe", "tokenizer.size=300"]
    run = sw.train(text=str(tmp_path / "text.txt"), model="ngram", set=keys, run=tmp_path / "run")
    (found,) = run.where("quick brown", min_tokens=1).texts
    assert found.text == "quick brown"
    assert found.matches[0].text == " quick brown"
    assert len(found.matches) == 1


def test_prepared_corpus_has_the_lines_of_its_files(tmp_path: Path, runs: Runs) -> None:
    from seqwright.data.text.corpora import origins_of
    from seqwright.data.text.prepare import prepare

    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for file in files:
        file.write_text("".join(f"the cat {n}\n" for n in range(30)))
    prepare(files, tmp_path / "prepared", runs["gpt"].tokenizer, document="line", block=64)
    origins = origins_of(tmp_path / "prepared")
    assert [(Path(origins[n].file).name, origins[n].number) for n in (0, 29, 30, 59)] == [
        ("a.txt", 1),
        ("a.txt", 30),
        ("b.txt", 1),
        ("b.txt", 30),
    ]
    files[1].write_text("other documents now\n")
    assert origins_of(tmp_path / "prepared")[30] == Origin(str(tmp_path / "prepared"), 31, "document")
    files[1].unlink()
    assert origins_of(tmp_path / "prepared")[30] == Origin(str(tmp_path / "prepared"), 31, "document")


def test_records_are_numbered_whatever_lines_their_texts_have(tmp_path: Path) -> None:
    texts = ["the cat\nsat on\nthe mat", "a dog\nlay under\nit all day"]
    (tmp_path / "text.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    keys = ["tokenizer.kind=characters", 'data.columns=["text"]']
    run = sw.train(text=str(tmp_path / "text.jsonl"), model="ngram", set=keys, run=tmp_path / "run")
    assert run.where("it all", min_tokens=5).matches[0].place == f"{tmp_path / 'text.jsonl'}, record 2"


def test_shares_count_tokens_in_matches_of_at_least_n() -> None:
    lengths = match_lengths([Match(0, 3, 0), Match(2, 5, 9)], 8)
    assert lengths.tolist() == [3, 3, 5, 5, 5, 5, 5, 0]
    statistics = copying_statistics([lengths, np.zeros(2, np.int64)], 5)
    assert (statistics.tokens, statistics.longest) == (10, 5)
    assert statistics.shares == {1: 0.7, 2: 0.7, 4: 0.5, 5: 0.5}


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("gpt", {"text": " "}, "the text is empty"),
        ("gpt", {"text": []}, "the text is empty"),
        ("gpt", {"text": "a", "samples": 2}, "one of them"),
        ("gpt", {"samples": 0}, "at least 1"),
        ("gpt", {"text": "a", "min_tokens": 0}, "at least 1"),
        ("masked", {"samples": 2}, "it has no samples"),
        ("transformer", {"text": "a"}, "turns sources into targets; where searches"),
        ("bag", {"text": "a"}, "where searches"),
    ],
)
def test_wrong_input_is_refused(runs: Runs, kind: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        runs[kind].where(**options)
