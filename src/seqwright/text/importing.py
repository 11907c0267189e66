"""Import of pretrained tokenizers: a tokenizer.json of any program, or a SentencePiece `.model`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seqwright.core.config import UserError
from seqwright.text import sentencepiece
from seqwright.text.backend import add_special_tokens, damage_named, parse
from seqwright.text.tokenizer import Tokenizer


def import_tokenizer(path: Path, special_tokens: Sequence[str] = ()) -> Tokenizer:
    """The tokenizer of a file; special tokens that it lacks under all their usual names are appended to its ids."""
    try:
        data = path.read_bytes()
        if path.suffix == ".model":
            with damage_named():
                backend = sentencepiece.to_backend(sentencepiece.read_model(data))
        else:
            backend = parse(data.decode())[0]
        imported = Tokenizer(backend.to_str())
        missing = [name for name in special_tokens if not imported.has_special_token(name)]
        backend, spec = parse(backend.to_str())
        add_special_tokens(backend, spec, missing)
        notes = [f"{path.name} has no {name}: it is added as id {backend.token_to_id(name)}." for name in missing]
        return Tokenizer(backend.to_str(), notes)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as a tokenizer: {error}.") from error
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
