"""Reserved tokens added to a tokenizer that is there: new ids at its end, every old id as it was."""

from __future__ import annotations

from collections.abc import Sequence

from seqwright.core.config import UserError
from seqwright.text.backend import grow, parse
from seqwright.text.tokenizer import Tokenizer


def with_specials(tokenizer: Tokenizer, names: Sequence[str]) -> Tokenizer:
    """The tokenizer with these reserved tokens too; those it has already keep their ids."""
    new = [name for name in names if not tokenizer.reserves(name)]
    if not new:
        return tokenizer
    backend, facts = parse(tokenizer.json)
    for name in new:
        if any(token.endswith(name) for token in backend.get_vocab()):  # a text would be taken for the reserved token
            raise UserError(f"{name} stands in the text that this tokenizer was learned from; choose another name.")
    grow(backend, facts, new)
    return Tokenizer(backend.to_str(), tokenizer.notes)
