"""`seqwright caption`: captions of images."""

from __future__ import annotations

from dataclasses import asdict

import click

from seqwright.commands.common import (
    DEVICE,
    JSON,
    PRECISION,
    RUN,
    SET,
    echo,
    predict_images,
    print_json,
    search_options_from,
)


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
    """Caption each image of FILES (image files, folders of them, .npz or IDX files), one line per image.

    \b
    seqwright caption runs/digit-captions strip.png
    seqwright caption runs/digit-captions strips.npz --set decoding.n_best=3 --json
    """
    from seqwright.api import open as open_run

    opened = open_run(run, device=device, precision=precision)
    options = search_options_from(overrides, opened.settings.decoding, {})
    for location, caption in predict_images(files, lambda names: opened.caption(names, **options)):
        if as_json:
            print_json(location | asdict(caption))
        else:
            echo(caption.text if [*files] == [location["file"]] else f"{location['file']}: {caption.text}")
