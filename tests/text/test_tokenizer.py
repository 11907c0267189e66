"""Laws of tokenizers: lossless kinds round-trip, tokenizer.json is complete, text is never a special token."""

from __future__ import annotations

import hashlib
import json
from itertools import chain, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library

from seqwright.core.config import UserError
from seqwright.data.files import read_text
from seqwright.text.chunks import text_chunks
from seqwright.text.tokenizer import StreamingDecoder, Tokenizer
from seqwright.text.trainers import TokenizerConfig, train

PROVERBS = ["Ăn quả nhớ kẻ trồng cây", "Có chí thì nên"]
SAMPLE = [
    "the cat <unk> sat on the mat , the cat <eos> sat",
    "Việt 🙂 naïve\r\ncafé \\<unk> x<pad>\n\n\ttabs  and   spaces",
    "ΑΣ J\u030c ế e\u0302\u0301 \u00a0 \u2028 \x1c \x00 end",
] * 3
TRICKY = st.one_of(
    st.text(),
    st.text(alphabet=" \t\n\r\x00\x1c\x85\u00a0\u2028aAbế\u0301\u0308🙂<>\\unkpadeos"),
    st.lists(st.sampled_from(["<unk>", "\\<unk>", "x<pad>", "<eos>", "the", "cat", " ", "\n", "🙂", "J\u030c"])).map(
        "".join
    ),
)
LOSSLESS = [train(TokenizerConfig(kind=kind), SAMPLE) for kind in ("bytes", "byte-bpe")]
ALL_KINDS = [
    *LOSSLESS,
    *(train(TokenizerConfig(kind=kind), SAMPLE) for kind in ("words", "characters", "bpe", "unigram", "wordpiece")),
    *(
        train(TokenizerConfig(kind=kind, unicode_normalization=form, lowercase=True), SAMPLE)
        for kind, form in [
            *product(("words", "characters", "bytes", "byte-bpe"), ("nfc", "nfd", "nfkc")),
            *zip(("bpe", "unigram", "wordpiece"), ("nfc", "nfd", "nfkc"), strict=True),
        ]
    ),
    *(
        train(TokenizerConfig(kind=kind, pretokenizer="basic-english"), SAMPLE)
        for kind in ("words", "bpe", "wordpiece")
    ),
]


def vocabulary(tokenizer: Tokenizer) -> list[str]:
    return tokenizer.tokens(range(tokenizer.size))


@given(TRICKY)
def test_lossless_kinds_round_trip(text: str) -> None:
    for tokenizer in LOSSLESS:
        assert tokenizer.lossless
        assert tokenizer.decode(tokenizer.encode(text)) == text


@given(TRICKY)
def test_library_with_the_same_file_gives_the_same_ids_and_text(text: str) -> None:
    for tokenizer in ALL_KINDS:
        library = Library.from_str(tokenizer.json)
        library.encode_special_tokens = True
        ids = tokenizer.encode(text)
        assert ids == library.encode(text).ids
        assert tokenizer.decode(ids) == library.decode(ids)


@given(TRICKY)
def test_exact_means_that_decoding_reproduces_the_text(text: str) -> None:
    for tokenizer in ALL_KINDS:
        encoded = tokenizer.encode_batch([text])
        assert not encoded.exact or tokenizer.decode(encoded.ids.tolist()) == text
        unknowns = tokenizer.unknowns(text)
        assert bool(encoded.unknown) == bool(unknowns)
        # unigram fuses adjacent unknown characters into one <unk>; wordpiece splits words at literal special tokens.
        assert tokenizer.kind in ("unigram", "wordpiece") or encoded.unknown == unknowns.total()


@given(TRICKY)
def test_text_is_never_encoded_as_a_special_token(text: str) -> None:
    for tokenizer in ALL_KINDS:
        assert not set(tokenizer.encode(text)) & {tokenizer.pad, tokenizer.sos, tokenizer.eos}


@given(st.lists(TRICKY), st.integers(1, 8))
def test_encode_batch_and_chunks_equal_encode(texts: list[str], size: int) -> None:
    for tokenizer in ALL_KINDS:
        alone = [tokenizer.encode(text) for text in texts]
        batch = tokenizer.encode_batch(texts)
        assert batch.lengths == [len(ids) for ids in alone]
        assert batch.ids.tolist() == list(chain.from_iterable(alone))
        for text, ids in zip(texts, alone, strict=True):
            assert list(chain.from_iterable(map(tokenizer.encode, text_chunks(text, size)))) == ids


@given(st.data())
def test_streaming_decoder_equals_decode(data: st.DataObject) -> None:
    for tokenizer in ALL_KINDS:
        ids = data.draw(st.lists(st.integers(0, tokenizer.size - 1)))
        decoder = StreamingDecoder(tokenizer)
        assert "".join([*map(decoder.feed, ids), decoder.finish()]) == tokenizer.decode(ids)


def test_streaming_decoder_emits_complete_characters() -> None:
    tokenizer = LOSSLESS[0]
    decoder = StreamingDecoder(tokenizer)
    assert [decoder.feed(id) for id in tokenizer.encode("ế!")] == ["", "", "ế", "!"]
    assert decoder.feed(tokenizer.encode("ế")[0]) + decoder.finish() == "\ufffd"


@pytest.mark.parametrize("tokenizer", ALL_KINDS, ids=lambda tokenizer: tokenizer.kind)
def test_save_and_open_round_trip(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(tokenizer.json)
    opened = Tokenizer.open(tmp_path / "tokenizer.json")
    assert opened.hash == tokenizer.hash
    assert (opened.kind, opened.special_tokens, opened.lossless) == (
        tokenizer.kind,
        tokenizer.special_tokens,
        tokenizer.lossless,
    )
    assert [opened.encode(text) for text in SAMPLE] == [tokenizer.encode(text) for text in SAMPLE]


@pytest.mark.parametrize("tokenizer", ALL_KINDS, ids=lambda tokenizer: tokenizer.kind)
def test_lone_surrogate_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(UserError, match=r"the text contains '\\ud800', half of a surrogate pair; give valid Unicode\."):
        tokenizer.encode_batch(["fine", "not \ud800 fine"])


def test_hash_is_of_the_file_not_of_the_library_serialization() -> None:
    """Older files store merges as strings; the library now serializes them as pairs."""
    table = json.loads(train(TokenizerConfig(kind="bpe"), SAMPLE).json)
    table["model"]["merges"] = [" ".join(pair) for pair in table["model"]["merges"]]
    older = Tokenizer(json.dumps(table))
    canonical = json.dumps(table, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert json.loads(older.json) == table
    assert older.hash == hashlib.sha256(canonical.encode()).hexdigest()


@pytest.mark.parametrize("tokenizer", LOSSLESS, ids=lambda tokenizer: tokenizer.kind)
def test_token_sizes_add_up_to_the_text(tokenizer: Tokenizer) -> None:
    for text in SAMPLE:
        assert tokenizer.sizes[tokenizer.encode(text)].sum(0).tolist() == [len(text.encode()), len(text), 0]
    assert not tokenizer.sizes[list(tokenizer.special_tokens.values())].any()


def test_different_tokenizers_have_different_hashes() -> None:
    assert len({tokenizer.hash for tokenizer in ALL_KINDS}) == len(ALL_KINDS)


def test_vocabulary_of_the_lectures() -> None:
    config = TokenizerConfig(
        kind="words", lowercase=True, unicode_normalization="nfc", special_tokens=("<unk>", "<pad>", "<sos>")
    )
    tokenizer = train(config, PROVERBS)
    expected = "<unk> <pad> <sos> chí cây có kẻ nhớ nên quả thì trồng ăn"
    assert vocabulary(tokenizer) == expected.split()
    assert tokenizer.encode("Ăn quả nhớ kẻ trồng cây") == [12, 9, 7, 6, 11, 4]


def test_unicode_normalization_applies_to_vocabulary_and_text() -> None:
    config = TokenizerConfig(
        kind="words", lowercase=True, unicode_normalization="nfd", special_tokens=("<unk>", "<pad>", "<sos>")
    )
    tokenizer = train(config, PROVERBS)
    assert tokenizer.tokens([3]) == ["a\u0306n"]
    assert tokenizer.encode("ĂN") == [3]


def test_literal_unk_is_an_ordinary_word() -> None:
    tokenizer = train(TokenizerConfig(kind="words"), ["a <unk> b <unk>"])
    assert vocabulary(tokenizer) == ["<unk>", "<pad>", "<sos>", "<eos>", "<unk>", "a", "b"]
    assert tokenizer.encode("<unk> new a") == [4, 0, 5]
    assert tokenizer.decode([4, 5]) == "<unk> a"
    assert tokenizer.unknowns("<unk> new a new") == {"new": 2}


def test_size_and_min_frequency_limit_the_vocabulary() -> None:
    texts = ["a a a b b c"]
    assert vocabulary(train(TokenizerConfig(kind="words", size=6), texts))[4:] == ["a", "b"]
    assert vocabulary(train(TokenizerConfig(kind="words", min_frequency=3), texts))[4:] == ["a"]


def test_byte_bpe_stops_when_no_pair_repeats() -> None:
    assert train(TokenizerConfig(), ["ab ab ab"]).size == 4 + 256 + 2  # "ab" and " ab"
    assert train(TokenizerConfig(size=261), ["ab ab ab"]).size == 261


def test_byte_bpe_notes_that_it_trained_on_a_sample() -> None:
    texts = ["the cat sat "] * 100
    sampled = train(TokenizerConfig(sample_bytes=300), texts)
    assert sampled.notes == ("byte-bpe learned its pieces from 25.0% of the text (tokenizer.sample_bytes).",)
    assert train(TokenizerConfig(), texts).notes == ()


def test_note_about_decomposed_characters() -> None:
    [note] = train(TokenizerConfig(kind="characters"), ["e\u0301", "é"]).notes
    assert "1 of 2 documents" in note


def test_closed_vocabulary_refuses_unknown_words() -> None:
    tokenizer = train(TokenizerConfig(kind="words", special_tokens=("<sos>",)), ["a b"])
    assert tokenizer.encode("b a") == [2, 1]
    with pytest.raises(UserError, match=r"'c' is not in the vocabulary.*add it to tokenizer\.special_tokens"):
        tokenizer.encode("a c")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "bytes", "size": 300}, "leave size out"),
        ({"kind": "byte-bpe", "size": 200}, "at least 260"),
        ({"kind": "words", "size": 4}, "at least 5"),
        ({"special_tokens": ("unk",)}, "look like <name>"),
        ({"special_tokens": ("<unk>", "<unk>")}, "twice"),
        ({"min_frequency": 0}, "min_frequency 0 must be at least 1"),
        ({"sample_bytes": 0}, "at least 1"),
    ],
)
def test_invalid_tokenizer_config_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        TokenizerConfig(**settings)  # type: ignore[arg-type]


def test_invalid_tokenizer_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.json cannot be read"):
        Tokenizer.open(tmp_path / "none.json")
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    with pytest.raises(UserError, match=r"broken\.json: not a valid tokenizer\.json"):
        Tokenizer.open(broken)
    library = Library.from_str(ALL_KINDS[2].json)
    library.pre_tokenizer = None
    broken.write_text(library.to_str())
    with pytest.raises(UserError, match="has a WordLevel model, which cannot be imported"):
        Tokenizer.open(broken)


def test_training_on_a_line_of_ten_megabytes() -> None:
    tokenizer = train(TokenizerConfig(size=262), ["x" * 10_000_000])
    assert tokenizer.tokens([260, 261]) == ["xx", "xxxx"]


def test_penn_treebank_vocabulary_size(data_root: Path) -> None:
    text, _ = read_text(data_root / "ptb/ptb.train.txt.xz")
    tokenizer = train(TokenizerConfig(kind="words", special_tokens=("<unk>", "<sos>", "<eos>")), text.split("\n"))
    assert tokenizer.size == 10_002  # 9,999 words, a literal <unk> among them, and three special tokens
