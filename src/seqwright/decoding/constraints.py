"""Lexical constraints: required and forbidden phrases, looked up for all rows of a search at once.

The automata of `phrases.py` follow every segmentation of a phrase; here they are tables on a device, so that a step of
a search neither decodes text nor loops over rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqwright.core.config import UserError
from seqwright.decoding.phrases import Automaton, Phrase
from seqwright.decoding.processors import NOTHING


@dataclass(frozen=True, kw_only=True)
class Constraints:
    """The transition tables of all automata, one after the other. A row is in 1 + C states: that of the forbidden
    phrases together, and that of each required phrase."""

    following: Tensor
    """(S, V) int32: the state after each id."""
    occurred: Tensor
    """(S,): the phrase has occurred."""
    occurs_at_end: Tensor
    """(S,): it has occurred if the text ends here."""
    matched: Tensor
    """(S,): pieces of the phrase matched so far; one more than all of them where it has occurred."""
    advancing_ids: Tensor
    """(S, V): the ids that advance the phrase most."""
    barred: Tensor
    """(S, V): ids after which a forbidden phrase has occurred, or must occur."""
    barred_last: Tensor
    """(S, V): the same where the output is cut off after the id."""
    first: Tensor
    """(B, 1 + C): the initial states of each source."""
    largest_bank: int
    """The largest number that `bank` gives."""

    def after(self, states: Tensor, ids: Tensor) -> Tensor:
        """States (..., 1 + C) after one id (...) more."""
        return self.following[states, ids.unsqueeze(-1)].long()

    def restrict(self, log_probs: Tensor, states: Tensor, last: Tensor, eos: int) -> Tensor:
        """Log-probabilities (R, V) with -inf for ids that complete a forbidden phrase, and for <eos> where a required
        one is missing; rows marked as `last` (R,) are cut off after the next id."""
        own = states[:, 0]
        barred = self.barred[own] | (self.barred_last[own] & last.unsqueeze(-1))
        log_probs = log_probs.masked_fill(barred, -torch.inf)
        if eos != NOTHING:
            log_probs[:, eos].masked_fill_(~self.met(states), -torch.inf)
        return log_probs

    def met(self, states: Tensor) -> Tensor:
        """(...): rows with all their required phrases, if they end here."""
        return self.occurs_at_end[states[..., 1:]].all(-1)

    def bank(self, states: Tensor) -> Tensor:
        """(...): matched pieces of required phrases: all of those that occurred, of the others the most advanced."""
        required = states[..., 1:]
        matched, occurred = self.matched[required], self.occurred[required]
        return matched.masked_fill(~occurred, 0).sum(-1) + matched.masked_fill(occurred, 0).amax(-1)

    def advancing(self, log_probs: Tensor, states: Tensor) -> Tensor:
        """(R, C): the most probable id that advances each required phrase most; NOTHING where it has occurred."""
        required = states[:, 1:]
        likeliest = log_probs.unsqueeze(1).masked_fill(~self.advancing_ids[required], -torch.inf).argmax(-1)
        return likeliest.masked_fill(self.occurred[required], NOTHING)


def constraints_of(
    forbidden: Automaton | None,
    required: Sequence[Sequence[Phrase]],
    prompts: Sequence[Sequence[int]],
    device: torch.device | str,
) -> Constraints | None:
    """The constraints of all sources after their prompts: one automaton of forbidden phrases, required phrases of each
    source; None where there are none."""
    phrases = list({id(one): one for own in required for one in own}.values())
    if forbidden is None and not phrases:
        return None
    has_text = (forbidden or phrases[0].automaton).has_text
    never = forbidden or _constant(has_text, occurred=False)
    # Sources with fewer required phrases than others are padded with one that has occurred.
    phrases = [Phrase(automaton=_constant(has_text, occurred=True), piece_ends=()), *phrases]
    parts = [never, *(one.automaton for one in phrases)]
    offsets = np.cumsum([0, *(len(part.occurred) for part in parts)]).tolist()
    following = np.concatenate([part.transitions + offset for part, offset in zip(parts, offsets, strict=False)])
    begins = {id(one): offset for one, offset in zip(phrases, offsets[1:], strict=False)}
    many = max(map(len, required), default=0)
    first = np.array([[0, *(begins[id(one)] for one in own), *[offsets[1]] * (many - len(own))] for own in required])
    for row, prompt in enumerate(prompts):
        for token in prompt:
            first[row] = following[first[row], token]
    doomed = _doomed(never)
    if doomed[first[:, 0]].any():
        raise UserError("the prefix of the outputs already contains a forbidden phrase; drop one of the two.")
    others = ((0, len(following) - len(doomed)), (0, 0))
    tables = {
        "following": following,
        "occurred": np.concatenate([part.occurred for part in parts]),
        "occurs_at_end": np.concatenate([part.occurs_at_end for part in parts]),
        "matched": np.concatenate([never.matched_bytes * 0, *(one.matched_pieces for one in phrases)]),
        "advancing_ids": np.concatenate([never.transitions < 0, *(one.advancing_ids for one in phrases)]),
        "barred": np.pad(doomed[never.transitions], others),
        "barred_last": np.pad((doomed | never.occurs_at_end)[never.transitions], others),
        "first": first,
    }
    largest = sum(int(one.matched_pieces.max()) for one in phrases)
    on_device = {name: torch.from_numpy(table).to(device) for name, table in tables.items()}
    return Constraints(**on_device, largest_bank=largest)


def _constant(has_text: NDArray[np.bool_], *, occurred: bool) -> Automaton:
    """An automaton with one state: of no phrase, or of one that has occurred already."""
    one = np.array([occurred])
    still = np.zeros((1, len(has_text)), np.int32)
    return Automaton(
        transitions=still, matched_bytes=np.zeros(1, np.int64), occurred=one, occurs_at_end=one, has_text=has_text
    )


def _doomed(never: Automaton) -> NDArray[np.bool_]:
    """(S,): states in which a forbidden phrase has occurred, or from which every id leads to one."""
    doomed = never.occurred
    while True:
        more = doomed | doomed[never.transitions[:, never.has_text]].all(1)
        if (more == doomed).all():
            return doomed
        doomed = more
