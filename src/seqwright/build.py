"""From configurations to objects: the only place where kinds are listed, and where verbs and models meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seqwright.core.batch import EncoderSizes, Vocabularies, Vocabulary
from seqwright.core.config import ConfigLoader, UserError, did_you_mean, pick, to_table
from seqwright.data.chat import ChatConfig
from seqwright.data.images.corpus import CaptionsConfig, ImagesConfig
from seqwright.data.labeled.rows import LabeledConfig
from seqwright.data.parallel.pairs import PairsConfig
from seqwright.data.subword_regularization import RegularizedTokenizerConfig
from seqwright.data.tagged.corpus import TaggedConfig
from seqwright.data.text.corpus import TextConfig
from seqwright.data.text.denoising import DenoisingConfig
from seqwright.data.text.masked import MaskedConfig
from seqwright.decoding.sampling import SamplingOptions
from seqwright.metrics.likelihood import EvaluationConfig
from seqwright.models import classifiers, taggers
from seqwright.models.bag.model import BagConfig, bag
from seqwright.models.encoder_mixture import EncoderMixture, EncoderMixtureConfig
from seqwright.models.encoders.bert import BertConfig, bert
from seqwright.models.encoders.feedforward import FeedforwardConfig, NeuralBigramConfig, feedforward, neural_bigram
from seqwright.models.encoders.gpt import GPTConfig, gpt
from seqwright.models.encoders.recurrent import ElmanConfig, GRUConfig, LSTMConfig, recurrent
from seqwright.models.encoders.recurrent_mlm import (
    ElmanMLMConfig,
    GRUMLMConfig,
    LSTMMLMConfig,
    recurrent_mlm,
)
from seqwright.models.encoders.vit import ImageGRUConfig, ImageLSTMConfig, ViTConfig, image_recurrent, vit
from seqwright.models.mixture import Mixture, MixtureConfig, Product
from seqwright.models.ngram.model import ArpaConfig, NGramConfig, arpa, ngram, open_arpa
from seqwright.models.perceptron.model import PerceptronConfig, perceptron
from seqwright.models.prefix_lm import PrefixLMConfig, prefix
from seqwright.models.seq2seq import ElmanSeq2SeqConfig, GRUSeq2SeqConfig, LSTMSeq2SeqConfig, seq2seq
from seqwright.models.transformer import TransformerConfig, transformer
from seqwright.runs.run import Run
from seqwright.tasks.base import Task
from seqwright.tasks.captioning.task import CaptioningEvaluationConfig, CaptioningOptions, CaptioningRun, CaptioningTask
from seqwright.tasks.chat.task import ChatRun, ChatTask
from seqwright.tasks.classification.scores import ClassificationEvaluationConfig, ClassificationOptions
from seqwright.tasks.classification.task import ClassificationRun, ClassificationTask
from seqwright.tasks.denoising.task import DenoisingRun, DenoisingTask
from seqwright.tasks.images.task import ImageRun, ImageTask, NoTokenizer
from seqwright.tasks.language.task import LanguageRun, LanguageTask
from seqwright.tasks.masked.task import FillOptions, MaskedEvaluationConfig, MaskedRun, MaskedTask
from seqwright.tasks.tagging.scores import TaggingEvaluationConfig
from seqwright.tasks.tagging.task import TaggingOptions, TaggingRun, TaggingTask, TaggingTokenizerConfig
from seqwright.tasks.translation.codec import TranslationTokenizerConfig
from seqwright.tasks.translation.scores import TranslationEvaluationConfig
from seqwright.tasks.translation.task import TranslationRun, TranslationTask
from seqwright.tasks.translation.translate import TranslationOptions
from seqwright.text.trainers import TokenizerConfig

Models = Mapping[str, tuple[type, Callable[[Any, Any], Any]]]
"""kind → (configuration class, builder of (configuration, sizes of the task))."""


def mixture(config: MixtureConfig, sizes: Vocabulary | Vocabularies) -> Mixture:
    """Several language models, or several translators, as one."""
    task = "pairs" if isinstance(sizes, Vocabularies) else "text"
    parts = [model(model_config(part, task=task), sizes, task=task) for part in config.parts.values()]
    return (Product if config.mean == "geometric" else Mixture)(parts, config.weights)


LANGUAGE_MODELS: Models = {
    "ngram": (NGramConfig, ngram),
    "arpa": (ArpaConfig, arpa),
    "mixture": (MixtureConfig, mixture),
    "neural-bigram": (NeuralBigramConfig, neural_bigram),
    "feedforward": (FeedforwardConfig, feedforward),
    "rnn": (ElmanConfig, recurrent),
    "lstm": (LSTMConfig, recurrent),
    "gru": (GRUConfig, recurrent),
    "gpt": (GPTConfig, gpt),
}

TRANSLATORS: Models = {
    "transformer": (TransformerConfig, transformer),
    "rnn": (ElmanSeq2SeqConfig, seq2seq),
    "lstm": (LSTMSeq2SeqConfig, seq2seq),
    "gru": (GRUSeq2SeqConfig, seq2seq),
    "gpt": (PrefixLMConfig, prefix),
    "mixture": (MixtureConfig, mixture),
}

CAPTIONERS: Models = {kind: TRANSLATORS[kind] for kind in ("transformer", "rnn", "lstm", "gru")}
"""Those that keep what was read apart from what is said, so that it may be no text."""


def encoder_mixture(config: EncoderMixtureConfig, sizes: EncoderSizes) -> EncoderMixture:
    """Several classifiers as one, each with its own vocabulary."""
    tables = [part["model"] for part in config.parts.values()]
    parts = [
        model(model_config(table, task="labeled"), replace(sizes, vocabulary=vocabulary), task="labeled")
        for table, vocabulary in zip(tables, config.vocabularies, strict=True)
    ]
    return EncoderMixture(parts, config)


CLASSIFIERS: Models = {
    "mlp": (classifiers.MLPConfig, classifiers.mlp),
    "cnn": (classifiers.CNNClassifierConfig, classifiers.cnn),
    "rnn": (classifiers.ElmanClassifierConfig, classifiers.recurrent),
    "lstm": (classifiers.LSTMClassifierConfig, classifiers.recurrent),
    "gru": (classifiers.GRUClassifierConfig, classifiers.recurrent),
    "transformer": (classifiers.TransformerClassifierConfig, classifiers.transformer),
    "gpt": (classifiers.GPTClassifierConfig, classifiers.gpt),
    "bert": (classifiers.BertClassifierConfig, classifiers.bert),
    "bag": (BagConfig, bag),
    "mixture": (EncoderMixtureConfig, encoder_mixture),
}

IMAGE_ENCODERS: Models = {
    "vit": (ViTConfig, vit),
    "lstm": (ImageLSTMConfig, image_recurrent),
    "gru": (ImageGRUConfig, image_recurrent),
}

MASKED: Models = {
    "bert": (BertConfig, bert),
    "rnn": (ElmanMLMConfig, recurrent_mlm),
    "lstm": (LSTMMLMConfig, recurrent_mlm),
    "gru": (GRUMLMConfig, recurrent_mlm),
}

TAGGERS: Models = {
    "rnn": (taggers.ElmanTaggerConfig, taggers.recurrent_tagger),
    "lstm": (taggers.LSTMTaggerConfig, taggers.recurrent_tagger),
    "gru": (taggers.GRUTaggerConfig, taggers.recurrent_tagger),
    "transformer": (taggers.TransformerTaggerConfig, taggers.transformer_tagger),
    "gpt": (taggers.GPTTaggerConfig, taggers.gpt_tagger),
    "bert": (taggers.BertTaggerConfig, taggers.bert_tagger),
    "perceptron": (PerceptronConfig, perceptron),
}

COUNTED = ("ngram", "bag", "perceptron")
"""Kinds that are estimated by counting, without gradients."""
DERIVED = {"arpa": "seqwright import FILE.arpa --run DIR", "mixture": "seqwright mix RUN RUN --run DIR"}
"""Kinds that are made of what was trained elsewhere, and the command that does it."""

ASSISTANTS: Models = {kind: entry for kind, entry in LANGUAGE_MODELS.items() if kind not in {*COUNTED, *DERIVED}}


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """All that belongs to a kind of data: the sections of its recipes, its models, how it trains and what it does."""

    data: type
    tokenizer: type
    decoding: type
    evaluation: type
    models: Models
    default_model: str
    task: type[Task]
    run: type[Run]


TASKS: dict[str, TaskSpec] = {
    "text": TaskSpec(
        data=TextConfig,
        tokenizer=RegularizedTokenizerConfig,
        decoding=SamplingOptions,
        evaluation=EvaluationConfig,
        models=LANGUAGE_MODELS,
        default_model="gpt",
        task=LanguageTask,
        run=LanguageRun,
    ),
    "pairs": TaskSpec(
        data=PairsConfig,
        tokenizer=TranslationTokenizerConfig,
        decoding=TranslationOptions,
        evaluation=TranslationEvaluationConfig,
        models=TRANSLATORS,
        default_model="transformer",
        task=TranslationTask,
        run=TranslationRun,
    ),
    "labeled": TaskSpec(
        data=LabeledConfig,
        tokenizer=TokenizerConfig,
        decoding=ClassificationOptions,
        evaluation=ClassificationEvaluationConfig,
        models=CLASSIFIERS,
        default_model="bag",
        task=ClassificationTask,
        run=ClassificationRun,
    ),
    "images": TaskSpec(
        data=ImagesConfig,
        tokenizer=NoTokenizer,
        decoding=ClassificationOptions,
        evaluation=ClassificationEvaluationConfig,
        models=IMAGE_ENCODERS,
        default_model="vit",
        task=ImageTask,
        run=ImageRun,
    ),
    "tagged": TaskSpec(
        data=TaggedConfig,
        tokenizer=TaggingTokenizerConfig,
        decoding=TaggingOptions,
        evaluation=TaggingEvaluationConfig,
        models=TAGGERS,
        default_model="perceptron",
        task=TaggingTask,
        run=TaggingRun,
    ),
    "captions": TaskSpec(
        data=CaptionsConfig,
        tokenizer=TokenizerConfig,
        decoding=CaptioningOptions,
        evaluation=CaptioningEvaluationConfig,
        models=CAPTIONERS,
        default_model="transformer",
        task=CaptioningTask,
        run=CaptioningRun,
    ),
    "chat": TaskSpec(
        data=ChatConfig,
        tokenizer=TokenizerConfig,
        decoding=SamplingOptions,
        evaluation=EvaluationConfig,
        models=ASSISTANTS,
        default_model="gpt",
        task=ChatTask,
        run=ChatRun,
    ),
    "masked": TaskSpec(
        data=MaskedConfig,
        tokenizer=RegularizedTokenizerConfig,
        decoding=FillOptions,
        evaluation=MaskedEvaluationConfig,
        models=MASKED,
        default_model="bert",
        task=MaskedTask,
        run=MaskedRun,
    ),
    "denoising": TaskSpec(
        data=DenoisingConfig,
        tokenizer=RegularizedTokenizerConfig,
        decoding=TranslationOptions,
        evaluation=MaskedEvaluationConfig,
        models=TRANSLATORS,
        default_model="transformer",
        task=DenoisingTask,
        run=DenoisingRun,
    ),
}


def task_spec(kind: str) -> TaskSpec:
    """The task_spec of a kind of data."""
    if kind not in TASKS:
        raise UserError(f"no data kind '{kind}'.{did_you_mean(kind, TASKS)}")
    return TASKS[kind]


def model_config(table: Mapping[str, Any], reader: ConfigLoader | None = None, *, task: str = "text") -> Any:
    """The configuration that a [model] table describes; its `kind` picks the class from the models of the task."""
    own = reader or ConfigLoader("[model]")
    models = task_spec(task).models
    rest = {key: value for key, value in table.items() if key != "kind"}
    kind = table.get("kind", task_spec(task).default_model)
    config = None
    if isinstance(kind, str) and kind in models:
        config = own.read(models[kind][0], rest, "model")
    else:
        own.problem("model.kind", f"no model kind '{kind}' for {task}.{did_you_mean(str(kind), models)}")
    if reader is None:
        own.finish()
    return config


def kind_of(config: Any, *, task: str = "text") -> str:
    """The word that picks this configuration's class."""
    return next(kind for kind, (cls, _) in task_spec(task).models.items() if type(config) is cls)


def pick_trained(kind: str, task: str) -> None:
    """Raises unless models of a kind are trained for a task, naming those that are."""
    refuse_derived(kind)
    pick(kind, {name: entry for name, entry in task_spec(task).models.items() if name not in DERIVED}, "model")


def refuse_derived(kind: str) -> None:
    """Raises where a kind is asked to be trained that is made otherwise."""
    if kind in DERIVED:
        raise UserError(f"a model of kind '{kind}' is not trained; make one with `{DERIVED[kind]}`.")


def model(config: Any, sizes: Any, *, task: str = "text") -> Any:
    """The model of a configuration, with fresh weights, for a vocabulary or whatever else the task counts in."""
    return task_spec(task).models[kind_of(config, task=task)][1](config, sizes)


def from_arpa(path: Path) -> tuple[dict[str, Any], Any, list[str]]:
    """The [model] table of an ARPA file, its model, and its tokens by id, special_tokens first."""
    config, opened, tokens = open_arpa(path)
    return {"kind": "arpa"} | to_table(config), opened, tokens
