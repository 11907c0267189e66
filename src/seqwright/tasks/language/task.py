"""Language modeling: text in documents, next-token examples, likelihood; runs that generate and score."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from seqwright.core.batch import Batch, Source
from seqwright.core.config import UserError, with_options
from seqwright.core.printable import quantity
from seqwright.core.progress import SILENT, Progress
from seqwright.core.protocols import Autoregressive, CarriesState, ExplainsBackOff, Feed, MasksDocuments
from seqwright.data.subword_regularization import RegularizedFeed, regularized_stream
from seqwright.data.text.bptt import BPTTRows
from seqwright.data.text.corpora import Readable, read_corpora, to_stream
from seqwright.data.text.corpus import Corpus, Document, TextConfig, TextFiles, document_kind, read_corpus
from seqwright.data.text.mixture import Mixture, epochs
from seqwright.data.text.prefixes import Documents, Prefixes
from seqwright.data.text.stream import Stream, make_stream
from seqwright.data.text.streamed import refuse_small_cache
from seqwright.data.text.windows import DocumentMasking, Windows
from seqwright.decoding.generate import Continuation, best_continuations, complete
from seqwright.decoding.options import SearchOptions, search_options
from seqwright.decoding.search_audit import Audit, search_audit
from seqwright.decoding.speculation import Draft, ModelDraft, PromptLookup, check_rewindable
from seqwright.layers.inference.optimize import optimize_for_inference
from seqwright.metrics.counts import BootstrapConfig, Counts
from seqwright.metrics.examples import Examples
from seqwright.metrics.lines import ScoredLine, score_lines
from seqwright.runs.directory import RunDirectory
from seqwright.runs.finding import training_with
from seqwright.runs.overlap import validation_notes, warns_of_training_data
from seqwright.runs.run import Run, one_or_many
from seqwright.tasks.base import Settings, combined_fingerprint, few_held_out
from seqwright.tasks.codec import TextCodec, kind_of, learn_tokenizer, open_or_learn, tokenizer_kind
from seqwright.tasks.language.back_off import BackOff, back_off
from seqwright.tasks.language.defaults import COUNTED
from seqwright.tasks.language.scores import evaluate, with_accuracy
from seqwright.tasks.scores import Scores
from seqwright.text.unicode_form import form_notes
from seqwright.training.trainer import total_steps

FEEDS: dict[str, Callable[..., Feed]] = {
    "windows": Windows,
    "bptt": BPTTRows,
    "prefixes": Prefixes,
    "documents": Documents,
}
CARRIED = ("rnn", "lstm", "gru")
"""Kinds that are trained by truncated BPTT, on contiguous rows with carried state, by default."""
MAX_CHECKED = 100
"""Documents of a file whose Unicode form is checked."""
DEFAULT_LENGTH = 128
"""Tokens of a row in a step, for models without a context limit."""


class TextTask:
    """The part that all trainings on documents share: corpora, a tokenizer, streams, and notes on them."""

    codec_class: type[TextCodec] = TextCodec

    def __init__(self, settings: Settings, directory: RunDirectory, progress: Progress):
        self.settings, self.progress, note = settings, progress, progress.note
        data: TextFiles = settings.data
        corpora = read_corpora(data, document_kind(data, tokenizer_kind(settings, directory)))
        valid = corpora.valid
        for text in corpora.notes:
            note(text)
        if isinstance(valid, Corpus) and data.split is not None:
            note(f"held out for validation: {data.split} of the text ({quantity(valid.characters, 'character')}).")
        for text in [corpora.leak] if corpora.leak else validation_notes(data):
            note(text)
        self.codec = open_or_learn(
            self.codec_class,
            directory,
            lambda: self.codec_class(
                tokenizer=learn_tokenizer(settings, corpora.texts, progress, special_tokens=self.special_tokens)
            ),
        )
        self.tokenizer = self.codec.tokenizer
        if valid is None:
            note("all text is learned from, so the run has no score of its own; give --valid FILE, or set data.split.")
        self.names = corpora.names
        self.streams = [to_stream(corpus, self.tokenizer, streamed=self.streams_shards) for corpus in corpora.train]
        self.valid = None if valid is None else to_stream(valid, self.tokenizer)
        self.resegmented = self._resegmented(corpora.train) if settings.tokenizer.regularization else None
        for name, stream in (*(("training", stream) for stream in self.streams), ("validation", self.valid)):
            if stream is not None and stream.unknown:
                note(f"{stream.unknown:,} of {stream.targets:,} {name} tokens are <unk>.")
        forms = form_notes(valid.documents, self.tokenizer) if isinstance(valid, Corpus) else ()
        for text in (*forms, *([] if self.valid is None else few_held_out(self.valid.targets, "tokens"))):
            note(text)
        targets, documents = (sum(getattr(s, key) for s in self.streams) for key in ("targets", "documents"))
        size = f"{quantity(targets, 'training token')} in {quantity(documents, 'document')}"
        note(f"{size}; {self.tokenizer.kind} vocabulary of {self.tokenizer.size:,}.")
        if documents > 1 and not any(stream.streamed for stream in self.streams):
            lengths = np.concatenate([stream.lengths for stream in self.streams])
            median, high = np.quantile(lengths, [0.5, 0.99], method="higher")
            note(
                f"documents: half of up to {median:,} tokens, 99 % of up to {high:,}, the longest of {lengths.max():,}."
            )

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """Special tokens that its examples need beside the usual ones."""
        return ()

    @property
    def streams_shards(self) -> bool:
        """Whether its examples are read position by position, so that training shards at a URL can be streamed."""
        return False

    def _resegmented(self, train: Sequence[Readable]) -> Callable[[int], Stream]:
        """The training stream of each epoch under subword regularization."""
        key = f"tokenizer.{self.settings.tokenizer.regularization[0]}"
        if len(train) > 1 or not isinstance(train[0], Corpus):
            raise UserError(f"{key} needs one training text, neither prepared nor weighted; leave it out.")
        config, seed = self.settings.tokenizer, self.settings.training.seed
        resegmented = regularized_stream(self.streams[0], train[0].documents, self.tokenizer, config, seed=seed)
        self.progress.note(f"{key}: the first epoch is cut into {resegmented(0).targets:,} tokens.")
        return resegmented

    @property
    def fingerprint(self) -> str:
        return combined_fingerprint(*(one.fingerprint for one in (*self.streams, self.valid) if one is not None))


def stream_scores(counts: Sequence[Counts], stream: Stream, config: BootstrapConfig, *, quick: bool) -> Scores:
    """Scores of a stream; full ones also have the number of scored and of unknown tokens."""
    scores = Scores.of(counts, config, quick=quick)
    if quick:
        return scores
    tokens = int(counts[0].rows[:, 1].sum())
    return Scores(scores.as_json() | {"tokens": tokens, "unknown": stream.unknown}).with_examples(
        lambda: Examples(unit="row of tokens", counts=counts, fingerprint=counts[0].signature)
    )


class LanguageTask(TextTask):
    """Training of a language model."""

    @property
    def streams_shards(self) -> bool:
        return self.settings.kind != COUNTED and self.settings.data.examples in (None, "windows", "bptt")

    @property
    def corpus(self) -> Stream:
        if len(self.streams) > 1:
            raise UserError("counted models read every text once; leave data.weights out, or train another kind.")
        if self.resegmented is not None:
            raise UserError("counted models read every text once; leave tokenizer.dropout and sampling out.")
        if self.settings.data.mask_documents:
            raise UserError(
                "counted models read no windows, so there is nothing to mask; leave data.mask_documents out."
            )
        return self.streams[0]

    def feed(self, model: Autoregressive) -> Feed:
        """Training examples of the kind in `data.examples`, or of the default of the model."""
        if self.settings.data.refit:
            raise UserError("data.refit is for counted models, which are fitted in seconds; leave it out.")
        if not self.settings.data.mask_documents:
            return self._examples(model)
        if not (isinstance(model, MasksDocuments) and model.masks_documents):
            raise UserError(
                f"this {self.settings.kind} reads a row from end to end and cannot keep its documents apart; take"
                ' data.examples = "documents", a document a row, in place of data.mask_documents.'
            )
        if sum(stream.documents for stream in self.streams) == 1:
            self.progress.note("the training text is one document, so data.mask_documents changes nothing.")
        return DocumentMasking(self._examples(model), self.streams[0].sos)

    def _examples(self, model: Autoregressive) -> Feed:
        training, kind, context = self.settings.training, self.settings.kind, model.context
        default = "bptt" if kind in CARRIED and context is None else "windows"
        examples = self.settings.data.examples or default
        length = training.sequence_length or context or DEFAULT_LENGTH
        if examples == "bptt":
            if not isinstance(model, CarriesState):
                raise UserError(f'{kind} carries no state from step to step; use data.examples = "windows".')
            model.check_carried(length)
        if context is not None and length > context:
            raise UserError(
                f"training.sequence_length is {length}, but the model sees at most {context} tokens; lower it."
            )
        shortest = min(stream.positions for stream in self.streams)
        if examples == "windows" and shortest < length:
            key = "training.sequence_length" if context is None else "model.context"
            raise UserError(
                f"the training text has {shortest:,} tokens, fewer than one window of {length}; "
                f"set {key} to {max(1, shortest // 4)} or so, count n-grams with --model ngram, or give more text."
            )
        block = self.settings.data.shuffle_block_tokens
        if block is not None and examples != "windows":
            raise UserError(f"data.shuffle_block_tokens is for windows; {examples} are not shuffled: leave it out.")
        refuse_small_cache(self.streams, examples=examples, rows=training.batch_size, length=length, block=block)
        if len(self.streams) > 1:
            return self._mixture(examples, length)
        ordered: dict[str, Any] = {"curriculum": True} if training.curriculum else {}
        if ordered and examples not in ("prefixes", "documents"):
            raise UserError(
                f"a curriculum by length needs examples of different lengths, but {examples} are all of one length; "
                'use data.examples = "documents", or set training.curriculum = false.'
            )

        if training.bptt_jitter and examples == "bptt":
            if context is not None:
                raise UserError(
                    "training.bptt_jitter varies lengths, but segments and their memory fill the context: leave it out."
                )
            ordered["jitter"] = training.bptt_jitter

        def cut_into(stream: Stream) -> Feed:
            if examples == "windows":
                ordered["block"] = block
            return FEEDS[examples](stream, context=length, batch=training.batch_size, seed=training.seed, **ordered)

        feed = cut_into(self.streams[0])
        for text in getattr(feed, "notes", ()):
            self.progress.note(text)
        resegmented = self.resegmented
        return feed if resegmented is None else RegularizedFeed(lambda epoch: cut_into(resegmented(epoch)))

    def _mixture(self, examples: str, length: int) -> Feed:
        """Several corpora sampled by weight, with a note on the epochs of each."""
        training, weights = self.settings.training, self.settings.data.weights
        if examples != "windows":
            raise UserError(
                f'corpora are mixed window by window; "{examples}" cannot be: use data.examples = "windows".'
            )
        feed = Mixture(
            self.streams,
            weights,
            context=length,
            batch=training.batch_size,
            seed=training.seed,
            block=self.settings.data.shuffle_block_tokens,
        )
        steps = total_steps(training, feed) if training.minutes is None or training.steps else None
        tokens = None if steps is None else steps * training.batch_size * length
        for name, weight, stream in zip(self.names, weights, self.streams, strict=True):
            share = weight / sum(weights)
            read = "" if tokens is None else f", {epochs(share, tokens, stream.positions):.2f} epochs"
            self.progress.note(f"{name}: {share:.1%} of what is read, {stream.targets:,} tokens{read}.")
        return feed

    def evaluate(self, model: Autoregressive, device: torch.device | str, *, quick: bool) -> Scores | None:
        if self.valid is None:
            return None
        return evaluate(model, self.codec, self.valid, self.settings, device=device, quick=quick)

    def sample(self, model: Autoregressive, device: torch.device | str) -> list[dict[str, str]]:
        outputs = complete(model, self.tokenizer, [""], self.settings.decoding, device=device)
        return [{"prompt": one.prompt, "text": one.text} for one in outputs]

    def show(self, batch: Batch) -> str:
        return repr(self.tokenizer.decode(batch.input[0].tolist())[:200])


class TextRun(Run):
    """A run that was trained on documents."""

    @property
    def documents(self) -> Document:
        """What a document was in training: a line, a paragraph or a file."""
        return document_kind(self.settings.data, kind_of(self.tokenizer, self.settings))

    def stream(self, on: str | Sequence[str] | None = None) -> Stream:
        """The ids of files, with `<sos>` and `<eos>` around documents, or of the validation text of the run."""
        data = self.settings.data
        if on is not None:
            corpus = read_corpus(on, self.documents, errors=data.errors, encoding=data.encoding, columns=data.columns)
            list(self.check_form(corpus.documents[:MAX_CHECKED]))
            return make_stream(corpus, self.tokenizer)
        if isinstance(data, TextConfig) and data.refit and data.split:
            raise UserError(
                f"{self.path} was scored on its held-out text and then fitted on it, too (data.refit): summary.json has"
                " that score. Name other text with --on FILE, or train it without:"
                f" `{training_with(self.path, {'data.refit': 'false'})}`."
            )
        if data.valid is None and data.split is None:
            raise self._nothing_held_out("text")
        valid = read_corpora(data, self.documents).valid
        assert valid is not None
        return to_stream(valid, self.tokenizer)


class LanguageRun(TextRun):
    """A trained language model: `run = seqwright.open("runs/x"); run.generate("Once")`."""

    description = "continues text"
    verbs = ("generate", "score", "evaluate", "search_audit")
    codec_class = TextCodec

    @functools.cached_property
    def packed(self) -> Any:
        """The model with packed weights for decoding: packed once, not for every prompt."""
        return optimize_for_inference(self.model)

    def draft(self, proposer: Run | None = None) -> Draft:
        """A draft for speculative decoding: another run with the same tokenizer, or prompt lookup."""
        check_rewindable(self.model, self.device)
        if proposer is None:
            return PromptLookup()
        if not isinstance(proposer, LanguageRun):
            raise UserError(f"{proposer.path} is no language model, so it drafts nothing; take --draft lookup.")
        if proposer.tokenizer.hash != self.tokenizer.hash:
            raise UserError(
                f"a draft proposes tokens, so {proposer.path} needs the tokenizer of {self.path}: train it with"
                f" `--set tokenizer.file={self.path}/tokenizer.json`, or take --draft lookup."
            )
        return ModelDraft(proposer.packed, proposer.device)

    @one_or_many
    def generate(
        self,
        prompts: Iterable[str] = "",
        *,
        on_text: Callable[[int, str], None] | None = None,
        seeds: Sequence[int] | None = None,
        draft: Draft | None = None,
        **options: Any,
    ) -> list[Continuation]:
        """Continues each prompt; options are those of the recipe's [decoding] section. `on_text(row, text)` is called
        with each row's text as it comes; a `draft` makes decoding speculative, with the same outputs."""
        return complete(
            self.packed,
            self.tokenizer,
            list(prompts),
            with_options(self.settings.decoding, options),
            seeds=seeds,
            device=self.device,
            on_text=on_text,
            draft=draft,
        )

    @one_or_many
    def search(self, prompts: Iterable[str] = "", **options: Any) -> list[list[Continuation]]:
        """The most probable continuations of each prompt, best first; options are those of `SearchOptions`.

        A language model seldom ends soon: what is cut off at `length` competes with what ended.
        """
        chosen = search_options(SearchOptions(rank_unfinished="among"), options)
        return best_continuations(self.model, self.tokenizer, list(prompts), chosen, device=self.device)

    @warns_of_training_data
    def evaluate(self, on: str | Sequence[str] | None = None, *, progress: Progress = SILENT, **options: Any) -> Scores:
        """Scores on files, or on the validation text of the run; options are those of [evaluation]."""
        stream = self.stream(on)
        config = with_accuracy(with_options(self.settings.evaluation, options), self.codec, stream)
        settings = replace(self.settings, evaluation=config)
        scores = evaluate(self.model, self.codec, stream, settings, device=self.device, progress=progress)
        return scores.with_precision(self.precision)

    @one_or_many
    def score(self, lines: Iterable[str], *, progress: Progress = SILENT) -> Iterator[ScoredLine]:
        """Log-probability and surprisals of each line, in order, as it comes."""
        sos, eos = self.tokenizer.sos, self.tokenizer.eos if self.documents != "file" else None
        assert sos is not None  # no stream was without
        encode = self.tokenizer.encode_batch
        return score_lines(self.model, lines, encode, sos=sos, eos=eos, device=self.device, progress=progress)

    def back_off(self, ids: Sequence[int], context: Sequence[int] = ()) -> list[BackOff]:
        """How an n-gram came to the probability of each id, after <sos>, the context and the ids before it."""
        if not isinstance(self.model, ExplainsBackOff):
            raise UserError(
                f"{self.path} holds a model of kind '{self.settings.kind}', which does not back off as n-grams do."
            )
        assert self.tokenizer.sos is not None
        text = [self.tokenizer.sos, *context, *ids]
        places = range(len(text) - len(ids), len(text))
        return [back_off(self.model, self.tokenizer, text[:place], text[place]) for place in places]

    def search_audit(
        self, prompts: Sequence[str], options: SearchOptions, widths: Sequence[int], *, progress: Progress = SILENT
    ) -> Audit:
        """How often beams of these widths miss the best continuation of each prompt."""
        sos, eos = self.tokenizer.sos, self.tokenizer.eos
        return search_audit(
            self.model,
            Source.empty(len(prompts), self.device),
            options,
            widths,
            sos=sos,
            eos=eos,
            banned=self.tokenizer.never_generated(eos),
            prompts=[self.tokenizer.encode(prompt) for prompt in prompts],
            progress=progress,
        )
