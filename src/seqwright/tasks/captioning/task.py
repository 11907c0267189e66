"""Images to words: captions learned by teacher forcing, searched for as translations are; runs that caption."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from seqwright.core.batch import Batch, Source, Vocabularies
from seqwright.core.config import UserError, to_table
from seqwright.core.protocols import Autoregressive, Watch, unwatched
from seqwright.core.storage import read_record, write_json
from seqwright.data.bucketing import ByLength, Ints
from seqwright.data.images.corpus import CaptionsConfig, Images, read_splits
from seqwright.data.images.patches import Grid
from seqwright.data.parallel.buckets import Side, encode_targets, teacher_forcing
from seqwright.decoding.options import SearchOptions
from seqwright.decoding.search import search
from seqwright.layers.packed_linear import prepack
from seqwright.metrics.counts import Counts, values
from seqwright.reporting.png import base64_png, sheet
from seqwright.runs.directory import RunDirectory
from seqwright.tasks.base import Note, Settings, fingerprint_of, held_out_notes, spread
from seqwright.tasks.images.run import ImageInputRun
from seqwright.tasks.tokenizers import saved_tokenizer
from seqwright.tasks.translation.scores import (
    Metric,
    OutputEvaluationConfig,
    likelihood_counts,
    likelihood_in,
    quality_counts,
    scored_by_length,
)
from seqwright.tasks.translation.translate import banned
from seqwright.text.tokenizer import Tokenizer

SHOWN = 4
"""Images in the log at each sampling."""
AT_ONCE = 64
"""Images captioned or scored together."""


@dataclass(frozen=True, kw_only=True)
class CaptioningOptions(SearchOptions):
    max_tokens: int = 64
    """The most tokens said, the end included (the cut-off T)."""


@dataclass(frozen=True, kw_only=True)
class CaptioningEvaluationConfig(OutputEvaluationConfig):
    metrics: tuple[Metric, ...] = ("exact_match", "word_error_rate")
    """How captions are compared with those of the pictures, beside the likelihood of these."""


@dataclass(frozen=True, kw_only=True)
class Captioned:
    """Images with their captions: picture n is followed by text n."""

    pictures: Images
    grid: Grid
    target: Side
    tokenizer: Tokenizer

    @classmethod
    def of(cls, pictures: Images, grid: Grid, tokenizer: Tokenizer) -> Captioned:
        """Captions as ids."""
        return cls(
            pictures=pictures, grid=grid, target=encode_targets(captions_of(pictures), tokenizer), tokenizer=tokenizer
        )

    @property
    def lengths(self) -> Ints:
        """The patches of a picture, or more where more is said: batches are mixed, short captions with long ones."""
        return np.maximum(self.grid.length, self.target.lengths)

    def batch(self, rows: Ints) -> Batch:
        """These pictures, and what is said of them."""
        return teacher_forcing(self.grid.source(self.pictures.pixels[rows]), self.target, rows, self.tokenizer)

    def within(self, longest: int) -> Captioned:
        """Those whose captions have no more tokens than this."""
        kept = np.flatnonzero(self.target.lengths <= longest).tolist()
        if not kept:
            raise UserError(f"every caption has more than {longest} tokens; raise data.max_length or model.context.")
        if len(kept) == len(self.pictures):
            return self
        return Captioned.of(self.pictures.take(kept), self.grid, self.tokenizer)


@dataclass(frozen=True, kw_only=True)
class Caption:
    """What a model says of a picture."""

    text: str
    log_prob: float
    """Of the ids said and their end, natural log."""
    reason: str
    """"end" where the model said so, "length" where it was cut off."""
    others: tuple[str, ...] = ()
    """The rest of the n best, best first."""


class CaptioningTask:
    """The data side of training a model that says what is on pictures."""

    def __init__(self, settings: Settings, directory: RunDirectory, note: Note):
        self.settings, self.note = settings, note
        data: CaptionsConfig = settings.data
        train, valid = read_splits(data)
        grid = Grid.cut(train, data.patch, columns=data.patches == "columns")
        if valid is not None:
            valid = grid.fitted(valid)
        if not directory.labels_path.exists():  # of another session: its hash is in the manifest
            write_json(directory.labels_path, {"grid": vars(grid)})
        self.tokenizer = saved_tokenizer(settings, directory, captions_of(train), note)
        self.train = Captioned.of(train, grid, self.tokenizer)
        self.valid = None if valid is None else Captioned.of(valid, grid, self.tokenizer)
        for said in (*train.notes, *held_out_notes(data.split, None if valid is None else len(valid), "pictures")):
            note(said)
        for name, part in (("training", self.train), ("validation", self.valid)):
            if part is not None and part.target.unknown:
                note(f"{part.target.unknown:,} tokens of {name} captions are <unk>.")
        note(
            f"{len(train):,} training pictures of {grid.height} × {grid.width} × {grid.channels}, each in {grid.length}"
            f" patches of {grid.patch_dim} numbers; {self.tokenizer.kind} vocabulary of {self.tokenizer.size:,}."
        )

    @property
    def sizes(self) -> Vocabularies:
        return sizes_of(self.train.grid, self.tokenizer)

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(*(one.pictures.fingerprint for one in (self.train, self.valid) if one is not None))

    @property
    def corpus(self) -> Captioned:
        return self.train

    def feed(self, model: Autoregressive) -> ByLength:
        training, context = self.settings.training, model.context
        if context is not None and self.train.grid.length > context:
            raise UserError(f"a picture has {self.train.grid.length} patches; set model.context to that or more.")
        longest = min(self.settings.data.max_length, context or self.settings.data.max_length)
        kept = self.train.within(longest)
        if left_out := len(self.train.pictures) - len(kept.pictures):
            self.note(f"{left_out:,} training captions have more than {longest} tokens and are left out.")
        return ByLength(kept, seed=training.seed, batch=training.batch_size)

    def evaluate(self, model: Autoregressive, device: torch.device | str, *, quick: bool) -> dict[str, Any] | None:
        if self.valid is None:
            return None
        if not quick:
            return evaluated(model, self.valid, self.settings, device)
        config = self.settings.evaluation
        counts = [*_likelihood(model, self.valid, device)]
        if some := self.valid.pictures.take(range(min(config.sentences, len(self.valid.pictures)))):
            outputs = [said.text for said in self._caption(model, some, device)]
            references = [(caption,) for caption in captions_of(some)]
            counts += quality_counts(outputs, references, config, self._quick)
        return values(counts)

    def sample(self, model: Autoregressive, device: torch.device | str) -> list[dict[str, str]]:
        shown = (self.valid or self.train).pictures
        some = shown.take(spread(len(shown), SHOWN))
        said = [one.text for one in self._caption(model, some, device)]
        return [
            {
                "prompt": "",
                "text": "\n".join(said),
                "reference": "\n".join(captions_of(some)),
                "picture": base64_png(sheet([picture[None] for picture in some.pixels])),
            }
        ]

    def show(self, batch: Batch) -> str:
        return f"a picture → {self.tokenizer.decode(batch.input[0].tolist())[:100]!r}"

    @property
    def _quick(self) -> CaptioningOptions:
        return replace(self.settings.decoding, kind="greedy", n_best=1)

    def _caption(self, model: Autoregressive, some: Images, device: torch.device | str) -> Iterator[Caption]:
        return captions(model, some, self.train.grid, self.tokenizer, self._quick, device)


class CaptioningRun(ImageInputRun):
    """A trained captioner: `run = seqwright.open("runs/x"); run.caption(["a.png"])`."""

    does = "says what is on pictures"
    verbs = ("caption", "evaluate")

    @staticmethod
    def sizes(directory: RunDirectory) -> Vocabularies:
        return sizes_of(_grid(directory), directory.tokenizer)

    @functools.cached_property
    def grid(self) -> Grid:
        return _grid(self.directory)

    def source(self, rows: int, length: int) -> Source:
        """Made-up pictures."""
        return self.grid.source(self.made_up(rows))

    def caption(self, files: Iterable[str], **options: Any) -> Iterator[Caption]:
        """What each picture of some files shows, in order; options are those of the recipe's [decoding] section."""
        chosen = replace(self.settings.decoding, **options)
        for name in files:
            yield from captions(self.model, self.pictures([name]), self.grid, self.tokenizer, chosen, self.device)

    def evaluate(
        self, on: str | Sequence[str] | None = None, *, watch: Watch = unwatched, **options: Any
    ) -> dict[str, Any]:
        """Scores on captioned pictures, or on the run's own validation pictures."""
        settings = replace(self.settings, evaluation=replace(self.settings.evaluation, **options))
        examples = Captioned.of(self.pictures(on), self.grid, self.tokenizer)
        return self.signed(evaluated(self.model, examples, settings, self.device, watch))


@torch.inference_mode()
def captions(
    model: Autoregressive,
    pictures: Images,
    grid: Grid,
    tokenizer: Tokenizer,
    options: SearchOptions,
    device: torch.device | str,
) -> Iterator[Caption]:
    """What a search finds to say of each picture, in order."""
    if isinstance(model, torch.nn.Module):
        model.eval()
    model = prepack(model)
    for first in range(0, len(pictures), AT_ONCE):
        source = grid.source(pictures.pixels[first : first + AT_ONCE]).to(device)
        found = search(model, source, options, sos=tokenizer.sos, eos=tokenizer.eos, banned=banned(tokenizer))
        for best, *others in found:
            yield Caption(
                text=tokenizer.decode(best.ids),
                log_prob=best.log_prob,
                reason=best.reason,
                others=tuple(tokenizer.decode(other.ids) for other in others),
            )


def evaluated(
    model: Autoregressive, examples: Captioned, settings: Settings, device: torch.device | str, watch: Watch = unwatched
) -> dict[str, Any]:
    """How probable the captions are to a model, and how like them what it says is."""
    found, pictures = [], examples.pictures
    for said in captions(model, pictures, examples.grid, examples.tokenizer, settings.decoding, device):
        found.append(said.text)
        watch(len(found), len(pictures))
    references = [(caption,) for caption in captions_of(pictures)]
    quality = quality_counts(found, references, settings.evaluation, settings.decoding)
    words = [len(caption.split()) for (caption,) in references]
    scores = scored_by_length([*_likelihood(model, examples, device), *quality], settings.evaluation, words)
    del scores["by_source_length"]  # pictures are of one size
    return scores | {"pictures": len(pictures), "search": to_table(settings.decoding)}


def captions_of(pictures: Images) -> tuple[str, ...]:
    if pictures.labels is None:
        raise UserError("these pictures have no captions: an .npz holds them in an array 'captions'.")
    return pictures.labels


def sizes_of(grid: Grid, tokenizer: Tokenizer) -> Vocabularies:
    return Vocabularies(source=None, target=tokenizer.vocabulary, features=grid.patch_dim)


def _likelihood(model: Autoregressive, examples: Captioned, device: torch.device | str) -> list[Counts]:
    kept = examples.within(model.context or int(examples.target.lengths.max()))
    rows = likelihood_in(ByLength(kept, seed=0, batch=AT_ONCE), model, len(kept.pictures), device)
    return likelihood_counts(rows, examples.tokenizer, kept.pictures.fingerprint)


@dataclass(frozen=True, kw_only=True)
class SavedGrid:
    """The keys of labels.json of a captioner."""

    grid: Grid


def _grid(directory: RunDirectory) -> Grid:
    return read_record(directory.labels_path, SavedGrid).grid
