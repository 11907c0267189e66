"""Imported tokenizers keep their segmentation, ids and special tokens, or are refused with a clear error."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from seqwright.core.config import UserError
from seqwright.text.importing import import_tokenizer
from seqwright.text.tokenizer import StreamingDecoder
from seqwright.text.trainers import TokenizerConfig, train

UNIGRAM, BPE, WORD = 1, 2, 3
RESERVED = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)]
LETTERS = [(letter, -5.0 - number / 10, 1) for number, letter in enumerate("▁abc<>s/")]


def varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def model(path: Path, pieces: list[tuple[str, float, int]], kind: int, **normalizer: int | bytes) -> Path:
    """Writes a `.model` file in SentencePiece's protobuf layout."""
    keys = {"precompiled_charsmap": 2, "add_dummy_prefix": 3, "remove_extra_whitespaces": 4}
    packed = [
        field(1, field(1, text.encode()) + varint(2 << 3 | 5) + struct.pack("<f", score) + field(3, type))
        for text, score, type in pieces
    ]
    spec = b"".join(field(keys[key], value) for key, value in normalizer.items())
    path.write_bytes(b"".join(packed) + field(2, field(3, kind)) + field(3, spec))
    return path


def test_sentencepiece_unigram_takes_the_most_probable_segmentation(tmp_path: Path) -> None:
    pieces = [*RESERVED, *LETTERS, ("▁ab", -2.0, 1), ("bc", -3.0, 1)]
    tokenizer = import_tokenizer(model(tmp_path / "m.model", pieces, UNIGRAM))
    assert tokenizer.kind == "unigram"
    assert (tokenizer.unk, tokenizer.sos, tokenizer.eos, tokenizer.size) == (0, 1, 2, len(pieces))
    # "▁ab" + "c" costs 7.3; "▁" + "a" + "bc" costs 13.1.
    assert tokenizer.encode("abc  abc ") == [11, 6, 11, 6]
    assert tokenizer.decode([11, 6, 11, 6]) == "abc abc"
    assert tokenizer.encode_batch(["abc abc"]).exact
    assert not tokenizer.encode_batch(["abc  abc"]).exact
    assert tokenizer.unknowns("ax bx") == {"x": 2}


def test_literal_control_pieces_stay_text(tmp_path: Path) -> None:
    tokenizer = import_tokenizer(model(tmp_path / "m.model", [*RESERVED, *LETTERS], UNIGRAM))
    assert not {1, 2} & set(tokenizer.encode("a<s>b</s>"))


def test_sentencepiece_bpe_merges_the_best_pair_first(tmp_path: Path) -> None:
    pieces = [*RESERVED, *LETTERS, ("bc", -1.0, 1), ("ab", -2.0, 1), ("abc", -3.0, 1)]
    tokenizer = import_tokenizer(
        model(tmp_path / "m.model", pieces, BPE, add_dummy_prefix=0, remove_extra_whitespaces=0)
    )
    assert tokenizer.tokens(tokenizer.encode("abc  ab")) == ["abc", " ", " ", "ab"]
    assert tokenizer.decode(tokenizer.encode("  ab ")) == "  ab "


def test_byte_fallback_round_trips_characters_without_a_piece(tmp_path: Path) -> None:
    pieces = [*RESERVED, *((f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)), *LETTERS]
    tokenizer = import_tokenizer(model(tmp_path / "m.model", pieces, BPE, remove_extra_whitespaces=0))
    text = "a ế🙂"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    decoder = StreamingDecoder(tokenizer)
    assert "".join([*map(decoder.feed, tokenizer.encode(text)), decoder.finish()]) == text


@pytest.mark.parametrize("suffix", [b"", b"\x12\xff", b"\x0a\x05ab"])
def test_damaged_sentencepiece_model_is_refused(tmp_path: Path, suffix: bytes) -> None:
    path = tmp_path / "m.model"
    path.write_bytes(suffix)
    with pytest.raises(UserError, match=r"m\.model: not a valid SentencePiece model.* another version"):
        import_tokenizer(path)


@pytest.mark.parametrize(
    "charsmap",
    [b"\x01", struct.pack("<I", 0), struct.pack("<I", 8) + b"1234", struct.pack("<I", 4) + b"1234\xff"],
    ids=["truncated size", "no trie", "truncated trie", "replacements not UTF-8"],
)
def test_damaged_precompiled_charsmap_is_refused(tmp_path: Path, charsmap: bytes) -> None:
    with pytest.raises(UserError, match=r"m\.model: not a valid SentencePiece model.* damaged"):
        import_tokenizer(model(tmp_path / "m.model", [*RESERVED, *LETTERS], UNIGRAM, precompiled_charsmap=charsmap))


def test_unsupported_sentencepiece_model_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="type 'word' cannot be imported; unigram and bpe can"):
        import_tokenizer(model(tmp_path / "m.model", RESERVED, WORD))


def saved(backend: Library, path: Path) -> Path:
    backend.save(str(path))
    return path


def test_imported_byte_level_bpe_keeps_its_ids(tmp_path: Path) -> None:
    names = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Library(models.BPE({name: id for id, name in enumerate([*names, "ab"])}, [("a", "b")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.post_processor = processors.ByteLevel(trim_offsets=True)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|endoftext|>"])
    tokenizer = import_tokenizer(saved(backend, tmp_path / "tokenizer.json"), ("<sos>", "<eos>"))
    assert tokenizer.lossless
    assert (tokenizer.eos, tokenizer.sos, tokenizer.size) == (257, 258, 259)
    assert tokenizer.notes == ("tokenizer.json has no <sos>: it is added as id 258.",)
    assert tokenizer.encode("ab ế") == backend.encode("ab ế").ids
    assert tokenizer.decode(tokenizer.encode("<sos> ab ế")) == "<sos> ab ế"


def test_imported_bert_wordpiece_keeps_its_ids(tmp_path: Path) -> None:
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "!"]
    backend = Library(models.WordPiece({name: id for id, name in enumerate(names)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.add_special_tokens(names[:4])
    tokenizer = import_tokenizer(saved(backend, tmp_path / "tokenizer.json"), ("<sos>", "<eos>"))
    assert (tokenizer.kind, tokenizer.sos, tokenizer.eos, tokenizer.size) == ("wordpiece", 2, 3, 8)
    assert tokenizer.tokens(tokenizer.encode("Unaffable!")) == ["un", "##aff", "##able", "!"]
    assert tokenizer.decode([4, 5, 6, 7]) == "unaffable !"
    assert 2 not in tokenizer.encode("[CLS] un")


def test_recipe_can_import_a_tokenizer_file(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(train(TokenizerConfig(kind="characters"), ["abc"]).json)
    assert train(TokenizerConfig(file=str(path)), ["xyz"]).encode("cab") == [6, 4, 5]
