"""From configurations to objects: the only place where kinds are listed, and where verbs and models meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seqwright.core.batch import ReaderSizes, Vocabularies, Vocabulary
from seqwright.core.config import Reader, UserError, did_you_mean, pick, to_table
from seqwright.data.chat import ChatConfig
from seqwright.data.images.corpus import CaptionsConfig, ImagesConfig
from seqwright.data.labeled.rows import LabeledConfig
from seqwright.data.parallel.pairs import PairsConfig
from seqwright.data.subword_regularization import VariedTokenizerConfig
from seqwright.data.tagged.corpus import TaggedConfig
from seqwright.data.text.corpus import TextConfig
from seqwright.data.text.denoising import CorruptedConfig
from seqwright.data.text.masked import MaskedConfig
from seqwright.decoding.sampling import SamplingOptions
from seqwright.metrics.likelihood import EvaluationConfig
from seqwright.models import classifiers, taggers
from seqwright.models.bag.model import BagConfig, bag
from seqwright.models.encoder_mixture import ReaderMixture, ReaderMixtureConfig
from seqwright.models.encoders.bert import BertConfig, bert
from seqwright.models.encoders.feedforward import SimpleConfig, WindowConfig, simple, window
from seqwright.models.encoders.gpt import GPTConfig, gpt
from seqwright.models.encoders.recurrent import ElmanConfig, GRUConfig, LSTMConfig, recurrent
from seqwright.models.encoders.recurrent_mlm import (
    ElmanFillerConfig,
    GRUFillerConfig,
    LSTMFillerConfig,
    recurrent_filler,
)
from seqwright.models.encoders.vit import SeeingGRUConfig, SeeingLSTMConfig, ViTConfig, vit
from seqwright.models.encoders.vit import recurrent as recurrent_seeing
from seqwright.models.mixture import Mixture, MixtureConfig, Product
from seqwright.models.ngram.model import ArpaConfig, NGramConfig, arpa, ngram, open_arpa
from seqwright.models.perceptron.model import PerceptronConfig, perceptron
from seqwright.models.prefix_lm import PrefixConfig, prefix
from seqwright.models.seq2seq import ElmanSeq2SeqConfig, GRUSeq2SeqConfig, LSTMSeq2SeqConfig, seq2seq
from seqwright.models.transformer import TransformerConfig, transformer
from seqwright.runs.run import Run
from seqwright.tasks.base import Task
from seqwright.tasks.captioning.task import CaptionEvaluationConfig, CaptioningTask, CaptionOptions, CaptionRun
from seqwright.tasks.chat.task import ChatRun, ChatTask
from seqwright.tasks.classification.scores import AnswerOptions, ClassEvaluationConfig
from seqwright.tasks.classification.task import ClassifyingTask, ClassifyRun
from seqwright.tasks.denoising.task import RestoringRun, RestoringTask
from seqwright.tasks.images.task import NoTokenizer, SeeingTask, SeeRun
from seqwright.tasks.language.task import LanguageRun, LanguageTask
from seqwright.tasks.masked.task import FillOptions, MaskedEvaluationConfig, MaskedRun, MaskedTask
from seqwright.tasks.tagging.scores import TagEvaluationConfig
from seqwright.tasks.tagging.task import TagOptions, TagRun, TagTask, TagTokenizerConfig
from seqwright.tasks.translation.scores import PairEvaluationConfig
from seqwright.tasks.translation.task import PairTokenizerConfig, TranslationRun, TranslationTask
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
    "neural-bigram": (SimpleConfig, simple),
    "feedforward": (WindowConfig, window),
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
    "gpt": (PrefixConfig, prefix),
    "mixture": (MixtureConfig, mixture),
}

CAPTIONERS: Models = {kind: TRANSLATORS[kind] for kind in ("transformer", "rnn", "lstm", "gru")}
"""Those that keep what was read apart from what is said, so that it may be no text."""


def reader_mixture(config: ReaderMixtureConfig, sizes: ReaderSizes) -> ReaderMixture:
    """Several classifiers as one, each with its own vocabulary."""
    tables = [part["model"] for part in config.parts.values()]
    parts = [
        model(model_config(table, task="labeled"), replace(sizes, vocabulary=vocabulary), task="labeled")
        for table, vocabulary in zip(tables, config.vocabularies, strict=True)
    ]
    return ReaderMixture(parts, config)


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
    "mixture": (ReaderMixtureConfig, reader_mixture),
}

SEEING: Models = {
    "vit": (ViTConfig, vit),
    "lstm": (SeeingLSTMConfig, recurrent_seeing),
    "gru": (SeeingGRUConfig, recurrent_seeing),
}

MASKED: Models = {
    "bert": (BertConfig, bert),
    "rnn": (ElmanFillerConfig, recurrent_filler),
    "lstm": (LSTMFillerConfig, recurrent_filler),
    "gru": (GRUFillerConfig, recurrent_filler),
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
MADE = {"arpa": "seqwright import FILE.arpa --run DIR", "mixture": "seqwright mix RUN RUN --run DIR"}
"""Kinds that are made of what was trained elsewhere, and the command that does it."""

ASSISTANTS: Models = {kind: entry for kind, entry in LANGUAGE_MODELS.items() if kind not in {*COUNTED, *MADE}}


@dataclass(frozen=True, kw_only=True)
class Kit:
    """All that belongs to a kind of data: the sections of its recipes, its models, how it trains and what it does."""

    data: type
    tokenizer: type
    decoding: type
    evaluation: type
    models: Models
    default_model: str
    task: type[Task]
    run: type[Run]


TASKS: dict[str, Kit] = {
    "text": Kit(
        data=TextConfig,
        tokenizer=VariedTokenizerConfig,
        decoding=SamplingOptions,
        evaluation=EvaluationConfig,
        models=LANGUAGE_MODELS,
        default_model="gpt",
        task=LanguageTask,
        run=LanguageRun,
    ),
    "pairs": Kit(
        data=PairsConfig,
        tokenizer=PairTokenizerConfig,
        decoding=TranslationOptions,
        evaluation=PairEvaluationConfig,
        models=TRANSLATORS,
        default_model="transformer",
        task=TranslationTask,
        run=TranslationRun,
    ),
    "labeled": Kit(
        data=LabeledConfig,
        tokenizer=TokenizerConfig,
        decoding=AnswerOptions,
        evaluation=ClassEvaluationConfig,
        models=CLASSIFIERS,
        default_model="bag",
        task=ClassifyingTask,
        run=ClassifyRun,
    ),
    "images": Kit(
        data=ImagesConfig,
        tokenizer=NoTokenizer,
        decoding=AnswerOptions,
        evaluation=ClassEvaluationConfig,
        models=SEEING,
        default_model="vit",
        task=SeeingTask,
        run=SeeRun,
    ),
    "tagged": Kit(
        data=TaggedConfig,
        tokenizer=TagTokenizerConfig,
        decoding=TagOptions,
        evaluation=TagEvaluationConfig,
        models=TAGGERS,
        default_model="perceptron",
        task=TagTask,
        run=TagRun,
    ),
    "captions": Kit(
        data=CaptionsConfig,
        tokenizer=TokenizerConfig,
        decoding=CaptionOptions,
        evaluation=CaptionEvaluationConfig,
        models=CAPTIONERS,
        default_model="transformer",
        task=CaptioningTask,
        run=CaptionRun,
    ),
    "chat": Kit(
        data=ChatConfig,
        tokenizer=TokenizerConfig,
        decoding=SamplingOptions,
        evaluation=EvaluationConfig,
        models=ASSISTANTS,
        default_model="gpt",
        task=ChatTask,
        run=ChatRun,
    ),
    "masked": Kit(
        data=MaskedConfig,
        tokenizer=VariedTokenizerConfig,
        decoding=FillOptions,
        evaluation=MaskedEvaluationConfig,
        models=MASKED,
        default_model="bert",
        task=MaskedTask,
        run=MaskedRun,
    ),
    "denoising": Kit(
        data=CorruptedConfig,
        tokenizer=VariedTokenizerConfig,
        decoding=TranslationOptions,
        evaluation=MaskedEvaluationConfig,
        models=TRANSLATORS,
        default_model="transformer",
        task=RestoringTask,
        run=RestoringRun,
    ),
}


def kit(kind: str) -> Kit:
    """The kit of a kind of data."""
    if kind not in TASKS:
        raise UserError(f"no data kind '{kind}'.{did_you_mean(kind, TASKS)}")
    return TASKS[kind]


def model_config(table: Mapping[str, Any], reader: Reader | None = None, *, task: str = "text") -> Any:
    """The configuration that a [model] table describes; its `kind` picks the class from the models of the task."""
    own = reader or Reader("[model]")
    models = kit(task).models
    rest = {key: value for key, value in table.items() if key != "kind"}
    kind = table.get("kind", kit(task).default_model)
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
    return next(kind for kind, (cls, _) in kit(task).models.items() if type(config) is cls)


def pick_trained(kind: str, task: str) -> None:
    """Raises unless models of a kind are trained for a task, naming those that are."""
    refuse_made(kind)
    pick(kind, {name: entry for name, entry in kit(task).models.items() if name not in MADE}, "model")


def refuse_made(kind: str) -> None:
    """Raises where a kind is asked to be trained that is made otherwise."""
    if kind in MADE:
        raise UserError(f"a model of kind '{kind}' is not trained; make one with `{MADE[kind]}`.")


def model(config: Any, sizes: Any, *, task: str = "text") -> Any:
    """The model of a configuration, with fresh weights, for a vocabulary or whatever else the task counts in."""
    return kit(task).models[kind_of(config, task=task)][1](config, sizes)


def from_arpa(path: Path) -> tuple[dict[str, Any], Any, list[str]]:
    """The [model] table of an ARPA file, its model, and its tokens by id, special_tokens first."""
    config, opened, tokens = open_arpa(path)
    return {"kind": "arpa"} | to_table(config), opened, tokens
