"""tokenizer.json: each kind of tokenizer as a pipeline of the `tokenizers` library.

The file is self-contained: normalizer, pre-tokenizer, vocabulary, decoder and special tokens, readable by any program
that reads the format. The library's `encode` returns our ids, except for one setting that the format cannot hold: a
literal "<eos>" in a text stays text only with `encode_special_tokens` on, as it is in every backend built here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from seqwright.core.config import UserError
from seqwright.core.limits import check_limit

Kind = Literal["words", "characters", "bytes", "bpe", "byte-bpe", "unigram", "wordpiece"]
UnicodeForm = Literal["none", "nfc", "nfd", "nfkc"]
PreTokenizer = Literal["white-space", "basic-english"]

NORMALIZERS = {"nfc": normalizers.NFC, "nfd": normalizers.NFD, "nfkc": normalizers.NFKC}
# str.isspace() includes the separators U+001C to U+001F, which \s of the library's regular expressions does not.
SPACE = r"[\s\x1c-\x1f]"
METASPACE = "▁"
"""SentencePiece's U+2581: the end-of-word mark of bpe, a space in unigram pieces. A literal one decodes as a space."""
CONTINUATION = "##"
"""Prefix of the wordpiece tokens that continue a word (BERT's ##)."""
SPLIT_AT_SPACE = ("words", "bpe", "wordpiece")
"""Kinds that split at white space and discard it: decoding puts one space between words."""

BASIC_ENGLISH = (
    *(("'", " '  "), ('"', ""), (".", " . "), ("<br />", " "), (",", " , "), ("(", " ( "), (")", " ) ")),
    *(("!", " ! "), ("?", " ? "), (";", " "), (":", " ")),
)
"""torchtext's `basic_english` after lower-casing; its twelfth replacement, of white space, is done by the split."""


@dataclass(frozen=True, kw_only=True)
class TokenizerSpec:
    """Normalization, pre-tokenization and special tokens of a tokenizer; all of it is recovered from tokenizer.json."""

    kind: Kind
    unicode_normalization: UnicodeForm
    lowercase: bool
    special_tokens: tuple[str, ...]
    pretokenizer: PreTokenizer = "white-space"
    imported: bool = False
    """Another program built the pipeline, so the library alone normalizes and pre-tokenizes (decision 0035)."""


def build_backend(
    spec: TokenizerSpec,
    tokens: Sequence[str],
    merges: Sequence[tuple[str, str]] = (),
    scores: Sequence[float] = (),
) -> Tokenizer:
    """A tokenizer pipeline whose ids are the special tokens, then the tokens, both in order."""
    names = [escape(token, spec.special_tokens) for token in tokens] if spec.kind == "words" else tokens
    backend = Tokenizer(_model(spec, (*spec.special_tokens, *names), merges, scores))
    if steps := normalization_steps(spec) + structural_steps(spec):
        backend.normalizer = normalizers.Sequence(steps)
    backend.pre_tokenizer = _pre_tokenizer(spec.kind)
    backend.decoder = _decoder(spec)
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in spec.special_tokens])
    backend.encode_special_tokens = True
    return backend


def add_special_tokens(backend: Tokenizer, spec: TokenizerSpec, names: Sequence[str]) -> None:
    """Appends special tokens after all existing ids; a native pipeline also escapes their literal names in text."""
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    if not spec.imported:
        extended = replace(spec, special_tokens=(*spec.special_tokens, *names))
        if steps := normalization_steps(extended) + structural_steps(extended):
            backend.normalizer = normalizers.Sequence(steps)
        backend.decoder = _decoder(extended)


def parse(text: str) -> tuple[Tokenizer, TokenizerSpec]:
    """The backend of a tokenizer.json, and its spec."""
    with damage_named():
        table = json.loads(text)
        _check_size(table)
        backend = Tokenizer.from_str(text)
        backend.encode_special_tokens = True
        return backend, _spec_of(table)


@contextmanager
def damage_named() -> Iterator[None]:
    """Turns any error on the contents of a tokenizer.json into a UserError.

    The library raises bare Exceptions, and a panic of its Rust code is a BaseException of no importable class.
    """
    try:
        yield
    except (UserError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        reason = str(error) or type(error).__name__
        raise UserError(f"not a valid tokenizer.json ({reason[:200]}).") from error


def _check_size(table: Any) -> None:
    """Refuses ids far above any vocabulary: arrays over all ids would fill the memory."""
    vocabulary = table["model"]["vocab"]
    ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else [len(vocabulary)]
    ids += [token["id"] for token in table.get("added_tokens") or []]
    if not all(type(id) is int and id >= 0 for id in ids):
        raise ValueError("ids are whole numbers")
    check_limit("SEQWRIGHT_MAX_VOCABULARY", max(ids, default=0), f"the tokenizer has the id {max(ids, default=0):,}")


def escape(word: str, special_tokens: Sequence[str]) -> str:
    r"""The vocabulary entry of a word: a literal `<unk>` in the corpus is stored as `\<unk>` (decision 0003)."""
    for special in special_tokens:
        if word.endswith(special):
            return word.removesuffix(special) + "\\" + special
    return word


def unescape(name: str, special_tokens: Sequence[str]) -> str:
    """The word of a vocabulary entry: the inverse of `escape`."""
    for special in special_tokens:
        if name.endswith("\\" + special):
            return name.removesuffix("\\" + special) + special
    return name


def normalization_steps(spec: TokenizerSpec) -> list[Any]:
    """Normalizers that change the text: Unicode form, lower-casing, replacements; empty for the identity."""
    steps = [] if spec.unicode_normalization == "none" else [NORMALIZERS[spec.unicode_normalization]()]
    steps += [normalizers.Lowercase()] if spec.lowercase else []
    return steps + [normalizers.Replace(*pair) for pair in _replacements(spec)]


def apply_replacements(text: str, spec: TokenizerSpec) -> str:
    """The replacements of `normalization_steps` alone, for text whose Unicode form and case are already normalized."""
    for old, new in _replacements(spec):
        text = text.replace(old, new)
    return text


def structural_steps(spec: TokenizerSpec) -> list[Any]:
    """Normalizers that only insert markup: the end-of-word mark, the escape of a literal special token."""
    if spec.kind == "words":
        return [normalizers.Replace(Regex(rf"{re.escape(s)}(?={SPACE}|\z)"), "\\" + s) for s in spec.special_tokens]
    if spec.kind == "wordpiece":  # longest match first would find a special token at the start of a word
        return [normalizers.Replace(s, f"{s[0]} {s[1:]}") for s in spec.special_tokens]
    if spec.kind == "bpe":
        return [normalizers.Replace(Regex(rf"(?<={_not(SPACE)})(?={SPACE}|\z)"), METASPACE)]
    return []


def bytes_to_unicode() -> list[str]:
    """GPT-2's `bytes_to_unicode`: the printable character of each of the 256 bytes, in byte order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    names, substitute = [], 0x100
    for byte in range(256):
        names.append(chr(byte if byte in printable else substitute))
        substitute += byte not in printable
    return names


def pipeline_steps(part: Mapping[str, Any] | None, sequence_key: str) -> list[Mapping[str, Any]]:
    """The steps of a normalizer, pre-tokenizer or decoder in tokenizer.json, whether a Sequence or a single step."""
    if not part:
        return []
    return list(part[sequence_key]) if part["type"] == "Sequence" else [part]


def _not(characters: str) -> str:
    return characters.replace("[", "[^", 1)


def _replacements(spec: TokenizerSpec) -> Sequence[tuple[str, str]]:
    return BASIC_ENGLISH if spec.pretokenizer == "basic-english" else ()


def _model(
    spec: TokenizerSpec, names: Sequence[str], merges: Sequence[tuple[str, str]], scores: Sequence[float]
) -> models.Model:
    vocabulary = {name: id for id, name in enumerate(names)}
    unknown = "<unk>" if "<unk>" in vocabulary else None
    if spec.kind in ("words", "characters"):
        return models.WordLevel(vocabulary, unk_token="<unk>")
    if spec.kind == "wordpiece":
        return models.WordPiece(vocabulary, unk_token="<unk>", max_input_chars_per_word=1000)
    if spec.kind == "unigram":
        # Log-probability so low that Viterbi never segments text into a special token: its characters are pieces too.
        floor = [-1e4] * len(spec.special_tokens)
        return models.Unigram(list(zip(names, [*floor, *scores], strict=True)), vocabulary.get("<unk>"))
    return models.BPE(vocabulary, list(merges), unk_token=unknown if spec.kind == "bpe" else None)


def _pre_tokenizer(kind: Kind) -> Any:
    if kind in SPLIT_AT_SPACE:
        return pre_tokenizers.Split(Regex(f"{SPACE}+"), "removed")
    if kind == "characters":
        return pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    if kind == "unigram":
        # A line end is always its own token, so that long texts can be encoded in chunks cut before one.
        lines = pre_tokenizers.Split("\n", "isolated")
        return pre_tokenizers.Sequence([lines, pre_tokenizers.Metaspace(METASPACE, prepend_scheme="never")])
    # Without GPT-2's regex, merges would cross words and training would need memory without bound.
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind == "byte-bpe")


def _decoder(spec: TokenizerSpec) -> Any:
    if spec.kind == "words":
        unescaped = [decoders.Replace(Regex(rf"\\{re.escape(s)}\z"), s) for s in spec.special_tokens]
        # A WordPiece decoder joins words with spaces; no word begins with a space, so none matches the prefix.
        return decoders.Sequence([*unescaped, decoders.WordPiece(prefix=" ", cleanup=False)])
    if spec.kind == "bpe":
        final_mark = decoders.Replace(Regex(rf"{METASPACE}\z"), "")
        return decoders.Sequence([decoders.Fuse(), final_mark, decoders.Replace(METASPACE, " ")])
    if spec.kind == "unigram":
        return decoders.Sequence([decoders.Replace(METASPACE, " "), decoders.Fuse()])
    if spec.kind == "wordpiece":
        return decoders.WordPiece(prefix=CONTINUATION, cleanup=False)
    return decoders.Fuse() if spec.kind == "characters" else decoders.ByteLevel()


NATIVE: dict[tuple[Any, ...], Kind] = {
    ("WordLevel", "Split", "Removed", None): "words",
    ("WordLevel", "Split", "Isolated", None): "characters",
    ("BPE", "ByteLevel", None, False): "bytes",
    ("BPE", "ByteLevel", None, True): "byte-bpe",
    ("BPE", "Split", "Removed", None): "bpe",
    ("Unigram", "Metaspace", None, None): "unigram",
    ("WordPiece", "Split", "Removed", None): "wordpiece",
}
"""(model, last pre-tokenizer, its behavior, whether it uses GPT-2's regex) → the kind built that way here."""


def _spec_of(table: Mapping[str, Any]) -> TokenizerSpec:
    """The spec of a parsed tokenizer.json; imported unless `build_backend` of that spec gives the same pipeline."""
    pre_tokenizer: Mapping[str, Any] = (pipeline_steps(table["pre_tokenizer"], "pretokenizers") or [{}])[-1]
    kind = NATIVE.get(
        (
            table["model"].get("type"),
            pre_tokenizer.get("type"),
            pre_tokenizer.get("behavior"),
            pre_tokenizer.get("use_regex"),
        )
    )
    normalizer_steps = pipeline_steps(table["normalizer"], "normalizers")
    types = {step["type"].lower() for step in normalizer_steps}
    forms: list[UnicodeForm] = ["nfc", "nfd", "nfkc"]
    spec = TokenizerSpec(
        kind=kind or _imported_kind(table),
        unicode_normalization=next((form for form in forms if form in types), "none"),
        lowercase="lowercase" in types,
        pretokenizer="basic-english"
        if any(step.get("pattern") == {"String": "<br />"} for step in normalizer_steps)
        else "white-space",
        special_tokens=tuple(token["content"] for token in table["added_tokens"] if token["special"]),
    )
    template = json.loads(build_backend(spec, []).to_str())
    if kind and all(template[section] == table[section] for section in ("normalizer", "pre_tokenizer")):
        return spec
    return replace(spec, kind=_imported_kind(table), imported=True)


def _imported_kind(table: Mapping[str, Any]) -> Kind:
    """The kind of an imported pipeline: the nearest of ours."""
    decoder_types = {step["type"] for step in pipeline_steps(table["decoder"], "decoders")}
    kinds: dict[Any, Kind] = {"BPE": "byte-bpe" if "ByteLevel" in decoder_types else "bpe"}
    kinds |= {"Unigram": "unigram", "WordPiece": "wordpiece"}
    model = table["model"].get("type")
    if model not in kinds:
        raise UserError(f"this tokenizer.json has a {model} model, which cannot be imported; {', '.join(kinds)} can.")
    return kinds[model]
