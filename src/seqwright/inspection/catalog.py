"""The views of an inspection, and which of them a run has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from seqwright.core.protocols import ExplainsBackOff
from seqwright.inspection.attention import attention_view
from seqwright.inspection.back_off import back_off_view
from seqwright.inspection.beam import SEARCHED, beam_view
from seqwright.inspection.embeddings import input_embedding, map_view, neighbors_view, token_embedding
from seqwright.inspection.gain import gain_view
from seqwright.inspection.gates import gates_view
from seqwright.inspection.heads import heads_view
from seqwright.inspection.images import image_view
from seqwright.inspection.logit_lens import logit_lens_view
from seqwright.inspection.positions import positions_view
from seqwright.inspection.saliency import DECODERS, MAX_POSITIONS, saliency_view
from seqwright.inspection.subject import Subject, ViewResult
from seqwright.inspection.tokens import tokens_view
from seqwright.inspection.transitions import has_transitions, transitions_view
from seqwright.studies.explain.position_similarity import position_module
from seqwright.tasks.classification.explanation import explains
from seqwright.tasks.classification.task import ClassificationRun
from seqwright.tasks.images.task import ImageRun
from seqwright.tasks.masked.task import MaskedRun
from seqwright.tasks.tagging.explanation import ExplainsTags
from seqwright.tasks.tagging.task import TaggingRun


@dataclass(frozen=True)
class View:
    """A view of a forward pass, and the runs that have it."""

    compute: Callable[[Subject], ViewResult]
    has: Callable[[Subject], bool]
    """Whether a run has it."""
    selects: tuple[str, ...] = ()
    """Which of `layer` and `head` select what it shows."""


def _has_saliency(subject: Subject) -> bool:
    run = subject.run
    attributable = input_embedding(run.model, subject.example.batch) is not None
    if isinstance(run, ClassificationRun):
        return attributable or explains(run.predictor)
    if isinstance(run, ImageRun):
        return run.codec.objective == "class"
    if isinstance(run, DECODERS):
        short = max(len(subject.example.tokens), len(subject.example.source)) <= MAX_POSITIONS
        return attributable and short and any(subject.example.targets)
    return isinstance(run, TaggingRun) and (attributable or isinstance(run.model, ExplainsTags))


def _has_embedding(subject: Subject) -> bool:
    return not isinstance(subject.run, ImageRun) and token_embedding(subject.run.model) is not None


def _has_tokens(subject: Subject) -> bool:
    return isinstance(subject.run, MaskedRun) or subject.forward.log_probs is not None


VIEWS: Mapping[str, View] = {
    "tokens": View(tokens_view, _has_tokens),
    "back-off": View(back_off_view, lambda subject: isinstance(subject.run.model, ExplainsBackOff)),
    "image": View(image_view, lambda subject: subject.example.pixels is not None, ("layer", "head")),
    "gain": View(gain_view, lambda subject: subject.against is not None),
    "saliency": View(saliency_view, _has_saliency),
    "transitions": View(transitions_view, has_transitions),
    "attention": View(attention_view, lambda subject: bool(subject.forward.attention.kinds), ("layer", "head")),
    "gates": View(gates_view, lambda subject: bool(subject.forward.recurrent), ("layer",)),
    "logit-lens": View(logit_lens_view, lambda subject: subject.forward.lens is not None, ("layer",)),
    "beam": View(beam_view, lambda subject: isinstance(subject.run, SEARCHED)),
    "heads": View(heads_view, lambda subject: "self" in subject.forward.attention.kinds),
    "positions": View(positions_view, lambda subject: position_module(subject.run.model) is not None),
    "neighbors": View(neighbors_view, _has_embedding),
    "map": View(map_view, _has_embedding),
}
"""Most useful first: the first that a run has is its default."""
