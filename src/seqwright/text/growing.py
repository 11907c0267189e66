"""Reserved tokens added to a tokenizer that is there: new ids at its end, every old id as it was."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from seqwright.config import UserError
from seqwright.text.tokenizer import Tokenizer


def with_specials(tokenizer: Tokenizer, names: Sequence[str]) -> Tokenizer:
    """The tokenizer with these reserved tokens too; those it has already keep their ids."""
    new = [name for name in names if name not in tokenizer.specials]
    if not new:
        return tokenizer
    backend = Backend.from_str(tokenizer.json)
    for name in new:
        if backend.token_to_id(name) is not None:  # then the text's own word would be taken for the reserved token
            raise UserError(f"{name} is a word of the text that this tokenizer was learnt from; choose another name.")
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in new])
    return Tokenizer(backend.to_str(), tokenizer.notes)
