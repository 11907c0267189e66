"""`seqwright recipes`."""

from __future__ import annotations

import click

from seqwright.commands.common import JSON, print_json, print_table


@click.command("recipes")
@click.argument("name", required=False)
@click.option("--keys", is_flag=True, help="List every key a recipe may have, with its default and meaning.")
@JSON
def command(name: str | None, keys: bool, as_json: bool) -> None:
    """List the recipes that come with seqwright; print the one of that NAME; or list all keys."""
    from seqwright import recipe
    from seqwright.reporting.terminal import Column, table

    if keys:
        rows = _keys()
        columns = [
            Column("key", "key"),
            Column("type", "type"),
            Column("default", "default"),
            Column("help", "meaning"),
        ]
    elif name:
        text = recipe.find(name).read_text(encoding="utf-8")
        print_json({"name": name, "toml": text}) if as_json else click.echo(text, nl=False)
        return
    else:
        rows = [{"name": name, "about": recipe.about(path)} for name, path in recipe.shipped().items()]
        columns = [Column("name", "name"), Column("about", "what it shows")]
    if as_json:
        for row in rows:
            print_json(row)
    else:
        print_table(table(rows, columns))


def _keys() -> list[dict[str, str]]:
    from seqwright import build, recipe
    from seqwright.config import describe

    rows = []
    for task, kit in build.TASKS.items():
        for section, cls in recipe.sections(task).items():
            classes = {section: cls} if cls else {f"{section} ({k})": made[0] for k, made in kit.models.items()}
            if cls is None:
                kinds = " | ".join(f'"{kind}"' for kind in kit.models)
                row = {"data": task, "key": "model.kind", "type": kinds, "default": kit.default_model}
                rows.append(row | {"help": "What the model is; its other keys depend on it."})
            for place, described in classes.items():
                for key in describe(described):
                    default = "" if key.default is None else str(key.default)
                    row = {"data": task, "key": f"{place}.{key.name}", "type": key.type}
                    rows.append(row | {"default": default, "help": key.help})
    return rows
