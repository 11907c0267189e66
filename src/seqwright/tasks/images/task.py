"""Image models: classes of images or of their frames, and restoration of corrupted images; runs that classify."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from seqwright.core.batch import IGNORE, Batch, Source
from seqwright.core.config import UserError, with_options
from seqwright.core.notebook import NotebookTable
from seqwright.core.progress import SILENT, Progress
from seqwright.data.images.corpus import Images, ImagesConfig, read_splits
from seqwright.data.images.files import Pixels
from seqwright.data.images.patches import Grid, ImageFeed, to_pixels
from seqwright.metrics.score import Floats
from seqwright.reporting.png import base64_png, sheet
from seqwright.runs.directory import RunDirectory
from seqwright.runs.overlap import warns_of_training_data
from seqwright.tasks.base import Settings, combined_fingerprint, evenly_spaced, held_out_notes
from seqwright.tasks.classification.scores import ClassificationOptions, scale_temperature
from seqwright.tasks.codec import open_or_learn
from seqwright.tasks.images.codec import ImageCodec
from seqwright.tasks.images.movies import CAPTION, movie_sheet, rollout
from seqwright.tasks.images.run import ImageInputRun, one_or_many_images
from seqwright.tasks.images.scores import BATCH_IMAGES, evaluate, predict
from seqwright.tasks.scores import Scores

SAMPLES = 8
"""Images in the log at each sampling."""


@dataclass(frozen=True, kw_only=True)
class NoTokenizer:
    """Images have no tokenizer: [tokenizer] has no keys."""

    files: ClassVar[tuple[str, ...]] = ()


class ImageTask:
    """Training of an image model."""

    def __init__(self, settings: Settings, directory: RunDirectory, progress: Progress):
        self.settings = settings
        data: ImagesConfig = settings.data
        self.train, self.valid = read_splits(data)
        self.codec = open_or_learn(ImageCodec, directory, lambda: ImageCodec.learn(self.train, data))
        grid = self.codec.grid
        if self.valid is not None:
            self.valid = grid.fitted(self.valid)
            self.codec.targets(self.valid)  # refuses unknown classes before training
        held_out = held_out_notes(data.split, None if self.valid is None else len(self.valid), "images")
        for note in (*self.train.notes, *held_out):
            progress.note(note)
        progress.note(
            f"{len(self.train):,} training images of {grid.height} × {grid.width} × {grid.channels}, each in"
            f" {grid.length} patches of {grid.patch_dim} numbers."
        )

    @property
    def fingerprint(self) -> str:
        return combined_fingerprint(*(images.fingerprint for images in (self.train, self.valid) if images is not None))

    @property
    def corpus(self) -> Images:
        return self.train

    def feed(self, model: Any) -> ImageFeed:
        training = self.settings.training
        return self.codec.feed(self.train, self.settings.data, seed=training.seed, batch=training.batch_size)

    def evaluate(self, model: Any, device: torch.device | str, *, quick: bool) -> Scores | None:
        if self.valid is None:
            return None
        return evaluate(model, self.codec, self.valid, self.settings, device=device, quick=quick, fit=True)

    @torch.inference_mode()
    def sample(self, model: Any, device: torch.device | str) -> list[dict[str, str]]:
        images = self.train if self.valid is None else self.valid
        images = images.take(evenly_spaced(len(images), SAMPLES))
        batch = self.codec.evaluation_feed(images, self.settings.data, batch=SAMPLES).batch(0)
        outputs = predict(model, batch.to(device))
        if self.codec.objective == "next-frame":
            rolled_out = rollout(model, batch.to(device))
            image = movie_sheet(images.pixels, batch, outputs, rolled_out, self.codec.grid)
            return [{"prompt": "", "text": CAPTION, "image": base64_png(image)}]
        if not self.codec.names:
            image = sheet([*reconstructions(batch, outputs, self.codec.grid), images.pixels])
            text = "three rows: input, output and target"
            return [{"prompt": "", "text": text, "image": base64_png(image)}]
        labels = [predicted_label(row, self.codec.names)[0] for row in outputs]
        return [
            {
                "prompt": "",
                "text": ", ".join(labels),
                "reference": ", ".join(images.labels or ()),
                "image": base64_png(sheet([images.pixels])),
            }
        ]

    def show(self, batch: Batch) -> str:
        return f"{batch.rows} images"


@dataclass(frozen=True, kw_only=True)
class ClassifiedImage(NotebookTable):
    """The prediction for an image."""

    label: str
    """The class; of a strip, those of its frames with spaces between them."""
    probability: float
    """Of the label; of a strip, of all its labels together."""
    probabilities: dict[str, float] | None
    """Of every class; None for a strip, which has them for each frame."""

    def __str__(self) -> str:
        """Label and probability: `seven (0.98)`."""
        return f"{self.label} ({self.probability:.2f})"


class ImageRun(ImageInputRun):
    """A trained image model: `run = seqwright.open("runs/x"); run.classify("a.png")`."""

    description = "classifies or restores images"
    verbs = ("classify", "evaluate")
    codec_class = ImageCodec

    def source(self, rows: int, length: int) -> Source:
        return self.example(rows, length).source

    def example(self, rows: int, length: int) -> Batch:
        """Synthetic images with targets that differ between rows."""
        names = self.codec.names
        labels = [
            " ".join(names[(row + n) % len(names)] for n in range(self.grid.frames))
            for row in range(rows if names else 0)
        ]
        images = Images(pixels=self.synthetic_pixels(rows), labels=tuple(labels) or None)
        return self._feed(images, batch=rows).batch(0)

    @one_or_many_images
    @torch.inference_mode()
    def classify(self, files: Iterable[str], **options: Any) -> Iterator[ClassifiedImage]:
        """The class of each image of files, or of one image file; options are keys of [decoding]."""
        decoding, names = self._decoding(**options), self.codec.names
        if not names:
            raise UserError(f"{self.path} predicts images, not classes; see its report.html.")
        for file in files:
            feed = self._feed(self.images([file]), labeled=False)
            for step in range(feed.steps_per_epoch):
                outputs = predict(self.model, feed.batch(step).to(self.device))
                for row in scale_temperature(outputs, decoding.temperature):
                    label, probability = predicted_label(row, names)
                    of_classes = dict(zip(names, row.tolist(), strict=True)) if row.size == len(names) else None
                    yield ClassifiedImage(label=label, probability=probability, probabilities=of_classes)

    @torch.inference_mode()
    def restore(self, images: Images) -> Iterator[tuple[Pixels, Pixels]]:
        """The corrupted and the restored pixels (H, W, C) of each image."""
        feed = self._feed(images)
        for step in range(feed.steps_per_epoch):
            batch = feed.batch(step)
            outputs = predict(self.model, batch.to(self.device))
            yield from zip(*reconstructions(batch, outputs, self.grid), strict=True)

    @warns_of_training_data
    def evaluate(self, on: str | Sequence[str] | None = None, *, progress: Progress = SILENT, **options: Any) -> Scores:
        """Scores on images of files, or on the validation images of the run."""
        evaluation = with_options(self.settings.evaluation, options)
        settings = replace(self.settings, evaluation=evaluation, decoding=self._decoding())
        return evaluate(self.model, self.codec, self.images(on), settings, device=self.device, progress=progress)

    def _feed(self, images: Images, *, batch: int = BATCH_IMAGES, labeled: bool = True) -> ImageFeed:
        feed: ImageFeed = self.codec.evaluation_feed(images, self.settings.data, batch=batch, labeled=labeled)
        self.model.eval()
        return feed

    def _decoding(self, **options: Any) -> ClassificationOptions:
        """Options with the temperature that was fitted to the validation images, unless another is set."""
        decoding: ClassificationOptions = with_options(self.settings.decoding, options)
        return replace(decoding, temperature=decoding.temperature or self.summary.get("temperature"))


def predicted_label(probabilities: Floats, names: Sequence[str]) -> tuple[str, float]:
    """The most probable class of an image, or of each of its frames, and the probability of all of them."""
    rows = probabilities.reshape(-1, len(names))
    return " ".join(names[n] for n in rows.argmax(-1)), float(rows.max(-1).prod())


def reconstructions(batch: Batch, outputs: Floats, grid: Grid) -> tuple[Pixels, Pixels]:
    """The pixels of the source, and of the output where there was a target (of the source elsewhere)."""
    assert batch.source.features is not None
    source, target = batch.source.features.numpy(), batch.target.numpy()
    restored = np.where(target == IGNORE, source, outputs)
    return to_pixels(grid.images(source)), to_pixels(grid.images(restored))
