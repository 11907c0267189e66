"""Workloads of `benchmarks/training.py`: a model of ours with its batches, and the peer's step for the same."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from peers import huggingface, nanogpt, plain
from peers.loop import Options, Step
from seqwright import build
from seqwright.core.batch import IGNORE, Batch, EncoderSizes, OutputSpec, Source, Vocabularies, Vocabulary
from seqwright.core.config import ConfigLoader, parse_override
from seqwright.core.protocols import Feed
from seqwright.data.text.bptt import BPTTRows
from seqwright.data.text.stream import Stream
from seqwright.data.text.windows import Windows
from seqwright.pipeline.budget import Discarded
from seqwright.training.config import TrainingConfig
from seqwright.training.trainer import Trainer

CYCLE = 8
"""Batches of padded examples, of as many lengths."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model with its batches, and the peer's step for the same."""

    name: str
    device: str
    """Where it is run by default."""
    task: str = "text"
    model: dict[str, Any]
    vocabulary: int
    rows: int
    length: int
    """Tokens per row; the largest where lengths vary."""
    weights: float
    """Weights of matrix products that a token passes."""
    attention: int = 0
    """layers · width, summed over attentions."""
    training: dict[str, Any] = field(default_factory=dict)
    peer: Callable[[Workload, Options], tuple[nn.Module, Step]]
    peer_name: str

    @property
    def sizes(self) -> Any:
        vocabulary = Vocabulary(size=self.vocabulary, unk=3, pad=0, sos=1, eos=2, mask=4)
        if self.task == "pairs":
            return Vocabularies(source=vocabulary, target=vocabulary, joint=True)
        if self.task == "text":
            return vocabulary
        answers = {"masked": OutputSpec(kind="tokens", count=self.vocabulary)}
        return EncoderSizes(
            answers=answers.get(self.task, OutputSpec(kind="class", count=2)),
            vocabulary=vocabulary,
            segments=2 if self.task == "masked" else 1,
        )

    @property
    def operations(self) -> float:
        """Floating-point operations of a step on a full batch."""
        return self.rows * self.length * (6 * self.weights + 12 * self.attention * self.length)


class Prepared:
    """A feed of batches that are already padded."""

    carried = False

    def __init__(self, batches: Sequence[Batch]):
        self.batches, self.steps_per_epoch = batches, len(batches)

    def batch(self, step: int) -> Batch:
        return self.batches[step % len(self.batches)]


def ids(workload: Workload) -> NDArray[np.uint16]:
    """A text of random ids: speed does not depend on them."""
    return np.random.default_rng(1).integers(5, workload.vocabulary, 2_000_000).astype(np.uint16)


def lengths(workload: Workload) -> list[int]:
    """Lengths of padded batches as buckets have them: from half to all of the longest, multiples of 8."""
    return [workload.length - 8 * (n * 5 % (workload.length // 16 + 1)) for n in range(CYCLE)]


def pairs(workload: Workload) -> list[Batch]:
    """Batches of translation: a fifth of the rows are up to 4 tokens shorter than their batch."""
    generator = torch.Generator().manual_seed(1)
    batches = []
    for length in lengths(workload):
        shape = workload.rows, length
        source, input = (torch.randint(5, workload.vocabulary, shape, generator=generator) for _ in range(2))
        real = torch.arange(length) < length - torch.arange(workload.rows).remainder(5).unsqueeze(1)
        target = input.roll(-1, 1).masked_fill(~real, IGNORE)
        batches.append(Batch(source=Source(mask=real, ids=source), input=input, target=target))
    return batches


def masked(workload: Workload) -> list[Batch]:
    """Batches of masked language modeling: 15 % of the tokens are targets."""
    generator = torch.Generator().manual_seed(1)
    batches = []
    for _ in range(CYCLE):
        shape = workload.rows, workload.length
        source = torch.randint(5, workload.vocabulary, shape, generator=generator)
        chosen = torch.rand(shape, generator=generator) < 0.15
        mask = torch.ones(shape, dtype=torch.bool)
        hidden = Source(mask=mask, ids=source.masked_fill(chosen, 4), segments=torch.zeros(shape, dtype=torch.long))
        batches.append(Batch.of_source(hidden, source.masked_fill(~chosen, IGNORE)))
    return batches


def labeled(workload: Workload) -> list[Batch]:
    """Batches of classification, with lengths as buckets have them."""
    generator = torch.Generator().manual_seed(1)
    batches = []
    for length in lengths(workload) if workload.model["kind"] != "mlp" else [workload.length] * CYCLE:
        source = torch.randint(5, workload.vocabulary, (workload.rows, length), generator=generator)
        real = torch.arange(length) < length - torch.arange(workload.rows).remainder(5).unsqueeze(1)
        classes = torch.randint(2, (workload.rows,), generator=generator)
        batches.append(Batch.of_source(Source(mask=real, ids=source), classes))
    return batches


PREPARED = {"pairs": pairs, "masked": masked, "labeled": labeled}


def tokens_per_step(workload: Workload) -> float:
    """Targets of language models and translators, else tokens of the text; without padding."""
    if workload.task == "text":
        return workload.rows * workload.length
    batches = PREPARED[workload.task](workload)
    return statistics.mean(b.count if workload.task == "pairs" else int(b.source.mask.sum()) for b in batches)


def feed(workload: Workload) -> Feed:
    """Our feed: that of the task for language models, padded batches for others."""
    if workload.task != "text":
        return Prepared(PREPARED[workload.task](workload))
    surfaces = np.ones((workload.vocabulary, 3), np.int64)
    stream = Stream(ids=ids(workload), sos=1, pad=0, documents=1, unknown=0, surfaces=surfaces)
    kind = Windows if workload.model["kind"] == "gpt" else BPTTRows
    return kind(stream, context=workload.length, batch=workload.rows, seed=1)


def ours(workload: Workload, options: Options, overrides: Sequence[str]) -> tuple[nn.Module, Step]:
    """Our model, and the step of the Trainer that `seqwright train` has."""
    torch.manual_seed(1)
    model = build.model(build.model_config(workload.model, task=workload.task), workload.sizes, task=workload.task)
    table = {"device": options.device.type, "precision": "bf16" if options.dtype == torch.bfloat16 else "fp32"}
    table |= {"steps": 100_000, "batch_size": workload.rows, "beta2": 0.95} | workload.training
    table |= {key.removeprefix("training."): value for key, value in map(parse_override, overrides)}
    loader = ConfigLoader("--set")
    config = loader.read(TrainingConfig, table, "training")
    loader.finish()
    assert config is not None
    return model, Trainer(model, feed(workload), config, Discarded()).timed_step


def nano_gpt(workload: Workload, options: Options) -> tuple[nn.Module, Step]:
    model = workload.model
    config = nanogpt.GPTConfig(
        layers=model["layers"],
        heads=model["heads"],
        width=model["width"],
        context=workload.length,
        vocabulary=workload.vocabulary,
        dropout=model.get("dropout", 0.0),
    )
    return nanogpt.step(config, ids(workload), workload.rows, options)


def gpt2(workload: Workload, options: Options) -> tuple[nn.Module, Step]:
    sizes = {key: workload.model[key] for key in ("layers", "width", "heads", "context")}
    windows = feed(workload)
    batches = [windows.batch(step) for step in range(CYCLE)]
    return huggingface.language_model(batches, vocabulary=workload.vocabulary, **sizes, options=options)


def plain_lstm(workload: Workload, options: Options) -> tuple[nn.Module, Step]:
    sizes = {key: workload.model[key] for key in ("width", "layers", "dropout")}
    shape = {"rows": workload.rows, "length": workload.length, "vocabulary": workload.vocabulary}
    return plain.lstm(ids(workload), **sizes, **shape, options=options)


def plain_classifier(workload: Workload, options: Options) -> tuple[nn.Module, Step]:
    batches = [(batch.source.ids, batch.source.mask, batch.target) for batch in labeled(workload)]
    model: nn.Module
    if workload.model["kind"] == "cnn":
        model = plain.CNN(workload.vocabulary, 128, 128, (3, 4, 5), 2)
    else:
        model = plain.MLP(workload.vocabulary, 128, workload.length, 256, 2)
    return plain.classifier(model, batches, options)  # type: ignore[arg-type]


def marian(workload: Workload, options: Options) -> tuple[nn.Module, Step]:
    sizes = {key: workload.model[key] for key in ("layers", "width", "heads", "ffn_width")}
    return huggingface.translator(pairs(workload), vocabulary=workload.vocabulary, **sizes, options=options)


def bert(workload: Workload, options: Options) -> tuple[nn.Module, Step]:
    sizes = {key: workload.model[key] for key in ("layers", "width", "heads", "context")}
    return huggingface.masked_lm(masked(workload), vocabulary=workload.vocabulary, **sizes, options=options)


def gpt(layers: int, width: int, heads: int, *, rows: int, length: int, vocabulary: int, **others: Any) -> Workload:
    """A GPT beside nanoGPT's, whose linear layers have no biases, or another peer's."""
    sizes = {"layers": layers, "width": width, "heads": heads, "context": length}
    return Workload(
        model={"kind": "gpt", **sizes, "bias": others.pop("bias", False), "dropout": others.pop("dropout", 0.0)},
        rows=rows,
        length=length,
        vocabulary=vocabulary,
        weights=12 * layers * width**2 + vocabulary * width,
        attention=layers * width,
        **{"peer": nano_gpt, "peer_name": "nanoGPT"} | others,
    )


def lstm(layers: int, width: int, *, rows: int, dropout: float, **others: Any) -> Workload:
    """An LSTM language model as of Zaremba et al. (2014): vocabulary 10,000, 35 steps of truncated BPTT."""
    return Workload(
        model={"kind": "lstm", "layers": layers, "width": width, "dropout": dropout},
        rows=rows,
        length=35,
        vocabulary=10_000,
        weights=8 * layers * width**2 + 10_000 * width,
        peer=plain_lstm,
        peer_name="plain nn.LSTM loop",
        **others,
    )


def classifier(name: str, weights: int, **model: Any) -> Workload:
    return Workload(
        name=name,
        device="cuda",
        task="labeled",
        model=model,
        vocabulary=20_000,
        rows=64,
        length=64,
        weights=weights,
        peer=plain_classifier,
        peer_name="plain loop",
    )


GPT2 = {"bias": True, "peer": gpt2, "peer_name": "transformers GPT2LMHeadModel"}
BASE = {"layers": 6, "width": 512, "heads": 8, "ffn_width": 2048}
WORKLOADS = [
    # nanoGPT's CPU recipe, the small LSTM of Zaremba et al. (2014).
    gpt(4, 128, 4, rows=12, length=64, vocabulary=65, name="gpt-4x128", device="cpu"),
    gpt(4, 256, 4, rows=16, length=128, vocabulary=2000, name="gpt-4x256", device="cpu"),
    lstm(2, 200, rows=20, dropout=0.0, name="lstm-2x200", device="cpu"),
    gpt(12, 768, 12, rows=32, length=1024, vocabulary=50304, name="gpt2-124m", device="cuda"),
    gpt(12, 768, 12, rows=32, length=1024, vocabulary=50304, name="gpt2-124m-biases", device="cuda", **GPT2),
    gpt(6, 384, 6, rows=64, length=256, vocabulary=65, dropout=0.2, name="gpt-6x384", device="cuda"),
    lstm(2, 1500, rows=20, dropout=0.65, name="lstm-2x1500-batch20", device="cuda"),
    lstm(2, 1500, rows=80, dropout=0.65, name="lstm-2x1500-batch80", device="cuda"),
    Workload(
        name="translator-base",
        device="cuda",
        task="pairs",
        model={"kind": "transformer", **BASE, "dropout": 0.1, "norm_position": "post", "activation": "relu"},
        vocabulary=32_000,
        rows=128,
        length=64,
        weights=6 * (4 + 8) * 512**2 + 12 * 2 * 512 * 2048 + 32_000 * 512,
        attention=3 * 6 * 512,
        training={"label_smoothing": 0.1},
        peer=marian,
        peer_name="transformers MarianMTModel",
    ),
    Workload(
        name="bert-base",
        device="cuda",
        task="masked",
        model={"kind": "bert", "layers": 12, "width": 768, "heads": 12, "context": 128},
        vocabulary=30_522,
        rows=256,
        length=128,
        weights=12 * 12 * 768**2 + 0.15 * (30_522 * 768 + 768**2),
        attention=12 * 768,
        peer=bert,
        peer_name="transformers BertForMaskedLM",
    ),
    classifier("cnn", 12 * 128 * 128, kind="cnn"),
    classifier("mlp", 128 * 256, kind="mlp", length=64),
]
