"""`seqwright data`: what is known, what is there, and what a user's own files hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from seqwright.commands.common import JSON, SET, options_from, print_json, print_table

DOCUMENT = click.option(
    "--document", type=click.Choice(["line", "blank-line", "file"]), default="line", help="What a document is."
)


@click.group("data", invoke_without_command=True)
@JSON
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """List the named data sets and which of their files are there; `verify`, `audit` and `prepare` do more."""
    if context.invoked_subcommand is None:
        _list(as_json)


@command.command("verify")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@JSON
def verify(names: Sequence[str], as_json: bool) -> None:
    """Compare the files of the named data sets, of all that are there, or of prepared folders with their checksums."""
    from seqwright.data import catalog
    from seqwright.data.text import prepare

    compared = wrong = 0
    for name in names or catalog.DATASETS:
        folder = Path(name)
        if prepare.is_prepared(folder):
            found = [("ids.bin", "verified" if prepare.verify(folder) else "differs")]
        else:
            found = list(catalog.file_states(name, catalog.data_root(), verify=True))
        if not names:  # of all sets, those that nobody fetched are no fault
            found = [(file, state) for file, state in found if state != "missing"]
        for file, state in found:
            compared += 1
            wrong += state != "verified"
            row = {"set": name, "file": file, "state": state}
            print_json(row) if as_json else click.echo(f"{state:9} {name}/{file}")
    good = f"{compared - wrong:,} of {compared:,} files are as they should be."
    click.echo(good if compared else "no file of any named set is there.", err=True)
    if wrong:
        raise SystemExit(1)


@command.command("audit")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--against", multiple=True, metavar="FILE", help="Training text that FILE should share nothing with.")
@DOCUMENT
@JSON
def audit(files: Sequence[str], against: Sequence[str], document: Any, as_json: bool) -> None:
    """What FILEs (or folders, or patterns) hold: sizes, encoding, line ends, odd characters, scripts, copies, leaks."""
    from seqwright.data import audit as auditing
    from seqwright.data.files import expand, resolve
    from seqwright.data.text.corpus import read_corpus

    for name in files:
        for path in expand(resolve(name))[0]:
            found = auditing.audit(path, document=document)
            if against:
                train = read_corpus(list(against), document, errors="replace").documents
                found["leaks"] = auditing.leaks(train, read_corpus(str(path), document, errors="replace").documents)
            if as_json:
                print_json(found | {"warnings": auditing.warnings(found)})
            else:
                _say(found, auditing.warnings(found))


@command.command("prepare")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--out", required=True, type=click.Path(), help="The folder to make; name it in data.train afterwards.")
@click.option("--tokenizer", type=click.Path(), help="A tokenizer.json or .model; otherwise one is learned first.")
@click.option("--columns", multiple=True, help="The key or column that is the text (.jsonl, .csv, .tsv).")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1), help="Processes that encode.")
@DOCUMENT
@SET
@JSON
def prepare(
    files: Sequence[str],
    out: str,
    tokenizer: str | None,
    columns: Sequence[str],
    workers: int,
    document: Any,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Encode large FILEs to a folder once, in bounded memory; run it again to go on where it stopped."""
    from seqwright.data.files import COMPRESSED, expand, resolve
    from seqwright.data.text.prepare import check_inputs, train_tokenizer
    from seqwright.data.text.prepare import prepare as encode
    from seqwright.reporting.progress import encoding
    from seqwright.text.importing import import_tokenizer
    from seqwright.text.trainers import TokenizerConfig

    paths = [path for name in files for path in expand(resolve(name))[0]]
    folder = Path(out)
    check_inputs(paths, folder, document, columns)
    begun = folder / "tokenizer.json"
    config = TokenizerConfig(**options_from(overrides, "tokenizer", TokenizerConfig))
    if tokenizer is not None:
        chosen = import_tokenizer(Path(tokenizer), config.special_tokens)
    elif begun.exists():
        chosen = import_tokenizer(begun)
    else:
        click.echo("learning a tokenizer…", err=True)
        chosen = train_tokenizer(config, paths, document, columns)
    for note in chosen.notes:
        click.echo(note, err=True)
    plain = all(path.suffix not in COMPRESSED for path in paths)
    with encoding(sum(path.stat().st_size for path in paths) if plain else None, quiet=as_json) as watch:
        stream = encode(paths, folder, chosen, document=document, columns=columns, workers=workers, on_progress=watch)
    if stream.lossy:
        click.echo(f"{stream.lossy}, so there will be no bits per byte.", err=True)
    done = {"folder": out, "ids": len(stream.ids), "documents": stream.documents, "unknown": stream.unknown}
    done |= {"lossy": stream.lossy, "tokenizer": chosen.hash, "vocabulary": chosen.size}
    if as_json:
        print_json(done)
    else:
        click.echo(f"{len(stream.ids):,} ids of {stream.documents:,} documents in {out}. In a recipe:")
        click.echo(f'[data]\ntrain = "{out}"\ndocument = "{document}"\n[tokenizer]\nfile = "{begun}"')


def _list(as_json: bool) -> None:
    import os

    from seqwright.data.catalog import DATASETS, file_states
    from seqwright.data.files import DATA_ROOT
    from seqwright.reporting.terminal import Column, table

    root = Path(os.environ.get(DATA_ROOT, ""))
    users = _users()
    rows = []
    for name, one in DATASETS.items():
        there = sum(state == "there" for _, state in file_states(name, root)) if os.environ.get(DATA_ROOT) else 0
        row: dict[str, Any] = {"name": name, "title": one.title, "task": one.task, "terms": one.terms}
        rows.append(row | {"there": there, "files": len(one.files), "recipes": users.get(name, [])})
    if as_json:
        for row in rows:
            print_json(row)
        return
    shown = [row | {"found": f"{row['there']}/{row['files']}", "used": ", ".join(row["recipes"])} for row in rows]
    columns = [Column("name", "set"), Column("found", "files"), Column("title", "what it is"), Column("task", "for")]
    print_table(table(shown, [*columns, Column("terms", "terms"), Column("used", "recipes")]))
    if not os.environ.get(DATA_ROOT):
        click.echo(f"{DATA_ROOT} is not set, so none is looked for; export it as the folder that holds them.", err=True)


def _users() -> dict[str, list[str]]:
    """The recipes that ship with seqwright, by the data set they read."""
    from seqwright.data.catalog import DATASETS
    from seqwright.pipeline.recipe import shipped

    texts = {name: path.read_text(encoding="utf-8") for name, path in shipped().items()}
    return {known: [name for name, text in texts.items() if f'"{known}/' in text] for known in DATASETS}


def _say(found: dict[str, Any], warnings: Sequence[str]) -> None:
    for key, value in found.items():
        if key not in ("examples_of_copies", "leaks"):
            click.echo(f"{key.replace('_', ' '):20} {_written(value)}")
    for part in (found, found.get("leaks", {})):
        for copy in part.get("examples_of_copies", []):
            click.echo(f"  document {copy['document']:,} ≈ {copy['of']:,} ({copy['similarity']:.0%}): {copy['text']!r}")
    if "leaks" in found:
        leaks = found["leaks"]
        said = f"{leaks['copies']:,} word for word, {leaks['near_copies']:,} nearly"
        click.echo(f"{'leaks':20} {said}, of {leaks['held_out_documents']:,} documents")
    for warning in warnings:
        click.echo(f"! {warning}")


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_written(item)}" for key, item in value.items()) or "none"
    return f"{value:,}" if type(value) is int else str(value)
