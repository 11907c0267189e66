"""ARPA export and import: the exchange format of back-off n-gram models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqwright import build
from seqwright.core.config import UserError
from seqwright.core.protocols import WritesARPA
from seqwright.pipeline import recipe
from seqwright.pipeline.untrained import keep
from seqwright.runs.run import Run
from seqwright.text.backend import CONTINUATION, Kind, TokenizerSpec, build_backend
from seqwright.text.tokenizer import Tokenizer


def export_arpa(run: Run, path: Path) -> dict[str, Any]:
    """Writes the n-gram model of a run; the number of n-grams by order, the file size, and how to import it again."""
    if not isinstance(run.model, WritesARPA):
        raise UserError(
            f"{run.path} holds a model of kind '{run.settings.kind}', but ARPA files hold static n-gram models only;"
            " export a run of kind ngram (without model.adaptive) or arpa."
        )
    run.model.write_arpa(path, _tokens(run.tokenizer))
    back = f"seqwright import {path} --tokenizer {run.directory.tokenizer_path} --run FOLDER"
    return {"types": run.model.facts["types"], "bytes": path.stat().st_size, "import": back}


def import_arpa(path: Path, into: Path, tokenizer: Path | None = None) -> dict[str, Any]:
    """Imports an ARPA file (plain, .gz or .xz) as a run with the tokenizer of its text, by default words or characters
    as they are in its vocabulary; the run's summary."""
    if tokenizer is not None:
        opened = Tokenizer.open(tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer)
        model_table, model, _ = build.from_arpa(path, (_tokens(opened), opened.vocabulary))
        kind, contents, units = opened.kind, opened.json, opened.size - len(opened.special_tokens)
        document, doubts = {}, []
    else:
        model_table, model, tokens = build.from_arpa(path)
        kind = _kind(tokens[4:], path)
        spec = TokenizerSpec(kind=kind, unicode_normalization="none", lowercase=False, special_tokens=tuple(tokens[:4]))
        contents, units = build_backend(spec, tokens[4:]).to_str(pretty=True) + "\n", len(tokens) - 4
        document, doubts = {"document": "line" if kind == "words" else "file"}, _doubts(tokens[4:], path)
    settings = recipe.make(
        {
            "name": path.name.split(".")[0],
            "data": {"kind": "text", "train": [str(path.resolve())]} | document,
            "tokenizer": {"kind": kind},
            "model": model_table,
        },
        origin=str(path),
        settled=True,
    )
    note = f"imported from {path.name}: {units:,} {kind}, n-grams up to order {model_table['order']}."
    closed_vocabulary = (
        [] if model_table["unknown"] else [f"{path.name} has no <unk>: out-of-vocabulary words have probability zero."]
    )
    notes = [note, *closed_vocabulary, *doubts]
    summary = keep(settings, into, tokenizer=contents, model=model, notes=notes, types=model.facts["types"])
    return summary | {"notes": notes}


def _tokens(tokenizer: Tokenizer) -> list[str]:
    """The tokens by id, no two alike: words and subwords with their marks, and others as their bytes, of which those
    that are not UTF-8 are surrogates (PEP 383)."""
    shown = tokenizer.tokens(range(tokenizer.size))
    if tokenizer.kind in ("words", "bpe", "wordpiece"):
        return shown
    pieces = zip(tokenizer.token_bytes, shown, strict=True)
    return [piece.decode(errors="surrogateescape") if piece else name for piece, name in pieces]


def _kind(units: list[str], path: Path) -> Kind:
    """The tokenizer kind of a vocabulary: words, or characters where white space is among them."""
    with_spaces = [unit for unit in units if unit.split() != [unit]]
    kind: Kind = "characters" if with_spaces else "words"
    if len(set(units)) < len(units) or (with_spaces and any(len(unit) > 1 for unit in units)):
        example = next((unit for unit in with_spaces if len(unit) > 1), "<0xE1>")
        raise UserError(
            f"{path} has tokens of a subword tokenizer ({example!r}), which its vocabulary does not tell: name the one"
            " that cut its text, as in `--tokenizer RUN/tokenizer.json`."
        )
    return kind


def _doubts(units: list[str], path: Path) -> list[str]:
    """A warning where units carry the marks of subwords."""
    marked = [unit for unit in units if unit.startswith(CONTINUATION) or unit.endswith("</w>")]
    if len(marked) <= len(units) / 10:
        return []
    return [
        f"{path.name} seems to hold subwords ({marked[-1]!r}), and the run takes them for words: a text has to be split"
        " into them at spaces. The tokenizer that cut its text is named by `--tokenizer RUN/tokenizer.json`."
    ]
