"""Evaluation of image models: class predictions, or squared error and PSNR of restored images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.table import Table

from seqwright import __version__
from seqwright.core.batch import IGNORE, Batch
from seqwright.core.progress import SILENT, Progress
from seqwright.data.images.corpus import Images
from seqwright.metrics.counts import Counts, mean
from seqwright.metrics.examples import Examples
from seqwright.metrics.score import Floats, signature
from seqwright.reporting.classification import class_report
from seqwright.tasks.base import Settings
from seqwright.tasks.classification.details import calibration
from seqwright.tasks.classification.scores import classification_counts, scaled_outputs
from seqwright.tasks.classification.task import class_scores, class_values
from seqwright.tasks.images.codec import ImageCodec
from seqwright.tasks.images.movies import rollout, rollout_target
from seqwright.tasks.scores import Scores
from seqwright.tasks.scoring import score_epoch

BATCH_IMAGES = 256
"""Images per batch."""
PEAK = 2.0
"""Range of pixel values: black is -1, white is 1."""
MIN_ERROR = 1e-12
"""Mean squared errors are clipped to this from below before the logarithm."""


class ImageScores(Scores):
    """Scores with tables of classes."""

    def details(self) -> Iterator[str | Table]:
        yield from class_report(self.get("details", {}))


def evaluate(
    model: Any,
    codec: ImageCodec,
    images: Images,
    settings: Settings,
    *,
    device: torch.device | str = "cpu",
    quick: bool = False,
    fit: bool = False,
    progress: Progress = SILENT,
) -> Scores:
    """Scores of predicted classes or restored images; corruptions are the same every time.

    `fit` adds the temperature fitted to these images: those of the validation; otherwise their number is added.
    """
    feed = codec.evaluation_feed(images, settings.data, batch=BATCH_IMAGES)

    def compute(batch: Batch) -> Floats:
        """Probabilities of each image or frame, or errors (B, 4) of the restored and of the corrupted images; of movies
        (B, 6), those of a rollout last."""
        outputs = predict(model, batch)
        if codec.names:
            return outputs.reshape(-1, len(codec.names))
        assert batch.source.features is not None
        corrupted, target = batch.source.features.cpu().numpy(), batch.target.cpu().numpy()
        errors = [squared_errors(outputs, target), squared_errors(corrupted, target)]
        if codec.objective == "next-frame":
            errors.append(squared_errors(rollout(model, batch), rollout_target(target)))
        return np.concatenate(errors, 1)

    outputs = score_epoch(model, feed, compute, device=device, progress=progress)
    if feed.targets is None:
        counts = list(restoration_counts(outputs, codec.objective))
        scores = Scores.of(counts, settings.evaluation, quick=quick).as_json()
    else:
        targets, fingerprint = feed.targets.reshape(-1), images.fingerprint
        scaled = scaled_outputs(outputs, codec.labels, settings.decoding)
        counts = list(classification_counts(scaled, targets, codec.labels, settings.decoding, fingerprint))
        if quick:
            scores = class_values(outputs, targets, codec.labels, settings)
        else:
            scores = class_scores(outputs, targets, codec.labels, (), settings, fingerprint)
        if fit and not quick:
            scores |= calibration(outputs, targets, codec.labels)
    by_image = [one.grouped(len(outputs) // len(images)) for one in counts]
    if len(outputs) > len(images) and not quick:  # frames of an image are not independent: images are resampled
        scores |= Scores.of(by_image, settings.evaluation, quick=False).as_json()
    table = ImageScores(scores if fit else scores | {"images": len(images)})
    return table.with_examples(lambda: image_examples(by_image, images, outputs, feed.targets, codec.names))


def image_examples(
    counts: Sequence[Counts], images: Images, outputs: Floats, targets: NDArray[Any] | None, names: Sequence[str]
) -> Examples:
    """Images by number, each with its label and the predicted one (of every frame), or with the PSNR of its output."""
    if targets is None:
        references, shown = [""] * len(images), [f"PSNR {value:.1f} dB" for value in psnr(outputs[:, :2])]
    else:
        predicted = outputs.reshape(len(images), -1, len(names)).argmax(-1)
        references, shown = (
            [" ".join(names[n] for n in row) for row in classes.reshape(len(images), -1)]
            for classes in (targets, predicted)
        )
    return Examples(
        unit="image",
        counts=counts,
        fingerprint=images.fingerprint,
        inputs=[f"image {n}" for n in range(1, len(images) + 1)],
        references=references,
        outputs=shown,
    )


def predict(model: Any, batch: Batch) -> Floats:
    """Probabilities (B, C) or (B, frames, C), or patches (B, S, P)."""
    logits = model(batch).double()
    outputs: Floats = (logits if batch.target.is_floating_point() else logits.softmax(-1)).cpu().numpy()
    return outputs


def restoration_counts(errors: Floats, objective: str) -> Iterator[Counts]:
    """Counts of each image: nll, squared error and PSNR of the restored image, and PSNR of its corrupted source: the
    last frame, where the next one is predicted, and then also PSNR of a rollout."""
    restored, corrupted, rolled_out = errors[:, :2], errors[:, 2:4], errors[:, 4:]
    facts = signature(objective, images=len(restored), seqwright=__version__)
    yield Counts(
        name="nll",
        rows=restored,
        formula=gaussian_nll,
        signature=signature("nll", "deviation:0.3989", facts),
        better=-1,
    )
    yield Counts(
        name="squared_error",
        rows=restored,
        formula=mean,
        signature=signature("squared_error", "range:2", facts),
        better=-1,
    )
    yield Counts(name="psnr", rows=restored, formula=psnr, signature=signature("psnr", facts))
    if objective == "next-frame":
        of_source, of_rollout = (signature("psnr", f"of:{name}", facts) for name in ("last-frame", "rollout"))
        yield Counts(name="psnr_last_frame", rows=corrupted, formula=psnr, signature=of_source)
        yield Counts(name="psnr_rollout", rows=rolled_out, formula=psnr, signature=of_rollout)
    else:
        of_source = signature("psnr", "of:input", facts)
        yield Counts(name="psnr_shown", rows=corrupted, formula=psnr, signature=of_source)


def squared_errors(outputs: Floats, target: Floats) -> Floats:
    """(B, 2): sum of squared errors, and number of target values."""
    real = (target != IGNORE).astype(float)
    return np.stack([((outputs - target) ** 2 * real).sum((1, 2)), real.sum((1, 2))], 1)


def gaussian_nll(sums: Floats) -> Floats:
    """nll under the normal distribution of the RegressionHead."""
    return np.pi * mean(sums)


def psnr(sums: Floats) -> Floats:
    """Peak signal-to-noise ratio in decibels: 10 log₁₀(peak² / mean squared error)."""
    return 10 * np.log10(PEAK**2 / np.maximum(mean(sums), MIN_ERROR))
