"""What tokenizer.json holds: each kind of tokenizer as a pipeline of the `tokenizers` library.

The file is complete by itself: normalization, splitting, vocabulary and special_tokens, readable by any program that reads
the format. The library's own `encode` gives our ids, but for one setting that the format cannot hold: typed names of
special_tokens ("<eos>" in a text) stay text only where `encode_special_tokens` is on, as it is in every backend made here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from seqwright.core.config import UserError

Kind = Literal["words", "characters", "bytes", "bpe", "byte-bpe", "unigram", "wordpiece"]
Form = Literal["none", "nfc", "nfd", "nfkc"]
Split = Literal["white-space", "basic-english"]

FORMS = {"nfc": normalizers.NFC, "nfd": normalizers.NFD, "nfkc": normalizers.NFKC}
# Python's white space, which has four separators (U+001C to U+001F) more than the regular expressions of the library.
SPACE = r"[\s\x1c-\x1f]"
MARK = "▁"
"""In the file, the end of a word (bpe) or a space (unigram), as SentencePiece writes it. One found in a text reads as
white space."""
CONTINUES = "##"
"""How a piece of wordpiece begins that goes on with a word."""
SPLIT_AT_SPACE = ("words", "bpe", "wordpiece")
"""Kinds that do not know what white space stood between words."""

BASIC_ENGLISH = (
    *(("'", " '  "), ('"', ""), (".", " . "), ("<br />", " "), (",", " , "), ("(", " ( "), (")", " ) ")),
    *(("!", " ! "), ("?", " ? "), (";", " "), (":", " ")),
)
"""torchtext's `basic_english` after lower-casing; its twelfth replacement, of white space, is done by splitting."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What must be known of a tokenizer beside its vocabulary; all of it can be read back from tokenizer.json."""

    kind: Kind
    unicode_normalization: Form
    lowercase: bool
    special_tokens: tuple[str, ...]
    pretokenizer: Split = "white-space"
    imported: bool = False
    """The pipeline was made elsewhere: only the library knows how it normalizes and splits."""


def assemble(
    facts: Facts,
    tokens: Sequence[str],
    merges: Sequence[tuple[str, str]] = (),
    scores: Sequence[float] = (),
) -> Tokenizer:
    """A pipeline in which the special_tokens come first and the tokens after them, in the order given."""
    names = [escape(token, facts.special_tokens) for token in tokens] if facts.kind == "words" else tokens
    backend = Tokenizer(_model(facts, (*facts.special_tokens, *names), merges, scores))
    if steps := normal_steps(facts) + structural_steps(facts):
        backend.normalizer = normalizers.Sequence(steps)
    backend.pre_tokenizer = _splitter(facts.kind)
    backend.decoder = _joiner(facts)
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in facts.special_tokens])
    backend.encode_special_tokens = True
    return backend


def grow(backend: Tokenizer, facts: Facts, names: Sequence[str]) -> None:
    """Adds reserved tokens after all ids; a pipeline of ours learns to tell their typed names from them."""
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    if not facts.imported:
        grown = replace(facts, special_tokens=(*facts.special_tokens, *names))
        if steps := normal_steps(grown) + structural_steps(grown):
            backend.normalizer = normalizers.Sequence(steps)
        backend.decoder = _joiner(grown)


def parse(text: str) -> tuple[Tokenizer, Facts]:
    """The backend that a tokenizer.json describes, and its facts."""
    try:
        backend = Tokenizer.from_str(text)
        table = json.loads(text)
    except Exception as error:  # the library raises bare Exceptions
        raise UserError(f"not a tokenizer.json that can be read ({error}).") from error
    backend.encode_special_tokens = True
    return backend, _facts_of(table)


def escape(word: str, special_tokens: Sequence[str]) -> str:
    r"""The name of a word in the file: `<unk>` found in a text is kept as `\<unk>`, beside the reserved `<unk>`."""
    for special in special_tokens:
        if word.endswith(special):
            return word.removesuffix(special) + "\\" + special
    return word


def unescape(name: str, special_tokens: Sequence[str]) -> str:
    """The word of a name."""
    for special in special_tokens:
        if name.endswith("\\" + special):
            return name.removesuffix("\\" + special) + special
    return name


def normal_steps(facts: Facts) -> list[Any]:
    """The library's normalizers that a text goes through; none where it is taken as it is."""
    steps = [] if facts.unicode_normalization == "none" else [FORMS[facts.unicode_normalization]()]
    steps += [normalizers.Lowercase()] if facts.lowercase else []
    return steps + [normalizers.Replace(*pair) for pair in _replacements(facts)]


def simplify(text: str, facts: Facts) -> str:
    """What `normal_steps` make of a text that is in its normal form and case already."""
    for old, new in _replacements(facts):
        text = text.replace(old, new)
    return text


def structural_steps(facts: Facts) -> list[Any]:
    """Normalizers that change no text but say something of it: the end of a word, a special's name that was typed."""
    if facts.kind == "words":
        return [normalizers.Replace(Regex(rf"{re.escape(s)}(?={SPACE}|\z)"), "\\" + s) for s in facts.special_tokens]
    if facts.kind == "wordpiece":  # a word that began with a special's name would be taken for it: <pad> is read < pad>
        return [normalizers.Replace(s, f"{s[0]} {s[1:]}") for s in facts.special_tokens]
    if facts.kind == "bpe":
        return [normalizers.Replace(Regex(rf"(?<={_not(SPACE)})(?={SPACE}|\z)"), MARK)]
    return []


def byte_names() -> list[str]:
    """The printable character that stands for each byte in byte-level vocabularies (GPT-2's table)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    names, spare = [], 0x100
    for byte in range(256):
        names.append(chr(byte if byte in printable else spare))
        spare += byte not in printable
    return names


def parts(table: Mapping[str, Any] | None, several: str) -> list[Mapping[str, Any]]:
    """The steps of a normalizer, pre-tokenizer or decoder, whether it is a sequence or a single one."""
    if not table:
        return []
    return list(table[several]) if table["type"] == "Sequence" else [table]


def _not(characters: str) -> str:
    return characters.replace("[", "[^", 1)


def _replacements(facts: Facts) -> Sequence[tuple[str, str]]:
    return BASIC_ENGLISH if facts.pretokenizer == "basic-english" else ()


def _model(
    facts: Facts, names: Sequence[str], merges: Sequence[tuple[str, str]], scores: Sequence[float]
) -> models.Model:
    vocabulary = {name: id for id, name in enumerate(names)}
    unknown = "<unk>" if "<unk>" in vocabulary else None
    if facts.kind in ("words", "characters"):
        return models.WordLevel(vocabulary, unk_token="<unk>")
    if facts.kind == "wordpiece":
        return models.WordPiece(vocabulary, unk_token="<unk>", max_input_chars_per_word=1000)
    if facts.kind == "unigram":
        # A special is never the best cut of a text: its characters are pieces too, with scores that add up to more.
        low = [-1e4] * len(facts.special_tokens)
        return models.Unigram(list(zip(names, [*low, *scores], strict=True)), vocabulary.get("<unk>"))
    return models.BPE(vocabulary, list(merges), unk_token=unknown if facts.kind == "bpe" else None)


def _splitter(kind: Kind) -> Any:
    if kind in SPLIT_AT_SPACE:
        return pre_tokenizers.Split(Regex(f"{SPACE}+"), "removed")
    if kind == "characters":
        return pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    if kind == "unigram":
        # A line end is a piece of its own, as it is for nearly every text anyway: long texts can be cut before it.
        lines = pre_tokenizers.Split("\n", "isolated")
        return pre_tokenizers.Sequence([lines, pre_tokenizers.Metaspace(MARK, prepend_scheme="never")])
    # Without GPT-2's splitting, merges would run over whole texts and training would need memory without bound.
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind == "byte-bpe")


def _joiner(facts: Facts) -> Any:
    if facts.kind == "words":
        unescaped = [decoders.Replace(Regex(rf"\\{re.escape(s)}\z"), s) for s in facts.special_tokens]
        # No word begins with a space, so none is taken for the continuation of the one before.
        return decoders.Sequence([*unescaped, decoders.WordPiece(prefix=" ", cleanup=False)])
    if facts.kind == "bpe":
        last = decoders.Replace(Regex(rf"{MARK}\z"), "")
        return decoders.Sequence([decoders.Fuse(), last, decoders.Replace(MARK, " ")])
    if facts.kind == "unigram":
        return decoders.Sequence([decoders.Replace(MARK, " "), decoders.Fuse()])
    if facts.kind == "wordpiece":
        return decoders.WordPiece(prefix=CONTINUES, cleanup=False)
    return decoders.Fuse() if facts.kind == "characters" else decoders.ByteLevel()


OURS: dict[tuple[Any, ...], Kind] = {
    ("WordLevel", "Split", "Removed", None): "words",
    ("WordLevel", "Split", "Isolated", None): "characters",
    ("BPE", "ByteLevel", None, False): "bytes",
    ("BPE", "ByteLevel", None, True): "byte-bpe",
    ("BPE", "Split", "Removed", None): "bpe",
    ("Unigram", "Metaspace", None, None): "unigram",
    ("WordPiece", "Split", "Removed", None): "wordpiece",
}
"""(model, last step of splitting, its behavior, whether it splits as GPT-2) → the kind that we make so."""


def _facts_of(table: Mapping[str, Any]) -> Facts:
    """Read back from a file: ours where our own pipeline of these facts is the one in it."""
    splitter: Mapping[str, Any] = (parts(table["pre_tokenizer"], "pretokenizers") or [{}])[-1]
    kind = OURS.get(
        (table["model"].get("type"), splitter.get("type"), splitter.get("behavior"), splitter.get("use_regex"))
    )
    steps = parts(table["normalizer"], "normalizers")
    types = {step["type"].lower() for step in steps}
    forms: list[Form] = ["nfc", "nfd", "nfkc"]
    facts = Facts(
        kind=kind or _foreign_kind(table),
        unicode_normalization=next((form for form in forms if form in types), "none"),
        lowercase="lowercase" in types,
        pretokenizer="basic-english"
        if any(step.get("pattern") == {"String": "<br />"} for step in steps)
        else "white-space",
        special_tokens=tuple(token["content"] for token in table["added_tokens"] if token["special"]),
    )
    template = json.loads(assemble(facts, []).to_str())
    if kind and all(template[part] == table[part] for part in ("normalizer", "pre_tokenizer")):
        return facts
    return replace(facts, kind=_foreign_kind(table), imported=True)


def _foreign_kind(table: Mapping[str, Any]) -> Kind:
    """The kind that a pipeline made elsewhere is nearest to."""
    joins = {step["type"] for step in parts(table["decoder"], "decoders")}
    kinds: dict[Any, Kind] = {"BPE": "byte-bpe" if "ByteLevel" in joins else "bpe"}
    kinds |= {"Unigram": "unigram", "WordPiece": "wordpiece"}
    model = table["model"].get("type")
    if model not in kinds:
        raise UserError(
            f"this tokenizer.json is of a kind made elsewhere ({model}); {', '.join(kinds)} files can be imported."
        )
    return kinds[model]
