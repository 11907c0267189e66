"""`seqwright plan`: parameters, arithmetic, memory and time of a recipe before a step is taken."""

from __future__ import annotations

import click

from seqwright.commands.common import JSON, print_json, print_parts


@click.command("plan")
@click.argument("recipe")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a recipe key; may be repeated.")
@click.option("--vocabulary", type=click.IntRange(2), metavar="N", help="Vocabulary size, where only the data have it.")
@click.option("--labels", type=click.IntRange(1), metavar="N", help="Number of classes or tags; 2 by default.")
@click.option("--length", type=click.IntRange(1), metavar="N", help="Tokens of a row; by default the longest allowed.")
@click.option("--gpus", type=click.IntRange(1), metavar="N", help="Also forecast training on N GPUs: DDP and FSDP2.")
@click.option("--gpu", default="H100", metavar="KIND", help="Kind of these GPUs: A100, H100 (default) or H200.")
@click.option("--measure", is_flag=True, help="Read the data and time a few steps beside the forecast.")
@JSON
def command(
    recipe: str,
    overrides: tuple[str, ...],
    vocabulary: int | None,
    labels: int | None,
    length: int | None,
    gpus: int | None,
    gpu: str,
    measure: bool,
    as_json: bool,
) -> None:
    """Plan RECIPE: layers with output shapes, parameters, multiply-adds and memory; training cost and time.

    Nothing is trained, and without --measure no data are read. Of a run, its vocabulary and labels are taken.

    \b
    seqwright plan imdb-cnn
    seqwright plan gpt3-175b
    seqwright plan gpt3-6.7b --gpus 64 --set training.precision=bf16
    seqwright plan lecture-generation --measure
    seqwright plan runs/notes-gpt --set model.layers=12               (the recipe of a run, and its vocabulary)
    """
    from seqwright.api import plan
    from seqwright.reporting.progress import TerminalProgress

    sizes = {"vocabulary": vocabulary, "labels": labels, "length": length}
    with TerminalProgress(quiet=as_json or not measure) as progress:
        made = plan(recipe, set=overrides, **sizes, gpus=gpus, gpu=gpu, measured=measure, progress=progress)
    if as_json:
        print_json(made.as_json())
    else:
        print_parts(made.printed())
