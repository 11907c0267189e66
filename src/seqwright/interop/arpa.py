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
from seqwright.text.backend import Kind, TokenizerSpec, build_backend


def export_arpa(run: Run, path: Path) -> dict[str, Any]:
    """Writes the n-gram model of a run; the number of n-grams by order, and the file size."""
    if not isinstance(run.model, WritesARPA):
        raise UserError(
            f"{run.path} holds a model of kind '{run.settings.kind}', but ARPA files hold static n-gram models only;"
            " export a run of kind ngram (without model.adaptive) or arpa."
        )
    run.model.write_arpa(path, run.tokenizer.tokens(range(run.tokenizer.size)))
    return {"types": run.model.facts["types"], "bytes": path.stat().st_size}


def import_arpa(path: Path, into: Path) -> dict[str, Any]:
    """Imports an ARPA file (plain, .gz or .xz) as a run with a tokenizer of its vocabulary; the run's summary."""
    model_table, model, tokens = build.from_arpa(path)
    special_tokens = tuple(tokens[:4])
    units = tokens[4:]
    kind = _kind(units, path)
    facts = TokenizerSpec(kind=kind, unicode_normalization="none", lowercase=False, special_tokens=special_tokens)
    settings = recipe.make(
        {
            "name": path.name.split(".")[0],
            "data": {"kind": "text", "train": [str(path.resolve())], "document": "line" if kind == "words" else "file"},
            "tokenizer": {"kind": kind},
            "model": model_table,
        },
        origin=str(path),
        settled=True,
    )
    note = f"imported from {path.name}: {len(units):,} {kind}, n-grams up to order {model_table['order']}."
    closed_vocabulary = (
        [] if model_table["unknown"] else [f"{path.name} has no <unk>: out-of-vocabulary words have probability zero."]
    )
    tokenizer = build_backend(facts, units).to_str(pretty=True) + "\n"
    types = {"types": model.facts["types"]}
    return keep(settings, into, tokenizer=tokenizer, model=model, notes=[note, *closed_vocabulary], **types)


def _kind(units: list[str], path: Path) -> Kind:
    """The tokenizer kind of a vocabulary: words, or characters where white space is among them."""
    with_spaces = [unit for unit in units if unit.split() != [unit]]
    if not with_spaces:
        return "words"
    if all(len(unit) == 1 for unit in units):
        return "characters"
    raise UserError(
        f"{path} has tokens that contain white space ({with_spaces[0]!r}), which neither a word nor a character"
        " tokenizer produces; export the model again with tokens that are words or single characters."
    )
