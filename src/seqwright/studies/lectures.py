"""The path of the lectures: what each shows, topics that explain it, and recipes that train it, with their times."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Practice:
    """A recipe of a lecture."""

    recipe: str
    shows: str
    seconds: int
    """Measured duration of the training, from the command to its end."""
    hardware: str = "CPU core"
    """What it was measured on: one core of a server, for some recipes a busy one, or an H200 that trainings share."""


@dataclass(frozen=True)
class Lecture:
    """A stage of the path from n-grams to Transformers."""

    name: str
    """Of its notebook, docs/lectures/NN-NAME.ipynb."""
    title: str
    about: str
    topics: tuple[str, ...]
    """Of `seqwright explain`."""
    practice: tuple[Practice, ...]
    change: tuple[str, str, str]
    """A topic, an override of its numbers and the figure in which the effect is seen."""


LECTURES = (
    Lecture(
        "ngrams",
        "N-grams",
        "A language model is a table of counts: p(next | last n - 1 tokens), smoothed for what was never seen.",
        ("vocabulary", "bpe", "ngram"),
        (Practice("lecture-generation-ngram", "counting alone: no gradients, no embeddings", 9),),
        ("ngram", "context=cows eat", "back-off"),
    ),
    Lecture(
        "neural-bigram",
        "A neural bigram",
        "An embedding and a softmax in place of the table, trained by gradient descent.",
        ("pairs", "sgd"),
        (Practice("lecture-generation-bigram", "one token in, its successor out", 25),),
        ("sgd", "learning_rate=0.5", "steps"),
    ),
    Lecture(
        "feedforward",
        "A window of tokens",
        "Several embeddings side by side: a fixed context, but similar contexts share what is learned.",
        ("pairs",),
        (Practice("lecture-generation-feedforward", "the last six tokens predict the next", 32),),
        ("pairs", "context=4", "pairs"),
    ),
    Lecture(
        "recurrent",
        "Recurrent networks, ways 1 to 3",
        "A state reads any number of tokens. The last state predicts, or all of them flattened, or each its successor.",
        ("rnn",),
        (
            Practice("lecture-generation-way1", "the last hidden state predicts", 35),
            Practice("lecture-generation-way2", "all hidden states, flattened, predict", 190),
            Practice("lecture-generation", "every position predicts its successor", 31),
        ),
        ("rnn", "W_hh[0,0]=2", "h"),
    ),
    Lecture(
        "lstm",
        "Gates: LSTM and GRU",
        "A cell that is added to rather than overwritten, so that gradients reach far back.",
        ("lstm", "gru", "gradients"),
        (Practice("lecture-generation-lstm", "the same data and width with gates", 41),),
        ("lstm", "forget_bias=3", "states with forget bias"),
    ),
    Lecture(
        "seq2seq",
        "Sequence to sequence",
        "An encoder reads the source, a decoder writes the target; search chooses among its continuations.",
        ("seq2seq", "search", "bleu", "f1"),
        (Practice("lecture-seq2seq", "the bottleneck: all of the source in one vector", 174),),
        ("search", "beam_size=3", "beam tree"),
    ),
    Lecture(
        "attention",
        "Attention",
        "The decoder looks back at every position of the source, with weights that it computes.",
        ("attention", "cross-attention", "growth"),
        (Practice("dates-en-vi", "the same dates with additive attention", 180),),
        ("attention", "X[1,0]=0.9", "P"),
    ),
    Lecture(
        "transformer",
        "The Transformer",
        "Attention without recurrence: masks, heads, positions, residuals and normalization make one block.",
        ("masking", "multi-head", "positions", "layer-norm", "transformer", "tricks"),
        (
            Practice("lecture-generation-transformer", "the practice text with two causal blocks", 80),
            Practice("lecture-tricks", "eight blocks with and without residuals, norms, scaling and positions", 66),
        ),
        ("transformer", "learning_rate=0.5", "losses"),
    ),
    Lecture(
        "gpt",
        "GPT",
        "A stack of causal blocks on plain text, and how tokens are drawn from what it predicts.",
        ("sampling",),
        (Practice("python-reference", "a small GPT with RoPE, RMSNorm and SwiGLU", 194),),
        ("sampling", "temperature=0.5", "draws"),
    ),
    Lecture(
        "bert",
        "BERT",
        "Both sides of a gap predict what is missing: pre-training without labels.",
        ("bert",),
        (Practice("topics-bert", "masked tokens of Python's help", 435),),
        ("bert", "mask_rate=0.5", "masked"),
    ),
    Lecture(
        "vit",
        "Vision Transformer",
        "An image is a sequence of patches; the rest is the encoder of BERT.",
        ("vit",),
        (Practice("digits", "handwritten digits, 16 patches each", 52),),
        ("vit", "patch=3", "shapes"),
    ),
    Lecture(
        "imdb",
        "The IMDB ladder",
        "Five classifiers of film reviews: from flattened embeddings to a bidirectional LSTM.",
        ("imdb",),
        (
            Practice("imdb-mlp", "all embeddings flattened", 6, "H200"),
            Practice("imdb-cnn", "convolutions, flattened", 12, "H200"),
            Practice("imdb-cnn-max", "convolutions and the maximum over positions", 12, "H200"),
            Practice("imdb-rnn", "the last state of an Elman network", 125, "H200"),
            Practice("imdb-rnn-lecture", "the same with padding read as tokens: what it forgets", 125),
            Practice("imdb-bilstm", "two layers, both directions", 355, "H200"),
        ),
        ("imdb", "length=250", "parameters"),
    ),
)
"""In the order in which they are taught."""
