"""Laws of tokenizers: lossless kinds lose nothing, the file says all, and no text becomes a special."""

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
from seqwright.text.tokenizer import Decoder, Tokenizer, pieces
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
EVERY = [
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
def test_lossless_kinds_give_every_text_back(text: str) -> None:
    for tokenizer in LOSSLESS:
        assert tokenizer.lossless
        assert tokenizer.decode(tokenizer.encode(text)) == text


@given(TRICKY)
def test_the_file_alone_gives_the_same_ids_and_text(text: str) -> None:
    for tokenizer in EVERY:
        library = Library.from_str(tokenizer.json)
        library.encode_special_tokens = True
        ids = tokenizer.encode(text)
        assert ids == library.encode(text).ids
        assert tokenizer.decode(ids) == library.decode(ids)


@given(TRICKY)
def test_exact_means_that_decoding_gives_the_text_back(text: str) -> None:
    for tokenizer in EVERY:
        encoded = tokenizer.encode_all([text])
        assert not encoded.exact or tokenizer.decode(encoded.ids.tolist()) == text
        missing = tokenizer.unknowns(text)
        assert bool(encoded.unknown) == bool(missing)
        # unigram gives one <unk> to unknown characters that stand together; wordpiece cuts words at names of special_tokens.
        assert tokenizer.kind in ("unigram", "wordpiece") or encoded.unknown == missing.total()


@given(TRICKY)
def test_text_is_never_a_special(text: str) -> None:
    for tokenizer in EVERY:
        assert not set(tokenizer.encode(text)) & {tokenizer.pad, tokenizer.sos, tokenizer.eos}


@given(st.lists(TRICKY), st.integers(1, 8))
def test_many_texts_are_encoded_as_one_by_one(texts: list[str], size: int) -> None:
    for tokenizer in EVERY:
        alone = [tokenizer.encode(text) for text in texts]
        together = tokenizer.encode_all(texts)
        assert together.lengths == [len(ids) for ids in alone]
        assert together.ids.tolist() == list(chain.from_iterable(alone))
        for text, ids in zip(texts, alone, strict=True):
            assert list(chain.from_iterable(map(tokenizer.encode, pieces(text, size)))) == ids


@given(st.data())
def test_streaming_gives_what_decoding_gives(data: st.DataObject) -> None:
    for tokenizer in EVERY:
        ids = data.draw(st.lists(st.integers(0, tokenizer.size - 1)))
        decoder = Decoder(tokenizer)
        assert "".join([*map(decoder.feed, ids), decoder.finish()]) == tokenizer.decode(ids)


def test_a_character_is_streamed_when_it_is_complete() -> None:
    tokenizer = LOSSLESS[0]
    decoder = Decoder(tokenizer)
    assert [decoder.feed(id) for id in tokenizer.encode("ế!")] == ["", "", "ế", "!"]
    assert decoder.feed(tokenizer.encode("ế")[0]) + decoder.finish() == "\ufffd"


@pytest.mark.parametrize("tokenizer", EVERY, ids=lambda tokenizer: tokenizer.kind)
def test_saving_and_opening_changes_nothing(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(tokenizer.json)
    opened = Tokenizer.open(tmp_path / "tokenizer.json")
    assert opened.hash == tokenizer.hash
    assert (opened.kind, opened.special_tokens, opened.lossless) == (
        tokenizer.kind,
        tokenizer.special_tokens,
        tokenizer.lossless,
    )
    assert [opened.encode(text) for text in SAMPLE] == [tokenizer.encode(text) for text in SAMPLE]


@pytest.mark.parametrize("tokenizer", EVERY, ids=lambda tokenizer: tokenizer.kind)
def test_half_a_character_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(UserError, match=r"the text holds '\\ud800', half of a surrogate pair; give whole text\."):
        tokenizer.encode_all(["fine", "not \ud800 fine"])


def test_the_hash_is_the_files_own_whatever_the_library_makes_of_it() -> None:
    """Merges were strings once; the library writes them as pairs today."""
    table = json.loads(train(TokenizerConfig(kind="bpe"), SAMPLE).json)
    table["model"]["merges"] = [" ".join(pair) for pair in table["model"]["merges"]]
    older = Tokenizer(json.dumps(table))
    canonical = json.dumps(table, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert json.loads(older.json) == table
    assert older.hash == hashlib.sha256(canonical.encode()).hexdigest()


@pytest.mark.parametrize("tokenizer", LOSSLESS, ids=lambda tokenizer: tokenizer.kind)
def test_sizes_are_those_of_the_text(tokenizer: Tokenizer) -> None:
    for text in SAMPLE:
        assert tokenizer.sizes[tokenizer.encode(text)].sum(0).tolist() == [len(text.encode()), len(text), 0]
    assert not tokenizer.sizes[list(tokenizer.special_tokens.values())].any()


def test_different_tokenizers_have_different_hashes() -> None:
    assert len({tokenizer.hash for tokenizer in EVERY}) == len(EVERY)


def test_the_vocabulary_of_the_lectures() -> None:
    config = TokenizerConfig(
        kind="words", lowercase=True, unicode_normalization="nfc", special_tokens=("<unk>", "<pad>", "<sos>")
    )
    tokenizer = train(config, PROVERBS)
    expected = "<unk> <pad> <sos> chí cây có kẻ nhớ nên quả thì trồng ăn"
    assert vocabulary(tokenizer) == expected.split()
    assert tokenizer.encode("Ăn quả nhớ kẻ trồng cây") == [12, 9, 7, 6, 11, 4]


def test_normalization_is_part_of_the_vocabulary() -> None:
    config = TokenizerConfig(
        kind="words", lowercase=True, unicode_normalization="nfd", special_tokens=("<unk>", "<pad>", "<sos>")
    )
    tokenizer = train(config, PROVERBS)
    assert tokenizer.tokens([3]) == ["a\u0306n"]
    assert tokenizer.encode("ĂN") == [3]


def test_a_literal_unk_is_a_word_of_its_own() -> None:
    tokenizer = train(TokenizerConfig(kind="words"), ["a <unk> b <unk>"])
    assert vocabulary(tokenizer) == ["<unk>", "<pad>", "<sos>", "<eos>", "<unk>", "a", "b"]
    assert tokenizer.encode("<unk> new a") == [4, 0, 5]
    assert tokenizer.decode([4, 5]) == "<unk> a"
    assert tokenizer.unknowns("<unk> new a new") == {"new": 2}


def test_size_and_minimum_count_bound_the_vocabulary() -> None:
    texts = ["a a a b b c"]
    assert vocabulary(train(TokenizerConfig(kind="words", size=6), texts))[4:] == ["a", "b"]
    assert vocabulary(train(TokenizerConfig(kind="words", min_frequency=3), texts))[4:] == ["a"]


def test_byte_bpe_stops_where_the_data_stop() -> None:
    assert train(TokenizerConfig(), ["ab ab ab"]).size == 4 + 256 + 2  # "ab" and " ab"
    assert train(TokenizerConfig(size=261), ["ab ab ab"]).size == 261


def test_byte_bpe_learns_from_a_sample_and_says_so() -> None:
    texts = ["the cat sat "] * 100
    sampled = train(TokenizerConfig(sample_bytes=300), texts)
    assert sampled.notes == ("byte-bpe learned its pieces from 25.0% of the text (tokenizer.sample_bytes).",)
    assert train(TokenizerConfig(), texts).notes == ()


def test_decomposed_text_is_pointed_out() -> None:
    [note] = train(TokenizerConfig(kind="characters"), ["e\u0301", "é"]).notes
    assert "1 of 2 documents" in note


def test_a_closed_vocabulary_refuses_the_unknown() -> None:
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
        ({"min_frequency": 0}, "at least 1"),
        ({"sample_bytes": 0}, "at least 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        TokenizerConfig(**settings)  # type: ignore[arg-type]


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.json cannot be read"):
        Tokenizer.open(tmp_path / "none.json")
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    with pytest.raises(UserError, match=r"broken\.json: not a tokenizer\.json"):
        Tokenizer.open(broken)
    library = Library.from_str(EVERY[2].json)
    library.pre_tokenizer = None
    broken.write_text(library.to_str())
    with pytest.raises(UserError, match="made elsewhere"):
        Tokenizer.open(broken)


def test_a_line_of_ten_megabytes_is_learned_from() -> None:
    tokenizer = train(TokenizerConfig(size=262), ["x" * 10_000_000])
    assert tokenizer.tokens([260, 261]) == ["xx", "xxxx"]


def test_the_types_of_the_penn_treebank(data_root: Path) -> None:
    text, _ = read_text(data_root / "ptb/ptb.train.txt.xz")
    tokenizer = train(TokenizerConfig(kind="words", special_tokens=("<unk>", "<sos>", "<eos>")), text.split("\n"))
    assert tokenizer.size == 10_002  # 9,999 words, a literal <unk> among them, and the three reserved
