"""Constraints: what outputs must and must not say, looked up for all rows of a search at once.

Automata (`phrases.py`) follow every way to cut a phrase; here they are tables on a device, so that a step of a search
neither decodes text nor loops over rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqwright.core.config import UserError
from seqwright.decoding.bans import NOTHING
from seqwright.decoding.phrases import Automaton, Phrase


@dataclass(frozen=True, kw_only=True)
class Constraints:
    """The states of all automata, one after the other, and what they mean. A row is in 1 + C of them: where it stands
    with all that is forbidden, and with each required phrase."""

    following: Tensor
    """(S, V) int32: the state after each id."""
    said: Tensor
    """(S,): its phrase has been said, wherever."""
    ends: Tensor
    """(S,): the same, if the text ends here."""
    safe: Tensor
    """(S,): pieces of its phrase that stand at the end; one more than all where it has been said."""
    leading: Tensor
    """(S, V): ids that bring its phrase furthest."""
    barred: Tensor
    """(S, V): ids after which something forbidden has been said, or could not but be said."""
    barred_last: Tensor
    """(S, V): the same where the text is cut off after the id."""
    first: Tensor
    """(B, 1 + C): where each source begins."""
    most: int
    """No bank holds more."""

    def after(self, states: Tensor, ids: Tensor) -> Tensor:
        """States (..., 1 + C) after one id (...) more."""
        return self.following[states, ids.unsqueeze(-1)].long()

    def restrict(self, log_probs: Tensor, states: Tensor, last: Tensor, eos: int) -> Tensor:
        """Log-probabilities (R, V) without what is forbidden, nor the end where something required is missing; rows
        marked as `last` (R,) are cut off after what comes next."""
        own = states[:, 0]
        barred = self.barred[own] | (self.barred_last[own] & last.unsqueeze(-1))
        log_probs = log_probs.masked_fill(barred, -torch.inf)
        if eos != NOTHING:
            log_probs[:, eos].masked_fill_(~self.whole(states), -torch.inf)
        return log_probs

    def whole(self, states: Tensor) -> Tensor:
        """Which rows (...) have said all that is required, if they end here."""
        return self.ends[states[..., 1:]].all(-1)

    def bank(self, states: Tensor) -> Tensor:
        """Pieces of required phrases that are safe (...): all of those said, and of the others the one furthest on."""
        required = states[..., 1:]
        safe, said = self.safe[required], self.said[required]
        return safe.masked_fill(~said, 0).sum(-1) + safe.masked_fill(said, 0).amax(-1)

    def leads(self, log_probs: Tensor, states: Tensor) -> Tensor:
        """(R, C): the likeliest of the ids that bring each required phrase furthest; NOTHING where it has been said."""
        required = states[:, 1:]
        likeliest = log_probs.unsqueeze(1).masked_fill(~self.leading[required], -torch.inf).argmax(-1)
        return likeliest.masked_fill(self.said[required], NOTHING)


def wishes(
    forbidden: Automaton | None,
    required: Sequence[Sequence[Phrase]],
    prompts: Sequence[Sequence[int]],
    device: torch.device | str,
) -> Constraints | None:
    """What is forbidden to all sources and required of each, after these prompts; None where there is nothing."""
    phrases = list({id(one): one for own in required for one in own}.values())
    if forbidden is None and not phrases:
        return None
    sayable = (forbidden or phrases[0].automaton).sayable
    never = forbidden or _still(sayable, said=False)
    # Sources of which fewer phrases are required than of others have said the rest already.
    phrases = [Phrase(automaton=_still(sayable, said=True), cuts=()), *phrases]
    parts = [never, *(one.automaton for one in phrases)]
    offsets = np.cumsum([0, *(len(part.said) for part in parts)]).tolist()
    following = np.concatenate([part.following + offset for part, offset in zip(parts, offsets, strict=False)])
    begins = {id(one): offset for one, offset in zip(phrases, offsets[1:], strict=False)}
    many = max(map(len, required), default=0)
    first = np.array([[0, *(begins[id(one)] for one in own), *[offsets[1]] * (many - len(own))] for own in required])
    for row, prompt in enumerate(prompts):
        for token in prompt:
            first[row] = following[first[row], token]
    doomed = _doomed(never)
    if doomed[first[:, 0]].any():
        raise UserError("what outputs must begin with already says something forbidden; take one of the two back.")
    others = ((0, len(following) - len(doomed)), (0, 0))
    tables = {
        "following": following,
        "said": np.concatenate([part.said for part in parts]),
        "ends": np.concatenate([part.ends for part in parts]),
        "safe": np.concatenate([never.progress * 0, *(one.safe for one in phrases)]),
        "leading": np.concatenate([never.following < 0, *(one.leading for one in phrases)]),
        "barred": np.pad(doomed[never.following], others),
        "barred_last": np.pad((doomed | never.ends)[never.following], others),
        "first": first,
    }
    most = sum(int(one.safe.max()) for one in phrases)
    return Constraints(**{name: torch.from_numpy(table).to(device) for name, table in tables.items()}, most=most)


def _still(sayable: NDArray[np.bool_], *, said: bool) -> Automaton:
    """An automaton that ids do not move: of nothing, or of what has been said already."""
    one = np.array([said])
    still = np.zeros((1, len(sayable)), np.int32)
    return Automaton(following=still, progress=np.zeros(1, np.int64), said=one, ends=one, sayable=sayable)


def _doomed(never: Automaton) -> NDArray[np.bool_]:
    """(S,): states in which something forbidden has been said, or after which whatever comes leads to one."""
    doomed = never.said
    while True:
        more = doomed | doomed[never.following[:, never.sayable]].all(1)
        if (more == doomed).all():
            return doomed
        doomed = more
