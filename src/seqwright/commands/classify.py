"""`seqwright classify`: labels and class probabilities of texts or images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from seqwright.commands.common import (
    COLUMNS,
    DEVICE,
    JSON,
    RUN,
    SET,
    TEXT_OR_FILE,
    echo,
    options_from,
    predict_images,
    print_json,
    split_data_overrides,
)
from seqwright.commands.ranked import PROCESSES, RankedCommand, command_ranks, sum_over_ranks
from seqwright.commands.tables import FORMAT, OUT, SKIP_BAD_ROWS, Output, Reading, open_input


@click.command("classify", cls=RankedCommand)
@RUN
@TEXT_OR_FILE
@click.argument("more", nargs=-1, metavar="[IMAGES]...")
@click.option("--explain", is_flag=True, help="The n-grams that contribute most to each label (bag of n-grams).")
@COLUMNS
@FORMAT
@SKIP_BAD_ROWS
@OUT
@SET
@DEVICE
@PROCESSES
@JSON
def command(
    run: str,
    text_or_file: str | None,
    more: tuple[str, ...],
    explain: bool,
    columns: tuple[str, ...],
    format: str | None,
    skip_bad_rows: bool,
    out: Path | None,
    overrides: tuple[str, ...],
    device: str,
    as_json: bool,
) -> None:
    """Classify a text, each line of a file (or of standard input), or each image of files, in order.

    A .csv, .tsv or .jsonl file comes back with all of its columns, a label and its probability. Models of text pairs
    take two columns, or two texts per line, separated by a tab.

    \b
    seqwright classify runs/reviews "What a fine film."
    seqwright classify runs/reviews new.csv --columns text=review --out labeled.csv
    seqwright classify runs/reviews lines.txt --json > predictions.jsonl
    seqwright classify runs/reviews "What a fine film." --explain
    seqwright classify runs/photos one.jpg two.jpg                  (or a folder of them, .npz, IDX)
    """
    from seqwright.api import open as open_run
    from seqwright.data.column_roles import parse_columns
    from seqwright.data.text_columns import TextColumns, check_column

    data_overrides, others = split_data_overrides(overrides)
    opened = open_run(run, device=device, set=data_overrides)
    classify = opened.classify  # raises here, before any input is read, where the run is no classifier
    options = options_from(others, "decoding", type(opened.settings.decoding))
    if opened.settings.data.kind == "images":
        _classify_images(opened, [*([text_or_file] if text_or_file else []), *more], options, as_json)
        return
    if more:
        raise click.UsageError("give one text or file at a time; a text with spaces needs quotes around it.")
    roles = ("text", "text2")[: opened.labels.parts]
    chosen = parse_columns(columns, (*roles, "label"))
    wanted = TextColumns(
        roles=roles,
        chosen=tuple(chosen[role] for role in roles if role in chosen),
        trained=tuple(map(str, opened.settings.data.columns[1:])),
        classes=True,
    )
    reading = Reading.of(opened, skip_bad_rows=skip_bad_rows)
    table = open_input(text_or_file, format, wanted, reading)
    if "label" in chosen:
        check_column(chosen["label"], table.columns, table.name)
    added = ["label", *(["probability"] * (opened.labels.kind != "regression")), *(["explanation"] * explain)]
    output = Output(table, added, out, reading, as_json=as_json)

    empty = 0

    def results(rows: list[Any], first: int) -> Iterator[tuple[Any, dict[str, Any], str]]:
        nonlocal empty
        predictions = iter(classify([row.texts for row in rows if _says_something(row)], explain=explain, **options))
        for row in rows:
            if not _says_something(row):  # a label of it would be that of nothing
                empty += 1
                yield row, dict.fromkeys(added), ""
                continue
            prediction = next(predictions)
            explanations = (prediction.explanations or [prediction.explanation]) if explain else []
            text = "\n".join(map(str, [prediction, *explanations]))
            yield row, _values(prediction, flat=output.writer.format != "jsonl"), text

    output.write(results, source=text_or_file, what="classifying")
    if total := sum_over_ranks(empty):
        echo(f"empty texts, which get no label: {total:,}.", err=True)


def _says_something(row: Any) -> bool:
    """Whether one of the texts of a row has more than white space."""
    return any(text.strip() for text in row.texts)


def _values(prediction: Any, *, flat: bool) -> dict[str, Any]:
    """Label and probability; with `flat` several labels are one cell, else all probabilities are there, too."""
    labels = prediction.label if isinstance(prediction.label, list) else [prediction.label]
    probabilities = [prediction.probabilities[label] for label in labels] if prediction.probabilities else []
    several = isinstance(prediction.label, list)
    if flat:
        joined = ",".join(f"{probability:.6g}" for probability in probabilities)
        label = ",".join(labels) if several else prediction.label
        return {"label": label, "probability": joined, "explanation": _strongest(prediction)}
    probability = (
        {} if not prediction.probabilities else {"probability": probabilities if several else probabilities[0]}
    )
    full = {"probabilities": prediction.probabilities, "unread": prediction.unread}
    explanation = {} if prediction.explanation is None else {"explanation": asdict(prediction.explanation)}
    of_labels = {"explanations": [asdict(one) for one in prediction.explanations]} if prediction.explanations else {}
    return {"label": prediction.label} | probability | full | explanation | of_labels


def _strongest(prediction: Any) -> str:
    """The strongest n-grams as one cell, after their label where there are several."""
    if prediction.explanation is None:
        return ""
    explanations = prediction.explanations or [prediction.explanation]
    cells = ["; ".join(f"{ngram.text!r} {ngram.contribution:+.3f}" for ngram in one.ngrams) for one in explanations]
    named = [f"{one.label}: {cell}" for one, cell in zip(explanations, cells, strict=True)]
    return " | ".join(named) if len(named) > 1 else cells[0]


def _classify_images(opened: Any, files: Sequence[str], options: dict[str, Any], as_json: bool) -> None:
    """Prints the class of each image of files or folders."""
    if not files:
        raise click.UsageError("name image files, or a folder of them.")
    if command_ranks() is not None:
        raise click.UsageError("several processes share a file of texts; leave out --processes for images.")
    for location, prediction in predict_images(files, lambda names: opened.classify(names, **options)):
        if as_json:
            print_json(location | asdict(prediction))
        else:
            echo(str(prediction) if [*files] == [location["file"]] else f"{location['file']}: {prediction}")
