"""`seqwright train`: from a recipe or the user's own data to a finished run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from seqwright.commands.checks import check_overrides, existing_run, training_files
from seqwright.commands.common import (
    ARGUMENTS,
    COLUMNS,
    JSON,
    SET,
    SKIP_LABELED,
    TRUST,
    MultiValueCommand,
    echo,
    print_json,
    print_scores,
    print_table,
    resumable,
)

KINDS = (
    "ngram, neural-bigram, feedforward, rnn, lstm, gru or gpt; for pairs rnn, lstm, gru, gpt or transformer;"
    " for labeled texts bag, mlp, cnn, rnn, lstm, gru, transformer, gpt or bert; for tagged words perceptron, rnn,"
    " lstm, gru, transformer, gpt or bert; for masked text bert, rnn, lstm, gru or transformer; for images vit, cnn,"
    " rnn, lstm, gru or gpt; for captions transformer, rnn, lstm or gru"
)


@click.command("train", cls=MultiValueCommand)
@click.argument("recipe", required=False)
@click.option(
    "--text",
    "-t",
    multiple=True,
    metavar="FILE",
    callback=training_files,
    help="Plain text to train a language model on, instead of a recipe; may be repeated.",
)
@click.option(
    "--pairs",
    multiple=True,
    metavar="SOURCE TARGET",
    callback=training_files,
    help="Parallel corpus: source and target, line by line, or one .tsv or .jsonl file.",
)
@click.option(
    "--valid",
    multiple=True,
    metavar="FILE",
    callback=training_files,
    help="Validation data. Default: a held-out split.",
)
@click.option(
    "--chat",
    multiple=True,
    metavar="FILE",
    callback=training_files,
    help="Conversations as JSON lines, for an assistant.",
)
@click.option(
    "--labeled",
    multiple=True,
    metavar="FILE",
    callback=training_files,
    help="Labeled texts for a classifier: `label TAB text` per line.",
)
@click.option(
    "--masked",
    multiple=True,
    metavar="FILE",
    callback=training_files,
    help="Plain text to train a masked language model on.",
)
@click.option(
    "--tagged",
    multiple=True,
    metavar="FILE",
    callback=training_files,
    help="Tagged words for a tagger: `token TAB tag` per line, a blank line after a sentence.",
)
@click.option(
    "--images",
    multiple=True,
    metavar="FILE",
    callback=training_files,
    help="Labeled images: one folder per class, .npz, or IDX (images, then labels).",
)
@click.option(
    "--captions",
    multiple=True,
    metavar="FILE",
    callback=training_files,
    help="Images with captions: an .npz file with both.",
)
@click.option(
    "--from",
    "base",
    type=click.Path(),
    metavar="RUN",
    callback=existing_run,
    help="Fine-tune: initialize from the weights of a finished run.",
)
@click.option(
    "--model",
    metavar="KIND",
    help=f"Short for --set model.kind=KIND: {KINDS}.",
)
@click.option(
    "--run",
    "run",
    type=click.Path(),
    is_eager=True,  # files that are missing may be those of the run
    help="Folder of the run. Default: runs/NAME. Given alone: resume that run.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    help="Time budget: train for about N minutes on this machine. Default for your own files: 10 (of classifiers,"
    " taggers and image models: at most 10).",
)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Train on N processes of this machine, one for each GPU: data parallel, or sharded (training.parallel=fsdp).",
)
@COLUMNS
@SKIP_LABELED
@TRUST
@click.option("--quiet", "-q", is_flag=True, help="Hide progress.")
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
    minutes: float | None,
    processes: int | None,
    columns: tuple[str, ...],
    skip_bad_rows: bool,
    trust: bool,
    quiet: bool,
    overrides: tuple[str, ...],
    as_json: bool,
) -> int:
    """Train RECIPE (a file, or a name from `seqwright recipes`), or a model of your own data with a default recipe.

    \b
    seqwright train shakespeare-cpu
    seqwright train --text notes.txt --set training.steps=500
    seqwright train --pairs a.en a.de --valid b.en b.de --run runs/en-de
    seqwright train --masked notes.txt --run runs/notes-bert           (a masked language model)
    seqwright train --chat talks.jsonl --from runs/notes-gpt           (an assistant; --set training.lora_rank=8)
    seqwright train --labeled reviews.csv --columns text=body,label=stars --run runs/reviews   (a classifier)
    seqwright train --labeled reviews.tsv --from runs/notes-gpt       (a fine-tuned language model)
    seqwright train --tagged words.tsv --run runs/tags                 (a tagger)
    seqwright train --images photos/ --run runs/photos                 (one folder of image files per class)
    seqwright train --run runs/notes-gpt                               (resume)
    seqwright train --run runs/notes-gpt --set training.steps=1000     (train a finished run longer)
    """
    from seqwright.pipeline.shipped import find

    check_overrides(overrides)
    if recipe is not None:
        find(recipe)
    from seqwright.pipeline.training import train
    from seqwright.pipeline.wanted import wanted_recipe
    from seqwright.reporting.progress import TerminalProgress
    from seqwright.reporting.terminal import ngrams_table
    from seqwright.runs.finding import RUNS
    from seqwright.training.launcher import is_launched
    from seqwright.training.process_group import RankLostError, environment_ranks

    files = {"text": text, "pairs": pairs, "chat": chat, "labeled": labeled, "tagged": tagged, "masked": masked}
    files |= {"images": images, "captions": captions}
    data = {kind: names or None for kind, names in files.items()}
    if skip_bad_rows:
        overrides = (*overrides, "data.bad_rows=skip")
    resolved = wanted_recipe(
        recipe,
        valid=valid or None,
        model=model,
        base=base,
        columns=columns,
        set=overrides,
        minutes=minutes,
        run=run,
        trust=trust,
        **data,
    )
    path = Path(run) if run else RUNS / resolved.name
    ranks, launched = environment_ranks(), is_launched()
    if processes is not None and not launched and (processes > 1 or ranks.size > 1):
        return _launch(resolved, processes)
    if not ranks.first:
        return _follow(resolved, path, ranks.rank)
    try:
        with resumable(lambda: _interrupted(path)), TerminalProgress(quiet=quiet or as_json) as progress:
            outcome = train(resolved, path, progress)
    except RankLostError:
        if not launched:
            raise
        return 2  # the launcher reports which rank was killed, and starts all of them again
    if as_json:
        print_json(
            {
                "run": str(path),
                "stopped": outcome.stopped,
                "already": outcome.already,
                "summary": outcome.summary,
                "advice": outcome.advice,
            }
        )
    elif outcome.summary is None:
        echo(f"stopped by {outcome.stopped}, checkpoint saved; `seqwright train --run {path}` resumes.", err=True)
    else:
        state = "was already finished" if outcome.already else "is finished"
        echo(f"{path} {state}: {outcome.summary['parameters']:,} parameters, report in {path / 'report.html'}")
        if "discounts" in outcome.summary:
            print_table(ngrams_table(outcome.summary["types"], outcome.summary["discounts"]))
        if "scores" in outcome.summary:
            _print_scores(outcome.summary)
        for sentence, following in outcome.advice:
            echo(f"{sentence}: `{following}`")
    return _status(outcome.stopped)


def _interrupted(path: Path) -> str:
    """What is left of a training that ended at once, before its steps or at a second Ctrl-C, and how to go on."""
    from seqwright.runs.directory import RunDirectory

    if RunDirectory(path).checkpoints.steps():
        return f"stopped; `seqwright train --run {path}` resumes from the last checkpoint."
    return "stopped before the first checkpoint: nothing is lost but the time, and the same command starts again."


def _status(stopped: str | None) -> int:
    """The exit status of a training: 128 + signal number where one stopped it, as shells report it."""
    return 0 if stopped is None else {"Ctrl-C": 130, "SIGTERM": 143}.get(stopped, 129)


def _follow(resolved: Any, path: Path, rank: int) -> int:
    """Trains on another rank than 0, in silence but for errors that rank 0 does not meet; the exit status."""
    from seqwright.core.config import UserError
    from seqwright.pipeline.training import train
    from seqwright.training.process_group import RankLostError

    try:
        return _status(train(resolved, path).stopped)
    except UserError as error:
        if not isinstance(error, RankLostError):
            echo(f"error on rank {rank}: {error}", err=True)
        return 2


def _launch(resolved: Any, processes: int) -> int:
    """Runs this command once for each rank; the exit status."""
    from seqwright.core.limits import limit
    from seqwright.pipeline.scaling import refuse_idle_offload, refuse_ranks
    from seqwright.training import launcher, machine
    from seqwright.training.process_group import environment_ranks

    if environment_ranks().size > 1:
        raise click.UsageError("torchrun has started the processes already; leave out --processes.")
    refuse_ranks(resolved, processes)
    refuse_idle_offload(resolved.training, processes)
    limit("SEQWRIGHT_JOIN_SECONDS")  # a wrong value is refused here, not once by each rank
    launcher.refuse_missing_devices(processes, machine.device(resolved.training.device))
    arguments = click.get_current_context().meta[ARGUMENTS]
    return launcher.launch(["train", *arguments], processes, lambda text: echo(text, err=True))


def _print_scores(summary: Mapping[str, Any]) -> None:
    """Prints the scores of a training, and on which data they were taken."""
    from seqwright.reporting.run_facts import scored_on

    scored_model = "" if summary.get("refitted") else summary["fingerprint"]
    print_scores(summary["scores"], scored_model, summary.get("baseline"))
    if sentence := scored_on(summary):
        echo(sentence)
