"""Options of decoding: how tokens are sampled, and how outputs are searched for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from seqwright.core.config import UserError, check_not_negative, check_sizes, with_options

T = TypeVar("T", bound="SearchOptions")

MAX_BEAM = 10_000
"""Every hypothesis has log-probabilities of the whole vocabulary: a received recipe cannot ask for a billion."""
MAX_LENGTH_ALPHA = 10.0
"""Papers use up to 2; a length to the power of 100 overflows."""


@dataclass(frozen=True, kw_only=True)
class ProcessorOptions:
    """Options of the logits processors, which sampling and search share."""

    temperature: float = 1.0
    """Softmax temperature; above 1 flattens the distribution, below 1 sharpens it, 0 is greedy."""
    top_k: int | None = None
    """Sample from the k most probable tokens."""
    top_p: float | None = None
    """Nucleus sampling: sample from the smallest set of tokens that holds this probability mass."""
    min_p: float | None = None
    """Sample from tokens at least this many times as probable as the most probable one."""
    typical_p: float | None = None
    """Locally typical sampling: sample from the most typical tokens that hold this probability mass."""
    epsilon_cutoff: float | None = None
    """Sample from tokens with at least this probability."""
    repetition_penalty: float = 1.0
    """Penalize tokens already in the prompt or output; above 1 discourages repetition."""
    presence_penalty: float = 0.0
    """Subtracted from the log-probability of tokens already in the output."""
    frequency_penalty: float = 0.0
    """Subtracted from the log-probability of a token for each time it is already in the output."""
    no_repeat_ngram: int = 0
    """Block n-grams of this size that are already in the prompt or output; 0 allows all."""
    min_tokens: int = 0
    """Minimum number of new tokens before <eos>."""
    seed: int = 0
    """The same seed, input and model give the same output, whatever else is in the batch."""

    def __post_init__(self) -> None:
        check_sizes(self, "top_k")
        check_not_negative(self, "no_repeat_ngram", "min_tokens")
        check_seed(self.seed)
        if not 0 <= self.temperature < math.inf:
            raise UserError(f"temperature must be 0 (greedy) or more, not {self.temperature}.")
        for name in ("top_p", "min_p", "typical_p", "epsilon_cutoff"):
            mass = getattr(self, name)
            if mass is not None and not 0 < mass <= 1:
                raise UserError(f"{name} is a probability: above 0 and at most 1, not {mass}.")
        for name in ("repetition_penalty", "presence_penalty", "frequency_penalty"):
            if not math.isfinite(getattr(self, name)):
                raise UserError(f"{name} must be a finite number, not {getattr(self, name)}.")
        if self.repetition_penalty <= 0:
            raise UserError(f"repetition_penalty must be above 0 (1 changes nothing), not {self.repetition_penalty}.")

    @property
    def penalized(self) -> bool:
        """Whether a penalty depends on the tokens generated so far."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0

    @property
    def needs_history(self) -> bool:
        """Whether processors look at the tokens so far."""
        return self.penalized or self.no_repeat_ngram > 0


@dataclass(frozen=True, kw_only=True)
class SamplingOptions(ProcessorOptions):
    max_tokens: int = 200
    """Maximum number of new tokens."""
    banned_ids: tuple[int, ...] = ()
    """Ids that are never generated."""
    forced_ids: tuple[int, ...] = ()
    """Ids that the output begins with."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Pairs [id, bias]: added to the log-probability of the id."""
    stop: tuple[str, ...] = ()
    """Stop strings: the output ends before the first of them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self, "max_tokens")
        for id, bias in self.logit_bias:
            if not math.isfinite(bias):
                raise UserError(f"logit_bias of id {id} must be a finite number, not {bias}; use banned_ids to ban it.")
        if "" in self.stop:
            raise UserError("stop must not hold an empty string: it would end every output at once.")


@dataclass(frozen=True, kw_only=True)
class SearchOptions(ProcessorOptions):
    kind: Literal["beam", "greedy", "exact", "sample"] = "beam"
    """Beam search, greedy search, exact search (depth first with bounds: small cases), or sampling."""
    beam_size: int = 5
    """Hypotheses kept for each source at every step."""
    n_best: int = 1
    """Outputs returned for each source, best first; with kind = "sample", the number of samples."""
    max_tokens: int = 200
    """Maximum number of new tokens, <eos> included (the cut-off T)."""
    length_ratio: float = 0.0
    """New tokens allowed beyond max_tokens for each source token: T = length_ratio · |x| + max_tokens."""
    length_penalty: Literal["none", "power", "gnmt", "average", "reward"] = "gnmt"
    """How the log-probabilities of hypotheses of length |y| compare: as they are (none), divided by |y|^α (power), by
    ((5 + |y|) / 6)^α (gnmt, Wu et al. 2016) or by |y| (average), or plus α |y| (reward, He et al. 2016)."""
    length_alpha: float = 0.6
    """Strength α of the length penalty, 10 at most."""
    coverage_penalty: float = 0.0
    """Strength β of the penalty for source tokens with little attention (Wu et al. 2016); needs a model with
    cross-attention."""
    stopping: Literal["finished", "bound", "now"] = "finished"
    """When a beam search ends: enough hypotheses are finished (finished), no live one can still win (bound), or none
    would win if it ended now (now)."""
    finished: int | None = None
    """Finished hypotheses that are enough; beam_size unless given."""
    rank_unfinished: Literal["behind", "among"] = "behind"
    """Rank of hypotheses cut off before <eos>: behind the finished ones, or among them by score."""
    beam_groups: int = 1
    """Groups of diverse beam search (Vijayakumar et al. 2018)."""
    diversity_penalty: float = 0.5
    """Penalty of a token for each earlier group that chose it at the same step."""
    max_nodes: int | None = None
    """With kind = "exact": prefixes expanded for a source before the search gives up unproven."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self, "beam_size", "n_best", "max_tokens", "beam_groups", "finished", "max_nodes")
        check_not_negative(self, "length_ratio", "coverage_penalty", "diversity_penalty")
        if max(self.beam_size, self.n_best) > MAX_BEAM:
            raise UserError(f"beam_size and n_best are at most {MAX_BEAM:,}; lower them.")
        if abs(self.length_alpha) > MAX_LENGTH_ALPHA:
            raise UserError(
                f"length_alpha is at most {MAX_LENGTH_ALPHA:g}, and usually 0 to 2, not {self.length_alpha:g}."
            )
        if self.beam_size % self.beam_groups:
            raise UserError(
                f"a beam of {self.beam_size} cannot be split into {self.beam_groups} groups; make beam_size a multiple."
            )
        if self.kind == "greedy" and self.n_best > 1:
            raise UserError(f'greedy search has one output, not {self.n_best}; set kind = "beam".')
        if self.kind == "beam" and self.n_best > self.beam_size:
            raise UserError(f"a beam of {self.beam_size} has no {self.n_best} best outputs; raise beam_size (--beam).")
        if self.coverage_penalty and self.kind not in ("beam", "greedy"):
            raise UserError(f"coverage_penalty is for beam search, not for kind = '{self.kind}'.")
        if self.penalized and self.kind == "exact":
            raise UserError("exact search is exact under the model alone; leave the penalties out.")

    @property
    def enough(self) -> int:
        """Finished hypotheses of a group after which it may stop."""
        return self.finished or self.beam_size // self.beam_groups

    @property
    def signature(self) -> str:
        """The search as signatures of scores name it: beam-5-gnmt-0.6."""
        return f"beam-{self.beam_size}-{self.length_penalty}-{self.length_alpha}" if self.kind == "beam" else self.kind


def search_options(options: T, changes: Mapping[str, Any]) -> T:
    """Options with changes of a user and what these imply."""
    return with_options(options, with_implied(options, changes))


def with_implied(options: SearchOptions, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes of a user and what they imply: a beam size, or several outputs of greedy search, beam search; more
    outputs than beams, as many beams."""
    implied: dict[str, Any] = {}
    kind, n_best = changes.get("kind", options.kind), changes.get("n_best", options.n_best)
    if "kind" not in changes and ("beam_size" in changes or (kind == "greedy" and n_best != 1)):
        implied["kind"] = kind = "beam"
    if "beam_size" not in changes and kind == "beam" and isinstance(n_best, int) and n_best > options.beam_size:
        implied["beam_size"] = n_best
    return implied | dict(changes)


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """One output of a search."""

    ids: list[int]
    """Generated ids without <eos>."""
    log_prob: float
    """log p(ids and <eos> | source) under the model itself, natural log."""
    score: float
    """The log-probability with length and coverage penalties: what hypotheses are ranked by."""
    reason: str
    """"end" where <eos> was generated, "length" where the output was cut off."""


def check_seed(seed: int) -> None:
    """Raises where a seed does not fit in a tensor."""
    if not -(1 << 63) <= seed < 1 << 63:
        raise UserError(f"seed must fit in 64 bits, but is {seed}.")
