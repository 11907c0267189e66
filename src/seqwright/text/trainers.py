"""Vocabularies learned from text, or taken from a file of someone else's."""

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
from seqwright.text.backend import CONTINUES, MARK, SPLIT_AT_SPACE, Facts, Form, Kind, Split, assemble, byte_names
from seqwright.text.importing import import_tokenizer
from seqwright.text.tokenizer import Tokenizer, pieces

SUBWORDS = ("bpe", "byte-bpe", "unigram", "wordpiece")
SUBWORD_SIZE = 8000
LONG_RUN = re.compile(r"\S{1000}|\s{1000}")


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    kind: Kind = "byte-bpe"
    """words, characters, bytes, or pieces learned from the text: byte-bpe (of bytes: loses nothing), bpe (of characters,
    an end mark on each word), unigram (the likeliest cut), wordpiece (the longest piece first)."""
    file: str | None = None
    """A tokenizer.json or SentencePiece .model to use as it is; nothing is learned, and kind and size are its own."""
    size: int | None = None
    """Largest vocabulary, special_tokens included. Left out: every word or character; 8000 for kinds that learn pieces."""
    bytes_per_token: float | None = None
    """bpe stops merging when a token holds this many bytes on average, if it has not reached its size before."""
    min_frequency: int = 1
    """Words and characters seen less often are unknown; bpe and byte-bpe merge no pair seen less often (nor one seen
    once)."""
    pretokenizer: Split = "white-space"
    """How words, bpe and wordpiece find words: white-space, or basic-english (lower-cased, punctuation set apart or
    dropped by torchtext's twelve replacements)."""
    lowercase: bool = False
    """Lower-case the text first; what is generated is then lower-case too. Accents are kept."""
    unicode_normalization: Form = "none"
    """Unicode normal form. nfc makes one word of the two ways to write "ế"; none keeps every text exactly as it is."""
    special_tokens: tuple[str, ...] = ("<unk>", "<pad>", "<sos>", "<eos>")
    """Reserved tokens in the order of their ids, turn markers of your own among them; no text is encoded as one."""
    sample_bytes: int = 50_000_000
    """Pieces are learned from at most about this much text, taken evenly from all of it."""

    files: ClassVar[tuple[str, ...]] = ("file",)
    """The keys that name files."""

    def __post_init__(self) -> None:
        for name in self.special_tokens:
            # Such a name is never one piece of byte-bpe, never one character, and never the end of another.
            if not re.fullmatch(r"<\|?[A-Za-z][A-Za-z0-9_-]*\|?>", name):
                raise UserError(f"special {name!r} should look like <name> or <|name|>.")
        if len(set(self.special_tokens)) < len(self.special_tokens):
            raise UserError("special_tokens names one token twice.")
        if self.min_frequency < 1:
            raise UserError(f"minimum_count {self.min_frequency} must be at least 1.")
        if self.sample_bytes < 1:
            raise UserError(f"sample_bytes {self.sample_bytes} must be at least 1.")
        smallest = len(self.special_tokens) + (256 if self.kind == "byte-bpe" else 1)
        if self.kind == "bytes" and self.size is not None:
            raise UserError(f"bytes always has {len(self.special_tokens) + 256} ids; leave size out.")
        if self.size is not None and self.size < smallest:
            raise UserError(f"size {self.size} is too small for {self.kind}; it needs at least {smallest}.")
        if self.pretokenizer != "white-space" and self.kind not in SPLIT_AT_SPACE:
            raise UserError(
                f'{self.kind} does not split into words; "{self.pretokenizer}" is for {", ".join(SPLIT_AT_SPACE)}.'
            )
        if self.bytes_per_token is not None and (self.kind != "bpe" or self.bytes_per_token <= 1):
            raise UserError("compression is for bpe, in bytes per token: more than 1.")


def train(config: TokenizerConfig, texts: Collection[str]) -> Tokenizer:
    """The tokenizer of these texts."""
    if config.file is not None:
        return import_tokenizer(Path(config.file), config.special_tokens)
    facts = Facts(
        kind=config.kind,
        unicode_normalization=config.unicode_normalization,
        # What basic_english means begins with lower-casing.
        lowercase=config.lowercase or config.pretokenizer == "basic-english",
        special_tokens=config.special_tokens,
        pretokenizer=config.pretokenizer,
    )
    notes = list(_normal_form_notes(config, texts))
    if config.kind in SUBWORDS:
        sample, share = _sample(texts, config.sample_bytes)
        if share < 1:
            notes.append(f"{config.kind} learned its pieces from {share:.1%} of the text (tokenizer.sample_bytes).")
        learn = {"byte-bpe": _merge_bytes, "bpe": _merge_characters, "unigram": _unigram, "wordpiece": _wordpiece}
        backend = learn[config.kind](config, sample, facts, notes)
    else:
        tokens = byte_names() if config.kind == "bytes" else _most_frequent(config, texts, facts)
        backend = assemble(facts, tokens)
    return Tokenizer(backend.to_str(), notes)


def _most_frequent(config: TokenizerConfig, texts: Collection[str], facts: Facts) -> list[str]:
    """Words or characters by descending count, ties by code point."""
    counts: Counter[str] = Counter()
    for normal in _normalized(facts, chain.from_iterable(map(pieces, texts))):
        counts.update(normal.split() if config.kind == "words" else normal)
    room = None if config.size is None else config.size - len(config.special_tokens)
    return _ranked(counts, config.min_frequency)[:room]


def _merge_characters(config: TokenizerConfig, sample: Iterable[str], facts: Facts, notes: list[str]) -> Backend:
    """Characters, the end-of-word mark, and what merging the most frequent pair again and again makes of them."""
    words: Counter[str] = Counter()
    for normal in _normalized(facts, sample):
        words.update(normal.split())
    counts: Counter[str] = Counter()
    for word, count in words.items():
        counts.update(dict.fromkeys(word, 0))
        for character in word:
            counts[character] += count
    room = (config.size or SUBWORD_SIZE) - len(config.special_tokens)
    alphabet = [MARK, *(c for c in _ranked(counts, config.min_frequency) if c != MARK)][:room]
    tokens, merges, compression = dict.fromkeys(alphabet), [], 0.0
    for merge in bpe.merges(
        {(*word, MARK): n for word, n in words.items()}, minimum_count=max(2, config.min_frequency)
    ):
        if len(tokens) == room or compression >= (config.bytes_per_token or float("inf")):
            break
        piece = "".join(merge.pair)
        # Rare characters are unknown, and so are their pairs; a piece spelled as a special would be taken for it.
        if tokens.keys() >= set(merge.pair) and piece not in config.special_tokens:
            merges.append(merge.pair)
            tokens[piece] = None
            compression = merge.compression
    notes.append(f"bpe made {len(merges):,} merges; {compression:.2f} bytes per token in the text it learned from.")
    return assemble(facts, list(tokens), merges)


def _merge_bytes(config: TokenizerConfig, sample: Iterable[str], facts: Facts, notes: list[str]) -> Backend:
    """The 256 bytes and the pieces merged from them."""
    trainer = trainers.BpeTrainer(
        vocab_size=_room(config),
        min_frequency=max(2, config.min_frequency),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model = _learned(models.BPE(), trainer, sample, assemble(facts, byte_names()))
    return assemble(facts, _in_order(model["vocab"]), [(left, right) for left, right in model["merges"]])


def _unigram(config: TokenizerConfig, sample: Iterable[str], facts: Facts, notes: list[str]) -> Backend:
    """The pieces under which the text is likeliest, each word cut in the best way (Kudo 2018)."""
    needed = set("".join(config.special_tokens))  # so that no typed special is better cut as the special itself
    trainer = trainers.UnigramTrainer(
        vocab_size=max(1, _room(config) - len(needed)), special_tokens=[], show_progress=False
    )
    learned = _learned(models.Unigram(), trainer, sample, assemble(facts, []))["vocab"]
    kept = {name: score for name, score in learned if name not in config.special_tokens}
    least = min(kept.values(), default=0.0) - 10
    kept |= dict.fromkeys(sorted(needed - kept.keys()), least)
    return assemble(facts, list(kept), scores=list(kept.values()))


def _wordpiece(config: TokenizerConfig, sample: Iterable[str], facts: Facts, notes: list[str]) -> Backend:
    """Pieces that begin a word and pieces that go on with one (Schuster & Nakajima 2012, as BERT has them)."""
    trainer = trainers.WordPieceTrainer(
        vocab_size=_room(config),
        min_frequency=max(2, config.min_frequency),
        special_tokens=[],
        continuing_subword_prefix=CONTINUES,
        show_progress=False,
    )
    model = _learned(models.WordPiece(unk_token="<unk>"), trainer, sample, assemble(facts, []))
    return assemble(facts, [name for name in _in_order(model["vocab"]) if name not in config.special_tokens])


def _learned(
    model: models.Model, trainer: trainers.Trainer, sample: Iterable[str], template: Backend
) -> dict[str, Any]:
    """What a trainer of the library makes of a sample that is normalized and split as the template does it."""
    backend = Backend(model)
    if template.normalizer is not None:
        backend.normalizer = template.normalizer
    backend.pre_tokenizer = template.pre_tokenizer
    # Specials are put in front afterwards: here, a piece could take the id of one that is spelled alike.
    backend.train_from_iterator(sample, trainer)
    learned: dict[str, Any] = json.loads(backend.to_str())["model"]
    return learned


def _room(config: TokenizerConfig) -> int:
    return (config.size or SUBWORD_SIZE) - len(config.special_tokens)


def _in_order(vocabulary: dict[str, int]) -> list[str]:
    return sorted(vocabulary, key=vocabulary.__getitem__)


def _ranked(counts: Counter[str], minimum: int) -> list[str]:
    """By descending count, ties by code point."""
    kept = [(unit, count) for unit, count in counts.items() if count >= minimum]
    return [unit for unit, _ in sorted(kept, key=lambda entry: (-entry[1], entry[0]))]


def _normalized(facts: Facts, texts: Iterable[str]) -> Iterator[str]:
    """Texts as a tokenizer of these facts sees them: normalizing is its own business, so an empty one is asked."""
    plain = replace(facts, kind="words" if facts.kind in SPLIT_AT_SPACE else facts.kind)
    return map(Tokenizer(assemble(plain, []).to_str()).normalize, texts)


def _sample(texts: Collection[str], limit: int) -> tuple[Iterator[str], float]:
    """At most about `limit` bytes of the texts, evenly spread, and their share of the whole."""
    total = sum(len(text.encode()) for text in texts)
    stride = -(-total // limit)
    parts = chain.from_iterable(map(_chopped, chain.from_iterable(map(pieces, texts))))
    if stride <= 1:
        return parts, 1.0
    return (part for number, part in enumerate(parts) if number % stride == 0), 1 / stride


def _chopped(text: str) -> Iterator[str]:
    """A text cut inside runs that no white space breaks (or nothing else): merging takes the square of their length."""
    start = 0
    for run in LONG_RUN.finditer(text):
        yield text[start : run.end()]
        start = run.end()
    yield text[start:]


def _normal_form_notes(config: TokenizerConfig, texts: Collection[str]) -> Iterator[str]:
    if config.unicode_normalization == "none" and config.kind not in ("bytes", "byte-bpe"):
        count = sum(not unicodedata.is_normalized("NFC", text) for text in texts)
        if count:
            yield (
                f"{count} of {len(texts)} documents hold decomposed characters, which count as different from composed"
                ' ones; tokenizer.unicode_normalization = "nfc" would make them one.'
            )
