"""ARPA files: round trip, files of SRILM and KenLM, and parse errors that name the line."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from seqwright.core.batch import Vocabulary
from seqwright.core.config import UserError
from seqwright.models.ngram.arpa_reading import read_arpa
from seqwright.models.ngram.arpa_writing import arpa_names, write_arpa
from tests.models.test_ngram import Cows

SRILM = """
\\data\\
ngram 1=5
ngram 2=3

\\1-grams:
-0.30103\t</s>
-99\t<s>\t-0.5
-0.69897 a -0.25
-1 <unk>
-1\tb\t0.1

\\2-grams:
-0.1 <s> a
-0.2 a b
-0.3 b </s>

\\end\\
"""


@pytest.mark.parametrize("smoothing", ["kneser-ney", "mle", "stupid-backoff"])
def test_arpa_round_trip(tmp_path: Path, smoothing: str) -> None:
    cows = Cows(order=3, smoothing=smoothing)
    write_arpa(
        tmp_path / "cows.arpa",
        cows.model.tables,
        arpa_names(list(cows.id), cows.model.vocabulary),
        cows.model.vocabulary,
    )
    tables, tokens = read_arpa(tmp_path / "cows.arpa")
    assert tokens == list(cows.id)
    for ours, read in zip(cows.model.tables.levels, tables.levels, strict=True):
        assert np.array_equal(ours.key, read.key)
        assert read.log_prob == pytest.approx(ours.log_prob, abs=3e-7)
        if ours.back_off is not None:
            assert read.back_off == pytest.approx(ours.back_off, abs=3e-7)


def test_arpa_escapes_white_space_and_special_tokens(tmp_path: Path) -> None:
    vocabulary = Vocabulary(size=8, unk=0, pad=1, sos=2, eos=3)
    tokens = ["<unk>", "<pad>", "<sos>", "<eos>", " ", "\n", "<s>", "\u00a0x"]
    assert arpa_names(tokens, vocabulary)[2:] == ["<s>", "</s>", "<0x20>", "<0x0A>", "\\<s>", "<0xC2><0xA0>x"]
    assert arpa_names([*tokens[:6], "a", "a"], vocabulary)[6:] == ["a", "<0x61>"]  # a piece, and its byte
    with pytest.raises(UserError, match="unique, non-empty token names"):
        arpa_names([*tokens[:5], "a", "a", "a"], vocabulary)
    path = tmp_path / "spaces.arpa"
    path.write_text("\\data\\\nngram 1=2\n\n\\1-grams:\n-0.3\t<0x20>\n-0.3\t<0xC2><0xA0>x\n\n\\end\\\n")
    assert read_arpa(path)[1][4:] == [" ", "\u00a0x"]


def test_names_of_bytes_are_words_to_every_reader() -> None:
    """KenLM splits at NUL and white space; a name is UTF-8, and no two are alike."""
    bytes_ = [bytes([n]).decode(errors="surrogateescape") for n in range(256)]
    names = arpa_names(
        ["<unk>", "<pad>", "<sos>", "<eos>", *bytes_, "<0x00>"], Vocabulary(size=261, unk=0, sos=2, eos=3)
    )
    assert len({*names}) == len(names)
    assert all(name.encode().split() == [name.encode()] and "\0" not in name for name in names)
    assert names[4:6] == ["<0x00>", "<0x01>"]
    assert names[4 + 0xE1] == "<0xE1>"
    assert names[-1] == "<0x3C>0x00>"


def test_read_arpa_of_a_known_vocabulary(tmp_path: Path) -> None:
    path = tmp_path / "srilm.arpa"
    path.write_text(SRILM)
    names = ["b", "</s>", "<s>", "c", "<unk>", "a"]
    tables, tokens = read_arpa(path, names)
    assert tokens == names
    log10 = tables.levels[0].log_prob / np.log(10)
    assert log10 == pytest.approx([-1, -0.30103, -np.inf, -np.inf, -1, -0.69897], abs=1e-5)
    contexts = tables.advance(np.array([[2, 5]]), tables.empty_contexts(1))  # <s> a
    assert tables.distribution(contexts[:, 0, 1:])[0, 0] / np.log(10) == pytest.approx(-0.2, abs=1e-5)
    with pytest.raises(UserError, match=r"srilm\.arpa, line 9: the tokenizer has no token 'a'"):
        read_arpa(path, names[:-1])


def test_read_arpa_of_srilm(tmp_path: Path) -> None:
    path = tmp_path / "srilm.arpa"
    path.write_text(SRILM)
    tables, tokens = read_arpa(path)
    assert tokens == ["<unk>", "<pad>", "<sos>", "<eos>", "a", "b"]
    contexts = tables.advance(np.array([[2, 4]]), tables.empty_contexts(1))  # <s> a
    log10 = tables.distribution(contexts[:, 0, 1:])[0] / np.log(10)
    assert log10 == pytest.approx([-1.25, -np.inf, -np.inf, -0.55103, -0.94897, -0.2], abs=1e-5)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("-0.2 a b\n", "-0.2 a\n", "line 15: expected a log-probability, 2 words"),
        ("-0.2 a b\n", "-0.2 a c\n", "line 15: a word is not in the vocabulary"),
        ("-0.2 a b\n", "", "line 14: the header announces 3 2-grams, but 2 follow"),
        ("-0.3 b </s>\n", "-0.2 a b\n", "line 16: duplicate n-gram"),
        ("-0.2 a b", "-O.2 a b", "line 15: expected a number"),
        ("\\end\\", "", "truncated"),
        ("ngram 2=3\n", "ngram 2=3\nngram 3=1\n", "line 19: expected \\3-grams: here"),
        (SRILM, "", "cannot read"),
        (SRILM, "hello\n", "line 1: expected \\data\\ here"),
        ("\\2-grams:", "\\3-grams:", "line 13: expected"),
        ("-1 <unk>", "-1 a", "duplicate 1-gram 'a'"),
        ("ngram 2=3\n", "", "line 12: expected \\end\\ here"),
    ],
)
def test_arpa_parse_errors_name_line_and_reason(tmp_path: Path, old: str, new: str, reason: str) -> None:
    path = tmp_path / "broken.arpa"
    path.write_text(SRILM.replace(old, new))
    with pytest.raises(UserError, match=r"broken\.arpa") as caught:
        read_arpa(path)
    assert reason in str(caught.value)


def test_arpa_empty_sections_bad_utf8_and_long_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "odd.arpa"
    path.write_text("\\data\\\nngram 1=1\nngram 2=0\n\\1-grams:\n-0.3 a\n\\2-grams:\n\\end\\\n")
    tables, tokens = read_arpa(path)
    assert tokens[4:] == ["a"]
    assert len(tables.levels[1].key) == 0
    path.write_bytes(SRILM.encode().replace(b"\tb\t", b"\t\xff\t"))
    with pytest.raises(UserError, match="line 11: the word is not UTF-8"):
        read_arpa(path)
    monkeypatch.setattr("seqwright.models.ngram.arpa_reading.CHUNK", 12)
    path.write_text(SRILM)
    with pytest.raises(UserError, match="line 7: the line is longer than 12 bytes"):
        read_arpa(path)


def test_read_arpa_of_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.arpa"):
        read_arpa(tmp_path / "none.arpa")


def test_arpa_ngram_without_its_prefix_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "orphan.arpa"
    trigram = "\\3-grams:\n-0.1 b a b\n\n\\end\\"
    path.write_text(SRILM.replace("ngram 2=3\n", "ngram 2=3\nngram 3=1\n").replace("\\end\\", trigram))
    with pytest.raises(UserError, match="not an n-gram of the file"):
        read_arpa(path)


@pytest.mark.skipif(importlib.util.find_spec("kenlm") is None, reason="needs the kenlm module")
@pytest.mark.parametrize("space", ["daily", " \n", "\0", "\udce1", "<0x00>"])
def test_kenlm_scores_our_arpa_alike(tmp_path: Path, space: str) -> None:
    cows = Cows(order=3)
    path = tmp_path / "cows.arpa"
    names = arpa_names([space if token == "daily" else token for token in cows.id], cows.model.vocabulary)
    write_arpa(path, cows.model.tables, names, cows.model.vocabulary)
    text = f"cows eat corn {names[cows.id['daily']]}"
    kenlm = subprocess.run(
        [sys.executable, "-c", f"import kenlm; print(kenlm.Model({str(path)!r}).score({text!r}))"],
        capture_output=True,
        text=True,
        check=True,
    )
    ours = cows.model.score(cows.batch("<sos> cows eat corn daily <eos>"))[0].sum().item()
    assert float(kenlm.stdout) * np.log(10) == pytest.approx(ours, abs=1e-5)
