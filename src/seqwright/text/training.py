"""Vocabularies learnt from text."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, trainers

from seqwright.config import UserError
from seqwright.text.backend import Facts, Form, Kind, assemble, byte_names
from seqwright.text.tokenizer import Tokenizer, pieces

BYTE_BPE_SIZE = 8000
LONG_RUN = re.compile(r"\S{1000}|\s{1000}")


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    kind: Kind = "byte-bpe"
    """words (split on white space), characters, bytes, or byte-bpe (pairs of bytes merged into frequent pieces)."""
    size: int | None = None
    """Largest vocabulary, specials included. Left out: every word or character; 8000 for byte-bpe."""
    minimum_count: int = 1
    """Words and characters seen less often are unknown; byte-bpe merges no pair seen less often (nor one seen once)."""
    lowercase: bool = False
    """Lower-case the text first; what is generated is then lower-case too."""
    normalise: Form = "none"
    """Unicode normal form. nfc makes one word of the two ways to write "ế"; none keeps every text exactly as it is."""
    specials: tuple[str, ...] = ("<unk>", "<pad>", "<sos>", "<eos>")
    """Reserved tokens in the order of their ids; no text is ever encoded as one."""
    sample_bytes: int = 50_000_000
    """byte-bpe learns its merges from at most about this much text, in pieces spread evenly over it."""

    def __post_init__(self) -> None:
        for name in self.specials:
            # Such a name is never one piece of byte-bpe, never one character, and never the end of another.
            if not re.fullmatch(r"<\|?[A-Za-z][A-Za-z0-9_-]*\|?>", name):
                raise UserError(f"special {name!r} should look like <name> or <|name|>.")
        if len(set(self.specials)) < len(self.specials):
            raise UserError("specials names one token twice.")
        if self.minimum_count < 1:
            raise UserError(f"minimum_count {self.minimum_count} must be at least 1.")
        if self.sample_bytes < 1:
            raise UserError(f"sample_bytes {self.sample_bytes} must be at least 1.")
        smallest = len(self.specials) + (256 if self.kind == "byte-bpe" else 1)
        if self.kind == "bytes" and self.size is not None:
            raise UserError(f"bytes always has {len(self.specials) + 256} ids; leave size out.")
        if self.size is not None and self.size < smallest:
            raise UserError(f"size {self.size} is too small for {self.kind}; it needs at least {smallest}.")


def train(config: TokenizerConfig, texts: Sequence[str]) -> Tokenizer:
    """The tokenizer of these texts."""
    facts = Facts(kind=config.kind, normalise=config.normalise, lowercase=config.lowercase, specials=config.specials)
    notes = list(_normal_form_notes(config, texts))
    merges: list[tuple[str, str]] = []
    if config.kind == "bytes":
        tokens = byte_names()
    elif config.kind == "byte-bpe":
        sample, share = _sample(texts, config.sample_bytes)
        tokens, merges = _merge_pairs(config, sample, facts)
        if share < 1:
            notes.append(f"byte-bpe learnt its merges from {share:.1%} of the text (tokenizer.sample_bytes).")
    else:
        tokens = _most_frequent(config, texts, facts)
    return Tokenizer(assemble(facts, tokens, merges).to_str(), notes)


def _most_frequent(config: TokenizerConfig, texts: Sequence[str], facts: Facts) -> list[str]:
    """Words or characters by descending count, ties by code point."""
    # Normalising is a tokenizer's own business, so one without a vocabulary yet is asked to do it.
    normalise = Tokenizer(assemble(facts, []).to_str()).normalise
    counts: Counter[str] = Counter()
    for piece in chain.from_iterable(map(pieces, texts)):
        normal = normalise(piece)
        counts.update(normal.split() if config.kind == "words" else normal)
    kept = [(token, count) for token, count in counts.items() if count >= config.minimum_count]
    kept.sort(key=lambda entry: (-entry[1], entry[0]))
    room = None if config.size is None else config.size - len(config.specials)
    return [token for token, _ in kept[:room]]


def _merge_pairs(
    config: TokenizerConfig, sample: Iterator[str], facts: Facts
) -> tuple[list[str], list[tuple[str, str]]]:
    """The 256 bytes and the pieces merged from them, with the merges."""
    backend = Backend(models.BPE())
    template = assemble(facts, byte_names())
    if template.normalizer is not None:
        backend.normalizer = template.normalizer
    backend.pre_tokenizer = template.pre_tokenizer
    # Specials are put in front afterwards: here, a merged piece could take the id of one that is spelt alike.
    trainer = trainers.BpeTrainer(
        vocab_size=(config.size or BYTE_BPE_SIZE) - len(config.specials),
        min_frequency=max(2, config.minimum_count),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(sample, trainer)
    model = json.loads(backend.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return tokens, [(left, right) for left, right in model["merges"]]


def _sample(texts: Sequence[str], limit: int) -> tuple[Iterator[str], float]:
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


def _normal_form_notes(config: TokenizerConfig, texts: Sequence[str]) -> Iterator[str]:
    if config.normalise == "none" and config.kind in ("words", "characters"):
        count = sum(not unicodedata.is_normalized("NFC", text) for text in texts)
        if count:
            yield (
                f"{count} of {len(texts)} documents hold decomposed characters, which count as different from composed"
                ' ones; tokenizer.normalise = "nfc" would make them one.'
            )
