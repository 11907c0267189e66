"""Images to answers: what is on them, in each frame of them, or how they were before they were spoilt."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from seqwright import __version__
from seqwright.core.batch import IGNORE, Batch, EncoderSizes, Source
from seqwright.core.config import UserError
from seqwright.core.protocols import Watch, unwatched
from seqwright.core.storage import write_json
from seqwright.data.images.corpus import Images, ImagesConfig, read_splits
from seqwright.data.images.files import Pixels
from seqwright.data.images.image_codec import ImageCodec
from seqwright.data.images.patches import Grid, ImageFeed, to_pixels
from seqwright.metrics.counts import Counts, mean, scores_json, values
from seqwright.metrics.score import Floats
from seqwright.reporting.png import base64_png, sheet
from seqwright.runs.directory import RunDirectory
from seqwright.tasks.base import Note, Settings, fingerprint_of, held_out_notes, spread
from seqwright.tasks.classification.details import calibrated
from seqwright.tasks.classification.scores import ClassificationOptions, counted, tempered
from seqwright.tasks.classification.task import judged
from seqwright.tasks.images.run import ImageInputRun

SHOWN = 8
"""Images in the log at each sampling."""
AT_ONCE = 256
"""Images looked at together."""
PEAK = 2.0
"""From black to white, where black is -1."""
LEAST = 1e-12
"""Errors nearer to 0 are not told apart from it."""


@dataclass(frozen=True, kw_only=True)
class NoTokenizer:
    """Images are no text: [tokenizer] has no keys."""

    files: ClassVar[tuple[str, ...]] = ()


class ImageTask:
    """The data side of training a model that sees."""

    def __init__(self, settings: Settings, directory: RunDirectory, note: Note):
        self.settings, self.note = settings, note
        data: ImagesConfig = settings.data
        self.train, self.valid = read_splits(data)
        self.sight = ImageCodec.of(self.train, data)
        if self.valid is not None:
            self.valid = self.sight.grid.fitted(self.valid)
            self.sight.targets(self.valid)  # an unknown class is refused before anything is learned
        if not directory.labels_path.exists():  # of another session: its hash is in the manifest
            write_json(directory.labels_path, self.sight.table())
        held_out = held_out_notes(data.split, None if self.valid is None else len(self.valid), "pictures")
        for said in (*self.train.notes, *held_out):
            note(said)
        grid = self.sight.grid
        note(
            f"{len(self.train):,} training pictures of {grid.height} × {grid.width} × {grid.channels}, each in"
            f" {grid.length} patches of {grid.patch_dim} numbers."
        )

    @property
    def sizes(self) -> EncoderSizes:
        return self.sight.sizes

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(*(one.fingerprint for one in (self.train, self.valid) if one is not None))

    @property
    def corpus(self) -> Images:
        return self.train

    def feed(self, model: Any) -> ImageFeed:
        training = self.settings.training
        return self.sight.feed(self.train, self.settings.data, seed=training.seed, batch=training.batch_size)

    def evaluate(self, model: Any, device: torch.device | str, *, quick: bool) -> dict[str, Any] | None:
        if self.valid is None:
            return None
        return evaluated(model, self.valid, self.sight, self.settings, device, quick=quick, fit=True)

    def sample(self, model: Any, device: torch.device | str) -> list[dict[str, str]]:
        shown = self.train if self.valid is None else self.valid
        some = shown.take(spread(len(shown), SHOWN))
        _, batch = self.sight.feed(some, self.settings.data, seed=0, batch=SHOWN).eval_batch(0)
        answer = answered(model, batch, device)
        if not self.sight.names:
            picture = sheet([*shown_pictures(batch, answer, self.sight.grid), some.pixels])
            text = "above: what was shown; then what was answered; below: what was wanted"
            return [{"prompt": "", "text": text, "picture": base64_png(picture)}]
        said = [said_of(row, self.sight.names)[0] for row in answer]
        return [
            {
                "prompt": "",
                "text": ", ".join(said),
                "reference": ", ".join(some.labels or ()),
                "picture": base64_png(sheet([some.pixels])),
            }
        ]

    def show(self, batch: Batch) -> str:
        return f"{batch.rows} pictures"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a model says of a picture."""

    label: str
    """The class; of a strip, those of its frames with spaces between them."""
    probability: float
    """Of the label; of a strip, of all its labels together."""
    probabilities: dict[str, float] | None
    """Of every class; None for a strip, which has them for each frame."""

    @property
    def said(self) -> str:
        """Label and probability as a person reads them."""
        return f"{self.label} ({self.probability:.2f})"


class ImageRun(ImageInputRun):
    """A trained model that sees: `run = seqwright.open("runs/x"); run.classify(["a.png"])`."""

    does = "answers about pictures"
    verbs = ("classify", "evaluate")

    @staticmethod
    def sizes(directory: RunDirectory) -> EncoderSizes:
        return ImageCodec.read(directory.labels_path).sizes

    @functools.cached_property
    def sight(self) -> ImageCodec:
        return ImageCodec.read(self.directory.labels_path)

    @property
    def grid(self) -> Grid:
        return self.sight.grid

    def source(self, rows: int, length: int) -> Source:
        return self.example(rows, length).source

    def example(self, rows: int, length: int) -> Batch:
        """Made-up pictures, each with another answer."""
        names = self.sight.names
        said = [
            " ".join(names[(row + n) % len(names)] for n in range(self.grid.frames))
            for row in range(rows if names else 0)
        ]
        pictures = Images(pixels=self.made_up(rows), labels=tuple(said) or None)
        return self.sight.feed(pictures, self.settings.data, seed=0, batch=rows).eval_batch(0)[1]

    def classify(self, files: Iterable[str], **options: Any) -> Iterator[Seen]:
        """What is on each picture of some files, in order; options are those of the recipe's [decoding] section."""
        temperature = self._temperature(replace(self.settings.decoding, **options))
        if not self.sight.names:
            raise UserError(f"{self.path} answers with pictures, not with classes; see its report.html.")
        for name in files:
            found = self.sight.feed(self.pictures([name]), self.settings.data, seed=0, batch=AT_ONCE, labeled=False)
            for step in range(found.steps_per_epoch):
                answers = answered(self.model, found.eval_batch(step)[1], self.device)
                for row in tempered(answers, temperature):
                    label, probability = said_of(row, self.sight.names)
                    likely = (
                        dict(zip(self.sight.names, row.tolist(), strict=True))
                        if row.size == len(self.sight.names)
                        else None
                    )
                    yield Seen(label=label, probability=probability, probabilities=likely)

    def restore(self, pictures: Images) -> Iterator[tuple[Pixels, Pixels]]:
        """Of each picture what the model was shown and what it made of that: pixels (H, W, C)."""
        found = self.sight.feed(pictures, self.settings.data, seed=0, batch=AT_ONCE)
        for step in range(found.steps_per_epoch):
            _, batch = found.eval_batch(step)
            given, best = shown_pictures(batch, answered(self.model, batch, self.device), self.sight.grid)
            yield from zip(given, best, strict=True)

    def evaluate(
        self, on: str | Sequence[str] | None = None, *, watch: Watch = unwatched, **options: Any
    ) -> dict[str, Any]:
        """Scores on pictures, or on the run's own validation pictures."""
        decoding = replace(self.settings.decoding, temperature=self._temperature(self.settings.decoding))
        settings = replace(self.settings, evaluation=replace(self.settings.evaluation, **options), decoding=decoding)
        pictures = self.pictures(on)
        scores = evaluated(self.model, pictures, self.sight, settings, self.device, watch)
        return scores | {"pictures": len(pictures)}

    def _temperature(self, options: ClassificationOptions) -> float | None:
        """What was asked for, or what suited the validation pictures."""
        return options.temperature or self.directory.summary().get("temperature")


def said_of(answer: Floats, names: Sequence[str]) -> tuple[str, float]:
    """The likeliest class of a picture, or of each of its frames, and the probability of what is said."""
    rows = answer.reshape(-1, len(names))
    return " ".join(names[n] for n in rows.argmax(-1)), float(rows.max(-1).prod())


@torch.inference_mode()
def answered(model: Any, batch: Batch, device: torch.device | str) -> Floats:
    """Probabilities (B, C) or (B, frames, C), or patches (B, S, P)."""
    model.eval()
    logits = model(batch.to(device)).double()
    return (logits if batch.target.is_floating_point() else logits.softmax(-1)).cpu().numpy()


def evaluated(
    model: Any,
    pictures: Images,
    sight: ImageCodec,
    settings: Settings,
    device: torch.device | str,
    watch: Watch = unwatched,
    *,
    quick: bool = False,
    fit: bool = False,
) -> dict[str, Any]:
    """What the answers are worth; pictures are spoilt the same way every time. `fit`: with the temperature that suits
    them."""
    found = sight.feed(pictures, settings.data, seed=0, batch=AT_ONCE)
    answers, shown = [], []
    for step in range(found.steps_per_epoch):
        rows, batch = found.eval_batch(step)
        answer = answered(model, batch, device)
        if sight.names:
            answers.append(answer.reshape(-1, len(sight.names)))
        else:
            assert batch.source.features is not None
            answers.append(errors(answer, batch.target.numpy()))
            shown.append(errors(batch.source.features.numpy(), batch.target.numpy()))
        watch(int(rows[-1]) + 1, len(pictures))
    if found.targets is None:
        counts = restored(np.concatenate(answers), np.concatenate(shown), settings.data.objective)
    else:
        plain = np.concatenate(answers)
        likely = tempered(plain, settings.decoding.temperature)
        wanted, fingerprint = found.targets.reshape(-1), pictures.fingerprint
        if not quick:
            judgment = judged(likely, wanted, sight.labels, (), settings, fingerprint)
            return judgment | (calibrated(plain, wanted, sight.labels) if fit else {})
        counts = counted(likely, wanted, sight.labels, settings.decoding, fingerprint)
    return values(counts) if quick else scores_json(counts, settings.evaluation)


def restored(made: Floats, given: Floats, answer: str) -> Iterator[Counts]:
    """How near to what was wanted answers that are pictures come, and how near what was shown came."""
    facts = f"{answer}|pictures:{len(made)}|seqwright:{__version__}"
    yield Counts(name="nll", rows=made, formula=normal, signature=f"nll|deviation:0.3989|{facts}", better=-1)
    yield Counts(name="squared_error", rows=made, formula=mean, signature=f"squared_error|range:2|{facts}", better=-1)
    yield Counts(name="psnr", rows=made, formula=decibels, signature=f"psnr|{facts}")
    yield Counts(name="psnr_shown", rows=given, formula=decibels, signature=f"psnr|of:what-was-shown|{facts}")


def errors(answer: Floats, target: Floats) -> Floats:
    """(B, 2): squared errors, and how many numbers were asked for."""
    asked = (target != IGNORE).astype(float)
    return np.stack([((answer - target) ** 2 * asked).sum((1, 2)), asked.sum((1, 2))], 1)


def normal(sums: Floats) -> Floats:
    """Of the normal distribution about each number that pictures are learned by (RegressionHead)."""
    return np.pi * mean(sums)


def decibels(sums: Floats) -> Floats:
    """Ten decimal logarithms of the peak's square over the mean squared error."""
    return 10 * np.log10(PEAK**2 / np.maximum(mean(sums), LEAST))


def shown_pictures(batch: Batch, answer: Floats, grid: Grid) -> tuple[Pixels, Pixels]:
    """What was shown and what was answered, as pixels; where nothing was asked, the answer shows what was there."""
    assert batch.source.features is not None
    given, target = batch.source.features.numpy(), batch.target.numpy()
    best = np.where(target == IGNORE, given, answer)
    return to_pixels(grid.images(given)), to_pixels(grid.images(best))
