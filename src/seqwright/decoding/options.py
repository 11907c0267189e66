"""What a search is asked for, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from seqwright.core.config import UserError, check_not_negative, check_sizes


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """One output that a search found."""

    ids: list[int]
    """What was said after the prompt, without the end."""
    log_prob: float
    """log p(ids and end | source) under the model itself, natural log."""
    score: float
    """What hypotheses are compared by: the log-probability, normalized for length and coverage."""
    reason: str
    """"end" where the model said so, "length" where the search was cut off."""


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    kind: Literal["beam", "greedy", "exact", "sample"] = "beam"
    """How outputs are looked for: beam (the best few at every step), greedy (the best one), exact (all there are: small
    cases), sample (drawn by chance)."""
    beam_size: int = 5
    """Hypotheses kept for each source at every step of a beam."""
    n_best: int = 1
    """Outputs returned for each source, best first."""
    max_tokens: int = 200
    """The most tokens said, the end included (the cut-off T)."""
    length_ratio: float = 0.0
    """Tokens allowed beyond `length` for each token of the source: T = length_ratio · |x| + length."""
    min_tokens: int = 0
    """Tokens that must be said before the end."""
    length_penalty: Literal["none", "power", "gnmt", "average", "reward"] = "gnmt"
    """How hypotheses of different lengths |y| compare: by log-probability (none), divided by |y|^alpha (power), by ((5
    + |y|) / 6)^alpha (gnmt, Wu et al. 2016) or by |y| (average), or with alpha added for each token (reward)."""
    length_alpha: float = 0.6
    """The strength of the normalization."""
    coverage_penalty: float = 0.0
    """Strength of the penalty for source tokens that were hardly attended to (Wu et al. 2016); needs a model with
    attention."""
    stopping: Literal["finished", "bound", "now"] = "finished"
    """When a beam ends: enough hypotheses have ended (finished), no live one can still win (bound), or none would win
    if it ended now (now)."""
    finished: int | None = None
    """How many ended hypotheses are enough; the width unless given."""
    rank_unfinished: Literal["behind", "among"] = "behind"
    """Where hypotheses cut off before their end rank: behind those that ended, or among them by score."""
    beam_groups: int = 1
    """Parts of a beam that avoid each other's words (diverse beam search, Vijayakumar et al. 2018)."""
    diversity_penalty: float = 0.5
    """What a word costs a group for each earlier group that says it at the same step."""
    no_repeat_ngram: int = 0
    """No run of so many tokens may occur twice in an output; 0 allows all."""
    temperature: float = 1.0
    """For kind = "sample": flatter above 1, sharper below."""
    top_k: int | None = None
    """For kind = "sample": only the k most probable tokens may be drawn."""
    top_p: float | None = None
    """For kind = "sample": only the fewest tokens that hold this share of the probability may be drawn."""
    seed: int = 0
    """For kind = "sample": the same seed, source and model give the same outputs, whatever else is in the batch."""
    max_nodes: int | None = None
    """For kind = "exact": the most prefixes looked at for a source before the search gives up unproven."""

    def __post_init__(self) -> None:
        check_sizes(self, "beam_size", "n_best", "max_tokens", "beam_groups", "finished", "max_nodes")
        check_not_negative(
            self, "length_ratio", "min_tokens", "coverage_penalty", "diversity_penalty", "no_repeat_ngram"
        )
        if self.beam_size % self.beam_groups:
            raise UserError(
                f"a beam of {self.beam_size} cannot be split into {self.beam_groups} groups; make width a multiple."
            )
        if self.kind == "beam" and self.n_best > self.beam_size:
            raise UserError(f"a beam of {self.beam_size} cannot answer the {self.n_best} best; raise width.")
        if self.coverage_penalty and self.kind not in ("beam", "greedy"):
            raise UserError(f"a coverage penalty is taken by beams, not by kind = '{self.kind}'.")

    @property
    def enough(self) -> int:
        """Ended hypotheses of a group after which it may stop."""
        return self.finished or self.beam_size // self.beam_groups
