"""Image captioning: captions learned by teacher forcing and decoded by search; runs that caption."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch

from seqwright.core.batch import Batch, Source, Vocabularies
from seqwright.core.config import UserError, to_table, with_options
from seqwright.core.notebook import NotebookTable
from seqwright.core.progress import SILENT, Progress
from seqwright.core.protocols import Autoregressive
from seqwright.core.storage import read_record, write_json, write_text
from seqwright.data.bucketing import ByLength, Ints
from seqwright.data.images.corpus import CaptionsConfig, Images, read_splits
from seqwright.data.images.files import Pixels
from seqwright.data.images.patches import Grid
from seqwright.data.parallel.buckets import Side, encode_targets, teacher_forcing
from seqwright.decoding.options import SearchOptions, search_options
from seqwright.decoding.search import search
from seqwright.layers.inference.optimize import optimize_for_inference
from seqwright.metrics.counts import Counts
from seqwright.reporting.png import base64_png, sheet
from seqwright.runs.directory import RunDirectory
from seqwright.runs.overlap import warns_of_training_data
from seqwright.tasks.base import Settings, combined_fingerprint, evenly_spaced, held_out_notes
from seqwright.tasks.codec import TextCodec, learn_tokenizer, open_or_learn
from seqwright.tasks.images.run import ImageInputRun, one_or_many_images
from seqwright.tasks.scores import Scores
from seqwright.tasks.scoring import decode_shared
from seqwright.tasks.translation.scores import (
    Metric,
    OutputEvaluationConfig,
    OutputScores,
    feed_likelihood,
    likelihood_counts,
    output_examples,
    quality_counts,
    scores_by_length,
)
from seqwright.text.tokenizer import Tokenizer

SAMPLES = 4
"""Images in the log at each sampling."""
BATCH_IMAGES = 64
"""Images per batch."""


@dataclass(frozen=True, kw_only=True)
class CaptioningOptions(SearchOptions):
    max_tokens: int = 64
    """Maximum number of new tokens, `<eos>` included (the cut-off T)."""


@dataclass(frozen=True, kw_only=True)
class CaptioningEvaluationConfig(OutputEvaluationConfig):
    metrics: tuple[Metric, ...] = ("exact_match", "word_error_rate")
    """Metrics of captions against the references, beside the likelihood of these."""


@dataclass(frozen=True, kw_only=True)
class SavedGrid:
    """The keys of labels.json of a captioner."""

    grid: Grid


@dataclass(frozen=True, kw_only=True)
class CaptioningCodec(TextCodec):
    """Images to patches, and captions to ids."""

    grid: Grid

    @classmethod
    def learn(cls, images: Images, settings: Settings, progress: Progress) -> Self:
        data: CaptionsConfig = settings.data
        grid = Grid.cut(images, data.patch, columns=data.patches == "columns")
        return cls(tokenizer=learn_tokenizer(settings, captions_of(images), progress), grid=grid)

    @classmethod
    def open(cls, directory: RunDirectory) -> Self:
        return cls(tokenizer=directory.tokenizer, grid=read_record(directory.labels_path, SavedGrid).grid)

    def save(self, directory: RunDirectory) -> None:
        write_json(directory.labels_path, {"grid": vars(self.grid)})
        write_text(directory.tokenizer_path, self.tokenizer.json)

    @property
    def sizes(self) -> Vocabularies:
        return Vocabularies(source=None, target=self.tokenizer.vocabulary, features=self.grid.patch_dim)


@dataclass(frozen=True, kw_only=True)
class CaptionedImages:
    """Images with their captions, encoded."""

    images: Images
    target: Side
    codec: CaptioningCodec

    @classmethod
    def encode(cls, images: Images, codec: CaptioningCodec) -> CaptionedImages:
        return cls(images=images, target=encode_targets(captions_of(images), codec.tokenizer), codec=codec)

    @property
    def lengths(self) -> Ints:
        """The longer of patches and caption: images are all of one length, so that batches mix short captions."""
        return np.maximum(self.codec.grid.length, self.target.lengths)

    def batch(self, rows: Ints) -> Batch:
        """These images with their captions, for teacher forcing."""
        source = self.codec.grid.source(self.images.pixels[rows])
        return teacher_forcing(source, self.target, rows, self.codec.tokenizer)

    def within(self, max_length: int) -> CaptionedImages:
        """Those whose captions have at most `max_length` tokens."""
        kept = np.flatnonzero(self.target.lengths <= max_length).tolist()
        if not kept:
            raise UserError(f"every caption has more than {max_length} tokens; raise data.max_length or model.context.")
        if len(kept) == len(self.images):
            return self
        return CaptionedImages.encode(self.images.take(kept), self.codec)


@dataclass(frozen=True, kw_only=True)
class Caption(NotebookTable):
    """The caption of an image."""

    text: str
    log_prob: float
    """Of the ids and `<eos>`, natural log."""
    reason: str
    """"end" where the model ended it, "length" where it was cut off."""
    others: tuple[str, ...] = ()
    """The rest of the n best, best first."""


class CaptioningTask:
    """Training of a captioner."""

    def __init__(self, settings: Settings, directory: RunDirectory, progress: Progress):
        self.settings, self.progress, note = settings, progress, progress.note
        data: CaptionsConfig = settings.data
        train, valid = read_splits(data)
        self.codec = open_or_learn(CaptioningCodec, directory, lambda: CaptioningCodec.learn(train, settings, progress))
        grid, tokenizer = self.codec.grid, self.codec.tokenizer
        self.train = CaptionedImages.encode(train, self.codec)
        self.valid = None if valid is None else CaptionedImages.encode(grid.fitted(valid), self.codec)
        for text in (*train.notes, *held_out_notes(data.split, None if valid is None else len(valid), "images")):
            note(text)
        for name, part in (("training", self.train), ("validation", self.valid)):
            if part is not None and part.target.unknown:
                note(f"{part.target.unknown:,} tokens of {name} captions are <unk>.")
        note(
            f"{len(train):,} training images of {grid.height} × {grid.width} × {grid.channels}, each in {grid.length}"
            f" patches of {grid.patch_dim} numbers; {tokenizer.kind} vocabulary of {tokenizer.size:,}."
        )

    @property
    def fingerprint(self) -> str:
        parts = (part.images.fingerprint for part in (self.train, self.valid) if part is not None)
        return combined_fingerprint(*parts)

    @property
    def corpus(self) -> CaptionedImages:
        return self.train

    def feed(self, model: Autoregressive) -> ByLength:
        training, context, length = self.settings.training, model.context, self.codec.grid.length
        if context is not None and length > context:
            raise UserError(f"an image has {length} patches; set model.context to that or more.")
        max_length = min(self.settings.data.max_length, context or self.settings.data.max_length)
        kept = self.train.within(max_length)
        if skipped := len(self.train.images) - len(kept.images):
            self.progress.note(f"{skipped:,} training captions have more than {max_length} tokens and are left out.")
        return ByLength(kept, seed=training.seed, batch=training.batch_size)

    def evaluate(self, model: Autoregressive, device: torch.device | str, *, quick: bool) -> Scores | None:
        if self.valid is None:
            return None
        return evaluate(model, self.codec, self.valid, self.settings, device=device, quick=quick)

    def sample(self, model: Autoregressive, device: torch.device | str) -> list[dict[str, str]]:
        all_images = (self.valid or self.train).images
        images = all_images.take(evenly_spaced(len(all_images), SAMPLES))
        options = greedy(self.settings.decoding)
        texts = [
            caption.text
            for caption in captions(
                optimize_for_inference(model), images, self.codec.grid, self.codec.tokenizer, options, device
            )
        ]
        return [
            {
                "prompt": "",
                "text": "\n".join(texts),
                "reference": "\n".join(captions_of(images)),
                "image": base64_png(sheet([image[None] for image in images.pixels])),
            }
        ]

    def show(self, batch: Batch) -> str:
        return f"an image → {self.codec.tokenizer.decode(batch.input[0].tolist())[:100]!r}"


class CaptioningRun(ImageInputRun):
    """A trained captioner: `run = seqwright.open("runs/x"); run.caption("a.png")`."""

    description = "captions images"
    verbs = ("caption", "evaluate")
    codec_class = CaptioningCodec

    @functools.cached_property
    def searched(self) -> Any:
        """The model with packed weights for searches: packed once, not for every file."""
        return optimize_for_inference(self.model)

    def source(self, rows: int, length: int) -> Source:
        """Synthetic images."""
        return self.grid.source(self.synthetic_pixels(rows))

    @one_or_many_images
    def caption(self, files: Iterable[str], **options: Any) -> Iterator[Caption]:
        """The caption of each image of files, or of one image file; options are keys of [decoding]."""
        chosen = search_options(self.settings.decoding, options)
        for name in files:
            yield from captions(self.searched, self.images([name]), self.grid, self.tokenizer, chosen, self.device)

    def caption_pixels(self, pixels: Pixels) -> str:
        """The caption of an image (1, H, W, C) of the training images' size."""
        options = self.settings.decoding
        (caption,) = captions(self.searched, Images(pixels=pixels), self.grid, self.tokenizer, options, self.device)
        return caption.text

    @warns_of_training_data
    def evaluate(self, on: str | Sequence[str] | None = None, *, progress: Progress = SILENT, **options: Any) -> Scores:
        """Scores on captioned images of files, or on the validation images of the run."""
        settings = replace(self.settings, evaluation=with_options(self.settings.evaluation, options))
        examples = CaptionedImages.encode(self.images(on), self.codec)
        scores = evaluate(self.model, self.codec, examples, settings, device=self.device, progress=progress)
        return scores.with_precision(self.precision)


@torch.inference_mode()
def captions(
    model: Autoregressive,
    images: Images,
    grid: Grid,
    tokenizer: Tokenizer,
    options: SearchOptions,
    device: torch.device | str,
) -> Iterator[Caption]:
    """The captions that a search finds for images, in order; pass a model that was optimized for inference."""
    model.eval()
    for first in range(0, len(images), BATCH_IMAGES):
        source = grid.source(images.pixels[first : first + BATCH_IMAGES]).to(device)
        banned = tokenizer.never_generated(tokenizer.eos)
        found = search(model, source, options, sos=tokenizer.sos, eos=tokenizer.eos, banned=banned)
        for best, *others in found:
            yield Caption(
                text=tokenizer.decode(best.ids),
                log_prob=best.log_prob,
                reason=best.reason,
                others=tuple(tokenizer.decode(other.ids) for other in others),
            )


def evaluate(
    model: Autoregressive,
    codec: CaptioningCodec,
    examples: CaptionedImages,
    settings: Settings,
    *,
    device: torch.device | str = "cpu",
    quick: bool = False,
    progress: Progress = SILENT,
) -> Scores:
    """Likelihood of the captions of images, and metrics of the captions that a search finds; `quick` searches a few,
    greedily."""
    config, options, images = settings.evaluation, settings.decoding, examples.images
    counts = _likelihood(model, examples, device)
    if quick:
        options, images = greedy(options), images.take(range(min(config.sentences, len(images))))
    searched = optimize_for_inference(model)

    def decode(part: Sequence[int]) -> Iterator[str]:
        found = captions(searched, images.take(part), codec.grid, codec.tokenizer, options, device)
        return (caption.text for caption in found)

    texts = decode_shared(range(len(images)), decode, progress=progress)
    references, lowercased = [(caption,) for caption in captions_of(images)], codec.tokenizer.normalize("A") == "a"
    if texts:
        counts += quality_counts(texts, references, config, options, lowercased=lowercased)
    if quick:
        return Scores.of(counts, config, quick=True)
    scores = scores_by_length(counts, config, [len(caption.split()) for (caption,) in references])
    del scores["by_source_length"]  # images are all of one size
    facts = {"images": len(images), "search": to_table(options), "lower_case": lowercased}
    inputs = [f"image {n}" for n in range(1, len(images) + 1)]
    return OutputScores(scores | facts).with_examples(
        lambda: output_examples("image", inputs, references, texts, config)
    )


def greedy(options: CaptioningOptions) -> CaptioningOptions:
    """The options of greedy search, for the log of a training."""
    return replace(options, kind="greedy", n_best=1)


def captions_of(images: Images) -> tuple[str, ...]:
    if images.labels is None:
        raise UserError("these images have no captions: an .npz holds them in an array 'captions'.")
    return images.labels


def _likelihood(model: Autoregressive, examples: CaptionedImages, device: torch.device | str) -> list[Counts]:
    kept = examples.within(model.context or int(examples.target.lengths.max()))
    rows = feed_likelihood(ByLength(kept, seed=0, batch=BATCH_IMAGES), model, len(kept.images), device)
    return likelihood_counts(rows, examples.codec.tokenizer, pixels=kept.images.fingerprint)
