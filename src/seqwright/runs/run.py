"""A trained run, opened: settings, codec and weights together. Its task adds the verbs."""

from __future__ import annotations

import difflib
import functools
import inspect
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from seqwright.core.batch import Batch, Source
from seqwright.core.config import UserError, did_you_mean
from seqwright.core.notebook import html_table
from seqwright.core.printable import printable
from seqwright.core.protocols import Counted, EncodesSource
from seqwright.core.storage import load_tensors
from seqwright.core.warning import warn
from seqwright.core.wording import named_verb
from seqwright.layers.inference.int8_linear import quantize_weights_
from seqwright.layers.lora import add_lora, merge_lora
from seqwright.reporting.numbers import figure
from seqwright.runs.calls import check_text, checked_options, refuse_table
from seqwright.runs.checkpoints import Checkpoint
from seqwright.runs.directory import RunDirectory
from seqwright.runs.embedding import Embedded, Pooled, embed
from seqwright.runs.facts import data_name, headline_score, note_steps_not_taken, tokenizer_name
from seqwright.text.unicode_form import FORMS, better_form
from seqwright.training import machine
from seqwright.training.weights import load_weights

V = TypeVar("V", bound=Callable[..., Any])

VERBS = (
    *("generate", "translate", "classify", "tag", "caption", "chat", "fill", "score", "evaluate", "label_errors"),
    "search_audit",
)
"""All verbs of runs; one that a run does not support raises an error that names those it does."""
PREDICT = {"predict", "infer", "inference", "transform"}
"""Verbs of other libraries that do what the verbs of a task do here."""
OF_PACKAGE = ("check", "compare", "explain", "mix", "probe")
"""Functions of the package that take a run, and are looked for on it."""
OF_TOKENIZER = {"tokenize": "encode", "encode": "encode", "detokenize": "decode", "decode": "decode"}
"""Methods that other libraries have on a model, and those of the tokenizer here."""
PRECISIONS = (*machine.DTYPES, "int8")
"""dtypes of weights in inference; int8: rounded weights of linear layers, on a CPU."""
GENERATIVE = {"generate", "translate", "caption", "chat"}
"""Verbs that decode token by token, bound by the memory traffic of the weights: half precision halves it."""


class UnsupportedVerb(UserError, AttributeError):
    """A verb that the models of this run do not support."""


class Codec(Protocol):
    """Raw data to ids and back: tokenizers and labels, learned from the training data and saved with the run.

    A task (training) and its run (inference) share it, so that ids mean the same to both.
    """

    @classmethod
    def open(cls, directory: RunDirectory) -> Self:
        """The codec that `save` wrote."""
        ...

    def save(self, directory: RunDirectory) -> None:
        """Writes it to the files of a run."""
        ...

    @property
    def sizes(self) -> Any:
        """What a model is built for: a `Vocabulary`, `Vocabularies` or `EncoderSizes`."""
        ...


def one_or_many(verb: V) -> V:
    """A verb of many texts that also takes one: a string has one result, a list, an array or a column a list of them;
    of an iterable without a length, a generator or an open file for example, an iterator of results."""
    parameters = inspect.signature(verb).parameters
    first, default = [(p.name, p.default) for p in parameters.values()][1]

    @functools.wraps(verb)
    def call(self: Run, *inputs: Any, **options: Any) -> Any:
        if len(inputs) == 1 and type(inputs[0]) is str and not options:  # no argument that could be wrong
            (result,) = verb(self, list(self.check_form(inputs)))
            return result
        texts = inputs[0] if inputs else options.pop(first, default)
        if texts is inspect.Parameter.empty:
            raise TypeError(f"{verb.__name__} needs {first}: a text, or several.")
        options = checked_options(verb, inputs, options)
        refuse_table(texts, verb.__name__)
        if isinstance(texts, bytes | Mapping) or not isinstance(texts, Iterable):
            check_text(texts)
        if isinstance(texts, str):
            (result,) = verb(self, list(self.check_form([texts])), *inputs[1:], **options)
            return result
        if isinstance(texts, io.TextIOBase):  # line ends are no text
            texts = (line.rstrip("\r\n") for line in texts)
        results = verb(self, self.check_form(texts), *inputs[1:], **options)
        return list(results) if isinstance(texts, Sized) else iter(results)

    return cast(V, call)


COMPOSED_CHECKED = 32
"""Texts that are not ASCII, the first of a run, of which also the composed ones are looked at: a model of decomposed
text is seen by then."""


class Run:
    """A run directory, opened for inference. `seqwright.open` picks the class that fits the run's task."""

    description: str
    """What its models do, for messages: "continues text"."""
    verbs: tuple[str, ...]
    """Those of VERBS that it supports."""
    codec_class: type[Codec]

    def __init__(
        self,
        directory: RunDirectory,
        settings: Any,
        model: Any,
        codec: Any,
        *,
        device: str = "auto",
        precision: str = "fp32",
    ):
        self.directory, self.settings, self.model, self.codec = directory, settings, model, codec
        self.precision = precision
        self._warned_of_form, self._composed_left = False, COMPOSED_CHECKED
        self.inspector: Callable[..., Any] | None = None
        """`seqwright.inspect`, set by `seqwright.open`: inspection imports runs, not the other way round."""
        self.finder: Callable[..., Any] | None = None
        """`seqwright.where`, set likewise."""
        self.new_model: Callable[[], Any] | None = None
        """Builds an untrained model like that of the run, set likewise."""
        self.device = torch.device("cpu")
        checkpoint = None if directory.model_path.exists() else newest_checkpoint(directory)
        self.step = None if checkpoint is None else checkpoint.step
        """Of an unfinished run: the step of the checkpoint whose weights are used."""
        self._record = None if checkpoint is None else checkpoint.record
        if text := note_steps_not_taken(directory.path, directory.recipe(), self.summary):
            warn(text)
        tensors, about = load_tensors(directory.model_path) if checkpoint is None else (checkpoint.weights, {})
        refuse_non_finite(directory.model_path, tensors, counted=not isinstance(model, torch.nn.Module))
        if "tokenizer" in about or directory.tokenizer_path.exists():  # images have none
            self.tokenizer = directory.tokenizer
            if about.get("tokenizer", self.tokenizer.hash) != self.tokenizer.hash:
                raise UserError(
                    f"{directory.tokenizer_path} does not fit the weights beside it: they were trained with tokenizer"
                    f" {about['tokenizer']}, and this one is {self.tokenizer.hash}. Put the old one back."
                )
        if isinstance(model, torch.nn.Module):
            if checkpoint is not None and settings.training.lora_rank is not None:
                add_lora(model, rank=settings.training.lora_rank, alpha=settings.training.lora_alpha)
            load_weights(model, tensors)
            merge_lora(model)
            model.eval()
        else:
            load_counted(model, tensors, directory.model_path)
        best = machine.device(device, option="--device")
        if not isinstance(model, Counted):  # counted models stay on the CPU
            self.device = best
            model.to(self.device)
        if precision not in PRECISIONS:
            raise UserError(f"no precision '{precision}'.{did_you_mean(precision, PRECISIONS)}")
        if precision != "fp32":
            if not isinstance(model, torch.nn.Module) or not GENERATIVE & {*self.verbs}:
                raise UserError(
                    f"{precision} is for networks that generate token by token; leave {directory.path} in fp32."
                )
            if precision != "int8":
                model.to(machine.DTYPES[precision])
            elif self.device.type == "cpu":
                quantize_weights_(model)
            else:
                raise UserError("int8 weights are for a CPU; add --device cpu, or take bf16 on a GPU.")

    def source(self, rows: int, length: int) -> Source:
        """Synthetic sources (rows, length) for laws and checks; empty where models have no source."""
        return Source.empty(rows)

    def example(self, rows: int, length: int) -> Batch:
        """A synthetic batch of ids that the tokenizer can produce, the same every time."""
        vocabulary = self.tokenizer.vocabulary
        reserved = set(self.tokenizer.special_tokens.values())
        ids = np.array([id for id in range(vocabulary.size) if id not in reserved])
        random_ids = np.random.default_rng(1).choice(ids, (rows, length + 1))
        if vocabulary.sos is not None:
            random_ids[:, 0] = vocabulary.sos
        text = torch.from_numpy(random_ids)
        return Batch(source=self.source(rows, length), input=text[:, :-1].contiguous(), target=text[:, 1:].contiguous())

    def encode_source(self, text: str) -> list[int]:
        """Ids of a text with the special tokens that its encoder expects."""
        ids = (self.tokenizer.sos, *self.tokenizer.encode(text), self.tokenizer.eos)
        return [id for id in ids if id is not None]

    @one_or_many
    def embed(self, texts: Iterable[str], *, pooling: Pooled = "mean") -> Iterator[Embedded]:
        """One vector for each text, in order."""
        if not isinstance(self.model, EncodesSource):
            raise self._unsupported()
        return embed(self.model, texts, self.encode_source, pooling=pooling, device=self.device)

    def inspect(self, text: str | None = None, **options: Any) -> Any:
        """What the model computes on a text: `seqwright.inspect(run, text)`, with its options."""
        assert self.inspector is not None, "seqwright.open sets it"
        return self.inspector(self, text, **options)

    def where(self, text: str | Iterable[str] | None = None, **options: Any) -> Any:
        """Where a text occurs in the training text: `seqwright.where(run, text)`, with its options."""
        assert self.finder is not None, "seqwright.open sets it"
        return self.finder(self, text, **options)

    def check_form(self, texts: Iterable[Any]) -> Iterator[Any]:
        """The same texts, or tuples of them; the first that is misread for its Unicode form has a SeqwrightWarning."""
        for text in texts:
            check_text(text)
            # NumPy has strings of its own; the classes of a named tuple or a row take no iterable.
            text = str(text) if isinstance(text, str) else (tuple if isinstance(text, tuple) else list)(map(str, text))
            if not isinstance(text, str) and "generate" in self.verbs:
                raise UserError(f"{text!r} is several texts, and a language model reads one at a time: give strings.")
            if not self._warned_of_form:
                self._check_form_of([text] if isinstance(text, str) else text)
            yield text

    def _check_form_of(self, parts: Iterable[str]) -> None:
        for part in parts:
            if part.isascii():
                continue
            form = better_form(part, self.directory.source_tokenizer, of_composed=self._composed_left > 0)
            self._composed_left -= 1
            if form and not self._warned_of_form:
                self._warned_of_form = True
                warn(FORMS[form])

    @property
    def path(self) -> Path:
        return self.directory.path

    @functools.cached_property
    def summary(self) -> dict[str, Any]:
        """Counts and scores of the training; empty for an unfinished run."""
        return self.directory.summary() if self.directory.finished else {}

    @property
    def fingerprint(self) -> str:
        """sha256 over weights, tokenizers, labels and [model]: which model a score belongs to."""
        return self.directory.fingerprint if self._record is None else self.directory.fingerprint_of(self._record)

    def facts(self) -> dict[str, str]:
        """What the run is: model, data, tokenizer, parameters and score, for print and notebooks."""
        recipe, score = self.directory.recipe(), headline_score(self.summary)
        parameters = self.summary.get("parameters") or sum(t.numel() for t in self.model.state_dict().values())
        signed = f" ({score.signature})" if score and score.signature else ""  # a mixture's has none
        table = {
            "run": str(self.path) if self.step is None else f"{self.path} (unfinished, at step {self.step:,})",
            "model": f"{self.settings.kind}, which {self.description}",
            "data": f"{recipe.get('data', {}).get('kind')}: {data_name(recipe)}",
            "tokenizer": tokenizer_name(recipe),
            "parameters": f"{parameters:,}",
            "score": "" if score is None else f"{score.name} {figure(score.value)}{signed}",
        }
        return {name: value for name, value in table.items() if value}

    def __str__(self) -> str:
        return "\n".join(f"{name:<11}{printable(value)}" for name, value in self.facts().items())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {str(self.path)!r}: {self.settings.kind}>"

    def _repr_html_(self) -> str:
        return html_table(self.facts().items())

    def __getattr__(self, name: str) -> Any:
        if name in VERBS:
            raise self._unsupported()
        hint = "" if name.startswith("_") else self._hint(name)
        raise AttributeError(f"{type(self).__name__} has no attribute '{name}'{hint}")

    def _hint(self, name: str) -> str:
        """The attribute that an unknown one means, or the verbs of the run."""
        if name in OF_PACKAGE:
            return f"; the package has it: seqwright.{name}(…)."
        public = [known for known in dir(type(self)) if not known.startswith("_") and known not in VERBS]
        if name not in (*PREDICT, *OF_TOKENIZER) and (
            close := difflib.get_close_matches(name, [*public, *self.verbs], n=1)
        ):
            return f". Did you mean '{close[0]}'?"
        if name in OF_TOKENIZER and hasattr(self, "tokenizer"):
            return f"; the tokenizer has it: run.tokenizer.{OF_TOKENIZER[name]}(…)."
        return f". It {self.description}; try {' or '.join(f'run.{verb}(…)' for verb in self.verbs)}."

    def _nothing_held_out(self, what: str) -> UserError:
        files = "SOURCE TARGET" if what == "pairs" else "FILE"
        scored = self.summary.get("scored_on")
        own = f": its scores are of {scored}, and stand in {self.directory.report_path}" if scored else ""
        return UserError(f"{self.path} has no validation {what} of its own{own}; name others with --on {files}.")

    def _unsupported(self) -> UnsupportedVerb:
        instead = " or ".join(map(named_verb, self.verbs))
        return UnsupportedVerb(
            f"{self.path} holds a model of kind '{self.settings.kind}', which {self.description}; try {instead}."
        )


def refuse_non_finite(path: Path, tensors: Mapping[str, Tensor], *, counted: bool) -> None:
    """Raises where weights are NaN or infinite; tables of counted models may hold log 0."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not (~tensor.isnan() if counted else tensor.isfinite()).all():
            raise UserError(
                f"{path}: '{name}' has values that are not finite; no score of it would mean anything. Train again"
                " with a lower training.learning_rate."
            )


def load_counted(model: Any, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Loads the tables of a counted model; UserError where they are not those of its recipe."""
    try:
        model.load_state_dict(tensors)
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError, AttributeError, OverflowError) as error:
        raise UserError(f"{path} does not hold the tables of its recipe ({error!r:.120}); train it again.") from error


def weights_path(directory: RunDirectory) -> Path:
    """The file that the weights of a run are in: of an unfinished one, that of its newest checkpoint that is sound."""
    if directory.model_path.exists():
        return directory.model_path
    checkpoint = directory.checkpoints.latest()
    if checkpoint is None:
        refuse_unfinished(directory)
    assert checkpoint is not None
    return directory.checkpoints.model_path(checkpoint.step)


def newest_checkpoint(directory: RunDirectory) -> Checkpoint:
    """The newest checkpoint of an unfinished run, with a SeqwrightWarning; UserError where there is none yet."""
    checkpoint = directory.checkpoints.latest()
    if checkpoint is None:
        refuse_unfinished(directory)
    assert checkpoint is not None
    warn(f"run {directory.path} is unfinished: using its checkpoint of step {checkpoint.step:,}.")
    return checkpoint


def refuse_unfinished(directory: RunDirectory) -> None:
    """Raises where a run has no final weights yet."""
    if not directory.model_path.exists():
        steps = directory.checkpoints.steps()
        reached = f"is at step {steps[-1]:,}" if steps else "has no checkpoint yet"
        raise UserError(
            f"{directory.path} is not finished: it {reached}. "
            f"Go on with `seqwright train --run {directory.path}`, then try again."
        )
