"""The table of topics, and `explain`: a topic computed on its example, a text or a run."""

from __future__ import annotations

import difflib
import importlib
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from seqwright.core.config import UserError, did_you_mean

if TYPE_CHECKING:
    from seqwright.runs.run import Run
    from seqwright.studies.explain.explanation import Explanation


@dataclass(frozen=True)
class Topic:
    """A row of the table: one line about the topic, and the function that computes it."""

    about: str
    home: str
    """`module:function` in `explain.topics`, imported on first use."""
    on: bool = False
    """Whether it can be computed on a text of the user (its options have a `text`)."""
    run: str = ""
    """The trained runs that it can be computed with; "" for none."""
    run_text: bool = True
    """Whether a run is shown on a text."""
    in_place: str = ""
    """An option that may be set in place of the text of a run."""
    image: bool = False
    """Whether its text is an image file; a run has validation images, too."""


TOPICS = {
    "vocabulary": Topic(
        "From text to ids: normalization, counts, special tokens.", "vocabulary:vocabulary", on=True, run="any of texts"
    ),
    "pairs": Topic(
        "Next-token pairs: prefixes and their targets, padding, ways 1 to 3.",
        "vocabulary:pairs",
        on=True,
        run="any of texts",
    ),
    "ngram": Topic(
        "Counts, maximum likelihood, smoothing, back-off.", "ngram:ngram", on=True, run="n-gram", in_place="context"
    ),
    "bpe": Topic("Byte pair encoding, merge by merge.", "bpe:bpe", on=True),
    "sgd": Topic("Gradient descent, mini-batches and epochs.", "sgd:sgd", on=True),
    "rnn": Topic("Elman network: forward, back-propagation through time, one SGD step.", "rnn:rnn", run="Elman RNN"),
    "lstm": Topic("LSTM: gates, cell and hidden state; the forget bias.", "gates:lstm", run="LSTM"),
    "gru": Topic("GRU: reset and update gates.", "gates:gru", run="GRU"),
    "gradients": Topic(
        "Vanishing gradients by distance: RNN, LSTM, GRU and attention.",
        "gradients:gradients",
        run="neural language model",
    ),
    "imdb": Topic(
        "Five classifiers of film reviews: shapes and parameters, layer by layer.", "imdb:imdb", run="neural classifier"
    ),
    "seq2seq": Topic("Encoder, decoder and teacher forcing.", "seq2seq:seq2seq", run="translator"),
    "search": Topic(
        "Greedy, beam and exhaustive search on one tree.", "search:search", run="language model, translator"
    ),
    "bleu": Topic("Clipped n-gram precisions and the brevity penalty.", "overlap:bleu", on=True),
    "f1": Topic("Precision, recall and F1 of words.", "overlap:f1", on=True),
    "attention": Topic(
        "Scores, softmax and weighted averages; scaling, order, score kinds.", "attention:attention", run="Transformer"
    ),
    "masking": Topic(
        "Causal masks: the two wrong ways, then the right one.", "masking:masking", on=True, run="Transformer"
    ),
    "cross-attention": Topic(
        "Queries of the decoder, keys and values of the source.", "masking:cross_attention", run="translator"
    ),
    "multi-head": Topic("Heads: one projection, split, attended and joined.", "masking:multi_head", run="Transformer"),
    "positions": Topic(
        "Candidates tested; sinusoids, rotations, RoPE.", "positions:positions", run="Transformer", run_text=False
    ),
    "layer-norm": Topic("LayerNorm and RMSNorm of a vector.", "norm:layer_norm", run="Transformer"),
    "transformer": Topic(
        "A decoder block: forward, backward, SGD steps.", "transformer:transformer", run="Transformer"
    ),
    "tricks": Topic("Scaled scores, residuals, normalization and positions: with and without.", "tricks:tricks"),
    "growth": Topic("Time and memory by length: linear and quadratic.", "growth:growth"),
    "sampling": Topic(
        "Temperature, top-k, top-p, and how a token is drawn.", "sampling:sampling", on=True, run="language model"
    ),
    "bert": Topic("Masked language modeling: which tokens are masked, and how.", "bert:bert", on=True, run="masked LM"),
    "vit": Topic("An image as a sequence of patches.", "vit:vit", on=True, run="ViT classifier", image=True),
}
"""In the order of the lectures."""

KEYWORDS = {
    "vocabulary": (
        "tokenization",
        "tokenizer",
        "tokens",
        "unk",
        "unknown",
        "normalization",
        "special-tokens",
        "one-hot",
    ),
    "pairs": ("prefixes", "padding", "teacher-forcing", "next-token", "language-model", "language-modeling"),
    "ngram": ("n-gram", "bigram", "trigram", "kneser-ney", "smoothing", "laplace", "back-off", "backoff", "perplexity"),
    "bpe": ("byte-pair", "byte-pair-encoding", "subwords", "merges", "wordpiece"),
    "sgd": ("gradient-descent", "mini-batch", "batches", "epochs", "learning-rate", "optimizer", "cross-entropy"),
    "rnn": ("bptt", "back-propagation", "backpropagation", "backprop", "elman", "recurrent", "hidden-state"),
    "lstm": ("gates", "forget-gate", "cell-state", "long-short-term-memory"),
    "gradients": ("vanishing", "vanishing-gradients", "exploding", "exploding-gradients"),
    "imdb": ("sentiment", "classification", "classifier", "cnn", "conv1d", "convolution", "mlp"),
    "seq2seq": ("encoder-decoder", "translation", "bottleneck", "sequence-to-sequence"),
    "search": ("beam", "beam-search", "greedy", "exhaustive", "decoding", "length-normalization"),
    "bleu": ("brevity-penalty", "rouge", "translation-metrics"),
    "f1": ("precision", "recall", "f-score", "f-measure"),
    "attention": ("softmax", "self-attention", "dot-product", "scaled-dot-product", "bahdanau", "luong", "query"),
    "masking": ("mask", "causal", "causal-mask", "masked-attention"),
    "cross-attention": ("encoder-decoder-attention", "alignment", "alignments"),
    "multi-head": ("heads", "mha", "multi-head-attention", "multihead"),
    "positions": ("rope", "rotary", "sinusoids", "sinusoidal", "positional-encoding", "position-embeddings"),
    "layer-norm": ("layernorm", "rmsnorm", "normalization-layer", "batch-norm"),
    "transformer": ("gpt", "decoder-block", "feed-forward", "ffn", "transformers"),
    "tricks": ("residual", "residuals", "skip-connections", "scaling", "pre-norm", "post-norm"),
    "growth": ("complexity", "quadratic", "kv-cache", "memory"),
    "sampling": ("temperature", "top-k", "top-p", "nucleus", "min-p"),
    "bert": ("mlm", "masked", "masked-language-model", "masked-language-modeling", "fill"),
    "vit": ("patches", "vision", "image", "images", "vision-transformer"),
}
"""What else people call a topic, or a part of it, for "did you mean"."""


def explain(name: str, *, on: str | None = None, run: Run | None = None, overrides: Sequence[str] = ()) -> Explanation:
    """The explanation of a topic; `on` is a text and `run` a trained run to compute it on, overrides are `name=value`
    of the example."""
    from seqwright.studies.explain.options import settings, with_overrides

    topic = find(name)
    if run is not None and not topic.run:
        raise UserError(f"explain {name} takes no run; these do: {_names(lambda row: bool(row.run))}.")
    given = {override.partition("=")[0].strip() for override in overrides}
    if run is not None and on is None and topic.in_place in given:
        on = ""
    if run is not None and on is None and topic.run_text and not topic.image:
        raise UserError("name the text that the run is shown on, too: --on 'a few words'.")
    if on is not None and not (topic.on or (topic.run and topic.run_text and run is not None)):
        if topic.run and topic.run_text:
            raise UserError(f"explain {name} takes a text together with a run only: add --run RUN.")
        raise UserError(f"explain {name} takes no text; these do: {_names(lambda row: row.on)}.")
    function = _imported(topic.home)
    options_class = typing.get_type_hints(function)["options"]
    options = with_overrides(options_class, overrides, name, run=run is not None)
    if on is not None:
        assert "text" in {f.name for f in fields(options_class)}
        options = replace(options, text=on)
    explanation = function(options) if run is None else function(options, run)
    if on is not None or run is not None or overrides:  # slips of the slides concern the lectures' numbers
        explanation = replace(explanation, steps=[replace(step, errata=()) for step in explanation.steps])
    return replace(explanation, settings=settings(options, run=run is not None))


def find(name: str) -> Topic:
    """The row of a topic; UserError with the closest name where there is none."""
    if name not in TOPICS:
        raise UserError(f"no topic '{name}'.{_hint(name)} `seqwright explain` lists them.")
    return TOPICS[name]


def _hint(name: str) -> str:
    """The topic that another word of the field, or one with a slip, belongs to."""
    topic_of = {word: topic for topic, words in KEYWORDS.items() for word in words} | {topic: topic for topic in TOPICS}
    word = name.casefold().replace("_", "-").replace(" ", "-")
    close = [word] if word in topic_of else difflib.get_close_matches(word, topic_of, n=1, cutoff=0.75)
    return f" Did you mean '{topic_of[close[0]]}'?" if close else did_you_mean(name, TOPICS)


def _names(able: Callable[[Topic], bool]) -> str:
    return ", ".join(name for name, topic in TOPICS.items() if able(topic))


def _imported(home: str) -> Callable[..., Explanation]:
    module, _, function = home.partition(":")
    return getattr(importlib.import_module(f"seqwright.studies.explain.topics.{module}"), function)
