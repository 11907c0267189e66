"""A trained run, opened: settings, tokenizer and weights together. What it can do is said by its task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqwright.core.batch import Batch, Source
from seqwright.core.config import UserError
from seqwright.core.protocols import EncodesSource
from seqwright.core.storage import load_tensors
from seqwright.runs.directory import RunDirectory
from seqwright.runs.embedding import Embedded, Pooled, embed
from seqwright.training import machine
from seqwright.training.weights import load_weights

VERBS = (
    *("generate", "translate", "classify", "tag", "caption", "chat", "fill", "score", "evaluate", "label_errors"),
    "search_audit",
)
"""Everything that some run can do; a run asked for what it cannot do names what it can."""
SAYING = {"generate", "translate", "caption", "chat"}
"""Verbs that say something id by id, where half precision saves what counts: reading all weights for every id."""


class UnsupportedVerb(UserError, AttributeError):
    """A run was asked for what its models do not do."""


class Run(ABC):
    """What a run directory holds, ready to use. `seqwright.open` picks the class that fits the run's task."""

    does: str
    """What its models do, in words."""
    verbs: tuple[str, ...]
    """Which of VERBS it answers."""

    @staticmethod
    @abstractmethod
    def sizes(directory: RunDirectory) -> Any:
        """What the run's model was built for, read from its folder."""

    def __init__(
        self, directory: RunDirectory, settings: Any, model: Any, *, device: str = "auto", precision: str = "fp32"
    ):
        self.directory, self.settings, self.model, self.precision = directory, settings, model, precision
        self.device = torch.device("cpu")
        tensors, about = load_tensors(directory.model_path)
        refuse_non_finite(directory.model_path, tensors, counted=not isinstance(model, torch.nn.Module))
        if "tokenizer" in about or directory.tokenizer_path.exists():  # pictures need none
            self.tokenizer = directory.tokenizer
            if about.get("tokenizer", self.tokenizer.hash) != self.tokenizer.hash:
                raise UserError(
                    f"{directory.tokenizer_path} does not fit the weights beside it: they were trained with tokenizer"
                    f" {about['tokenizer']}, and this one is {self.tokenizer.hash}. Put the old one back."
                )
        if isinstance(model, torch.nn.Module):
            load_weights(model, tensors)
            model.eval()
        else:
            load_counted(model, tensors, directory.model_path)
        chosen = machine.device(device)
        if hasattr(model, "to"):  # counted models have nothing to gain from a device
            self.device = chosen
            model.to(self.device)
        if precision != "fp32":
            if not (hasattr(model, "to") and SAYING & {*self.verbs}):
                raise UserError(
                    f"half precision is for networks that say something id by id; leave {directory.path} in fp32."
                )
            model.to(machine.DTYPES[precision])

    def signed(self, scores: dict[str, Any]) -> dict[str, Any]:
        """These scores, their signatures saying the precision where it is not that of training's scores."""
        if self.precision != "fp32":
            for score in scores["scores"].values():
                score["signature"] += f"|precision:{self.precision}"
        return scores

    def source(self, rows: int, length: int) -> Source:
        """A made-up source for each of so many rows, as this run's models are given: nothing, unless it reads one."""
        return Source.empty(rows)

    def example(self, rows: int, length: int) -> Batch:
        """Made-up rows of ids that the tokenizer can produce, the same every time."""
        vocabulary = self.tokenizer.vocabulary
        reserved = set(self.tokenizer.special_tokens.values())
        ids = np.array([id for id in range(vocabulary.size) if id not in reserved])
        drawn = np.random.default_rng(1).choice(ids, (rows, length + 1))
        if vocabulary.sos is not None:
            drawn[:, 0] = vocabulary.sos
        said = torch.from_numpy(drawn)
        return Batch(source=self.source(rows, length), input=said[:, :-1].contiguous(), target=said[:, 1:].contiguous())

    def framed(self, text: str) -> list[int]:
        """A text as its encoder reads it."""
        ids = (self.tokenizer.sos, *self.tokenizer.encode(text), self.tokenizer.eos)
        return [id for id in ids if id is not None]

    def embed(self, texts: Iterable[str], *, pooling: Pooled = "mean", **options: Any) -> Iterator[Embedded]:
        """One vector for each text, in order."""
        if not isinstance(self.model, EncodesSource):
            raise self._refused()
        return embed(self.model, texts, self.framed, pooling=pooling, device=self.device, **options)

    @property
    def path(self) -> Path:
        return self.directory.path

    def __getattr__(self, name: str) -> Any:
        if name in VERBS:
            raise self._refused()
        raise AttributeError(f"{type(self).__name__} has no attribute '{name}'")

    def _refused(self) -> UnsupportedVerb:
        instead = " or ".join(f"`seqwright {verb.replace('_', '-')}`" for verb in self.verbs)
        return UnsupportedVerb(f"{self.path} holds a '{self.settings.kind}' model, which {self.does}; try {instead}.")


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


def refuse_unfinished(directory: RunDirectory) -> None:
    """Raises where a run has no weights to open yet."""
    if not directory.model_path.exists():
        steps = directory.checkpoints.steps()
        reached = f"is at step {steps[-1]:,}" if steps else "has no checkpoint yet"
        raise UserError(
            f"{directory.path} is not finished: it {reached}. "
            f"Go on with `seqwright train --run {directory.path}`, then try again."
        )
