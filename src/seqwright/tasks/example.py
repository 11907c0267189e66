"""Texts as the model of a run reads them: one row of ids with the names of its tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from seqwright.core.batch import IGNORE, Batch, Source
from seqwright.core.config import UserError
from seqwright.core.protocols import Counted
from seqwright.data.chat import Message
from seqwright.data.files import MissingFileError
from seqwright.data.images.files import Pixels
from seqwright.data.parallel.buckets import encode_sources
from seqwright.data.tagged.formats import Sentence
from seqwright.data.text.masked import MASK
from seqwright.runs.facts import moved_files
from seqwright.runs.run import Run
from seqwright.tasks.chat.task import ChatRun
from seqwright.tasks.classification.task import ClassificationRun
from seqwright.tasks.denoising.task import DenoisingRun, reconstructed
from seqwright.tasks.language.task import LanguageRun, TextRun
from seqwright.tasks.masked.task import MaskedRun, encode_masks
from seqwright.tasks.tagging.task import TaggingRun
from seqwright.tasks.translation.task import TranslationRun
from seqwright.text.tokenizer import Tokenizer

ENCODER = "reader."
"""Prefix of the names of the modules that encode the source of an encoder-decoder."""
MAX_TOKENS = 1024
"""Tokens of a text that are read at most: attention weights grow with the square of them."""
SAMPLE_TOKENS = 32
"""Tokens of the validation text that are read where no text is named."""
WINDOW = 256
"""Tokens of a file that are read at once, where the context is not shorter."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """One row of a forward pass, and its tokens."""

    text: str
    batch: Batch
    tokens: tuple[str, ...]
    """Input positions of a decoder (T), or source positions (S) of an encoder model."""
    targets: tuple[str, ...] = ()
    """What a decoder predicts at each position (T); "" where nothing follows."""
    source: tuple[str, ...] = ()
    """Source positions (S) of an encoder-decoder."""
    words: tuple[str, ...] = ()
    """Words (W) of a tagger."""
    notes: tuple[str, ...] = ()
    """What was left out, and what is unknown."""
    pixels: Pixels | None = None
    """(H, W, C), where the source is an image."""

    def tokens_of(self, module: str, length: int) -> tuple[str, ...]:
        """The tokens at the positions of a module of the model, by its name and the number of positions."""
        if module.startswith(ENCODER):
            return self.source
        both = (*self.source, *self.tokens)  # a prefix language model reads them as one sequence
        return both if length == len(both) else self.tokens


def example(run: Run, text: str | None = None, target: str | None = None, *, limit: int = MAX_TOKENS) -> Example:
    """A text (by default one of the run's validation data) as the run reads it; `target` is what a translator is
    taken to have generated, by default the output of its search. Texts of decoders are cut to `limit` tokens."""
    if isinstance(run, TranslationRun):
        return _translation(run, _text(run, text), target, limit)
    if isinstance(run, ChatRun):
        return _chat(run, _text(run, text), target, limit)
    if isinstance(run, DenoisingRun):
        return _denoising(run, _text(run, text), target, limit)
    if target is not None:
        raise UserError(f"{run.path} has no target beside its text: it {run.description}; leave --target out.")
    if isinstance(run, LanguageRun):
        return _language(run, _text(run, text), limit)
    if isinstance(run, ClassificationRun):
        return _classification(run, _text(run, text))
    if isinstance(run, TaggingRun):
        return _tagging(run, _text(run, text))
    assert isinstance(run, MaskedRun)
    return _masked(run, _text(run, text), limit)


def file_examples(run: Run, on: str) -> Iterator[Example]:
    """The text of a file in consecutive windows, as the run reads it in evaluations."""
    if not isinstance(run, LanguageRun | MaskedRun):
        raise UserError(
            f"{run.path} {run.description}; statistics over a file are for models that continue or fill text. Give one"
            " text instead of --on."
        )
    ids = run.stream(on).ids
    size = min(WINDOW, run.model.context or WINDOW)
    for first in range(0, max(1, len(ids) - 1), size):
        window = ids[first : first + size].tolist()
        yield _language_ids(run, window) if isinstance(run, LanguageRun) else _masked_ids(run, window)


def _unknown(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, ...]:
    """A note on tokens outside the vocabulary, if there are any."""
    count = 0 if tokenizer.unk is None else list(ids).count(tokenizer.unk)
    return (f"tokens outside the vocabulary, read as <unk>: {count:,}.",) if count else ()


def quoted(output: str) -> str:
    """An output of the model in one line; one of white space alone, which could not be seen, is counted."""
    words = output.split()
    return f"“{' '.join(words)}”" if words else f"{len(output):,} characters of white space" if output else "empty"


def _text(run: Run, text: str | None) -> str:
    """The text, or the first of the run's validation data."""
    if text is None:
        try:
            text = _validation_text(run)
        except MissingFileError as error:
            raise UserError(f"{error} Give a text after the run. {moved_files(run.path, run.settings.data)}") from error
        except UserError as error:
            raise UserError(f"{run.path} has no validation text to show; give a text after the run.") from error
    if not text.strip():
        raise UserError("the text is empty; give a few words.")
    return next(iter(run.check_form([text])))


def _validation_text(run: Run) -> str:
    if isinstance(run, TextRun):
        stream = run.stream()
        ids = stream.ids[:SAMPLE_TOKENS].tolist()
        specials = set(run.tokenizer.special_tokens.values())
        ends = [n for n, id in enumerate(ids) if n and id in specials]  # the first document, unless it is empty
        return run.tokenizer.decode([id for id in ids[: max(ends[:1] or [len(ids)])] if id not in specials])
    if isinstance(run, TranslationRun):
        return "\t".join(run.pairs().pairs[0].sources)
    if isinstance(run, ClassificationRun):
        return "\t".join(run.rows().rows[0].texts)
    if isinstance(run, ChatRun):
        raise UserError("conversations have no first text.")
    assert isinstance(run, TaggingRun)
    return " ".join(run.tagged().sentences[0].words)


def _fitted(ids: Sequence[int], context: int | None, limit: int) -> tuple[list[int], tuple[str, ...]]:
    """The first ids, as many as the model sees at once and `limit` at most, and a note on the others."""
    limit = min(limit, context or limit)
    if len(ids) <= limit:
        return list(ids), ()
    why = "the model sees at most" if limit == context else "shown are at most"
    return list(ids[:limit]), (f"{why} {limit:,} tokens at a time: the last {len(ids) - limit:,} are left out.",)


def _language(run: LanguageRun, text: str, limit: int) -> Example:
    tokenizer = run.tokenizer
    assert tokenizer.sos is not None
    ids, notes = _fitted([tokenizer.sos, *tokenizer.encode(text)], run.model.context, limit)
    return replace(_language_ids(run, ids), text=text, notes=(*notes, *_unknown(tokenizer, ids)))


def _chat(run: ChatRun, text: str, target: str | None, limit: int) -> Example:
    """A question and its reply, with the roles of the conversation."""
    notes: tuple[str, ...] = ()
    if target is None:
        target = run.chat(text).content
        notes = (f"reply: {quoted(target)}",)
    prompt = run.turns.prompt((Message("user", text),))
    ids, cut = _fitted([*prompt, *run.tokenizer.encode(target), run.turns.end], run.model.context, limit)
    read = _language_ids(run, ids)
    scored = read.batch.target.clone()
    scored[:, : len(prompt) - 1] = IGNORE  # only the assistant's tokens are learned
    batch = replace(read.batch, target=scored)
    return replace(read, text=text, batch=batch, notes=(*notes, *cut, *_unknown(run.tokenizer, ids)))


def _language_ids(run: LanguageRun | ChatRun, ids: Sequence[int]) -> Example:
    input, target = torch.tensor([ids]), torch.tensor([[*ids[1:], IGNORE]])
    tokens = tuple(run.tokenizer.tokens(ids))
    batch = Batch.of_text(input, target).to(run.device)
    return Example(text="", batch=batch, tokens=tokens, targets=(*tokens[1:], ""))


def _translation(run: TranslationRun, text: str, target: str | None, limit: int) -> Example:
    tokenizers = run.tokenizers
    data = run.settings.data
    tag = data.tags[0] if data.tags else None
    texts = tuple(text.split("\t")) if data.sources > 1 else (text,)
    if len(texts) != data.sources:
        raise UserError(f"{run.path} reads {data.sources} sources at a time; part them by a tab.")
    notes: tuple[str, ...] = ()
    if target is None:
        (best,) = run.translate([texts], tag=tag, truncate=True)
        target = best.text
        notes = (f"target, the output of the search: {quoted(target)}",)
    ids, mask = encode_sources([(texts, tag)], tokenizers.source).padded(np.arange(1), 0)
    size = run.model.context
    source_ids, cut = _fitted(ids[0].tolist(), size, limit)
    source = Source(mask=torch.from_numpy(mask[:, : len(source_ids)]), ids=torch.tensor([source_ids]))
    sos, eos = tokenizers.target.sos, tokenizers.target.eos
    assert sos is not None
    assert eos is not None
    output, cut_target = _fitted([*tokenizers.target.encode(target), eos], size, limit)
    batch = Batch(source=source, input=torch.tensor([[sos, *output[:-1]]]), target=torch.tensor([output]))
    return Example(
        text=text,
        batch=batch.to(run.device),
        tokens=tuple(tokenizers.target.tokens([sos, *output[:-1]])),
        targets=tuple(tokenizers.target.tokens(output)),
        source=tuple(tokenizers.source.tokens(source_ids)),
        notes=(*notes, *cut, *cut_target, *_unknown(tokenizers.source, source_ids)),
    )


def _denoising(run: DenoisingRun, text: str, target: str | None, limit: int) -> Example:
    """A text as source, with `<mask>` where it is noised; the target is the text, or of a noised one what the model
    restores, unless another is named."""
    tokenizer, context = run.tokenizer, run.model.context
    sos, eos = tokenizer.sos, tokenizer.eos
    assert sos is not None
    assert eos is not None
    encoded = [*encode_masks(text, tokenizer), eos] if MASK in text else run.encode_source(text)
    source, cut = _fitted(encoded, context, limit)
    ids = torch.tensor([source])
    read = Source(mask=torch.ones_like(ids, dtype=torch.bool), ids=ids)
    notes: tuple[str, ...] = ()
    if target is None and MASK in text:
        (found,) = reconstructed(run.model, read.to(run.device), tokenizer, run.settings.data)
        restored = [id for id in found if id != eos]
        notes = (f"target, the output of the search: {quoted(tokenizer.decode(restored))}",)
    else:
        notes = () if target is not None else ("target: the text itself; --target TEXT names another.",)
        restored = tokenizer.encode(text if target is None else target)
    output, cut_target = _fitted([*restored, eos], context, limit)
    batch = Batch(
        source=read,
        input=torch.tensor([[sos, *output[:-1]]]),
        target=torch.tensor([output]),
    )
    return Example(
        text=text,
        batch=batch.to(run.device),
        tokens=tuple(tokenizer.tokens([sos, *output[:-1]])),
        targets=tuple(tokenizer.tokens(output)),
        source=tuple(tokenizer.tokens(source)),
        notes=(*notes, *cut, *cut_target, *_unknown(tokenizer, source)),
    )


def _classification(run: ClassificationRun, text: str) -> Example:
    texts = tuple(text.split("\t")) if run.labels.parts > 1 else (text,)
    if len(texts) != run.labels.parts:
        raise UserError(f"{run.path} reads {run.labels.parts} texts at a time; part them by a tab.")
    member = run.predictor.members[0]
    sources = member.sources(run.predictor.encode([texts])[0])
    source = sources.padded(np.arange(1)).to(run.device)
    assert source.ids is not None
    notes = [f"{int(sources.lost[0]):,} tokens of the text are left out, as in training."] if sources.lost[0] else []
    if len(sources) > 1:
        notes.append(f"the first of {len(sources)} windows of the text is shown.")
    tokens = tuple(member.tokenizer.tokens(source.ids[0].tolist()))
    batch = Batch.of_source(source, torch.zeros(1, dtype=torch.long, device=run.device))
    notes += _unknown(member.tokenizer, source.ids[0].tolist())
    return Example(text=text, batch=batch, tokens=tokens, notes=tuple(notes))


def _tagging(run: TaggingRun, text: str) -> Example:
    words = tuple(run.splitter(text))
    encoded = run.codec.encode([Sentence(words, ())], run.model.context)
    batch = encoded.batch(np.arange(1)).to(run.device)
    assert batch.source.ids is not None
    read = int(encoded.words[0])
    notes: tuple[str, ...] = ()
    if read < len(words):
        notes = (f"the first {read} of {len(words)} words are shown: one row of the model.",)
    tokens = tuple(run.tokenizer.tokens(batch.source.ids[0].tolist()))
    if not isinstance(run.model, Counted):  # a perceptron reads the words themselves
        notes += _unknown(run.tokenizer, batch.source.ids[0].tolist())
    return Example(text=text, batch=batch, tokens=tokens, words=words[:read], notes=notes)


def _masked(run: MaskedRun, text: str, limit: int) -> Example:
    masked = MASK in text
    ids, notes = _fitted(
        encode_masks(text, run.tokenizer) if masked else run.encode_source(text), run.model.context, limit
    )
    return replace(_masked_ids(run, ids), text=text, notes=(*notes, *_unknown(run.tokenizer, ids)))


def _masked_ids(run: MaskedRun, ids: Sequence[int]) -> Example:
    input = torch.tensor([ids], device=run.device)
    source = Source(mask=torch.ones_like(input, dtype=torch.bool), ids=input)
    tokens = tuple(run.tokenizer.tokens(ids))
    return Example(text="", batch=Batch.of_source(source, input), tokens=tokens, targets=tokens)
