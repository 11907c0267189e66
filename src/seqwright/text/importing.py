"""Tokenizers made elsewhere: a tokenizer.json of any program, or a SentencePiece `.model`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seqwright.core.config import UserError
from seqwright.text import sentencepiece
from seqwright.text.backend import grow, parse
from seqwright.text.tokenizer import Tokenizer


def import_tokenizer(path: Path, special_tokens: Sequence[str] = ()) -> Tokenizer:
    """The tokenizer of a file; special_tokens that it has no word for, under any of their usual names, come after its ids."""
    try:
        data = path.read_bytes()
        backend = (
            sentencepiece.pipeline(sentencepiece.read_model(data))
            if path.suffix == ".model"
            else parse(data.decode())[0]
        )
        found = Tokenizer(backend.to_str())
        missing = [name for name in special_tokens if not found.reserves(name)]
        backend, facts = parse(backend.to_str())
        grow(backend, facts, missing)
        notes = [f"{path.name} has no {name}: it is added as id {backend.token_to_id(name)}." for name in missing]
        return Tokenizer(backend.to_str(), notes)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as a tokenizer: {error}.") from error
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
