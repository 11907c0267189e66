"""What tokenizer.json holds: each kind of tokenizer as a pipeline of the `tokenizers` library.

The file is complete by itself: normalisation, splitting, vocabulary and specials, readable by any program that reads
the format. The library's own `encode` gives our ids, but for one setting that the format cannot hold: typed names of
specials ("<eos>" in a text) stay text only where `encode_special_tokens` is on, as it is in every backend made here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from seqwright.config import UserError

Kind = Literal["words", "characters", "bytes", "byte-bpe"]
Form = Literal["none", "nfc", "nfd", "nfkc"]

FORMS = {"nfc": normalizers.NFC, "nfd": normalizers.NFD, "nfkc": normalizers.NFKC}
# Python's white space, which has four separators (U+001C to U+001F) more than the regular expressions of the library.
SPACE = r"[\s\x1c-\x1f]"


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What must be known of a tokenizer beside its vocabulary; all of it can be read back from tokenizer.json."""

    kind: Kind
    normalise: Form
    lowercase: bool
    specials: tuple[str, ...]


def assemble(facts: Facts, tokens: Sequence[str], merges: Sequence[tuple[str, str]] = ()) -> Tokenizer:
    """A pipeline in which the specials come first and the tokens after them, in the order given."""
    names = [escape(token, facts.specials) for token in tokens] if facts.kind == "words" else tokens
    vocabulary = {name: id for id, name in enumerate((*facts.specials, *names))}
    if facts.kind in ("words", "characters"):
        backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    else:
        backend = Tokenizer(models.BPE(vocabulary, list(merges)))
    if steps := normal_steps(facts) + (_escapes(facts) if facts.kind == "words" else []):
        backend.normalizer = normalizers.Sequence(steps)
    backend.pre_tokenizer = _splitter(facts.kind)
    backend.decoder = _joiner(facts)
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in facts.specials])
    backend.encode_special_tokens = True
    return backend


def parse(text: str) -> tuple[Tokenizer, Facts]:
    """The backend that a tokenizer.json describes, and its facts."""
    try:
        backend = Tokenizer.from_str(text)
    except Exception as error:  # the library raises bare Exceptions
        raise UserError(f"not a tokenizer.json that can be read ({error}).") from error
    facts = _facts_of(json.loads(text))
    backend.encode_special_tokens = True
    return backend, facts


def escape(word: str, specials: Sequence[str]) -> str:
    r"""The name of a word in the file: `<unk>` found in a text is kept as `\<unk>`, beside the reserved `<unk>`."""
    for special in specials:
        if word.endswith(special):
            return word.removesuffix(special) + "\\" + special
    return word


def unescape(name: str, specials: Sequence[str]) -> str:
    """The word of a name."""
    for special in specials:
        if name.endswith("\\" + special):
            return name.removesuffix("\\" + special) + special
    return name


def normal_steps(facts: Facts) -> list[Any]:
    """The library's normalisers that a text goes through; none where it is taken as it is."""
    steps = [] if facts.normalise == "none" else [FORMS[facts.normalise]()]
    return [*steps, normalizers.Lowercase()] if facts.lowercase else steps


def byte_names() -> list[str]:
    """The printable character that stands for each byte in byte-level vocabularies (GPT-2's table)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    names, spare = [], 0x100
    for byte in range(256):
        names.append(chr(byte if byte in printable else spare))
        spare += byte not in printable
    return names


def _escapes(facts: Facts) -> list[Any]:
    return [normalizers.Replace(Regex(rf"{re.escape(s)}(?={SPACE}|\z)"), "\\" + s) for s in facts.specials]


def _splitter(kind: Kind) -> Any:
    if kind == "words":
        return pre_tokenizers.Split(Regex(f"{SPACE}+"), "removed")
    if kind == "characters":
        return pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    # Without GPT-2's splitting, merges would run over whole texts and training would need memory without bound.
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind == "byte-bpe")


def _joiner(facts: Facts) -> Any:
    if facts.kind == "words":
        unescaped = [decoders.Replace(Regex(rf"\\{re.escape(s)}\z"), s) for s in facts.specials]
        # No word begins with a space, so none is taken for the continuation of the one before.
        return decoders.Sequence([*unescaped, decoders.WordPiece(prefix=" ", cleanup=False)])
    return decoders.Fuse() if facts.kind == "characters" else decoders.ByteLevel()


def _facts_of(table: Mapping[str, Any]) -> Facts:
    model, splitter = table["model"], table["pre_tokenizer"] or {}
    signature = (model["type"], splitter.get("type"), splitter.get("behavior"), splitter.get("use_regex"))
    kinds: dict[Any, Kind] = {
        ("WordLevel", "Split", "Removed", None): "words",
        ("WordLevel", "Split", "Isolated", None): "characters",
        ("BPE", "ByteLevel", None, False): "bytes",
        ("BPE", "ByteLevel", None, True): "byte-bpe",
    }
    if signature not in kinds:
        known = ", ".join(get_args(Kind))
        raise UserError(f"this tokenizer.json is of a kind made elsewhere ({model['type']}). Known kinds: {known}.")
    steps = {step["type"].lower() for step in (table["normalizer"] or {}).get("normalizers", [])}
    forms: list[Form] = ["nfc", "nfd", "nfkc"]
    return Facts(
        kind=kinds[signature],
        normalise=next((form for form in forms if form in steps), "none"),
        lowercase="lowercase" in steps,
        specials=tuple(token["content"] for token in table["added_tokens"] if token["special"]),
    )
