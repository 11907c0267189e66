"""Tokenizer training: vocabularies learned from a corpus, or imported from a pretrained tokenizer file."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, trainers

from seqwright.core.config import UserError
from seqwright.text import bpe
from seqwright.text.backend import (
    CONTINUATION,
    METASPACE,
    SPLIT_AT_SPACE,
    Kind,
    PreTokenizer,
    TokenizerSpec,
    UnicodeForm,
    build_backend,
    bytes_to_unicode,
)
from seqwright.text.chunks import text_chunks
from seqwright.text.importing import import_tokenizer
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.word_table import count_words

SUBWORDS = ("bpe", "byte-bpe", "unigram", "wordpiece")
SUBWORD_SIZE = 8000
LONG_RUN = re.compile(r"\S{1000}|\s{1000}")


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    kind: Kind = "byte-bpe"
    """words, characters, bytes, or subwords learned from the text: byte-bpe (byte-level BPE, lossless), bpe (of
    characters, with an end-of-word mark), unigram (most probable segmentation), wordpiece (longest match first)."""
    file: str | None = None
    """A pretrained tokenizer.json or SentencePiece .model; nothing is trained, and kind and size are the file's."""
    size: int | None = None
    """Maximum vocabulary size, special tokens included. Default: all words or characters; 8000 for subwords."""
    bytes_per_token: float | None = None
    """bpe stops merging at this compression (average bytes per token), or at its size, whichever comes first."""
    min_frequency: int = 1
    """Rarer words and characters become <unk>; bpe, byte-bpe and wordpiece merge no rarer pair (and none seen once)."""
    pretokenizer: PreTokenizer = "white-space"
    """Pre-tokenizer of words, bpe and wordpiece: white-space, or torchtext's basic-english (lower-cases; splits off or
    drops punctuation)."""
    lowercase: bool = False
    """Lower-case the text, so outputs are lower-case too. Accents are kept."""
    unicode_normalization: UnicodeForm = "none"
    """Unicode normalization form. nfc merges composed and decomposed spellings of "ế"; none leaves text unchanged."""
    special_tokens: tuple[str, ...] = ("<unk>", "<pad>", "<sos>", "<eos>")
    """Special tokens in id order, custom ones such as turn markers included; text is never encoded as one."""
    sample_bytes: int = 50_000_000
    """Subwords are trained on a sample of about this many bytes at most, spread evenly over the corpus."""

    files: ClassVar[tuple[str, ...]] = ("file",)
    """Keys whose values are file paths."""

    def __post_init__(self) -> None:
        for name in self.special_tokens:
            # Such a name is never one pre-token of byte-bpe, never one character, and never the suffix of another.
            if not re.fullmatch(r"<\|?[A-Za-z][A-Za-z0-9_-]*\|?>", name):
                raise UserError(f"special token {name!r} should look like <name> or <|name|>.")
        if len(set(self.special_tokens)) < len(self.special_tokens):
            raise UserError("special_tokens lists a token twice; remove one.")
        if self.min_frequency < 1:
            raise UserError(f"min_frequency {self.min_frequency} must be at least 1.")
        if self.sample_bytes < 1:
            raise UserError(f"sample_bytes {self.sample_bytes} must be at least 1.")
        smallest = len(self.special_tokens) + (256 if self.kind == "byte-bpe" else 1)
        if self.kind == "bytes" and self.size is not None:
            raise UserError(f"kind bytes always has {len(self.special_tokens) + 256} ids; leave size out.")
        if self.size is not None and self.size < smallest:
            raise UserError(f"size {self.size} is too small for {self.kind}; it needs at least {smallest}.")
        if self.pretokenizer != "white-space" and self.kind not in SPLIT_AT_SPACE:
            raise UserError(
                f'{self.kind} does not split into words; pretokenizer "{self.pretokenizer}" is for'
                f" {', '.join(SPLIT_AT_SPACE)}."
            )
        if self.bytes_per_token is not None and (self.kind != "bpe" or self.bytes_per_token <= 1):
            raise UserError("bytes_per_token is for kind bpe and must be more than 1.")


DECOMPOSED_SAMPLE = 10_000
"""Characters of a document that are looked at for decomposed letters where bytes are tokens."""


def train(config: TokenizerConfig, texts: Collection[str]) -> Tokenizer:
    """Trains a tokenizer on the texts, or imports `config.file`."""
    if config.file is not None:
        return import_tokenizer(Path(config.file), config.special_tokens)
    spec = TokenizerSpec(
        kind=config.kind,
        unicode_normalization=config.unicode_normalization,
        # torchtext's basic_english lower-cases first.
        lowercase=config.lowercase or config.pretokenizer == "basic-english",
        special_tokens=config.special_tokens,
        pretokenizer=config.pretokenizer,
    )
    notes = list(_unicode_notes(config, texts))
    if config.kind in SUBWORDS:
        sample, fraction = _sample(texts, config.sample_bytes)
        if fraction < 1:
            notes.append(f"{config.kind} learned its pieces from {fraction:.1%} of the text (tokenizer.sample_bytes).")
        trainer = {
            "byte-bpe": _train_byte_bpe,
            "bpe": _train_bpe,
            "unigram": _train_unigram,
            "wordpiece": _train_wordpiece,
        }
        backend = trainer[config.kind](config, sample, spec, notes)
    else:
        tokens = bytes_to_unicode() if config.kind == "bytes" else _most_frequent(config, texts, spec)
        backend = build_backend(spec, tokens)
    return Tokenizer(backend.to_str(), notes)


def _most_frequent(config: TokenizerConfig, texts: Collection[str], spec: TokenizerSpec) -> list[str]:
    """The vocabulary of words or characters, most frequent first, ties by code point."""
    normalized = _normalize_all(spec, chain.from_iterable(map(text_chunks, texts)))
    counts = count_words(normalized) if config.kind == "words" else Counter(chain.from_iterable(normalized))
    limit = None if config.size is None else config.size - len(config.special_tokens)
    return _ranked(counts, config.min_frequency)[:limit]


def _train_bpe(config: TokenizerConfig, sample: Iterable[str], spec: TokenizerSpec, notes: list[str]) -> Backend:
    """Character-level BPE (Sennrich et al. 2016): the end-of-word mark, characters, then merges."""
    words: Counter[str] = Counter()
    for normalized in _normalize_all(spec, sample):
        words.update(normalized.split())
    counts: Counter[str] = Counter()
    for word, frequency in words.items():
        counts.update(dict.fromkeys(word, 0))
        for character in word:
            counts[character] += frequency
    room = (config.size or SUBWORD_SIZE) - len(config.special_tokens)
    alphabet = [METASPACE, *(c for c in _ranked(counts, config.min_frequency) if c != METASPACE)][:room]
    tokens, merges, bytes_per_token = dict.fromkeys(alphabet), [], 0.0
    for merge in bpe.learn_merges(
        {(*word, METASPACE): n for word, n in words.items()}, min_frequency=max(2, config.min_frequency)
    ):
        if len(tokens) == room or bytes_per_token >= (config.bytes_per_token or float("inf")):
            break
        piece = "".join(merge.pair)
        # Pairs with out-of-vocabulary characters are skipped, and so is a merge that would spell a special token.
        if tokens.keys() >= set(merge.pair) and piece not in config.special_tokens:
            merges.append(merge.pair)
            tokens[piece] = None
            bytes_per_token = merge.bytes_per_token
    notes.append(f"bpe learned {len(merges):,} merges; {bytes_per_token:.2f} bytes per token on its training text.")
    return build_backend(spec, list(tokens), merges)


def _train_byte_bpe(config: TokenizerConfig, sample: Iterable[str], spec: TokenizerSpec, notes: list[str]) -> Backend:
    """Byte-level BPE: the 256 bytes, then merges, by the library's trainer."""
    trainer = trainers.BpeTrainer(
        vocab_size=_vocabulary_room(config),
        min_frequency=max(2, config.min_frequency),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model = _trained_model(models.BPE(), trainer, sample, build_backend(spec, bytes_to_unicode()))
    return build_backend(spec, _by_id(model["vocab"]), [(left, right) for left, right in model["merges"]])


def _train_unigram(config: TokenizerConfig, sample: Iterable[str], spec: TokenizerSpec, notes: list[str]) -> Backend:
    """Unigram language model of subwords (Kudo 2018), by the library's trainer."""
    # Characters of special tokens are always pieces, so that their literal names have a segmentation into text.
    special_characters = set("".join(config.special_tokens))
    trainer = trainers.UnigramTrainer(
        vocab_size=max(1, _vocabulary_room(config) - len(special_characters)), special_tokens=[], show_progress=False
    )
    pieces = _trained_model(models.Unigram(), trainer, sample, build_backend(spec, []))["vocab"]
    scores = {name: score for name, score in pieces if name not in config.special_tokens}
    floor = min(scores.values(), default=0.0) - 10
    scores |= dict.fromkeys(sorted(special_characters - scores.keys()), floor)
    return build_backend(spec, list(scores), scores=list(scores.values()))


def _train_wordpiece(config: TokenizerConfig, sample: Iterable[str], spec: TokenizerSpec, notes: list[str]) -> Backend:
    """WordPiece (Schuster & Nakajima 2012) with BERT's ## on pieces that continue a word, by the library's trainer."""
    trainer = trainers.WordPieceTrainer(
        vocab_size=_vocabulary_room(config),
        min_frequency=max(2, config.min_frequency),
        special_tokens=[],
        continuing_subword_prefix=CONTINUATION,
        show_progress=False,
    )
    model = _trained_model(models.WordPiece(unk_token="<unk>"), trainer, sample, build_backend(spec, []))
    return build_backend(spec, [name for name in _by_id(model["vocab"]) if name not in config.special_tokens])


def _trained_model(
    model: models.Model, trainer: trainers.Trainer, sample: Iterable[str], template: Backend
) -> dict[str, Any]:
    """The trained model's part of tokenizer.json; the sample is normalized and pre-tokenized as by the template."""
    backend = Backend(model)
    if template.normalizer is not None:
        backend.normalizer = template.normalizer
    backend.pre_tokenizer = template.pre_tokenizer
    # Special tokens are added afterwards: here, a learned piece with the same spelling could take the id of one.
    backend.train_from_iterator(sample, trainer)
    trained: dict[str, Any] = json.loads(backend.to_str())["model"]
    return trained


def _vocabulary_room(config: TokenizerConfig) -> int:
    return (config.size or SUBWORD_SIZE) - len(config.special_tokens)


def _by_id(vocabulary: dict[str, int]) -> list[str]:
    return sorted(vocabulary, key=vocabulary.__getitem__)


def _ranked(counts: Counter[str], min_frequency: int) -> list[str]:
    """Units with at least `min_frequency` occurrences, most frequent first, ties by code point."""
    frequent = [(unit, count) for unit, count in counts.items() if count >= min_frequency]
    return [unit for unit, _ in sorted(frequent, key=lambda entry: (-entry[1], entry[0]))]


def _normalize_all(spec: TokenizerSpec, texts: Iterable[str]) -> Iterator[str]:
    """Texts normalized by a tokenizer of this spec with an empty vocabulary."""
    empty = replace(spec, kind="words" if spec.kind in SPLIT_AT_SPACE else spec.kind)
    return map(Tokenizer(build_backend(empty, []).to_str()).normalize, texts)


def _sample(texts: Collection[str], limit: int) -> tuple[Iterator[str], float]:
    """A systematic sample of about `limit` bytes at most, and its fraction of the corpus."""
    total = sum(len(text.encode()) for text in texts)
    stride = -(-total // limit)
    chunks = chain.from_iterable(map(_split_long_runs, chain.from_iterable(map(text_chunks, texts))))
    if stride <= 1:
        return chunks, 1.0
    return (chunk for index, chunk in enumerate(chunks) if index % stride == 0), 1 / stride


def _split_long_runs(text: str) -> Iterator[str]:
    """The text split inside long runs without white space (or of it alone): training is quadratic in their length."""
    start = 0
    for run in LONG_RUN.finditer(text):
        yield text[start : run.end()]
        start = run.end()
    yield text[start:]


def _unicode_notes(config: TokenizerConfig, texts: Collection[str]) -> Iterator[str]:
    if config.unicode_normalization != "none":
        return
    # Bytes lose nothing: there only a language that is written so throughout is pointed out.
    is_decomposed = _is_mostly_decomposed if config.kind in ("bytes", "byte-bpe") else _has_decomposed
    if count := sum(map(is_decomposed, texts)):
        yield (
            f"{count} of {len(texts)} documents contain decomposed characters, which count as different from"
            ' composed ones; tokenizer.unicode_normalization = "nfc" would make them one.'
        )


def _has_decomposed(text: str) -> bool:
    return not unicodedata.is_normalized("NFC", text)


def _is_mostly_decomposed(text: str) -> bool:
    """Whether more than one in a hundred characters of the beginning is a mark that NFC would merge."""
    text = text[:DECOMPOSED_SAMPLE]
    return not text.isascii() and len(unicodedata.normalize("NFC", text)) < 0.99 * len(text)
