"""Masks, cross-attention and heads (worked example 6): the two wrong ways of masking first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from seqwright import build
from seqwright.core.batch import Vocabularies, Vocabulary
from seqwright.core.config import UserError
from seqwright.layers.attention import SelfAttention
from seqwright.layers.encoder import EncoderOutput
from seqwright.layers.kv_cache import attention_mask
from seqwright.runs.run import Run
from seqwright.studies.explain.examples import example
from seqwright.studies.explain.explanation import Explanation, Step
from seqwright.studies.explain.figures import Figure, matrix, table
from seqwright.studies.explain.options import Rows, TopicOptions
from seqwright.studies.explain.recording import recorded, set_parameters
from seqwright.studies.explain.text import MAX_TOKENS, documents
from seqwright.studies.explain.topics.attention import OneHead, one_head, run_layer, tensor
from seqwright.studies.explain.topics.of_run import heads_of_run, mask_of_run
from seqwright.tasks.translation.task import TranslationRun


@dataclass(frozen=True, kw_only=True)
class MaskingOptions(OneHead):
    text: str = "có chí thì nên"
    """Words whose mask is shown."""
    window: int | None = None
    """Sliding-window attention, in the mask of the text: a word attends to itself and those before it, this many."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window is not None and self.window < 1:
            raise UserError(f"window must be 1 or more, not {self.window}.")


def masking(options: MaskingOptions, run: Run | None = None) -> Explanation:
    """Causal masking: after the softmax, by zeros before it, and by minus infinity before it; or the mask of a run."""
    if run is not None:
        return mask_of_run(options.text, run)
    x = tensor(options.X)
    tokens = [f"x{n}" for n in range(1, len(x) + 1)]
    _, unmasked = run_layer(one_head(options), x)
    y, record = run_layer(one_head(options, causal=True), x)
    scores, call = unmasked.attention["attend"].scores[0, 0], record.attention["attend"]
    positions = torch.arange(len(x))
    mask = attention_mask(positions.unsqueeze(0), positions)[0, 0]
    zeros = mask.to(scores)
    after, before = scores.softmax(-1) * zeros, (scores * zeros).softmax(-1)
    all_words = documents(options.text)[0].split()
    words, left = all_words[:MAX_TOKENS], max(0, len(all_words) - MAX_TOKENS)
    cut = f" Shown are the first {MAX_TOKENS} words: the last {left:,} are left out." if left else ""
    places = torch.arange(len(words))
    text_mask = attention_mask(places.unsqueeze(0), places, options.window)[0, 0]
    labels: dict[str, Any] = {"rows": tokens, "columns": tokens}
    steps = [
        Step(
            "Scores and mask",
            "A language model predicts the next token, so a position must not see those after it: the mask is 1 where"
            " the key (column) does not come after the query (row).",
            f"S = Q Kᵀ / √{x.size(1)}    M[i, j] = 1 if j ≤ i, else 0",
            [matrix("S", scores, **labels), matrix("M", mask.int(), **labels)],
            ["a slide prints o_i and its keys up to i-1: a position attends up to and including itself."],
        ),
        Step(
            "Wrong: multiply the weights by the mask",
            "The forbidden weights are zero, but what is left of a row no longer sums to one.",
            "softmax(S) ∘ M",
            [
                matrix("softmax, then mask", after, **labels, heat=True),
                matrix("sums after masking", after.sum(-1), columns=tokens),
            ],
        ),
        Step(
            "Wrong: multiply the scores by the mask",
            "Rows sum to one, but a score of 0 is not a weight of 0: the softmax gives every forbidden position"
            " exp(0) = 1 before normalization.",
            "softmax(S ∘ M)",
            [matrix("mask, then softmax", before, **labels, heat=True)],
        ),
        Step(
            "Right: add minus infinity to the scores",
            "exp(-∞) = 0, so that a forbidden position has no weight and the others share one.",
            "softmax(S + log M)",
            [
                matrix("S masked", call.scores[0, 0], **labels),
                matrix("P", call.weights[0, 0], **labels, heat=True),
            ],
        ),
        Step(
            "Causal attention",
            "The first position attends to itself only; the last one sees everything, as without a mask.",
            "A = P V    Y = A W_O",
            [matrix("A", record.outputs["attend"][0, 0], rows=tokens), matrix("Y", y, rows=tokens)],
        ),
        Step(
            "The mask of a text",
            "Row: the word that attends; column: the words it may attend to, which are not after it."
            f"{_in_window(options.window)} One pass over the text then trains all next-word predictions at once.{cut}",
            "",
            [matrix("mask of the text", text_mask.int(), rows=words, columns=words, heat=True)],
        ),
    ]
    about = (
        "Decoders mask the future. Whether a mask is applied to weights or to scores, and with which number, decides"
        " whether it masks at all."
    )
    return Explanation("masking", "Masked attention", about, steps)


def _in_window(window: int | None) -> str:
    """What a window leaves of a row."""
    if window is None:
        return ""
    words = f"itself and the {window - 1} before it" if window > 1 else "itself only"
    return f" With a window of {window}, a word attends to {words}; the steps above have no window."


@dataclass(frozen=True, kw_only=True)
class CrossOptions(OneHead):
    C: Rows = ((-0.6, 0.3, -0.4), (0.5, 0.9, -0.5))
    """Decoder states, the queries; X is the encoder output."""
    text: str = ""
    """Source that a run is shown on."""


def cross_attention(options: CrossOptions, run: Run | None = None) -> Explanation:
    """Cross-attention of a Transformer decoder over the encoder output; of a run, its alignment of a source."""
    if run is not None:
        return _aligned(options.text, run)
    x, c = tensor(options.X), tensor(options.C)
    width = x.size(1)
    keys = {"kind": "transformer", "width": width, "heads": 1, "layers": 1, "bias": False, "positions": "none"}
    vocabulary = Vocabulary(size=4)
    sizes = Vocabularies(source=vocabulary, target=vocabulary)
    decoder = build.model(build.model_config(keys, task="pairs"), sizes, task="pairs").decoder.double().eval()
    block = decoder.blocks[0].cross
    set_parameters(decoder, {"keys_values.weight": torch.cat([tensor(options.W_K).T, tensor(options.W_V).T])})
    set_parameters(block, {"query.weight": tensor(options.W_Q).T, "output.weight": tensor(options.W_O).T})
    with torch.no_grad(), recorded(block) as record:
        cache = decoder.memory(EncoderOutput(x.unsqueeze(0), torch.ones(1, len(x), dtype=torch.bool)))
        y = block(c.unsqueeze(0), cache.layers()[0])[0]
    call = record.attention["attend"]
    sources, targets = [f"x{n}" for n in range(1, len(x) + 1)], [f"c{n}" for n in range(1, len(c) + 1)]
    steps = [
        Step(
            "Two sequences",
            "C are the states of the decoder, X is the output of the encoder (the memory).",
            "",
            [matrix("C", c, rows=targets), matrix("X", x, rows=sources)],
        ),
        Step(
            "Queries from one, keys and values from the other",
            "Queries are the decoder's. Keys and values are computed once for a source and kept for all"
            " steps of decoding.",
            "Q = C W_Q    K = X W_K    V = X W_V",
            [
                matrix("Q", call.query[0, 0], rows=targets),
                matrix("K", call.key[0, 0], rows=sources),
                matrix("V", call.value[0, 0], rows=sources),
            ],
            ["the slide prints K[0,0] as -0.02; it is 0.026."],
        ),
        Step(
            "Scores and weights",
            "A row for each target position, a column for each source position: the alignment.",
            f"P = softmax(Q Kᵀ / √{width})",
            [
                matrix("S", call.scores[0, 0], rows=targets, columns=sources),
                matrix("P", call.weights[0, 0], rows=targets, columns=sources, heat=True),
            ],
            ["the slide prints the scores 0.0470, 0.0278 and 0.0075; they are 0.0452, 0.0270 and 0.0073."],
        ),
        Step(
            "Outputs",
            "One vector for each target position, averaged from the source.",
            "A = P V    Y = A W_O",
            [matrix("A", record.outputs["attend"][0, 0], rows=targets), matrix("Y", y, rows=targets)],
        ),
    ]
    about = (
        "The decoder of a translator attends to the source: queries of one sequence meet keys and values of another."
    )
    return Explanation("cross-attention", "Cross-attention", about, steps)


def _aligned(text: str, run: Run) -> Explanation:
    if not isinstance(run, TranslationRun):
        raise UserError(f"{run.path} {run.description}; cross-attention is that of translators: train --pairs.")
    if not text.strip():
        raise UserError("the source is empty; give some words: --on 'a few words'.")
    (output,) = run.translate([text], attention=True, truncate=True)
    alignment = output.attention
    assert alignment is not None
    steps = [
        Step(
            "Source and output",
            f"The output of {run.path} for the source, token by token; each token is predicted with a row of weights.",
            figures=[table("output", ["source", "output"], [(text, output.text)])],
        ),
        Step(
            "Weights",
            "Row: the token that is predicted; column: the source token that the decoder attends to. The mean over"
            " layers and heads; `seqwright inspect` has each.",
            "P = softmax(score(decoder state, encoder states))",
            [matrix("P", alignment.weights, rows=alignment.target, columns=alignment.source, heat=True)],
        ),
    ]
    return Explanation("cross-attention", f"Cross-attention of {run.path}", "An alignment of output and source.", steps)


@dataclass(frozen=True, kw_only=True)
class MultiHeadOptions(TopicOptions):
    heads: int = 2
    """Number of heads: 1, 2 or 4."""
    causal: bool = True
    """Mask positions after the query."""
    text: str = ""
    """Text that a run is shown on."""
    layer: int = 0
    """Layer of a run, from 0."""

    run_only: ClassVar[tuple[str, ...]] = ("layer",)

    def __post_init__(self) -> None:
        if self.heads not in (1, 2, 4):
            raise UserError(f"width 4 can be split over 1, 2 or 4 heads, not {self.heads}.")


def multi_head(options: MultiHeadOptions, run: Run | None = None) -> Explanation:
    """Multi-head self-attention with the weights of worked example 5; or the heads of a layer of a run."""
    if run is not None:
        return heads_of_run(options.text, options.layer, run)
    parameters = example("transformer")
    tokens, ids = parameters.tokens, parameters.ids
    layer = SelfAttention(4, options.heads, bias=False, causal=options.causal).double()
    projections = torch.cat([parameters[f"{part}.weight"] for part in ("query", "key", "value")])
    set_parameters(layer, {"query_key_value.weight": projections, "output.weight": parameters["output.weight"]})
    x = parameters["embedding.weight"][torch.tensor(ids)]
    y, record = run_layer(layer, x)
    call, size = record.attention["attend"], 4 // options.heads
    attended = record.outputs["attend"][0]  # (H, T, E)
    steps = [
        Step(
            "Inputs",
            "The embeddings of four tokens, width 4.",
            "",
            [matrix("X", x, rows=tokens)],
        ),
        Step(
            "One projection, split into heads",
            f"Width 4 is split into {options.heads} heads of size {size}: columns of Q, K and V. The cost is that of"
            " one head of full width.",
            "Q = X W_Qᵀ = [Q₁ … Q_H]    (PyTorch stores weights as (out, in))",
            [
                *(matrix(f"W_{part[0].upper()}", parameters[f"{part}.weight"]) for part in ("query", "key", "value")),
                *(
                    matrix(f"{name} of head {head + 1}", getattr(call, part)[0, head], rows=tokens)
                    for head in range(options.heads)
                    for name, part in (("Q", "query"), ("K", "key"), ("V", "value"))
                ),
            ],
        ),
    ]
    for head in range(options.heads):
        figures: list[Figure] = [
            matrix(f"S of head {head + 1}", call.scores[0, head], rows=tokens, columns=tokens),
            matrix(f"P of head {head + 1}", call.weights[0, head], rows=tokens, columns=tokens, heat=True),
            matrix(f"A of head {head + 1}", attended[head], rows=tokens),
        ]
        prose = "The scores and weights of heads are independent, so that one position can attend to several others."
        steps.append(Step(f"Head {head + 1}", prose, f"P = softmax(Q Kᵀ / √{size})    A = P V", figures))
    steps.append(
        Step(
            "Concatenate and project",
            "The heads are put side by side again; W_O mixes them.",
            "Y = [A₁ … A_H] W_Oᵀ",
            [
                matrix("A", attended.transpose(0, 1).flatten(1), rows=tokens),
                matrix("W_O", parameters["output.weight"]),
                matrix("Y", y, rows=tokens),
            ],
        )
    )
    about = "Several small heads in place of a large one: each may attend to something else (Vaswani et al. 2017)."
    return Explanation("multi-head", "Multi-head attention", about, steps)
