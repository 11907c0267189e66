"""Source to target: pairs in buckets of like length, teacher forcing, translations; runs that translate."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from seqwright.core.batch import Batch, Source, Vocabularies
from seqwright.core.config import UserError, to_table
from seqwright.core.protocols import Autoregressive, Feed, Watch, unwatched
from seqwright.core.storage import read_record, write_json, write_text
from seqwright.data.files import as_list
from seqwright.data.parallel.buckets import Buckets, EncodedPairs, Tokenizers, encode_pairs, encode_sources
from seqwright.data.parallel.formats import Pair
from seqwright.data.parallel.pairs import Pairs, PairsConfig, format_of, read_pairs, read_splits, read_test
from seqwright.data.parallel.sides import Sides, sides_of
from seqwright.data.subword_regularization import RegularizedFeed, RegularizedTokenizerConfig, regularized_pairs
from seqwright.decoding.degeneration import Typical, typical
from seqwright.decoding.options import SearchOptions
from seqwright.decoding.search_audit import Audit, search_audit
from seqwright.layers.packed_linear import prepack
from seqwright.metrics.counts import values
from seqwright.runs.directory import RunDirectory
from seqwright.runs.run import Run
from seqwright.tasks.base import Note, Settings, fingerprint_of, made_up_source
from seqwright.tasks.tokenizers import learned_tokenizer
from seqwright.tasks.translation.extractive import extracts
from seqwright.tasks.translation.scores import extractive_counts, pair_likelihood, quality_counts, scored_by_length
from seqwright.tasks.translation.translate import Translation, banned, translate
from seqwright.text.backend import Kind
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig

TEST = "test"
"""What `--on` calls the pairs that a run set aside."""
SHOWN = 3
"""Translations in the log at each sampling."""
LOOKED_AT = 5000
"""Training pairs that say what is typical of them."""


@dataclass(frozen=True, kw_only=True)
class TranslationTokenizerConfig(RegularizedTokenizerConfig):
    joint: bool = True
    """One vocabulary for both sides; otherwise the keys of this section are the target's."""
    source_file: str | None = None
    """As `file`, for a separate source vocabulary; learned unless given."""
    source_kind: Kind | None = None
    """The kind of a separate source vocabulary; the target's unless given."""
    source_size: int | None = None
    """The size of a separate source vocabulary; the target's unless given."""
    regularized_sides: Literal["both", "source", "target"] = "both"
    """Which sides dropout and sampling cut otherwise in training."""

    files: ClassVar[tuple[str, ...]] = ("file", "source_file")
    """The keys that name files."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.joint and any(value is not None for value in (self.source_file, self.source_kind, self.source_size)):
            raise UserError("source_file, source_kind, source_size are of a separate vocabulary: set joint = false.")

    def of_source(self) -> TokenizerConfig:
        """The configuration of a separate source vocabulary."""
        kind = self.source_kind or self.kind
        size = self.source_size or (self.size if kind == self.kind else None)
        return replace(self, file=self.source_file, kind=kind, size=size, dropout=0.0, sampling_alpha=None)

    @property
    def varied_sides(self) -> tuple[str, ...]:
        return ("source", "target") if self.regularized_sides == "both" else (self.regularized_sides,)

    @property
    def regularized_kinds(self) -> tuple[Kind, ...]:
        of = {"source": self.source_kind or self.kind, "target": self.kind}
        return tuple(of[side] for side in self.varied_sides)


class TranslationTask:
    """The data side of training a translator."""

    def __init__(self, settings: Settings, directory: RunDirectory, note: Note):
        self.settings, self.note = settings, note
        data: PairsConfig = settings.data
        train, valid = read_splits(data)
        for said in (*train.notes, *(valid.notes if valid else ())):
            note(said)
        if valid is not None and data.split is not None:
            aside = f", and {data.test:.3g} of them set aside for a test" if data.test else ""
            note(f"held out for validation: {data.split} of the pairs ({len(valid.pairs):,}){aside}.")
        self.tokenizers = saved_tokenizers(settings, directory, train, note)
        self.train_pairs = train.pairs
        self.train = encode_pairs(train.pairs, self.tokenizers)
        self.valid_pairs = () if valid is None else valid.pairs
        self.valid = None if valid is None else encode_pairs(valid.pairs, self.tokenizers)
        for name, pairs in (("training", self.train), ("validation", self.valid)):
            for side in ("source", "target"):
                if pairs is not None and (unknown := getattr(pairs, side).unknown):
                    note(f"{unknown:,} {name} tokens on the {side} side are <unk>.")
        some = list(sampled(train.pairs))
        self.typical, sides = typical(some), sides_of(some)
        sides.refuse_swapped((text for pair in self.valid_pairs for text in pair.sources), "the validation pairs")
        if not directory.degeneration_path.exists():  # of another session: its hash is in the manifest
            write_json(directory.degeneration_path, {"typical": asdict(self.typical), "sides": asdict(sides)})
        self.recut: Callable[[int], EncodedPairs] | None = None
        config: TranslationTokenizerConfig = settings.tokenizer
        if config.regularization:
            self.recut = regularized_pairs(
                self.train, train.pairs, config, sides=config.varied_sides, seed=settings.training.seed
            )
        vocabularies = f"{self.tokenizers.target.kind} vocabulary of {self.tokenizers.target.size:,}"
        if not self.tokenizers.joint:
            vocabularies += f", {self.tokenizers.source.kind} source vocabulary of {self.tokenizers.source.size:,}"
        note(f"{len(self.train):,} training pairs, {len(self.train.target.ids):,} target tokens; {vocabularies}.")

    @property
    def sizes(self) -> Vocabularies:
        return sizes_of(self.tokenizers)

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(*(one.fingerprint for one in (self.train, self.valid) if one is not None))

    @property
    def corpus(self) -> EncodedPairs:
        return self.train

    def feed(self, model: Autoregressive) -> Feed:
        data, training = self.settings.data, self.settings.training
        longest = min(data.max_length, model.context or data.max_length)

        def buckets(pairs: EncodedPairs) -> Buckets:
            return Buckets(
                pairs, seed=training.seed, tokens=data.batch_tokens, batch=training.batch_size, max_length=longest
            )

        feed = buckets(self.train)
        if feed.skipped:
            self.note(
                f"{feed.skipped:,} of {len(self.train):,} training pairs have a side of more than {longest} tokens"
                " and are left out (data.max_length)."
            )
        recut = self.recut
        return feed if recut is None else RegularizedFeed(lambda epoch: buckets(recut(epoch)))

    def evaluate(self, model: Autoregressive, device: torch.device | str, *, quick: bool) -> dict[str, Any] | None:
        if self.valid is None:
            return None
        if not quick:
            kept = extracts(self.train_pairs, self.valid_pairs) if self.settings.evaluation.extractive else {}
            return evaluate(model, self.valid, self.valid_pairs, self.settings, device, self.typical, kept)
        counts = [*pair_likelihood(model, self.valid, device)]
        some = self.valid_pairs[: self.settings.evaluation.sentences]
        if some:
            outputs = [said.text for said in self._translate(model, some, device)]
            references = [pair.targets for pair in some]
            counts += quality_counts(outputs, references, self.settings.evaluation, self.settings.decoding)
        return values(counts)

    def sample(self, model: Autoregressive, device: torch.device | str) -> list[dict[str, str]]:
        some = self.valid_pairs[:SHOWN]
        return [
            {"prompt": " ".join(said.source), "text": said.text, "reference": pair.targets[0]}
            for said, pair in zip(self._translate(model, some, device), some, strict=True)
        ]

    def show(self, batch: Batch) -> str:
        assert batch.source.ids is not None
        source = self.tokenizers.source.decode(batch.source.ids[0].tolist())
        return f"{source[:100]!r} → {self.tokenizers.target.decode(batch.input[0].tolist())[:100]!r}"

    def _translate(self, model: Autoregressive, pairs: Sequence[Pair], device: torch.device | str) -> list[Translation]:
        given = [(pair.sources, pair.tag) for pair in pairs]
        quick = replace(self.settings.decoding, kind="greedy", n_best=1, mbr="none")
        return list(translate(prepack(model), self.tokenizers, given, quick, truncate=True, device=device))


@dataclass(frozen=True, kw_only=True)
class SavedStatistics:
    """The keys of degeneration.json: statistics of the training pairs."""

    typical: Typical = field(default_factory=Typical)
    sides: Sides = field(default_factory=Sides)


class TranslationRun(Run):
    """A trained translator: `run = seqwright.open("runs/x"); run.translate(["A dog runs."])`."""

    does = "turns sources into targets"
    verbs = ("translate", "evaluate", "search_audit")

    @staticmethod
    def sizes(directory: RunDirectory) -> Vocabularies:
        return sizes_of(open_tokenizers(directory))

    def source(self, rows: int, length: int) -> Source:
        """Sources of different lengths, ended as they are in training."""
        return made_up_source(self.tokenizers.source, rows, length, ended=True)

    @functools.cached_property
    def searched(self) -> Any:
        """The model as searches ask it: packed once, not for every line that is typed."""
        return prepack(self.model)

    @functools.cached_property
    def tokenizers(self) -> Tokenizers:
        return open_tokenizers(self.directory)

    @functools.cached_property
    def typical(self) -> Typical:
        """What its training targets do themselves, so that the watch does not mind."""
        return self._saved.typical

    @functools.cached_property
    def sides(self) -> Sides:
        """The commonest words of both sides in its training."""
        return self._saved.sides

    @functools.cached_property
    def _saved(self) -> SavedStatistics:
        path = self.directory.degeneration_path
        return read_record(path, SavedStatistics) if path.exists() else SavedStatistics()

    def framed(self, text: str) -> list[int]:
        """Sources are ended, and never begun."""
        source = self.tokenizers.source
        return [*source.encode(text), source.eos]  # type: ignore[list-item]

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
            replace(self.settings.decoding, **options),
            truncate=truncate,
            attention=attention,
            typical=self.typical,
            first=first,
            device=self.device,
        )

    def evaluate(
        self, on: str | Sequence[str] | None = None, *, watch: Watch = unwatched, **options: Any
    ) -> dict[str, Any]:
        """Scores on files (source, then one or more references), or on the run's own validation pairs."""
        pairs = self.pairs(on, tag=options.get("tag", self.settings.evaluation.tag)).pairs
        settings = replace(self.settings, evaluation=replace(self.settings.evaluation, **options))
        kept = extracts(read_splits(settings.data)[0].pairs, pairs) if settings.evaluation.extractive else {}
        encoded = encode_pairs(pairs, self.tokenizers)
        scores = evaluate(self.searched, encoded, pairs, settings, self.device, self.typical, kept, watch)
        return self.signed(scores)

    def search_audit(self, sources: Sequence[str], options: SearchOptions, widths: Sequence[int]) -> Audit:
        """How often beams of these widths miss the best translation of each source."""
        target = self.tokenizers.target
        ids, mask = encode_sources([((text,), None) for text in sources], self.tokenizers.source).padded(
            np.arange(len(sources)), 0
        )
        source = Source(mask=torch.from_numpy(mask), ids=torch.from_numpy(ids)).to(self.device)
        return search_audit(self.model, source, options, widths, sos=target.sos, eos=target.eos, banned=banned(target))

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
            self.sides.refuse_swapped((text for pair in found.pairs for text in pair.sources), " ".join(files))
            return found
        _, valid = read_splits(data)
        if valid is None:
            raise UserError(f"{self.path} has no validation pairs of its own; name files with --on SOURCE TARGET.")
        return valid


def evaluate(
    model: Autoregressive,
    encoded: EncodedPairs,
    pairs: Sequence[Pair],
    settings: Settings,
    device: torch.device | str,
    typical: Typical,
    extracted: Mapping[str, Sequence[str]],
    watch: Watch = unwatched,
) -> dict[str, Any]:
    """Likelihood of the references and quality of the translations, and of what was extracted from the sources."""
    config = settings.evaluation
    counts = [*pair_likelihood(model, encoded, device)]
    given = [(pair.sources, pair.tag) for pair in pairs]
    said = []
    for one in translate(
        model, encoded.tokenizers, given, settings.decoding, truncate=True, typical=typical, device=device
    ):
        said.append(one)
        watch(len(said), len(pairs))
    references = [pair.targets for pair in pairs]
    found = list(quality_counts([one.text for one in said], references, config, settings.decoding))
    found += extractive_counts(extracted, references, config)
    lengths = [sum(len(text.split()) for text in pair.sources) for pair in pairs]
    return scored_by_length([*counts, *found], config, lengths) | {
        "tokens": len(encoded.target.ids),
        "search": to_table(settings.decoding),
        "unread": sum(one.unread > 0 for one in said),
        "degenerate": sum(bool(one.warnings) for one in said),
        "lower_case": encoded.tokenizers.target.normalize("A") == "a",
    }


def sampled(pairs: Sequence[Pair]) -> Iterator[tuple[str, str]]:
    """Sources and targets of some pairs, evenly spread."""
    for pair in pairs[:: -(-len(pairs) // LOOKED_AT)]:
        yield " ".join(pair.sources), pair.targets[0]


def sizes_of(tokenizers: Tokenizers) -> Vocabularies:
    return Vocabularies(
        source=tokenizers.source.vocabulary, target=tokenizers.target.vocabulary, joint=tokenizers.joint
    )


def open_tokenizers(directory: RunDirectory) -> Tokenizers:
    """The tokenizers of a run: one file where the vocabulary is joint."""
    return Tokenizers(source=directory.source_tokenizer, target=directory.tokenizer)


def saved_tokenizers(settings: Settings, directory: RunDirectory, train: Pairs, note: Note) -> Tokenizers:
    """The run's tokenizers, learned from the training pairs where the run has none yet."""
    if directory.tokenizer_path.exists():
        return open_tokenizers(directory)
    if settings.training.init_from is not None:
        base = RunDirectory.open(settings.training.init_from)
        for name in (directory.tokenizer_path.name, directory.source_tokenizer_path.name):
            if (known := base.path / name).exists():
                write_text(directory.path / name, Tokenizer.open(known).json)
        return open_tokenizers(directory)
    config: TranslationTokenizerConfig = settings.tokenizer
    tags = tuple(dict.fromkeys(pair.tag for pair in train.pairs if pair.tag and pair.tag not in config.special_tokens))
    config = replace(config, special_tokens=(*config.special_tokens, *tags))
    sources = [text for pair in train.pairs for text in pair.sources]
    targets = [text for pair in train.pairs for text in pair.targets]
    learned: dict[Path, Tokenizer] = {}
    if not config.joint:
        learned[directory.source_tokenizer_path] = learned_tokenizer(config.of_source(), sources)
    learned[directory.tokenizer_path] = learned_tokenizer(config, [*sources, *targets] if config.joint else targets)
    for path, tokenizer in learned.items():
        write_text(path, tokenizer.json)
        for said in tokenizer.notes:
            note(said)
    return open_tokenizers(directory)
