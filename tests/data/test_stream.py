"""Streams: special tokens around documents, targets, surface sizes, and lossless encoding."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers

from seqwright.core.batch import IGNORE
from seqwright.core.config import UserError
from seqwright.data.text.corpus import Corpus, Document, corpus_of, read_corpus
from seqwright.data.text.stream import Stream, make_stream
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig, train

SPECIALS = ("<unk>", "<pad>", "<sos>", "<eos>")


def stream_of(documents: list[str], kind: Document, tokenizer: str = "words", special_tokens=SPECIALS) -> Stream:
    config = TokenizerConfig(kind=tokenizer, special_tokens=special_tokens)  # type: ignore[arg-type]
    return make_stream(Corpus(documents=documents, kind=kind), train(config, documents))


def test_lines_are_ended_by_eos() -> None:
    stream = stream_of(["a b", "", "a"], "line")
    assert stream.ids.tolist() == [2, 4, 5, 3, 2, 3, 2, 4, 3]
    assert (stream.documents, stream.targets, stream.positions) == (3, 6, 8)
    assert stream.lengths.tolist() == [3, 1, 2]


def test_files_are_separated_by_eos() -> None:
    assert stream_of(["ab", "a"], "file", "characters").ids.tolist() == [2, 4, 5, 3, 2, 4]
    lone = stream_of(["aab\n"], "file", "characters")
    assert (lone.targets, lone.sizes.sum(0).tolist()) == (4, [4, 4])


def test_stream_without_eos() -> None:
    assert stream_of(["a b", "a"], "line", special_tokens=SPECIALS[:3]).ids.tolist() == [2, 3, 4, 2, 3]


def test_sos_is_never_a_target() -> None:
    stream = stream_of(["a b", "a"], "line")
    positions = np.arange(stream.positions)[None]
    input, target = stream.gather(positions, positions < 5)
    assert input.tolist() == [[2, 4, 5, 3, 2, 1]]
    assert target.tolist() == [[4, 5, 3, IGNORE, 4, IGNORE]]


def test_the_hash_of_a_text_is_that_of_any_documents_and_tokens() -> None:
    text = "a b\nb a\n\nc"
    kinds: tuple[Document, ...] = ("file", "line")
    hashes = {corpus_of(text, kind).text_hash for kind in kinds}
    assert hashes == {hashlib.sha256(text.encode()).hexdigest()}
    assert corpus_of(text + "\n", "line").text_hash not in hashes


def test_lossy_streams_have_a_reason() -> None:
    tokenizer = train(TokenizerConfig(kind="characters"), ["abc"])
    assert make_stream(Corpus(documents=["cab"], kind="file"), tokenizer).lossy is None
    lossy = make_stream(Corpus(documents=["cax"], kind="file"), tokenizer)
    assert lossy.unknown == 1
    assert "1 tokens of this text are <unk>" in str(lossy.lossy)
    assert "white space" in str(stream_of(["a"], "line", "words").lossy)
    assert "no <eos>" in str(stream_of(["a"], "line", "bytes", special_tokens=SPECIALS[:3]).lossy)


def written(path: Path, *texts: str) -> list[str]:
    """Paths of files with exactly these texts."""
    for number, text in enumerate(texts):
        (path / f"{number}.txt").write_text(text, encoding="utf-8", newline="")
    return [str(path / f"{number}.txt") for number in range(len(texts))]


TEXTS = ("Việt 🙂 naïve\n\ncafé\n", "no line end: ế", "\n \n\n", "the cat\nsat\n\n")


@pytest.mark.parametrize("tokenizer", ["characters", "bytes", "byte-bpe", "unigram"])
@pytest.mark.parametrize("kind", ["file", "line"])
def test_surface_sizes_add_up_to_the_text(tokenizer: str, kind: Document, tmp_path: Path) -> None:
    corpus = read_corpus(written(tmp_path, *TEXTS), kind, errors="strict")
    stream = make_stream(corpus, train(TokenizerConfig(kind=tokenizer), corpus.documents))  # type: ignore[arg-type]
    text = "".join(text for text in TEXTS if text.strip())  # a file without text is skipped
    assert stream.lossy is None
    assert stream.sizes.sum(0).tolist() == [len(text.encode()), len(text)]
    assert corpus.characters == len(text)
    assert (stream.sizes >= 0).all()


def test_surface_sizes_of_paragraphs_include_the_blank_line(tmp_path: Path) -> None:
    text = "a\nế\n\nc\n"
    corpus = read_corpus(written(tmp_path, text), "blank-line", errors="strict")
    stream = make_stream(corpus, train(TokenizerConfig(kind="bytes"), corpus.documents))
    assert stream.lossy is None
    assert stream.sizes.sum(0).tolist() == [len(text.encode()), len(text)]


@pytest.mark.parametrize(
    ("kind", "text"),
    [("blank-line", "a\n\n\nb\n"), ("blank-line", "\na\n\nb"), ("blank-line", "a\n \nb")],
)
def test_documents_that_do_not_reproduce_the_text_are_lossy(kind: Document, text: str, tmp_path: Path) -> None:
    corpus = read_corpus(written(tmp_path, text), kind, errors="strict")
    stream = make_stream(corpus, train(TokenizerConfig(kind="bytes"), corpus.documents))
    assert f"its {kind} documents do not reproduce this text" in str(stream.lossy)


def test_a_prefix_space_of_the_tokenizer_is_not_counted() -> None:
    """Metaspace encodes the first word as "▁word"; decoding removes the space."""
    backend = Library(models.Unigram([("<unk>", 0.0), ("▁", -1.0), ("▁a", -1.0), ("b", -1.0)], 0, False))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    backend.add_special_tokens(["<unk>", "<sos>", "<eos>"])
    stream = make_stream(Corpus(documents=["ab a", "b"], kind="line"), Tokenizer(backend.to_str()))
    assert stream.lossy is None
    assert stream.sizes.sum(0).tolist() == [len("ab a\nb\n")] * 2


@pytest.mark.parametrize("tokens", [1, 4, 9, 100])
def test_first_positions_of_a_stream_have_the_same_surface_sizes(tokens: int) -> None:
    stream = stream_of(["ế🙂", "abc", ""], "line", "characters")
    beginning = stream.first(tokens)
    assert beginning.positions == min(tokens, stream.positions)
    assert beginning.sizes.tolist() == stream.sizes[:tokens].tolist()


def test_fingerprint_is_of_the_ids() -> None:
    assert stream_of(["a b"], "line").fingerprint == stream_of(["c d"], "line").fingerprint
    assert stream_of(["a b"], "line").fingerprint != stream_of(["a b b"], "line").fingerprint


def test_a_stream_without_targets_is_refused() -> None:
    with pytest.raises(UserError, match="nothing to predict"):
        stream_of([" \n"], "file")
    with pytest.raises(UserError, match="<sos>; add it"):
        stream_of(["a"], "line", special_tokens=("<unk>",))


@pytest.mark.parametrize(
    ("file", "targets"),
    [("ptb/ptb.test.txt.xz", 82_430), ("wikitext2/wiki.test.tokens.xz", 245_569)],
)
def test_targets_of_known_corpora(file: str, targets: int, data_root: Path) -> None:
    corpus = read_corpus(file, "line", base=data_root, errors="strict")
    stream = make_stream(corpus, train(TokenizerConfig(kind="words"), corpus.documents))
    assert stream.targets == targets
    assert stream.unknown == 0
