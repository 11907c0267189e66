"""`seqwright caption`."""

from __future__ import annotations

from dataclasses import asdict

import click

from seqwright.commands.common import DEVICE, JSON, PRECISION, RUN, SET, each_picture, options_from, print_json


@click.command("caption")
@RUN
@click.argument("files", nargs=-1, required=True)
@SET
@DEVICE
@PRECISION
@JSON
def command(
    run: str, files: tuple[str, ...], overrides: tuple[str, ...], device: str, precision: str, as_json: bool
) -> None:
    """What is on each picture of FILES (image files, folders of them, .npz or IDX files), a line for each.

    \b
    seqwright caption runs/digit-captions strip.png
    seqwright caption runs/digit-captions strips.npz --set decoding.n_best=3 --json
    """
    from seqwright.api import open as open_run

    opened = open_run(run, device=device, precision=precision)
    options = options_from(overrides, "decoding", type(opened.settings.decoding))
    for where, said in each_picture(files, lambda names: opened.caption(names, **options)):
        if as_json:
            print_json(where | asdict(said))
        else:
            click.echo(said.text if [*files] == [where["file"]] else f"{where['file']}: {said.text}")
