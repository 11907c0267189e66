"""The reference of recipe keys, from the configuration classes: for `recipes --keys` and docs/reference.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from seqwright import build
from seqwright.core.config import Key, describe, section_of, write_value
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
            for (kind, keys), tasks in _models().items():
                cls = build.task_spec(tasks[0]).models[kind].config
                all_entries += _keys_of(cls, keys, tuple(tasks), section, kind)
            continue
        for cls, tasks in _classes(section).items():
            all_entries += _keys_of(cls, describe(cls), tuple(tasks), section, None)
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


def _classes(section: str) -> dict[Any, list[str]]:
    """The classes behind a section other than [model], with the kinds of data that have it."""
    tasks: dict[Any, list[str]] = {}
    for task in build.TASKS:
        tasks.setdefault(recipe.sections(task)[section], []).append(task)
    return tasks


def _models() -> dict[tuple[str, tuple[Key, ...]], list[str]]:
    """The kinds of models with their keys, and the kinds of data that have them."""
    tasks: dict[tuple[str, tuple[Key, ...]], list[str]] = {}
    for task, task_spec in build.TASKS.items():
        for kind in task_spec.models:
            tasks.setdefault((kind, build.model_keys(kind, task=task)), []).append(task)
    return tasks


def _keys_of(cls: type, keys: Sequence[Key], tasks: tuple[str, ...], section: str, kind: str | None) -> Iterator[Entry]:
    inner = []
    own = {key.name for key in describe(cls)}  # those of a head hold no sections
    for key in keys:
        default = "" if key.default is None else write_value(key.default)
        yield Entry(tasks, section, kind, key.name, key.type, default, key.help)
        if key.name in own and (nested := section_of(cls, key.name)) is not None:
            inner.append((nested, f"{section}.{key.name}"))
    for nested, place in inner:
        yield from _keys_of(nested, describe(nested), tasks, place, kind)


def _plain(text: str) -> str:
    """Text that Markdown takes for no tag."""
    return text.replace("<", "\\<")


def _heading(entry: Entry) -> str:
    kind = f', kind = "{entry.kind}"' if entry.kind else ""
    shared = "" if len(entry.data) == len(build.TASKS) else f" ({', '.join(entry.data)})"
    return f"[{entry.section}]{kind}{shared}" if entry.section else "First"
