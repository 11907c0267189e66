"""The codec of a translator: tokenizers of both sides, and statistics of the training pairs that its checks need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import ClassVar, Literal, Self

from seqwright.core.batch import Vocabularies
from seqwright.core.config import UserError
from seqwright.core.progress import Progress
from seqwright.core.storage import read_record, write_json, write_text
from seqwright.data.parallel.buckets import Tokenizers
from seqwright.data.parallel.formats import Pair
from seqwright.data.parallel.sides import Sides, sides_of
from seqwright.data.subword_regularization import RegularizedTokenizerConfig
from seqwright.decoding.degeneration import TargetStatistics, target_statistics
from seqwright.runs.directory import RunDirectory
from seqwright.tasks.base import Settings
from seqwright.tasks.codec import train_tokenizer
from seqwright.text.backend import Kind
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig

STATISTICS_PAIRS = 5000
"""Training pairs, evenly spaced, that statistics are taken of."""


@dataclass(frozen=True, kw_only=True)
class TranslationTokenizerConfig(RegularizedTokenizerConfig):
    joint: bool = True
    """One vocabulary for both sides; otherwise the keys of this section are those of the target."""
    source_file: str | None = None
    """As `file`, for a separate source vocabulary. Default: trained."""
    source_kind: Kind | None = None
    """Kind of a separate source vocabulary. Default: that of the target."""
    source_size: int | None = None
    """Size of a separate source vocabulary. Default: that of the target."""
    regularized_sides: Literal["both", "source", "target"] = "both"
    """Sides under subword regularization (dropout, sampling) in training."""

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


@dataclass(frozen=True, kw_only=True)
class SavedStatistics:
    """The keys of degeneration.json: statistics of the training pairs."""

    typical: TargetStatistics = field(default_factory=TargetStatistics)
    sides: Sides = field(default_factory=Sides)


@dataclass(frozen=True, kw_only=True)
class TranslationCodec:
    """Source and target text to ids."""

    tokenizers: Tokenizers
    typical: TargetStatistics
    """How much training targets repeat and copy by themselves: less than that is not degenerate."""
    sides: Sides
    """The most frequent words of both sides, to notice swapped files."""

    @classmethod
    def learn(cls, pairs: Sequence[Pair], settings: Settings, progress: Progress) -> Self:
        texts = list(_evenly_spaced_texts(pairs))
        tokenizers = learn_tokenizers(pairs, settings, progress)
        return cls(tokenizers=tokenizers, typical=target_statistics(texts), sides=sides_of(texts))

    @classmethod
    def open(cls, directory: RunDirectory) -> Self:
        path = directory.degeneration_path
        saved = read_record(path, SavedStatistics) if path.exists() else SavedStatistics()
        return cls(
            tokenizers=Tokenizers(source=directory.source_tokenizer, target=directory.tokenizer),
            typical=saved.typical,
            sides=saved.sides,
        )

    def save(self, directory: RunDirectory) -> None:
        if not self.tokenizers.joint:
            write_text(directory.source_tokenizer_path, self.tokenizers.source.json)
        write_text(directory.tokenizer_path, self.tokenizers.target.json)
        write_json(directory.degeneration_path, {"typical": asdict(self.typical), "sides": asdict(self.sides)})

    @property
    def sizes(self) -> Vocabularies:
        source, target = self.tokenizers.source, self.tokenizers.target
        return Vocabularies(source=source.vocabulary, target=target.vocabulary, joint=self.tokenizers.joint)


def learn_tokenizers(pairs: Sequence[Pair], settings: Settings, progress: Progress) -> Tokenizers:
    """The tokenizers of a new run: of the run to fine-tune, of files, or trained on these pairs."""
    if settings.training.init_from is not None:
        base = RunDirectory.open(settings.training.init_from)
        return Tokenizers(source=base.source_tokenizer, target=base.tokenizer)
    config: TranslationTokenizerConfig = settings.tokenizer
    tags = tuple(dict.fromkeys(pair.tag for pair in pairs if pair.tag and pair.tag not in config.special_tokens))
    config = replace(config, special_tokens=(*config.special_tokens, *tags))
    sources = [text for pair in pairs for text in pair.sources]
    targets = [text for pair in pairs for text in pair.targets]
    source: Tokenizer | None = None
    if not config.joint:
        source = train_tokenizer(config.of_source(), sources)
    target = train_tokenizer(config, [*sources, *targets] if config.joint else targets)
    for tokenizer in (source, target):
        for note in () if tokenizer is None else tokenizer.notes:
            progress.note(note)
    return Tokenizers(source=source or target, target=target)


def _evenly_spaced_texts(pairs: Sequence[Pair]) -> Iterator[tuple[str, str]]:
    """(source, target) of at most STATISTICS_PAIRS pairs."""
    for pair in pairs[:: -(-len(pairs) // STATISTICS_PAIRS)]:
        yield " ".join(pair.sources), pair.targets[0]
