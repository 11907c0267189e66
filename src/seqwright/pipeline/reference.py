"""The reference of recipe keys, from the configuration classes: for `recipes --keys` and docs/reference.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from seqwright import build
from seqwright.core.config import describe, section_of, write_value
from seqwright.pipeline import recipe


@dataclass(frozen=True)
class Entry:
    """One key, for all kinds of data that have the same section."""

    data: tuple[str, ...]
    """The kinds of data."""
    section: str
    """As it stands in a recipe: `data`, `model`, `model.adaptive`."""
    kind: str | None
    """The model's kind, where the keys depend on it."""
    key: str
    type: str
    default: str
    """As it would be written; empty where the key is left out."""
    help: str


def entries() -> list[Entry]:
    """All keys, section by section; a section that several kinds of data share is there once."""
    all_entries: list[Entry] = [Entry(tuple(build.TASKS), "", None, "name", "a string", "", "What the run is called.")]
    for section in recipe.SECTIONS:
        if section == "model":
            for task, task_spec in build.TASKS.items():
                kinds = " | ".join(f'"{kind}"' for kind in task_spec.models)
                about = "What the model is; its other keys depend on it."
                all_entries.append(
                    Entry((task,), section, None, "kind", kinds, write_value(task_spec.default_model), about)
                )
        for (cls, kind), tasks in _classes(section).items():
            all_entries += _keys_of(cls, tuple(tasks), section, kind)
    return all_entries


def markdown() -> str:
    """The page docs/reference.md."""
    lines = [
        "# Every key of a recipe",
        "",
        "Made by `seqwright recipes --markdown > docs/reference.md`. A recipe states only what departs from the",
        "defaults; `--set section.key=value` overrides it.",
    ]
    group = None
    for entry in entries():
        if group != (entry.section, entry.kind, entry.data):
            group = entry.section, entry.kind, entry.data
            lines += ["", f"## {_heading(entry)}", "", "| key | type | default | meaning |", "|---|---|---|---|"]
        default = f"`{entry.default}`" if entry.default else ""
        cells = (f"`{entry.key}`", _plain(entry.type), default, _plain(entry.help))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _classes(section: str) -> dict[tuple[type, str | None], list[str]]:
    """The classes behind a section, with the kind of model that each is of, and the kinds of data that have it."""
    tasks_of: dict[tuple[type, str | None], list[str]] = {}
    for task, task_spec in build.TASKS.items():
        cls = recipe.sections(task)[section]
        classes = [(cls, None)] if cls else [(made, kind) for kind, (made, _) in task_spec.models.items()]
        for one in classes:
            tasks_of.setdefault(one, []).append(task)
    return tasks_of


def _keys_of(cls: type, tasks: tuple[str, ...], section: str, kind: str | None) -> Iterator[Entry]:
    inner = []
    for key in describe(cls):
        default = "" if key.default is None else write_value(key.default)
        yield Entry(tasks, section, kind, key.name, key.type, default, key.help)
        if (nested := section_of(cls, key.name)) is not None:
            inner.append((nested, f"{section}.{key.name}"))
    for nested, place in inner:
        yield from _keys_of(nested, tasks, place, kind)


def _plain(text: str) -> str:
    """Text that Markdown takes for no tag."""
    return text.replace("<", "\\<")


def _heading(entry: Entry) -> str:
    kind = f', kind = "{entry.kind}"' if entry.kind else ""
    shared = "" if len(entry.data) == len(build.TASKS) else f" ({', '.join(entry.data)})"
    return f"[{entry.section}]{kind}{shared}" if entry.section else "First"
