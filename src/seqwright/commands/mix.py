"""`seqwright mix`: an ensemble of several runs as one run."""

from __future__ import annotations

from pathlib import Path

import click

from seqwright.commands.checks import existing_run
from seqwright.commands.common import DEVICE, JSON, MultiValueCommand, echo, on_files, print_json, print_table


@click.command("mix", cls=MultiValueCommand)
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN...", type=click.Path(), callback=existing_run)
@on_files(
    "Held-out text, or a source and its target, to tune the weights on. Default: equal weights for translators,"
    " the validation text for language models and classifiers."
)
@click.option("--ngram", is_flag=True, help="Language models: add an n-gram, fitted to the first run's training text.")
@click.option("--geometric", is_flag=True, help="Log-linear (geometric) mixture, p ∝ Π p_i^weight.")
@click.option("--run", "run", type=click.Path(), required=True, help="Folder of the new run.")
@DEVICE
@JSON
def command(
    runs: tuple[str, ...], on: tuple[str, ...], ngram: bool, geometric: bool, run: str, device: str, as_json: bool
) -> None:
    """Interpolate several runs, p = Σ weight p_i, with weights that maximize the likelihood of held-out data (EM).

    Language models must share a tokenizer (n-grams mix with neural models); translators must share both vocabularies;
    classifiers must share their classes and may have different tokenizers. Classifiers, and language models with
    --ngram, are mixed linearly or log-linearly (p ∝ Π p_i^weight, with --ngram interpolated with its parts), whichever
    has the lower held-out NLL. The new run contains all weights: the old ones may be deleted.

    \b
    seqwright mix runs/notes-gpt --ngram --run runs/notes-mixed
    seqwright mix runs/ptb-ngram runs/ptb-lstm --on ptb/ptb.valid.txt.xz --run runs/ptb-mixed
    seqwright mix runs/en-de-1 runs/en-de-2 runs/en-de-3 --run runs/en-de
    seqwright mix runs/en-de-1 runs/en-de-gru --on valid.en valid.de --run runs/en-de
    seqwright mix runs/reviews-bag runs/reviews-lstm --on held-out.tsv --run runs/reviews-mixed
    """
    from seqwright.api import open as open_run
    from seqwright.reporting.numbers import figure
    from seqwright.reporting.terminal import Column, table
    from seqwright.studies.mix import mix
    from seqwright.studies.mix_ngram import mix_with_ngram

    parts = [open_run(path, device=device) for path in runs]
    if ngram:
        summary = mix_with_ngram(parts, on, Path(run), open_run=open_run, geometric=geometric)
        again = ", fitted again on all text (data.refit)" if parts[0].settings.data.split else ""
        echo(f"the n-gram is in {summary['parts'][-1]['run']}{again}.", err=True)
    else:
        summary = mix(parts, on, Path(run), geometric=geometric)
    if as_json:
        print_json({"run": run, "summary": summary})
        return
    tuned = summary.get("tuned", {})
    numbers = [name for name in ("weight", "interpolation") if name in summary["parts"][0]] + list(tuned)
    columns = [Column("run", "run"), *(Column(name, name.replace("_", " "), figure) for name in numbers)]
    print_table(table([*summary["parts"], {"run": run} | tuned], columns))
    if summary.get("mean") == "geometric":
        chosen = "" if geometric else " (lower NLL than Σ weight p_i)"
        echo(f"log-linear mixture, p ∝ Π p_i^weight{chosen}; its weights need not sum to 1.")
        if shares := [part["interpolation"] for part in summary["parts"] if "interpolation" in part]:
            echo(f"interpolated with its parts: it has {1 - sum(shares):.4f} of a linear mixture with them.")
    for warning in summary.get("warnings", ()):
        echo(f"warning: {warning}", err=True)
    if tuned:
        held_out = " ".join(on) or "the validation texts"
        held_out = f"{summary['tuned_tokens']:,} target tokens of {held_out}" if "tuned_tokens" in summary else held_out
        echo(f"measured on {held_out}, on which the weights were tuned; evaluate {run} on other text.")
