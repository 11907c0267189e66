"""Translation: pairs in buckets of similar length, teacher forcing; runs that translate."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from seqwright.core.batch import Batch, Source
from seqwright.core.config import UserError, to_table, with_options
from seqwright.core.progress import SILENT, Progress
from seqwright.core.protocols import Autoregressive, Feed
from seqwright.data.files import as_list
from seqwright.data.parallel.buckets import Buckets, EncodedPairs, Tokenizers, encode_pairs, encode_sources
from seqwright.data.parallel.formats import Pair
from seqwright.data.parallel.pairs import Pairs, PairsConfig, format_of, read_pairs, read_splits, read_test
from seqwright.data.subword_regularization import RegularizedFeed, regularized_pairs
from seqwright.decoding.options import SearchOptions, search_options
from seqwright.decoding.search_audit import Audit, search_audit
from seqwright.layers.inference.optimize import optimize_for_inference
from seqwright.runs.directory import RunDirectory
from seqwright.runs.overlap import warns_of_training_data
from seqwright.runs.run import Run, one_or_many
from seqwright.tasks.base import Settings, combined_fingerprint, few_held_out, synthetic_source
from seqwright.tasks.codec import open_or_learn
from seqwright.tasks.scores import Scores
from seqwright.tasks.scoring import decode_shared
from seqwright.tasks.translation.codec import TranslationCodec, TranslationTokenizerConfig
from seqwright.tasks.translation.extractive import extracts
from seqwright.tasks.translation.scores import (
    OutputScores,
    extractive_counts,
    output_examples,
    pair_likelihood,
    quality_counts,
    scores_by_length,
)
from seqwright.tasks.translation.translate import Translation, TranslationOptions, translate

TEST = "test"
"""The name of the test split for `--on`."""
SAMPLES = 3
"""Translations in the log at each sampling."""


class TranslationTask:
    """Training of a translator."""

    def __init__(self, settings: Settings, directory: RunDirectory, progress: Progress):
        self.settings, self.progress, note = settings, progress, progress.note
        data: PairsConfig = settings.data
        train, valid = read_splits(data)
        for text in (*train.notes, *(valid.notes if valid else ())):
            note(text)
        if valid is not None and data.split is not None:
            aside = f", and {data.test:.3g} of them set aside for a test" if data.test else ""
            targets = sum(len(pair.targets) for pair in valid.pairs)
            count = f"{len(valid.pairs):,}"
            count = count if targets == len(valid.pairs) else f"{count} sources, {targets:,} pairs"
            note(f"held out for validation: {data.split} of the pairs ({count}){aside}.")
        for text in [] if valid is None else few_held_out(len(valid.pairs), "pairs"):
            note(text)
        self.train_pairs, self.valid_pairs = train.pairs, () if valid is None else valid.pairs
        self.codec = open_or_learn(
            TranslationCodec, directory, lambda: TranslationCodec.learn(train.pairs, settings, progress)
        )
        self.tokenizers = self.codec.tokenizers
        self.train = encode_pairs(train.pairs, self.tokenizers)
        self.valid = None if valid is None else encode_pairs(valid.pairs, self.tokenizers)
        for name, pairs in (("training", self.train), ("validation", self.valid)):
            for side in ("source", "target"):
                if pairs is not None and (unknown := getattr(pairs, side).unknown):
                    note(f"{unknown:,} {name} tokens on the {side} side are <unk>.")
        valid_sources = (text for pair in self.valid_pairs for text in pair.sources)
        self.codec.sides.refuse_swapped(valid_sources, "the validation pairs")
        self.resegmented: Callable[[int], EncodedPairs] | None = None
        config: TranslationTokenizerConfig = settings.tokenizer
        if config.regularization:
            self.resegmented = regularized_pairs(
                self.train, train.pairs, config, sides=config.varied_sides, seed=settings.training.seed
            )
        vocabularies = f"{self.tokenizers.target.kind} vocabulary of {self.tokenizers.target.size:,}"
        if not self.tokenizers.joint:
            vocabularies += f", {self.tokenizers.source.kind} source vocabulary of {self.tokenizers.source.size:,}"
        note(f"{len(self.train):,} training pairs, {len(self.train.target.ids):,} target tokens; {vocabularies}.")

    @property
    def fingerprint(self) -> str:
        return combined_fingerprint(*(pairs.fingerprint for pairs in (self.train, self.valid) if pairs is not None))

    @property
    def corpus(self) -> EncodedPairs:
        return self.train

    def feed(self, model: Autoregressive) -> Feed:
        data, training = self.settings.data, self.settings.training
        max_length = min(data.max_length, model.context or data.max_length)

        def buckets(pairs: EncodedPairs) -> Buckets:
            return Buckets(
                pairs, seed=training.seed, tokens=data.batch_tokens, batch=training.batch_size, max_length=max_length
            )

        feed = buckets(self.train)
        if feed.skipped:
            self.progress.note(
                f"{feed.skipped:,} of {len(self.train):,} training pairs have a side of more than {max_length} tokens"
                " and are left out (data.max_length)."
            )
        resegmented = self.resegmented
        return feed if resegmented is None else RegularizedFeed(lambda epoch: buckets(resegmented(epoch)))

    def evaluate(self, model: Autoregressive, device: torch.device | str, *, quick: bool) -> Scores | None:
        if self.valid is None:
            return None
        return evaluate(
            model,
            self.codec,
            self.valid_pairs,
            self.settings,
            encoded=self.valid,
            train=lambda: self.train_pairs,
            device=device,
            quick=quick,
        )

    def sample(self, model: Autoregressive, device: torch.device | str) -> list[dict[str, str]]:
        pairs = self.valid_pairs[:SAMPLES]
        outputs = translate_pairs(
            optimize_for_inference(model), self.codec, pairs, greedy(self.settings.decoding), device=device
        )
        return [
            {"prompt": " ".join(output.source), "text": output.text, "reference": pair.targets[0]}
            for output, pair in zip(outputs, pairs, strict=True)
        ]

    def show(self, batch: Batch) -> str:
        assert batch.source.ids is not None
        source = self.tokenizers.source.decode(batch.source.ids[0].tolist())
        return f"{source[:100]!r} → {self.tokenizers.target.decode(batch.input[0].tolist())[:100]!r}"


class TranslationRun(Run):
    """A trained translator: `run = seqwright.open("runs/x"); run.translate(["A dog runs."])`."""

    description = "turns sources into targets"
    verbs = ("translate", "evaluate", "search_audit")
    codec_class = TranslationCodec

    def source(self, rows: int, length: int) -> Source:
        """Sources of different lengths, each with `<eos>`, as in training."""
        return synthetic_source(self.tokenizers.source, rows, length, eos=True)

    @functools.cached_property
    def searched(self) -> Any:
        """The model with packed weights for searches: packed once, not for every line of an interactive session."""
        return optimize_for_inference(self.model)

    @property
    def tokenizers(self) -> Tokenizers:
        tokenizers: Tokenizers = self.codec.tokenizers
        return tokenizers

    def encode_source(self, text: str) -> list[int]:
        """Ids of a source, which ends with `<eos>` and has no `<sos>`."""
        source = self.tokenizers.source
        return [*source.encode(text), source.eos]  # type: ignore[list-item]

    @one_or_many
    def translate(
        self,
        sources: Iterable[str | Sequence[str]],
        *,
        tag: str | None = None,
        truncate: bool = False,
        attention: bool = False,
        first: int = 1,
        **options: Any,
    ) -> Iterator[Translation]:
        """Each source's translation, in order; options are those of the recipe's [decoding] section.

        `attention` says where each output looked; `first` is the number of the first source, for messages.
        """
        given = (((source,) if isinstance(source, str) else tuple(source), tag) for source in sources)
        return translate(
            self.searched,
            self.tokenizers,
            given,
            search_options(self.settings.decoding, options),
            truncate=truncate,
            attention=attention,
            typical=self.codec.typical,
            first=first,
            device=self.device,
        )

    @warns_of_training_data
    def evaluate(self, on: str | Sequence[str] | None = None, *, progress: Progress = SILENT, **options: Any) -> Scores:
        """Scores on files (source, then one or more references), or on the validation pairs of the run."""
        pairs = self.pairs(on, tag=options.get("tag", self.settings.evaluation.tag)).pairs
        settings = replace(self.settings, evaluation=with_options(self.settings.evaluation, options))
        scores = evaluate(
            self.model,
            self.codec,
            pairs,
            settings,
            train=lambda: read_splits(settings.data)[0].pairs,
            device=self.device,
            progress=progress,
        )
        return scores.with_precision(self.precision)

    def search_audit(
        self, sources: Sequence[str], options: SearchOptions, widths: Sequence[int], *, progress: Progress = SILENT
    ) -> Audit:
        """How often beams of these widths miss the best translation of each source."""
        target = self.tokenizers.target
        ids, mask = encode_sources([((text,), None) for text in sources], self.tokenizers.source).padded(
            np.arange(len(sources)), 0
        )
        source = Source(mask=torch.from_numpy(mask), ids=torch.from_numpy(ids)).to(self.device)
        banned = target.never_generated(target.eos)
        return search_audit(
            self.model,
            source,
            options,
            widths,
            sos=target.sos,
            eos=target.eos,
            banned=banned,
            progress=progress,
        )

    def pairs(self, on: str | Sequence[str] | None = None, *, tag: str | None = None) -> Pairs:
        """Pairs as this run reads them: its validation or "test" pairs, or files, with this tag where it wants one."""
        data: PairsConfig = self.settings.data
        files = as_list(on)
        if files == [TEST]:
            return read_test(data)
        if files:
            if data.tags and tag is None:
                raise UserError(
                    f"say which of {', '.join(data.tags)} is wanted: --set evaluation.tag='{data.tags[0]}'."
                )
            parted = format_of(files[0], data) != "lines"
            plain = replace(data, tags=() if tag is None else (tag,), format=data.format if parted else None)
            found = read_pairs(files, plain, references=max(1, len(files) - data.sources))
            self.codec.sides.refuse_swapped((text for pair in found.pairs for text in pair.sources), " ".join(files))
            return found
        _, valid = read_splits(data)
        if valid is None:
            raise self._nothing_held_out("pairs")
        return valid


def evaluate(
    model: Autoregressive,
    codec: TranslationCodec,
    pairs: Sequence[Pair],
    settings: Settings,
    *,
    encoded: EncodedPairs | None = None,
    train: Callable[[], Sequence[Pair]] = tuple,
    device: torch.device | str = "cpu",
    quick: bool = False,
    progress: Progress = SILENT,
) -> Scores:
    """Likelihood of the references and metrics of the translations of pairs, which are encoded here unless they are.

    `quick` translates a few, greedily. `train` are the training pairs of extractive baselines, where these are scored.
    """
    config, decoding = settings.evaluation, settings.decoding
    encoded = encode_pairs(pairs, codec.tokenizers) if encoded is None else encoded
    counts = pair_likelihood(model, encoded, device)
    search = greedy(decoding) if quick else decoding
    pairs = pairs[: config.sentences] if quick else pairs
    searched = optimize_for_inference(model)

    def decode(part: Sequence[Pair]) -> Iterator[Sequence[Any]]:
        for output in translate_pairs(searched, codec, part, search, device=device):
            yield output.text, output.unread > 0, bool(output.warnings)

    outputs = decode_shared(pairs, decode, progress=progress)
    references, lowercased = [pair.targets for pair in pairs], codec.tokenizers.target.normalize("A") == "a"
    if pairs:
        texts = [text for text, _, _ in outputs]
        counts += quality_counts(texts, references, config, search, lowercased=lowercased)
    if quick:
        return Scores.of(counts, config, quick=True)
    if config.extractive:
        counts += extractive_counts(extracts(train(), pairs), references, config)
    lengths = [sum(len(text.split()) for text in pair.sources) for pair in pairs]
    facts = {
        "tokens": len(encoded.target.ids),
        "search": to_table(decoding),
        "unread": sum(unread for _, unread, _ in outputs),
        "outputs": len(outputs),
        "degenerate": sum(degenerate for _, _, degenerate in outputs),
        "lower_case": lowercased,
    }
    return OutputScores(scores_by_length(counts, config, lengths) | facts).with_examples(
        lambda: output_examples("pair", [" ".join(pair.sources) for pair in pairs], references, texts, config)
    )


def translate_pairs(
    model: Autoregressive,
    codec: TranslationCodec,
    pairs: Sequence[Pair],
    options: TranslationOptions,
    *,
    device: torch.device | str,
) -> Iterator[Translation]:
    """The translation of each pair's source, truncated to the context."""
    sources = [(pair.sources, pair.tag) for pair in pairs]
    return translate(model, codec.tokenizers, sources, options, truncate=True, typical=codec.typical, device=device)


def greedy(options: TranslationOptions) -> TranslationOptions:
    """The options of greedy search, for the log of a training."""
    return replace(options, kind="greedy", n_best=1, mbr="none")
