"""Translation of lines: batches of similar length, outputs in order."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

from seqwright.core.batch import Source
from seqwright.core.config import UserError
from seqwright.core.notebook import NotebookTable
from seqwright.core.protocols import Autoregressive
from seqwright.data.parallel.buckets import Side, Tokenizers, encode_sources
from seqwright.decoding.attention_recorder import alignments, attends_source, coverage
from seqwright.decoding.degeneration import Flag, TargetStatistics, degeneration_flags
from seqwright.decoding.mbr import minimum_bayes_risk
from seqwright.decoding.options import Hypothesis, SearchOptions
from seqwright.decoding.phrases import Automaton, Phrase, automaton, phrase
from seqwright.decoding.search import search
from seqwright.metrics.utilities import UTILITIES
from seqwright.text.tokenizer import Tokenizer

AT_ONCE = 512
"""Lines read ahead, so that lines of like length can share a batch."""
BUDGET = 2048
"""Source tokens of a batch, padding included."""


@dataclass(frozen=True, kw_only=True)
class TranslationOptions(SearchOptions):
    max_tokens: int = 10
    """Maximum number of new tokens, <eos> included, beyond those that length_ratio allows."""
    length_ratio: float = 2.0
    """New tokens allowed for each source token: outputs are cut off at T = length_ratio · |x| + max_tokens."""
    mbr: Literal["none", "chrf", "bleu", "f1"] = "none"
    """Minimum Bayes risk decoding (Kumar & Byrne 2004): of the `n_best` outputs, choose the one with the highest
    expected utility by this metric."""
    prefix: str = ""
    """Prefix of every output; it is neither scored nor counted in the length."""
    required: tuple[str, ...] = ()
    """Words or phrases that every finished output contains, in any segmentation. Outputs that lack one are searched for
    again by a beam with room for each token of them (Post & Vilar 2018)."""
    forbidden: tuple[str, ...] = ()
    """Words or phrases that no output contains, in any segmentation; longer words that start with other pieces
    may occur."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mbr != "none" and self.n_best < 2:
            raise UserError("minimum Bayes risk chooses among several outputs; raise n_best.")

    @property
    def signature(self) -> str:
        """That of the search, and the utility by which one of its outputs was chosen: beam-8-gnmt-0.6-mbr-8-chrf."""
        return super().signature + ("" if self.mbr == "none" else f"-mbr-{self.n_best}-{self.mbr}")


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """Attention weights of each output token over the source tokens, averaged over heads and layers."""

    source: list[str]
    target: list[str]
    """The last is <eos>."""
    weights: list[list[float]]
    """One row per target token."""
    coverage: float
    """The share of the source that was attended to; each token counts for at most one."""

    @property
    def links(self) -> str:
        """Pharaoh format, `0-0 2-1 …`: for each target token but <eos>, the source token with the largest weight."""
        return " ".join(f"{max(range(len(row)), key=row.__getitem__)}-{n}" for n, row in enumerate(self.weights[:-1]))


@dataclass(frozen=True)
class Alternative:
    """Another output for the same source."""

    text: str
    log_prob: float
    """Of the generated ids and <eos>, natural log."""
    score: float
    """Log-probability with length and coverage penalties: outputs are ranked by it."""


@dataclass(frozen=True, kw_only=True)
class Translation(NotebookTable):
    """The translation of a source."""

    source: tuple[str, ...]
    text: str
    log_prob: float
    """Of the generated ids and <eos>, natural log."""
    score: float
    """Log-probability with length and coverage penalties: outputs are ranked by it."""
    tokens: int
    """Number of generated tokens."""
    reason: str
    """"end" where <eos> was generated, "length" where the output was cut off, "empty" for an empty source."""
    others: tuple[Alternative, ...] = ()
    """The other n-best outputs, of the highest score first."""
    unread: int = 0
    """Source tokens that were truncated."""
    warnings: tuple[Flag, ...] = ()
    """Degeneration flags."""
    attention: Alignment | None = None
    """Attention over the source, if requested."""


Given = tuple[tuple[str, ...], str | None]
"""Sources and their tag."""


@torch.inference_mode()
def translate(
    model: Autoregressive,
    tokenizers: Tokenizers,
    given: Iterable[Given],
    options: TranslationOptions,
    *,
    truncate: bool = False,
    attention: bool = False,
    typical: TargetStatistics = TargetStatistics(),  # noqa: B008 frozen
    first: int = 1,
    device: torch.device | str = "cpu",
) -> Iterator[Translation]:
    """The translation of each source, in order; empty sources have empty outputs.

    `attention` adds the attention weights to every output; flagged outputs always get the coverage of their source.
    `first` is the number of the first source, for messages.
    """
    model.eval()
    if attention and not attends_source(model):
        raise UserError("this model has no attention over its source; train one with --set model.attention=additive.")
    lines = iter(given)
    while chunk := list(itertools.islice(lines, AT_ONCE)):
        side = encode_sources(chunk, tokenizers.source)
        cut = _cut(side, model.context, truncate, tokenizers.source.eos, first=first)
        found = {}
        real = [n for n, (sources, _) in enumerate(chunk) if any(text.strip() for text in sources)]
        for rows in _groups(real, cut.lengths):
            source = _source(cut, rows, device)
            outputs = search_sources(model, source, tokenizers.target, options)
            chosen = [
                _chosen(chunk[n][0], several, tokenizers.target, options, side.lengths[n] - cut.lengths[n], typical)
                for n, several in zip(rows, outputs, strict=True)
            ]
            looked = [n for n, (said, _) in enumerate(chosen) if attention or (said.warnings and attends_source(model))]
            aligned = _aligned(model, tokenizers, source, {n: chosen[n][1] for n in looked})
            for n, (row, (said, _)) in enumerate(zip(rows, chosen, strict=True)):
                found[row] = _looked_into(said, aligned.get(n), attention)
        for n, (sources, _) in enumerate(chunk):
            yield found.get(n) or Translation(
                source=sources, text="", log_prob=0.0, score=0.0, tokens=0, reason="empty"
            )
        first += len(chunk)


def _source(side: Side, rows: Sequence[int], device: torch.device | str) -> Source:
    ids, mask = side.padded(np.array(rows), 0)
    return Source(mask=torch.from_numpy(mask), ids=torch.from_numpy(ids)).to(device)


def search_sources(
    model: Autoregressive, source: Source, target: Tokenizer, options: TranslationOptions
) -> list[list[Hypothesis]]:
    """The best outputs of these sources together, each after the prefix."""
    forbidden, required = wished(target, tuple(options.forbidden), tuple(options.required))
    return search(
        model,
        source,
        options,
        sos=target.sos,
        eos=target.eos,
        banned=target.never_generated(target.eos),
        prompts=[beginning(target, options.prefix)] * source.rows,
        forbidden=forbidden,
        required=[required] * source.rows,
    )


def beginning(target: Tokenizer, prefix: str) -> list[int]:
    """The ids that outputs begin with."""
    if unknown := target.unknowns(prefix):
        missing = ", ".join(map(repr, unknown))
        raise UserError(
            f"the target vocabulary has no {missing}, which decoding.prefix says; begin with what it knows."
        )
    return target.encode(prefix)


@functools.lru_cache(maxsize=8)
def wished(
    target: Tokenizer, forbidden: tuple[str, ...], required: tuple[str, ...]
) -> tuple[Automaton | None, tuple[Phrase, ...]]:
    """What is forbidden, and each phrase that is required, as a search follows them through this vocabulary."""
    never = {text: _surface(target, text) for text in forbidden}
    watched = automaton([*never.values()], target.token_bytes, target.eos) if never else None
    if watched is not None:
        # Who says a word in one piece means it: letters after that would only be a way around.
        ends = {cut[-1]: said.split()[-1] for text, said in never.items() for cut in _cuts(target, text)}
        watched = watched.without_end_boundary(
            [id for id, word in ends.items() if len(word) > 1 and target.token_bytes[id].strip() == word]
        )
    phrases = []
    for text in required:
        said = _surface(target, text)
        usual = min(_cuts(target, text), key=len)
        if watched is not None and watched.occurs_at_end[watched.read(usual)]:
            raise UserError(f"{text!r} is required, but holds something forbidden; take one of the two back.")
        phrases.append(phrase(said, target.token_bytes, usual, target.eos))
    return watched, tuple(phrases)


def _cuts(target: Tokenizer, text: str) -> list[list[int]]:
    """A phrase's usual ids, where it opens a text and after a space."""
    return [target.encode(before + text) for before in ("", " ")]


def _surface(target: Tokenizer, text: str) -> bytes:
    """A phrase as outputs spell it: lower-cased where they are, in their normal form."""
    if unknown := target.unknowns(text):
        missing = ", ".join(map(repr, unknown))
        raise UserError(f"the target vocabulary has no {missing}; require and forbid words that it knows.")
    if not (said := target.decode(target.encode(text)).strip()):
        raise UserError("the target vocabulary cannot spell nothing; require and forbid words that it knows.")
    return said.encode()


def _aligned(
    model: Autoregressive, tokenizers: Tokenizers, source: Source, outputs: dict[int, list[int]]
) -> dict[int, Alignment]:
    """Where some outputs looked, by row of the sources."""
    if not outputs:
        return {}
    target = tokenizers.target
    assert source.ids is not None
    assert target.sos is not None
    assert target.eos is not None
    asked = source.select(torch.tensor(list(outputs), device=source.device))
    weights = alignments(model, asked, list(outputs.values()), sos=target.sos, eos=target.eos)
    return {
        row: Alignment(
            source=tokenizers.source.tokens(source.ids[row, : own.size(1)].tolist()),
            target=target.tokens([*ids, target.eos]),
            weights=own.tolist(),
            coverage=coverage(own),
        )
        for (row, ids), own in zip(outputs.items(), weights, strict=True)
    }


def _looked_into(said: Translation, alignment: Alignment | None, attention: bool) -> Translation:
    """With what the attention shows: the coverage beside each warning, and all of it where it was asked for."""
    if alignment is None:
        return said
    warned = tuple(replace(flag, coverage=alignment.coverage) for flag in said.warnings)
    return replace(said, warnings=warned, attention=alignment if attention else None)


def _chosen(
    source: tuple[str, ...],
    several: list[Hypothesis],
    target: Tokenizer,
    options: TranslationOptions,
    unread: int,
    typical: TargetStatistics,
) -> tuple[Translation, list[int]]:
    """The best of several outputs, and its ids from the prefix on."""
    begun = target.encode(options.prefix)
    texts = [target.decode([*begun, *hypothesis.ids]) for hypothesis in several]
    best = 0
    if options.mbr != "none":
        # Samples come as often as they are probable; an n-best list is weighed by its log-probabilities.
        weights = None if options.kind == "sample" else [hypothesis.log_prob for hypothesis in several]
        best, _ = minimum_bayes_risk(UTILITIES[options.mbr](texts), weights)
    text, hypothesis = texts[best], several[best]
    facts: dict[str, Any] = {"log_prob": hypothesis.log_prob, "tokens": len(hypothesis.ids)}
    facts["reason"] = hypothesis.reason
    said = Translation(
        source=source,
        text=text,
        score=hypothesis.score,
        others=tuple(
            Alternative(text, hypothesis.log_prob, hypothesis.score)
            for n, (text, hypothesis) in enumerate(zip(texts, several, strict=True))
            if n != best
        ),
        unread=int(unread),
        warnings=tuple(degeneration_flags(text, source=" ".join(source), baseline=typical, **facts)),
        **facts,
    )
    return said, [*begun, *hypothesis.ids]


def _cut(side: Side, context: int | None, truncate: bool, eos: int | None, *, first: int) -> Side:
    """Sources that fit the model: the same, or, if asked for, their beginnings with the end put back."""
    if context is None or side.lengths.max() <= context:
        return side
    if not truncate:
        n = int(np.argmax(side.lengths > context))
        raise UserError(
            f"source {first + n:,} has {side.lengths[n]:,} tokens, but the model can tell {context} apart;"
            " split it, or cut such sources off with --truncate."
        )
    lengths = np.minimum(side.lengths, context)
    ids = side.ids.copy()
    assert eos is not None
    ids[side.starts + lengths - 1] = eos
    return replace(side, ids=ids, lengths=lengths)


def _groups(rows: Sequence[int], lengths: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Iterator[list[int]]:
    """Neighbors in length whose padded batch stays within the budget."""
    group: list[int] = []
    for n in sorted(rows, key=lambda n: int(lengths[n])):
        if group and (len(group) + 1) * lengths[n] > BUDGET:
            yield group
            group = []
        group.append(n)
    if group:
        yield group
