"""Reserved tokens added to a tokenizer that is there: new ids at its end, every old id as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tokenizers import AddedToken

from seqwright.config import UserError
from seqwright.text.backend import assemble, parse
from seqwright.text.tokenizer import Tokenizer


def with_specials(tokenizer: Tokenizer, names: Sequence[str]) -> Tokenizer:
    """The tokenizer with these reserved tokens too; those it has already keep their ids."""
    new = tuple(name for name in names if name not in tokenizer.specials)
    if not new:
        return tokenizer
    backend, facts = parse(tokenizer.json)
    for name in new:
        if any(token.endswith(name) for token in backend.get_vocab()):  # a text would be taken for the reserved token
            raise UserError(f"{name} stands in the text that this tokenizer was learnt from; choose another name.")
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in new])
    if not facts.imported:
        # Steps that keep typed names of specials apart from the specials must know the new ones.
        template = assemble(replace(facts, specials=(*facts.specials, *new)), [])
        if template.normalizer is not None:
            backend.normalizer = template.normalizer
        backend.decoder = template.decoder
    return Tokenizer(backend.to_str(), tokenizer.notes)
