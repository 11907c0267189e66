"""Inspections: views of one forward pass of a run, as Python values, text, JSON and one HTML page."""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from seqwright.core.config import UserError, did_you_mean
from seqwright.core.storage import write_text
from seqwright.data.files import as_list
from seqwright.inspection.catalog import VIEWS
from seqwright.inspection.figures import HeadFigure
from seqwright.inspection.gain import check_comparable
from seqwright.inspection.gates import LayerGates
from seqwright.inspection.images import image_example
from seqwright.inspection.labeled import Attention
from seqwright.inspection.page import NOTEBOOK_STYLE, SCRIPT, STYLE
from seqwright.inspection.saliency import MAX_POSITIONS
from seqwright.inspection.subject import EmptySpanError, Options, Subject, ViewResult
from seqwright.reporting.markup import Html, element
from seqwright.runs.run import Run
from seqwright.studies.explain.explanation import Step
from seqwright.studies.explain.figures import LINE_WIDTH, Figure, notebook_html
from seqwright.studies.explain.page import stepped_page
from seqwright.tasks.example import example, file_examples
from seqwright.tasks.images.run import ImageInputRun


class Inspection:
    """A run inspected on a text: `inspection.attention[layer, head]`, `inspection["tokens"]`, …

    Views are computed when they are first read. Notebooks show the default view.
    """

    def __init__(self, subject: Subject, views: Sequence[str] = ()):
        self.subject = subject
        self._results: dict[str, ViewResult] = {}
        self._chosen = tuple(dict.fromkeys(views))
        if not self.views:
            run = subject.run
            raise UserError(
                f"{run.path} holds a model of kind '{run.settings.kind}', and inspect has no view of it; networks"
                " have some (train with --model lstm, for example)."
            )
        for name in self._chosen:
            self._check(name)
        for option in self._selected:
            self._check_selects(option)
        last, span = max(len(subject.example.source), len(subject.example.tokens)), subject.options.span
        if span is not None and span[0] > last:
            raise UserError(f"no tokens {span[0]}:{span[1]}: the last has the number {last}.")

    @functools.cached_property
    def views(self) -> tuple[str, ...]:
        """Names of the views that this run has."""
        return tuple(name for name, view in VIEWS.items() if view.has(self.subject))

    @property
    def default(self) -> tuple[str, ...]:
        """The view that is shown where none was chosen: the first that a layer or head selects from, where one is
        named; the gain over another run; or the first that the run has."""
        if self._selected:
            return next((name,) for name in self.views if set(self._selected) & set(VIEWS[name].selects))
        if self.subject.beside is not None and "attention" in self.views:
            return ("attention",)
        return ("gain",) if self.subject.against is not None else self.views[:1]

    @property
    def _selected(self) -> list[str]:
        return [name for name in ("head", "layer") if getattr(self.subject.options, name) is not None]

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens that the model read."""
        return self.subject.example.tokens

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out of the text."""
        return self.subject.example.notes

    @property
    def attention(self) -> Attention:
        """Attention weights: `attention[layer, head]`, `attention["cross"][layer, head]`."""
        value: Attention = self["attention"]
        return value

    @property
    def gates(self) -> list[LayerGates]:
        """Gate activations of each layer and direction: `gates[0]["forget"]`."""
        value: list[LayerGates] = self["gates"]
        return value

    def __getitem__(self, name: str) -> Any:
        """The values of a view."""
        return self.result(name).value

    def result(self, name: str) -> ViewResult:
        """A view as prose and figures, and its values."""
        self._check(name)
        if name not in self._results:
            self._results[name] = VIEWS[name].compute(self.subject)
        return self._results[name]

    def _check(self, name: str) -> None:
        if name not in VIEWS:
            raise UserError(f"no view '{name}'.{did_you_mean(name, VIEWS)}")
        if name not in self.views:
            run = self.subject.run
            how = " Name another run with --against." if name == "gain" else ""
            if name == "saliency" and len(self.tokens) > MAX_POSITIONS:
                how = f" Saliency of decoders is for texts of at most {MAX_POSITIONS} tokens."
            if name == "logit-lens" and getattr(run.settings.model.head, "softmaxes", 1) > 1:
                how = " A mixture of softmaxes has no logits: it mixes probabilities of several latent states."
            if name == "gates" and run.device.type != "cpu":  # padded batches bypass the module there (decision 125)
                how = " Open the run with device='cpu' for the gates of a bidirectional network."
            raise UserError(
                f"{run.path} holds a model of kind '{run.settings.kind}', which has no view '{name}'; it has"
                f" {', '.join(self.views)}.{how}"
            )

    def _check_selects(self, option: str) -> None:
        able = [name for name in self.views if option in VIEWS[name].selects]
        if set(self._chosen or able) & set(able):
            return
        run, chosen = self.subject.run, ", ".join(self._chosen or self.views)
        if able:
            raise UserError(f"--{option}: {chosen} has no {option}s; choose --view {able[0]}, or leave --{option} out.")
        raise UserError(
            f"--{option}: {run.path} holds a model of kind '{run.settings.kind}', whose views have no {option}s"
            f" ({chosen}); leave --{option} out."
        )

    @property
    def title(self) -> str:
        run = self.subject.run
        return f"{run.path.name} ({run.settings.kind})"

    def text(self) -> str:
        """The chosen views for a terminal; by default one of them."""
        names = self._chosen or self.default
        parts = [self.title, *(textwrap.fill(note, LINE_WIDTH) for note in self.notes)]
        steps = [step for name in names for step in (self.result(name).step, self._second(name)) if step is not None]
        parts += [step.text(n) for n, step in enumerate(steps, 1)]
        if others := [name for name in self.views if name not in names]:
            parts.append(f"other views (--view NAME, or --html FILE for all): {', '.join(others)}")
        return "\n\n".join(parts) + "\n"

    def as_json(self) -> dict[str, Any]:
        """The chosen views with all digits; by default one of them."""
        example, names = self.subject.example, self._chosen or self.default
        facts = {"run": str(self.subject.run.path), "model": self.subject.run.settings.kind, "text": example.text}
        facts |= {"tokens": list(example.tokens), "source": list(example.source), "notes": list(example.notes)}
        steps = {name: self.result(name).step.as_json() for name in names}
        seconds = {name: step.as_json() for name in names if (step := self._second(name)) is not None}
        facts |= {"second_text": seconds} if seconds else {}
        return facts | {"views": steps, "other_views": [name for name in self.views if name not in names]}

    def html(self) -> str:
        """A self-contained page of the chosen views; by default all that the run has."""
        steps: list[tuple[str, Html]] = []
        for name in self._chosen or self.views:
            try:
                step = self.result(name).step
            except EmptySpanError:
                if self._chosen:
                    raise
                continue  # the view of a shorter text, such as the source
            second = self._second(name)
            if second is not None:
                step = replace(step, heading=f"{step.heading} (first text)")
            steps.append((step.heading, step.html(len(steps) + 1)))
            if second is not None:
                steps.append((second.heading, second.html(len(steps) + 1)))
        example = self.subject.example
        shown = _shortened(example.text) if example.pixels is None else f"{example.text}."
        about = " · ".join([*([shown] if example.text else []), *self.notes])
        command = f"seqwright inspect {self.subject.run.path.name}"
        return stepped_page(self.title, about, steps, command=command, style=STYLE, script=SCRIPT)

    @functools.cached_property
    def _other(self) -> Inspection | None:
        """The second text, inspected alone."""
        subject = self.subject
        if subject.beside is None:
            return None
        return Inspection(Subject(subject.run, subject.beside, subject.options, subject.against))

    def _second(self, name: str) -> Step | None:
        """A view of the second text; the attention of both is one view, with one choice of layer and head."""
        if self._other is None or name == "attention" or name not in self._other.views:
            return None
        try:
            step = self._other.result(name).step
        except EmptySpanError:
            return None
        return replace(step, heading=f"{step.heading} (second text)")

    def write_html(self, path: str | Path) -> Path:
        """Writes the page; returns its path."""
        write_text(Path(path), self.html())
        return Path(path)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<Inspection of {self.title}: {len(self.tokens)} tokens; views {', '.join(self.views)}>"

    def _repr_html_(self) -> str:
        steps = [self.result(name).step for name in self._chosen or self.default]
        drawn = [replace(step, figures=[_still(figure) for figure in step.figures]) for step in steps]
        parts = [element("h3", self.title), *(element("p", note) for note in self.notes)]
        return notebook_html(*parts, *(step.html(n) for n, step in enumerate(drawn, 1)), style=NOTEBOOK_STYLE)


def inspect(
    run: Run,
    text: str | None = None,
    *,
    views: str | Sequence[str] = (),
    target: str | None = None,
    against: Run | None = None,
    layer: int | None = None,
    head: int | None = None,
    top: int = 5,
    on: str | None = None,
    beside: str | None = None,
    image: int = 0,
    span: tuple[int, int] | None = None,
) -> Inspection:
    """A run inspected on a text, or on a sample of its validation data.

    `target` is what a translator is taken to have generated; `against` another language model with the same tokenizer;
    `layer` and `head`, from 0, select what is shown of attention, gates and logit lens. `on` is a file over which the
    statistics of heads are taken, in place of a text; `beside` a second text whose attention is shown beside that of
    the first. `span` selects the rows of tables by the numbers of their tokens: (3, 8) has five. Of runs of images,
    `text` is a file, and `image` counts its images from 0.
    """
    views = as_list(views)
    if unknown := [name for name in views if name not in VIEWS]:
        raise UserError(f"no view '{unknown[0]}'.{did_you_mean(unknown[0], VIEWS)}")
    if against is not None:
        check_comparable(run, against)
    options = Options(layer=layer, head=head, top=top, on=on, span=span)
    if isinstance(run, ImageInputRun):
        if on is not None or beside is not None:
            raise UserError("--on and --beside are for texts; name one image file after the run.")
        return Inspection(Subject(run, image_example(run, text, target, image), options), views)
    if image:
        raise UserError(f"--image is for runs of images; {run.path} {run.description}.")
    if on is None:
        first = example(run, text, target)
        if beside is None:
            return Inspection(Subject(run, first, options, against), views)
        first = replace(first, notes=(*first.notes, f"second text: {_shortened(beside)}"))
        return Inspection(Subject(run, first, options, against, example(run, beside)), views)
    if any(one is not None for one in (text, target, beside, against)) or tuple(views or ["heads"]) != ("heads",):
        raise UserError("--on FILE is for the statistics of heads; leave texts, --against and other views out.")
    return Inspection(Subject(run, next(file_examples(run, on)), options), ("heads",))


def _still(figure: Figure) -> Figure:
    """A figure that needs no script."""
    return figure.matrix() if isinstance(figure, HeadFigure) else figure


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return f"“{line}”" if len(line) <= 160 else f"“{line[:160]}…”"
