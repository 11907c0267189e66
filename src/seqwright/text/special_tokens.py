"""Special tokens added to an existing tokenizer: new ids at the end, existing ids unchanged."""

from __future__ import annotations

from collections.abc import Sequence

from seqwright.core.config import UserError
from seqwright.text.backend import add_special_tokens, parse
from seqwright.text.tokenizer import Tokenizer


def with_special_tokens(tokenizer: Tokenizer, names: Sequence[str]) -> Tokenizer:
    """The tokenizer with these special tokens added; those that it already has keep their ids."""
    new = [name for name in names if not tokenizer.has_special_token(name)]
    if not new:
        return tokenizer
    backend, spec = parse(tokenizer.json)
    for name in new:
        if any(token.endswith(name) for token in backend.get_vocab()):  # text would be encoded as the special token
            raise UserError(f"{name} is already ordinary text in this tokenizer's vocabulary; choose another name.")
    add_special_tokens(backend, spec, new)
    return Tokenizer(backend.to_str(), tokenizer.notes)
