"""ARPA files, the exchange format of n-gram models: out of a run, and into one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqwright import build
from seqwright.core.config import UserError
from seqwright.pipeline import recipe
from seqwright.pipeline import training as session
from seqwright.runs.run import Run
from seqwright.text.backend import Kind, TokenizerSpec, build_backend


def export_arpa(run: Run, path: Path) -> dict[str, Any]:
    """Writes the n-gram of a run; facts about the file."""
    if not hasattr(run.model, "write_arpa"):
        raise UserError(
            f"{run.path} holds a '{run.settings.kind}' model, and ARPA files hold plain n-grams alone"
            " (kinds ngram, without model.adaptive, and arpa)."
        )
    run.model.write_arpa(path, run.tokenizer.tokens(range(run.tokenizer.size)))
    return {"types": run.model.facts["types"], "bytes": path.stat().st_size}


def import_arpa(path: Path, into: Path) -> dict[str, Any]:
    """Makes a run of an ARPA file (plain, .gz or .xz), with a tokenizer of its words; the run's summary."""
    model_table, model, tokens = build.from_arpa(path)
    special_tokens = tuple(tokens[:4])
    units = tokens[4:]
    kind = _kind(units, path)
    spec = TokenizerSpec(kind=kind, unicode_normalization="none", lowercase=False, special_tokens=special_tokens)
    made = recipe.make(
        {
            "name": path.name.split(".")[0],
            "data": {"kind": "text", "train": [str(path.resolve())], "document": "line" if kind == "words" else "file"},
            "tokenizer": {"kind": kind},
            "model": model_table,
        },
        origin=str(path),
        settled=True,
    )
    note = f"imported from {path.name}: {len(units):,} {kind}, n-grams up to length {model_table['order']}."
    closed = [] if model_table["unknown"] else [f"{path.name} has no <unk>: unknown words have probability zero."]
    tokenizer = build_backend(spec, units).to_str(pretty=True) + "\n"
    types = {"types": model.facts["types"]}
    return session.keep(made, into, tokenizer=tokenizer, model=model, notes=[note, *closed], **types)


def _kind(units: list[str], path: Path) -> Kind:
    """What the tokens of a file are: words, or characters where white space is among them."""
    spaced = [unit for unit in units if unit.split() != [unit]]
    if not spaced:
        return "words"
    if all(len(unit) == 1 for unit in units):
        return "characters"
    raise UserError(
        f"{path} has tokens with white space in them ({spaced[0]!r}), which neither words nor characters have;"
        " such a model can be used only with the tokenizer it was made with."
    )
