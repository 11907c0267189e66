"""The seam: the protocols through which training, decoding, metrics and servers know models.

An autoregressive model returns log-probabilities of the next id; everything else is built on that. What a model can do
beyond it is a declared capability, a protocol of this file, never a `getattr`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from seqwright.core.batch import Batch, Source
from seqwright.core.progress import SILENT, Progress
from seqwright.core.state import State


@runtime_checkable
class Model(Protocol):
    """Every model, BERT and ViT too."""

    def __call__(self, batch: Batch) -> Tensor:
        """Logits aligned with batch.target: (B, T, V) for tokens."""
        ...

    def eval(self) -> Any:
        """Evaluation mode: no dropout."""
        ...


@runtime_checkable
class Autoregressive(Model, Protocol):
    """A model of the next id: n-gram, RNN, GPT, translator, mixture."""

    @property
    def context(self) -> int | None:
        """The longest input it can see at once; None where a state carries any length."""
        ...

    def start(self, source: Source, *, capacity: int) -> State:
        """The initial state. `capacity` bounds the ids, padding included, that a row will read."""
        ...

    def step(
        self, ids: Tensor, state: State, count: Tensor | None = None, *, all_positions: bool = False
    ) -> tuple[Tensor, State]:
        """Reads ids (B, T); log-probabilities (B, V), natural log, float32, after the last real id, or (B, T, V) after
        every real one (for speculation and inspection).

        `count` (B,) says how many ids of each row, at least one, are real where rows are right-padded. A chunk is a
        prefill: it equals its ids one at a time.
        """
        ...

    def score(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        """log p(target) (B, T) float32, 0 where IGNOREd; never needs a (B * T, V) array.

        With a state it continues from there and returns the state after, so that windows with carried state equal one
        long window; without one, rows start afresh and None comes back.
        """
        ...


class Head(Protocol):
    """Output head: hidden states to logits, loss and predictions."""

    def __call__(self, hidden: Tensor) -> Tensor:
        """Logits."""
        ...

    def loss(self, hidden: Tensor, target: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """(sum, count) of the loss over targets that are not IGNOREd: sums add up over batches and ranks."""
        ...

    def predict(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        """The most probable output: arg max, Viterbi path, labels, pixels; `real` masks the positions of a row where
        they are decoded jointly."""
        ...


class Trainable(Model, Protocol):
    """A model trained by gradient descent: hidden states, then a head, so that the loss decides how logits are made."""

    head: Head

    def hidden(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        """Hidden states aligned with batch.target, and the state after where one was given."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]: ...


@runtime_checkable
class Counted(Model, Protocol):
    """A model estimated without gradients: n-gram, bag of n-grams, perceptron."""

    @property
    def notes(self) -> Sequence[str]:
        """What a user should know of the last fit."""
        ...

    @property
    def facts(self) -> Mapping[str, Any]:
        """Numbers of the last fit for the summary."""
        ...

    def fit(self, corpus: Any, progress: Progress = SILENT) -> None:
        """Estimates the model from the examples of its task's data module."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """All its tensors by name: the content of model.safetensors."""
        ...

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> Any:
        """Becomes the model these tensors came from."""
        ...


class Fitting(Protocol):
    """The fit of a counted model, step by step; it can be saved after any step and resumed exactly."""

    step: int
    steps: int
    words_per_second: float

    def advance(self, steps: int) -> None:
        """Takes the next steps: so many, or fewer."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """All that the steps so far have changed."""
        ...

    def load_state_dict(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        """Becomes the fit that these tensors came from, after so many steps."""
        ...

    def shortened(self, steps: int) -> Any:
        """The model's options for a fit of at most about so many steps."""
        ...


@runtime_checkable
class FitOptions(Protocol):
    """Options of a model that is fitted in steps."""

    def no_longer_than(self, other: Any) -> Any:
        """These options with a fit of at most the length of another of the same class."""
        ...


@runtime_checkable
class FitsInSteps(Counted, Protocol):
    """A counted model whose fit takes minutes, and many steps: a perceptron."""

    def fitting(self, corpus: Any) -> Any:
        """A `Fitting` of this corpus before its first step."""
        ...

    def adopt(self, fitting: Any) -> None:
        """Takes the weights of a `Fitting`, finished or not."""
        ...


@runtime_checkable
class EncodesSource(Protocol):
    """A model with an encoder: language models, translators, classifiers, taggers, BERT."""

    @property
    def context(self) -> int | None: ...

    def encode(self, source: Source) -> Tensor:
        """(B, S, D): the encoder's hidden state at each position of a source of ids."""
        ...


@runtime_checkable
class AttendsSource(Protocol):
    """A model with attention over its source: translators, captioners, mixtures of them."""

    @property
    def source_attention(self) -> Sequence[nn.Module]:
        """The modules that attend to the source, none in a bottleneck: each recomputes its `weights` from the arguments
        it was called with."""
        ...


@runtime_checkable
class MasksDocuments(Protocol):
    """A language model that can keep attention inside the documents of a packed row."""

    @property
    def masks_documents(self) -> bool:
        """Whether its encoder takes `batch.documents`."""
        ...


@runtime_checkable
class CarriesState(Protocol):
    """A language model that can be trained on contiguous segments."""

    def check_carried(self, length: int) -> None:
        """Refuses segments of `length` tokens that its state cannot be carried between."""
        ...

    def start_carried(self, rows: int, length: int) -> State:
        """The state that training carries from one segment of `length` tokens to the next, before the first."""
        ...


@runtime_checkable
class ModelsSource(Protocol):
    """A classifier whose encoder can also be trained as a language model of its source (Radford et al. 2018)."""

    @property
    def models_source(self) -> bool:
        """Whether its encoder is causal and as wide as the embedding, which is the read-out."""
        ...

    def hidden_and_lm_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Hidden states for the head, and the sum over rows of the mean nll of a row's tokens: a sum over rows, so that
        it adds up over batches."""
        ...


@runtime_checkable
class HasActivations(Protocol):
    """A recurrent language model whose activations can be regularized (Merity et al. 2018)."""

    @property
    def has_activations(self) -> bool:
        """Whether its encoder is recurrent."""
        ...

    def hidden_and_activations(self, batch: Batch, state: State | None = None) -> tuple[Tensor, Tensor, State | None]:
        """Hidden states for the head, those of the last layer before dropout, and the state after where one was
        given."""
        ...


@runtime_checkable
class TagsWords(Protocol):
    """A model of a tag for each word."""

    def tag(self, source: Source) -> tuple[Tensor, Tensor | None]:
        """(B, W) tags and their probabilities, None where it has none; entries behind a row's words are undefined."""
        ...


@runtime_checkable
class Ensemble(Protocol):
    """A model of several: mixtures and products."""

    models: list[Any]


@runtime_checkable
class ExplainsBackOff(Protocol):
    """An n-gram model that says how a probability came about."""

    def trace(self, context: Sequence[int], id: int) -> Sequence[Any]:
        """The back-off steps from the longest context to the order that had the n-gram."""
        ...


@runtime_checkable
class WritesARPA(Protocol):
    """A static n-gram model, which an ARPA file can hold."""

    @property
    def facts(self) -> Mapping[str, Any]: ...

    def write_arpa(self, path: Path, tokens: Sequence[str]) -> None:
        """Writes the n-grams; `tokens` are the names of the ids."""
        ...


@runtime_checkable
class Adapts(Protocol):
    """A model that may learn from the text it scores (dynamic evaluation): its scores are reported apart."""

    @property
    def adaptive(self) -> bool: ...


class Feed(Protocol):
    """Training data in order. The order is a function of (seed, step): any step can be asked for at any time."""

    steps_per_epoch: int
    """Batches in which every example is visited exactly once; batches are disjoint, the last may have fewer rows."""
    carried: bool
    """Row b of a batch continues row b of the batch before (until the epoch ends): its state is carried along."""

    def batch(self, step: int) -> Batch:
        """The batch of step 0, 1, 2, … on the CPU."""
        ...


class CountedModel:
    """A base of counted models: the interface of an nn.Module that has no parameters, no device and no modes."""

    context: int | None = None
    notes: Sequence[str] = ()

    @property
    def facts(self) -> Mapping[str, Any]:
        return {}

    def to(self, target: torch.device | str | torch.dtype) -> CountedModel:
        return self

    def eval(self) -> CountedModel:
        return self

    def train(self, mode: bool = True) -> CountedModel:
        return self
