"""`seqwright data`: the catalog of data sets, checksums, audits of text files, and tokenized corpora on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from seqwright.commands.common import COLUMNS, JSON, SET, echo, options_from, print_json, print_table

DOCUMENT = click.option(
    "--document",
    type=click.Choice(["line", "blank-line", "file"]),
    default="line",
    help="Unit of text that is one document.",
)


@click.group("data", invoke_without_command=True)
@JSON
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """List the data sets of the catalog and how many of their files are present; see also the subcommands."""
    if context.invoked_subcommand is None:
        _list(as_json)


@command.command("verify")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@JSON
def verify(names: Sequence[str], as_json: bool) -> None:
    """Verify checksums of the named data sets, of prepared folders, or (without names) of all files present."""
    from seqwright.data import catalog
    from seqwright.data.text import prepared

    compared = wrong = 0
    for name in names or catalog.DATASETS:
        folder = Path(name)
        if prepared.is_prepared(folder):
            states = [("ids.bin", "verified" if prepared.verify(folder) else "differs")]
        else:
            states = list(catalog.file_states(name, catalog.data_root(), verify=True))
        if not names:  # data sets that were never downloaded are not a failure
            states = [(file, state) for file, state in states if state != "missing"]
        for file, state in states:
            compared += 1
            wrong += state != "verified"
            row = {"set": name, "file": file, "state": state}
            print_json(row) if as_json else echo(f"{state:9} {name}/{file}")
    verified = f"{compared - wrong:,} of {compared:,} files match their checksums."
    echo(verified if compared else "no file of any data set in the catalog is present.", err=True)
    if wrong:
        raise SystemExit(1)


@command.command("audit")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--against", multiple=True, metavar="FILE", help="Training text to check for leaks into FILE.")
@DOCUMENT
@JSON
def audit(files: Sequence[str], against: Sequence[str], document: Any, as_json: bool) -> None:
    """Audit FILEs (or folders, or globs): size, encoding, line ends, control characters, scripts, duplicates, leaks."""
    from seqwright.data import audit as auditing
    from seqwright.data.files import expand, resolve
    from seqwright.data.text.corpus import read_corpus

    for name in files:
        for path in expand(resolve(name))[0]:
            report = auditing.audit(path, document=document)
            if against:
                train = read_corpus(list(against), document, errors="replace").documents
                report["leaks"] = auditing.leaks(train, read_corpus(str(path), document, errors="replace").documents)
            if as_json:
                print_json(report | {"warnings": auditing.warnings(report)})
            else:
                _print_audit(report, auditing.warnings(report))


@command.command("prepare")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--out", required=True, type=click.Path(), help="Output folder; name it in data.train afterwards.")
@click.option(
    "--tokenizer",
    type=click.Path(),
    help="A tokenizer.json or SentencePiece .model; without it a tokenizer is trained first.",
)
@COLUMNS
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1), help="Worker processes that tokenize.")
@click.option(
    "--shard-bytes",
    default=64 << 20,
    show_default=True,
    type=click.IntRange(4),
    help="Bytes that training fetches at a time where the folder is at a URL.",
)
@click.option("--skip-unreadable", is_flag=True, help="Skip files that cannot be read, and name them.")
@DOCUMENT
@SET
@JSON
def prepare(
    files: Sequence[str],
    out: str,
    tokenizer: str | None,
    columns: tuple[str, ...],
    workers: int,
    shard_bytes: int,
    skip_unreadable: bool,
    document: Any,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Tokenize large FILEs to a folder on disk, in bounded memory; run it again to resume.

    FILE is text, JSON lines, CSV or TSV, or (with `pip install 'seqwright[data]'`) Parquet or Arrow, or a URL of such
    files, which are copied to the cache folder first.

    \b
    seqwright data prepare texts/ --out prepared --workers 8
    seqwright data prepare part-*.parquet --columns text=body --out prepared
    seqwright data prepare s3://bucket/texts/*.jsonl.gz --columns text=body --out prepared
    seqwright data prepare hf://datasets/USER/NAME/data/train.parquet --columns text=text --out prepared
    """
    from seqwright.core.config import UserError
    from seqwright.core.native import cache_folder
    from seqwright.data.column_roles import TEXT_ROLES, parse_columns
    from seqwright.data.columnar import MissingExtraError
    from seqwright.data.files import COLUMNAR, COMPRESSED, TEXTS, expand, is_remote, resolve
    from seqwright.data.remote import RemoteFile, remote_files
    from seqwright.data.text.prepare import check_inputs, train_tokenizer
    from seqwright.data.text.prepare import prepare as encode
    from seqwright.data.text.prepared import read_index
    from seqwright.reporting.progress import StreamProgress
    from seqwright.text.importing import import_tokenizer
    from seqwright.text.trainers import TokenizerConfig

    folder, text_columns = Path(out), list(parse_columns(columns, TEXT_ROLES).values())
    saved = folder / "tokenizer.json"
    config = TokenizerConfig(**options_from(overrides, "tokenizer", TokenizerConfig))
    paths: list[Path] = []
    remote: list[RemoteFile] = []
    for name in files:
        if is_remote(name):
            listed = remote_files(name, cache_folder() / "remote")
            remote += listed
            paths += [file.path for file in listed]
        else:
            paths += expand(resolve(name), (*TEXTS, *COLUMNAR))[0]
    check_inputs(paths, folder, document, text_columns)
    loaded = None
    if tokenizer is not None:
        loaded = import_tokenizer(Path(tokenizer), config.special_tokens)
    elif saved.exists():
        loaded = import_tokenizer(saved)
    skipped = (lambda reason: echo(f"skipped: {reason}", err=True)) if skip_unreadable else None
    for file in remote:  # last: a refusal should not come after hours of copying
        try:
            file.copy()
        except UserError as error:
            if skipped is None or isinstance(error, MissingExtraError):
                raise
            skipped(str(error))
            paths.remove(file.path)
    if loaded is None:
        echo("training a tokenizer…", err=True)
        loaded = train_tokenizer(config, paths, document, text_columns, skipped and (lambda reason: None))
    for note in loaded.notes:
        echo(note, err=True)
    uncompressed = all(path.suffix not in COMPRESSED for path in paths)
    size = sum(path.stat().st_size for path in paths) if uncompressed else None
    with StreamProgress(size, quiet=as_json) as progress:
        stream = encode(
            paths,
            folder,
            loaded,
            document=document,
            columns=text_columns,
            workers=workers,
            shard=shard_bytes,
            skipped=skipped,
            progress=progress,
        )
    if stream.lossy:
        echo(f"{stream.lossy}, so bits per byte are not reported.", err=True)
    summary = {"folder": out, "ids": len(stream.ids), "documents": stream.documents, "unknown": stream.unknown}
    summary |= {"lossy": stream.lossy, "tokenizer": loaded.hash, "vocabulary": loaded.size}
    summary |= {"skipped": read_index(folder).skipped}
    if as_json:
        print_json(summary)
    else:
        echo(f"{len(stream.ids):,} ids of {stream.documents:,} documents in {out}. In a recipe:")
        echo(f'[data]\ntrain = "{out}"\ndocument = "{document}"\n[tokenizer]\nfile = "{saved}"')


def _list(as_json: bool) -> None:
    import os

    from seqwright.data.catalog import DATASETS, file_states
    from seqwright.data.files import DATA_ROOT
    from seqwright.reporting.terminal import Column, table

    root = Path(os.environ.get(DATA_ROOT, ""))
    recipes = _recipes_by_data_set()
    rows = []
    for name, data_set in DATASETS.items():
        present = sum(state == "there" for _, state in file_states(name, root)) if os.environ.get(DATA_ROOT) else 0
        row: dict[str, Any] = {"name": name, "title": data_set.title, "task": data_set.task, "terms": data_set.terms}
        rows.append(row | {"there": present, "files": len(data_set.files), "recipes": recipes.get(name, [])})
    if as_json:
        for row in rows:
            print_json(row)
        return
    table_rows = [row | {"found": f"{row['there']}/{row['files']}", "used": ", ".join(row["recipes"])} for row in rows]
    columns = [Column("name", "data set"), Column("found", "files"), Column("title", "title"), Column("task", "task")]
    print_table(table(table_rows, [*columns, Column("terms", "terms"), Column("used", "recipes")]))
    if not os.environ.get(DATA_ROOT):
        echo(f"{DATA_ROOT} is not set; export it as the folder that holds the data sets.", err=True)


def _recipes_by_data_set() -> dict[str, list[str]]:
    """Names of the built-in recipes, by the data set they use."""
    from seqwright.data.catalog import DATASETS
    from seqwright.pipeline.shipped import shipped

    texts = {name: path.read_text(encoding="utf-8") for name, path in shipped().items()}
    return {data_set: [name for name, text in texts.items() if f'"{data_set}/' in text] for data_set in DATASETS}


def _print_audit(report: dict[str, Any], warnings: Sequence[str]) -> None:
    for key, value in report.items():
        if key not in ("examples_of_copies", "leaks"):
            echo(f"{key.replace('_', ' '):20} {_formatted(value)}")
    for part in (report, report.get("leaks", {})):
        for copy in part.get("examples_of_copies", []):
            echo(f"  document {copy['document']:,} ≈ {copy['of']:,} ({copy['similarity']:.0%}): {copy['text']!r}")
    if "leaks" in report:
        leaks = report["leaks"]
        counts = f"{leaks['copies']:,} exact duplicates, {leaks['near_copies']:,} near duplicates"
        echo(f"{'leaks':20} {counts}, of {leaks['held_out_documents']:,} documents")
    for warning in warnings:
        echo(f"! {warning}")


def _formatted(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_formatted(item)}" for key, item in value.items()) or "none"
    return f"{value:,}" if type(value) is int else str(value)
