"""`seqwright train`."""

from __future__ import annotations

from pathlib import Path

import click

from seqwright.commands.common import JSON, SET, Several, print_json, print_scores, print_table

KINDS = (
    "ngram, neural-bigram, feedforward, rnn, lstm, gru or gpt; for pairs rnn, lstm, gru, gpt or transformer; for labeled texts"
    " bag, mlp, cnn, rnn, lstm, gru, transformer, gpt or bert; for tagged words perceptron, rnn, lstm, gru,"
    " transformer, gpt or bert; for masked text bert, rnn, lstm or gru; for images vit, lstm or gru; for captions"
    " transformer, rnn, lstm or gru"
)


@click.command("train", cls=Several)
@click.argument("recipe", required=False)
@click.option(
    "--text", "-t", multiple=True, metavar="FILE", help="Your own text, instead of a recipe; may be repeated."
)
@click.option(
    "--pairs",
    multiple=True,
    metavar="SOURCE TARGET",
    help="Your own source and target, line by line, instead of a recipe; or one .tsv or .jsonl file.",
)
@click.option(
    "--valid", multiple=True, metavar="FILE", help="Text (or source and target) to validate on; else some is held out."
)
@click.option("--chat", multiple=True, metavar="FILE", help="Conversations as JSON lines, for an assistant.")
@click.option("--labeled", multiple=True, metavar="FILE", help="Your own texts with labels: `label TAB text` a line.")
@click.option("--masked", multiple=True, metavar="FILE", help="Your own text, for a model that fills blanks.")
@click.option(
    "--tagged", multiple=True, metavar="FILE", help="Your own tagged words: token TAB tag, a blank line a sentence."
)
@click.option(
    "--images",
    multiple=True,
    metavar="FILE",
    help="Your own pictures: a folder for each class, .npz, or IDX (images, then labels).",
)
@click.option("--captions", multiple=True, metavar="FILE", help="Your own pictures with captions: .npz of both.")
@click.option("--from", "base", type=click.Path(), metavar="RUN", help="Begin with the weights of a finished run.")
@click.option(
    "--model",
    metavar="KIND",
    help=f"Short for --set model.kind=KIND: {KINDS}.",
)
@click.option(
    "--run", "run", type=click.Path(), help="The run's folder; runs/NAME unless given. Alone: go on with that run."
)
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
@SET
@JSON
def command(
    recipe: str | None,
    text: tuple[str, ...],
    pairs: tuple[str, ...],
    chat: tuple[str, ...],
    labeled: tuple[str, ...],
    masked: tuple[str, ...],
    tagged: tuple[str, ...],
    images: tuple[str, ...],
    captions: tuple[str, ...],
    base: str | None,
    valid: tuple[str, ...],
    model: str | None,
    run: str | None,
    quiet: bool,
    overrides: tuple[str, ...],
    as_json: bool,
) -> int:
    """Train RECIPE (a file, or a name from `seqwright recipes`), or a model of your own text, pairs, labels,
    conversations or pictures.

    \b
    seqwright train shakespeare-cpu
    seqwright train --text notes.txt --set training.steps=500
    seqwright train --pairs a.en a.de --valid b.en b.de --run runs/en-de
    seqwright train --masked notes.txt --run runs/notes-bert           (fills blanks)
    seqwright train --chat talks.jsonl --from runs/notes-gpt           (an assistant; --set training.lora_rank=8)
    seqwright train --labeled reviews.tsv --run runs/reviews          (a classifier)
    seqwright train --labeled reviews.tsv --from runs/notes-gpt       (a classifier that begins with a language model)
    seqwright train --tagged words.tsv --run runs/tags                 (a tagger)
    seqwright train --images photos/ --run runs/photos                 (a folder of image files for each class)
    seqwright train --run runs/notes-gpt                               (goes on where it stopped)
    seqwright train --run runs/notes-gpt --set training.steps=1000     (goes on beyond its end)
    """
    from seqwright.api import RUNS, wanted_recipe
    from seqwright.pipeline.training import train
    from seqwright.reporting.progress import TrainingProgress
    from seqwright.reporting.terminal import ngrams_table

    files = {"text": text, "pairs": pairs, "chat": chat, "labeled": labeled, "tagged": tagged, "masked": masked}
    files |= {"images": images, "captions": captions}
    given = {kind: names or None for kind, names in files.items()}
    wanted = wanted_recipe(recipe, valid=valid or None, model=model, base=base, set=overrides, run=run, **given)
    path = Path(run) if run else RUNS / wanted.name
    with TrainingProgress(quiet=quiet or as_json) as progress:
        outcome = train(wanted, path, progress)
    if as_json:
        print_json(
            {"run": str(path), "stopped": outcome.stopped, "already": outcome.already, "summary": outcome.summary}
        )
    elif outcome.summary is None:
        click.echo(f"stopped by {outcome.stopped} and saved; `seqwright train --run {path}` goes on.", err=True)
    else:
        done = "was finished before" if outcome.already else "is finished"
        click.echo(f"{path} {done}: {outcome.summary['parameters']:,} parameters, report in {path / 'report.html'}")
        if "discounts" in outcome.summary:
            print_table(ngrams_table(outcome.summary["types"], outcome.summary["discounts"]))
        if "scores" in outcome.summary:
            print_scores(outcome.summary["scores"])
    return {"Ctrl-C": 130, "SIGTERM": 143, "SIGHUP": 129}.get(outcome.stopped or "", 0)
