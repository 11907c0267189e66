"""Framing: what is given, what is predicted, what is counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seqwright.batch import IGNORE
from seqwright.config import UserError
from seqwright.data.stream import Stream, make_stream
from seqwright.data.text import Corpus, Document, read_corpus
from seqwright.text.training import TokenizerConfig, train

SPECIALS = ("<unk>", "<pad>", "<sos>", "<eos>")


def stream_of(documents: list[str], kind: Document, tokenizer: str = "words", specials=SPECIALS) -> Stream:
    config = TokenizerConfig(kind=tokenizer, specials=specials)  # type: ignore[arg-type]
    return make_stream(Corpus(documents=documents, kind=kind), train(config, documents))


def test_lines_are_ended() -> None:
    stream = stream_of(["a b", "", "a"], "line")
    assert stream.ids.tolist() == [2, 4, 5, 3, 2, 3, 2, 4, 3]
    assert (stream.documents, stream.targets, stream.positions) == (3, 6, 8)
    assert stream.lengths.tolist() == [3, 1, 2]


def test_files_are_separated() -> None:
    assert stream_of(["ab", "a"], "file", "characters").ids.tolist() == [2, 4, 5, 3, 2, 4]
    lone = stream_of(["aab\n"], "file", "characters")
    assert (lone.targets, lone.characters, lone.bytes) == (4, 4, 4)


def test_without_eos_nothing_ends() -> None:
    assert stream_of(["a b", "a"], "line", specials=SPECIALS[:3]).ids.tolist() == [2, 3, 4, 2, 3]


def test_the_start_is_never_predicted() -> None:
    stream = stream_of(["a b", "a"], "line")
    positions = np.arange(stream.positions)[None]
    input, target = stream.gather(positions, positions < 5)
    assert input.tolist() == [[2, 4, 5, 3, 2, 1]]
    assert target.tolist() == [[4, 5, 3, IGNORE, 4, IGNORE]]


def test_exactness_and_unknowns_travel_along() -> None:
    tokenizer = train(TokenizerConfig(kind="characters"), ["abc"])
    assert make_stream(Corpus(documents=["cab"], kind="file"), tokenizer).exact
    lossy = make_stream(Corpus(documents=["cax"], kind="file"), tokenizer)
    assert (lossy.exact, lossy.unknown) == (False, 1)
    assert not stream_of(["a"], "line", "words").exact


def test_the_fingerprint_knows_the_ids() -> None:
    assert stream_of(["a b"], "line").fingerprint == stream_of(["c d"], "line").fingerprint
    assert stream_of(["a b"], "line").fingerprint != stream_of(["a b b"], "line").fingerprint


def test_nothing_to_predict_is_refused() -> None:
    with pytest.raises(UserError, match="nothing to predict"):
        stream_of([" \n"], "file")
    with pytest.raises(UserError, match="<sos>; add it"):
        stream_of(["a"], "line", specials=("<unk>",))


@pytest.mark.parametrize(
    ("file", "targets"),
    [("ptb/ptb.test.txt.xz", 82_430), ("wikitext2/wiki.test.tokens.xz", 245_569)],
)
def test_targets_of_known_corpora(file: str, targets: int, data_root: Path) -> None:
    corpus = read_corpus(file, "line", base=data_root, errors="strict")
    stream = make_stream(corpus, train(TokenizerConfig(kind="words"), corpus.documents))
    assert stream.targets == targets
    assert stream.unknown == 0
