"""From configurations to objects: the only tables of kinds, and the only place where verbs and models meet.

Rows name modules that are imported on first use: opening a bigram imports no vision Transformer, CRF or sacrebleu.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from seqwright.core.batch import EncoderSizes, Vocabularies, Vocabulary
from seqwright.core.config import ConfigLoader, Key, UserError, describe, did_you_mean, pick, to_table
from seqwright.layers.encoder import EncoderConfig
from seqwright.models.config import ModelConfig as ModelConfig
from seqwright.models.config import encoder_and_head_keys, read_encoder_and_head


@functools.cache
def _imported(name: str) -> Any:
    """The object of "module:name", a module of this package."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(f"seqwright.{module}"), attribute)


class Entry:
    """A row of a table of kinds: a configuration class, and a function that builds what it configures.

    `heads` are those that an encoder is combined with.
    """

    def __init__(self, config: str | type, build: str | Callable[..., Any], heads: Sequence[str] = ()):
        self._config, self._build, self.heads = config, build, heads

    @property
    def config(self) -> type:
        return _imported(self._config) if isinstance(self._config, str) else self._config

    @property
    def build(self) -> Callable[..., Any]:
        return _imported(self._build) if isinstance(self._build, str) else self._build


def lazy(module: str, config: str, build: str, heads: Sequence[str] = ()) -> Entry:
    """A row whose class and function are imported from a module of this package on first use."""
    return Entry(f"{module}:{config}", f"{module}:{build}", heads)


Models = dict[str, Entry]

HEADS: Models = {
    "text": lazy("models.language_model", "LMHeadConfig", "language_model"),
    "labeled": lazy("models.classifier", "ClassifierHeadConfig", "classifier"),
    "tagged": lazy("models.tagger", "TaggerHeadConfig", "tagger"),
    "masked": lazy("models.masked_lm", "MLMHeadConfig", "masked_lm"),
    "images": lazy("models.image_model", "ImageHeadConfig", "image_model"),
}
"""Head → its options, and the builder of a model from (encoder options, head options, make_encoder, sizes)."""

TEXT_HEADS = ("labeled", "tagged", "masked")
SOURCE_HEADS = (*TEXT_HEADS, "images")

CAUSAL_ENCODERS: Models = {
    "neural-bigram": lazy("models.encoders.feedforward", "NeuralBigramConfig", "neural_bigram_encoder", ("text",)),
    "feedforward": lazy("models.encoders.feedforward", "FeedforwardConfig", "feedforward_encoder", ("text",)),
    "rnn": lazy("models.encoders.recurrent", "ElmanConfig", "RecurrentEncoder", ("text",)),
    "lstm": lazy("models.encoders.recurrent", "LSTMConfig", "RecurrentEncoder", ("text",)),
    "gru": lazy("models.encoders.recurrent", "GRUConfig", "RecurrentEncoder", ("text",)),
    "gpt": lazy("models.encoders.gpt", "GPTConfig", "gpt_encoder", ("text",)),
}
"""Encoders of language models."""

ENCODERS: Models = {
    "mlp": lazy("models.encoders.mlp", "MLPConfig", "mlp_encoder", ("labeled",)),
    "cnn": lazy("models.encoders.cnn", "CNNConfig", "CNNEncoder", ("labeled", "images")),
    "rnn": lazy("models.encoders.recurrent", "BidirectionalConfig", "bidirectional_rnn", SOURCE_HEADS),
    "lstm": lazy("models.encoders.recurrent", "BidirectionalConfig", "bidirectional_lstm", SOURCE_HEADS),
    "gru": lazy("models.encoders.recurrent", "BidirectionalConfig", "bidirectional_gru", SOURCE_HEADS),
    "transformer": lazy("models.encoders.transformer", "TransformerEncoderConfig", "transformer_encoder", TEXT_HEADS),
    "gpt": lazy("models.encoders.gpt", "GPTConfig", "gpt_encoder", ("labeled", "tagged", "images")),
    "bert": lazy("models.encoders.bert", "BertConfig", "bert_encoder", TEXT_HEADS),
    "vit": lazy("models.encoders.vit", "ViTConfig", "vit_encoder", ("images",)),
}
"""Encoders of complete sources. A CNN may have a stride, so that hidden states are no longer those of tokens; a causal
encoder cannot fill masks; the Transformer of images is the ViT."""

REGISTERED: dict[str, Entry] = {}
"""Encoders of the user (`register_encoder`)."""

MIXTURE = Entry("models.mixture:MixtureConfig", "build:mixture")
LANGUAGE_MODELS: Models = {
    "ngram": lazy("models.ngram.model", "NGramConfig", "ngram"),
    "arpa": lazy("models.ngram.model", "ArpaConfig", "arpa"),
    "mixture": MIXTURE,
}
CLASSIFIERS: Models = {
    "bag": lazy("models.bag.model", "BagConfig", "bag"),
    "mixture": Entry("models.encoder_mixture:EncoderMixtureConfig", "build:encoder_mixture"),
}
TAGGERS: Models = {"perceptron": lazy("models.perceptron.model", "PerceptronConfig", "perceptron")}
CAPTIONERS: Models = {
    "transformer": lazy("models.transformer", "TransformerConfig", "transformer"),
    "rnn": lazy("models.seq2seq", "Seq2SeqConfig", "rnn_seq2seq"),
    "lstm": lazy("models.seq2seq", "Seq2SeqConfig", "lstm_seq2seq"),
    "gru": lazy("models.seq2seq", "Seq2SeqConfig", "gru_seq2seq"),
}
"""Encoder-decoders whose source need not be text."""
TRANSLATORS: Models = CAPTIONERS | {
    "gpt": lazy("models.prefix_lm", "PrefixLMConfig", "prefix_lm"),
    "mixture": MIXTURE,
}

COUNTED = ("ngram", "bag", "perceptron")
"""Kinds that are estimated by counting, without gradients."""
DERIVED = {"arpa": "seqwright import FILE.arpa --run DIR", "mixture": "seqwright mix RUN RUN --run DIR"}
"""Kinds that are converted from or composed of trained models, and the command that does it."""


class Imported:
    """An attribute whose object is imported on first use; `names` of its instance has the module."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, spec: TaskSpec, owner: type) -> Any:
        return _imported(spec.names[self.name])


class TaskSpec:
    """All that belongs to a kind of data: the sections of its recipes, its models, its task and its run."""

    data = Imported()
    tokenizer = Imported()
    decoding = Imported()
    evaluation = Imported()
    task = Imported()
    run = Imported()

    def __init__(
        self,
        *,
        data: str,
        tokenizer: str,
        decoding: str,
        evaluation: str,
        task: str,
        run: str,
        default_model: str,
        models: Models | None = None,
        head: str | None = None,
        split_method: str = "tail",
    ):
        self.names = {"data": data, "tokenizer": tokenizer, "decoding": decoding, "evaluation": evaluation}
        self.names |= {"task": task, "run": run}
        self.default_model = default_model
        self.head = head
        """Of HEADS: what every encoder is combined with."""
        self.split_method = split_method
        """Of `data.split`: holds out validation data of users' files, whose order may be that of their classes."""
        self._models = models or {}

    @property
    def encoders(self) -> Models:
        """Encoders that are combined with the head of the task, registered ones included."""
        table = CAUSAL_ENCODERS if self.head == "text" else ENCODERS
        return {kind: entry for kind, entry in (table | REGISTERED).items() if self.head in entry.heads}

    @property
    def models(self) -> Models:
        """Every kind of model of the task: kind → row."""
        return {**self._models, **self.encoders}


TASKS: dict[str, TaskSpec] = {
    "text": TaskSpec(
        data="data.text.corpus:TextConfig",
        tokenizer="data.subword_regularization:RegularizedTokenizerConfig",
        decoding="decoding.options:SamplingOptions",
        evaluation="metrics.likelihood:EvaluationConfig",
        task="tasks.language.task:LanguageTask",
        run="tasks.language.task:LanguageRun",
        default_model="gpt",
        models=LANGUAGE_MODELS,
        head="text",
    ),
    "pairs": TaskSpec(
        data="data.parallel.pairs:PairsConfig",
        tokenizer="tasks.translation.codec:TranslationTokenizerConfig",
        decoding="tasks.translation.translate:TranslationOptions",
        evaluation="tasks.translation.scores:TranslationEvaluationConfig",
        task="tasks.translation.task:TranslationTask",
        run="tasks.translation.task:TranslationRun",
        default_model="transformer",
        models=TRANSLATORS,
    ),
    "labeled": TaskSpec(
        data="data.labeled.rows:LabeledConfig",
        tokenizer="text.trainers:TokenizerConfig",
        decoding="tasks.classification.scores:ClassificationOptions",
        evaluation="tasks.classification.scores:ClassificationEvaluationConfig",
        task="tasks.classification.task:ClassificationTask",
        run="tasks.classification.task:ClassificationRun",
        default_model="bag",
        models=CLASSIFIERS,
        head="labeled",
        split_method="stratified",
    ),
    "images": TaskSpec(
        data="data.images.corpus:ImagesConfig",
        tokenizer="tasks.images.task:NoTokenizer",
        decoding="tasks.classification.scores:ClassificationOptions",
        evaluation="tasks.classification.scores:ClassificationEvaluationConfig",
        task="tasks.images.task:ImageTask",
        run="tasks.images.task:ImageRun",
        default_model="vit",
        head="images",
        split_method="images",
    ),
    "tagged": TaskSpec(
        data="data.tagged.corpus:TaggedConfig",
        tokenizer="tasks.tagging.task:TaggingTokenizerConfig",
        decoding="tasks.tagging.task:TaggingOptions",
        evaluation="tasks.tagging.scores:TaggingEvaluationConfig",
        task="tasks.tagging.task:TaggingTask",
        run="tasks.tagging.task:TaggingRun",
        default_model="perceptron",
        models=TAGGERS,
        head="tagged",
    ),
    "captions": TaskSpec(
        data="data.images.corpus:CaptionsConfig",
        tokenizer="text.trainers:TokenizerConfig",
        decoding="tasks.captioning.task:CaptioningOptions",
        evaluation="tasks.captioning.task:CaptioningEvaluationConfig",
        task="tasks.captioning.task:CaptioningTask",
        run="tasks.captioning.task:CaptioningRun",
        default_model="transformer",
        models=CAPTIONERS,
        split_method="images",
    ),
    "chat": TaskSpec(
        data="data.chat:ChatConfig",
        tokenizer="text.trainers:TokenizerConfig",
        decoding="decoding.options:SamplingOptions",
        evaluation="metrics.likelihood:EvaluationConfig",
        task="tasks.chat.task:ChatTask",
        run="tasks.chat.task:ChatRun",
        default_model="gpt",
        head="text",
    ),
    "masked": TaskSpec(
        data="data.text.masked:MaskedConfig",
        tokenizer="data.subword_regularization:RegularizedTokenizerConfig",
        decoding="tasks.masked.task:FillOptions",
        evaluation="tasks.masked.task:MaskedEvaluationConfig",
        task="tasks.masked.task:MaskedTask",
        run="tasks.masked.task:MaskedRun",
        default_model="bert",
        head="masked",
    ),
    "denoising": TaskSpec(
        data="data.text.denoising:DenoisingConfig",
        tokenizer="data.subword_regularization:RegularizedTokenizerConfig",
        decoding="tasks.translation.translate:TranslationOptions",
        evaluation="tasks.masked.task:MaskedEvaluationConfig",
        task="tasks.denoising.task:DenoisingTask",
        run="tasks.denoising.task:DenoisingRun",
        default_model="transformer",
        models=TRANSLATORS,
    ),
}


def task_spec(kind: str) -> TaskSpec:
    """The TaskSpec of a kind of data."""
    if kind not in TASKS:
        raise UserError(f"no data kind '{kind}'.{did_you_mean(kind, TASKS)}")
    return TASKS[kind]


def model_config(table: Mapping[str, Any], reader: ConfigLoader | None = None, *, task: str = "text") -> Any:
    """The ModelConfig of a [model] table, whose `kind` picks the classes from the models of the task; None where there
    are problems and a reader collects them."""
    loader = reader or ConfigLoader("[model]")
    spec = task_spec(task)
    kind = table.get("kind", spec.default_model)
    options = {key: value for key, value in table.items() if key != "kind"}
    config = None
    if not isinstance(kind, str) or kind not in spec.models:
        known = did_you_mean(str(kind), spec.models)
        if "Did you mean" not in known:
            known += " An encoder of your own is registered first: seqwright.register_encoder."
        loader.problem("model.kind", f"no model kind '{kind}' for {task}.{known}")
    elif kind in spec.encoders:
        assert spec.head is not None
        config = read_encoder_and_head(loader, kind, options, spec.models[kind].config, HEADS[spec.head].config)
    else:
        read = loader.read(spec.models[kind].config, options, "model")
        config = None if read is None else ModelConfig(kind, read)
    if reader is None:
        loader.finish()
    return config


def model_keys(kind: str, *, task: str) -> tuple[Key, ...]:
    """The keys of a [model] table of a kind."""
    spec = task_spec(task)
    config = spec.models[kind].config
    if kind not in spec.encoders or spec.head is None:
        return describe(config)
    return encoder_and_head_keys(config, HEADS[spec.head].config)


def model(config: ModelConfig, sizes: Any, *, task: str = "text") -> Any:
    """The newly initialized model of a configuration, for a vocabulary or other sizes of the task."""
    build = task_spec(task).models[config.kind].build
    if config.head is None:
        return build(config.config, sizes)
    return HEADS[config.head.name].build(config.config, config.head, build, sizes)


def mixture(config: Any, sizes: Vocabulary | Vocabularies) -> Any:
    """A mixture of language models, or of translators, from a `MixtureConfig`."""
    from seqwright.models.mixture import Mixture, Product

    task = "pairs" if isinstance(sizes, Vocabularies) else "text"
    parts = [model(model_config(part, task=task), sizes, task=task) for part in config.parts.values()]
    if config.mean == "geometric":
        return Product(parts, config.weights, config.interpolation)
    return Mixture(parts, config.weights)


def encoder_mixture(config: Any, sizes: EncoderSizes) -> Any:
    """A mixture of classifiers from an `EncoderMixtureConfig`, each with its vocabulary."""
    from seqwright.models.encoder_mixture import EncoderMixture

    tables = [part["model"] for part in config.parts.values()]
    parts = [
        model(model_config(table, task="labeled"), replace(sizes, vocabulary=vocabulary), task="labeled")
        for table, vocabulary in zip(tables, config.vocabularies, strict=True)
    ]
    return EncoderMixture(parts, config)


def pick_trained(kind: str, task: str) -> None:
    """Raises unless models of a kind are trained for a task, naming those that are."""
    refuse_derived(kind)
    others = [name for name, spec in TASKS.items() if kind in spec.models]
    if kind not in task_spec(task).models and others:
        raise UserError(
            f"a model of kind '{kind}' is trained on data of kind {' or '.join(others)}, not {task}: for {task} choose"
            f" {', '.join(name for name in task_spec(task).models if name not in DERIVED)}."
        )
    pick(kind, {name: entry for name, entry in task_spec(task).models.items() if name not in DERIVED}, "model")


def refuse_derived(kind: str) -> None:
    """Raises for kinds that no training makes, naming the command that does."""
    if kind in DERIVED:
        raise UserError(f"a model of kind '{kind}' is not trained; make one with `{DERIVED[kind]}`.")


def register_encoder(kind: str, config: type[EncoderConfig], build: Callable[[Any], Any]) -> None:
    """Adds an encoder of the user under a kind that no table has.

    `config` is a frozen dataclass that extends `EncoderConfig`; `build(config)` returns an nn.Module with `width` and
    `context` that maps embeddings (B, S, D) and a mask (B, S) to an `EncoderOutput`, or a `CausalEncoder`.
    """
    if kind not in REGISTERED and any(kind in spec.models for spec in TASKS.values()):
        raise UserError(f"'{kind}' is a kind of model already; give your encoder another name.")
    if not (is_dataclass(config) and issubclass(config, EncoderConfig)):
        raise UserError(f"{config.__name__} must be a dataclass that extends seqwright.EncoderConfig.")
    if required := [field.name for field in fields(config) if isinstance(field.default, property)]:
        raise UserError(f"{config.__name__}.{required[0]} is a property of every encoder; give the key a default.")
    heads = [head for head in HEADS if head != "text" or config.autoregressive]
    reserved = {"kind", "from"} | {field.name for head in heads for field in fields(HEADS[head].config)}
    if taken := [field.name for field in fields(config) if field.name in reserved]:
        raise UserError(f"{config.__name__}.{taken[0]} has the name of a key of every [model]; rename it.")
    REGISTERED[kind] = Entry(config, build, heads)


def from_arpa(
    path: Path, known: tuple[Sequence[str], Vocabulary] | None = None
) -> tuple[dict[str, Any], Any, list[str]]:
    """The [model] table of an ARPA file, its model, and its tokens by id, special tokens first; `known` are the tokens
    and the vocabulary of a tokenizer."""
    from seqwright.models.ngram.model import open_arpa

    config, opened, tokens = open_arpa(path, known)
    return {"kind": "arpa"} | to_table(config), opened, tokens
