"""How fast classifiers read: batches of like length against a plain PyTorch loop, the same model in the same run.

python benchmarks/classify_speed.py [--kind transformer] [--texts 1024] [--device cuda]

The peer is what one writes with torch.utils.data: shuffled rows of a fixed number, each batch padded to its longest
text, AdamW, and one pass in the given order to predict. Around a recurrent network there are two such loops: one packs
the rows; the other, as most do, lets the network read the padding too and takes no answer from there, which is right
for `lstm-forward`, but not where one direction begins in the padding. How far each peer's probabilities are from ours
is printed beside its rate. All train the same fresh weights with the same number of texts a step, and count real tokens
only, over CPU seconds (seconds on a GPU). Lengths are drawn as those of film reviews are spread (log-normal, cut at
--longest).
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.data import DataLoader

from seqwright import build
from seqwright.core.batch import Batch, EncoderSizes, OutputSpec, Source, Vocabulary
from seqwright.data.bucketing import ByLength
from seqwright.data.labeled.labels import LabeledTexts, Labels
from seqwright.data.labeled.sources import Sources
from seqwright.layers.encoder import EncoderOutput
from seqwright.tasks.classification.predictor import predict
from seqwright.training.config import TrainingConfig
from seqwright.training.trainer import Trainer

VOCABULARY, CLASSES = 20_000, 2
MODELS = {
    "transformer": {"kind": "transformer", "layers": 2, "width": 128, "heads": 4, "dropout": 0.1},
    "transformer-6x512": {"kind": "transformer", "layers": 6, "width": 512, "heads": 8, "dropout": 0.1},
    "lstm": {"kind": "lstm", "width": 128, "embedding": 128},
    "lstm-forward": {"kind": "lstm", "width": 128, "embedding": 128, "bidirectional": False},
    "cnn": {"kind": "cnn"},
}

Way = Callable[[nn.Module], object]


def texts(count: int, longest: int) -> LabeledTexts:
    """Made-up reviews: half of up to 175 tokens, a tenth of more than 400."""
    drawn = np.random.default_rng(1)
    lengths = np.clip(drawn.lognormal(np.log(175), 0.65, count), 10, longest).astype(np.int64)
    sources = Sources(
        ids=drawn.integers(4, VOCABULARY, lengths.sum()),
        segments=None,
        words=None,
        starts=np.cumsum(lengths) - lengths,
        lengths=lengths,
        origin=np.arange(count),
        truncated=0,
        lost=np.zeros(count, np.int64),
        pad=0,
    )
    return LabeledTexts(sources=sources, targets=drawn.integers(0, CLASSES, count))


class PlainReader(nn.Module):
    """What one writes around a network of torch.nn. The largest of each feature, which the model pools, needs no state
    in which a row ended."""

    def __init__(self, reader: nn.Module, *, packs: bool):
        super().__init__()
        self.network, self.dropout, self.packs = reader.network, reader.dropout, packs

    def forward(self, x: Tensor, mask: Tensor) -> EncoderOutput:
        x = self.dropout(x)
        if not self.packs:
            return EncoderOutput(self.dropout(self.network(x)[0]), mask)
        packed = pack_padded_sequence(x, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        vectors, _ = pad_packed_sequence(self.network(packed)[0], batch_first=True, total_length=x.size(1))
        return EncoderOutput(self.dropout(vectors), mask)


def plain_models(model: nn.Module) -> dict[str, nn.Module]:
    """The model as plain loops have it, by the name of what they do about padding."""
    if not hasattr(model.encoder, "network"):
        return {"plain": model}
    plain = {"plain packed": copy.deepcopy(model), "plain padded": copy.deepcopy(model)}
    for name, own in plain.items():
        own.encoder = PlainReader(own.encoder, packs=name == "plain packed")
    return plain


def plain_batches(examples: LabeledTexts, rows: int, device: torch.device, *, shuffle: bool) -> Iterator[Batch]:
    """What DataLoader gives: rows as they come, padded to the longest."""
    sources = examples.sources
    whole = torch.from_numpy(sources.ids)
    parts = [
        (whole[s : s + n], int(t)) for s, n, t in zip(sources.starts, sources.lengths, examples.targets, strict=True)
    ]

    def collate(some: list[tuple[Tensor, int]]) -> Batch:
        ids = nn.utils.rnn.pad_sequence([ids for ids, _ in some], batch_first=True)
        lengths = torch.tensor([len(ids) for ids, _ in some])
        mask = torch.arange(ids.size(1)) < lengths.unsqueeze(1)
        return Batch.of_source(Source(mask=mask, ids=ids), torch.tensor([target for _, target in some]))

    loader: DataLoader[tuple[Tensor, int]] = DataLoader(parts, rows, shuffle=shuffle, collate_fn=collate)  # type: ignore[arg-type]
    return (batch.to(device) for batch in loader)


def plain_training(model: nn.Module, examples: LabeledTexts, rows: int, device: torch.device) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    model.train()
    for batch in plain_batches(examples, rows, device, shuffle=True):
        nn.functional.cross_entropy(model(batch), batch.target).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


@torch.inference_mode()
def plain_prediction(model: nn.Module, examples: LabeledTexts, rows: int, device: torch.device) -> Tensor:
    model.eval()
    return torch.cat([model(batch).cpu() for batch in plain_batches(examples, rows, device, shuffle=False)])


class Nothing:
    """A store that keeps nothing."""

    def log(self, record: object) -> None: ...
    def save(self, *what: object) -> None: ...
    def load(self, step: int) -> None: ...
    def rewind(self, step: int) -> None: ...


def our_training(model: nn.Module, examples: LabeledTexts, rows: int, device: torch.device) -> None:
    feed = ByLength(examples, seed=1, batch=rows)
    config = TrainingConfig(
        epochs=1,
        batch_size=rows,
        learning_rate=1e-4,
        device=device.type,
        evaluate_every=0,
        checkpoint_every=0,
        log_every=10_000,
    )
    Trainer(model, feed, config, Nothing()).fit()  # type: ignore[arg-type]


def seconds(way: Way, model: nn.Module, device: torch.device) -> float:
    """What a copy of the model takes; seconds of this process alone where it computes by itself."""
    own = copy.deepcopy(model)
    if device.type == "cpu":
        begun = time.process_time()
        way(own)
        return time.process_time() - begun
    torch.cuda.synchronize()
    begun = time.perf_counter()
    way(own)
    torch.cuda.synchronize()
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=MODELS, default="transformer")
    parser.add_argument("--texts", type=int, default=1024)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--longest", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    given = parser.parse_args()
    device, examples = torch.device(given.device), texts(given.texts, given.longest)
    torch.manual_seed(1)
    sizes = EncoderSizes(answers=OutputSpec(kind="class", count=CLASSES), vocabulary=Vocabulary(size=VOCABULARY))
    config = build.model_config(dict(MODELS[given.kind]), task="labeled")
    model = build.model(config, sizes, task="labeled").to(device)
    labels = Labels(kind="single", names=("0", "1"))
    models = plain_models(model) | {"ours": model}
    likely = {"ours": torch.from_numpy(predict(model, examples.sources, labels, device=device))}
    for name in models.keys() - {"ours"}:
        likely[name] = plain_prediction(models[name], examples, given.rows, device).double().softmax(-1)
    training: dict[str, Way] = {
        name: lambda own: plain_training(own, examples, given.rows, device) for name in models
    } | {"ours": lambda own: our_training(own, examples, given.rows, device)}
    prediction: dict[str, Way] = {
        name: lambda own: plain_prediction(own, examples, given.rows, device) for name in models
    } | {"ours": lambda own: predict(own, examples.sources, labels, device=device)}
    tokens = int(examples.lengths.sum())
    for work, ways in {"training": training, "prediction": prediction}.items():
        # In turn, so that whatever else the machine does meets all of them; the first round warms up.
        rounds = [
            {name: seconds(way, models[name], device) for name, way in ways.items()} for _ in range(given.repeats + 1)
        ]
        rates = {name: tokens / min(spent[name] for spent in rounds[1:]) for name in ways}
        print(f"{given.kind} {work} on {given.device}: ours {rates['ours']:,.0f} real tokens/s", flush=True)
        for name in models.keys() - {"ours"}:
            apart = (likely[name] - likely["ours"]).abs().max().item()
            ratio = rates["ours"] / rates[name]
            print(f"  {name} {rates[name]:,.0f}: {ratio:.2f}×; probabilities differ by at most {apart:.1g}", flush=True)


if __name__ == "__main__":
    main()
