"""How fast classifiers read: batches of like length against a plain PyTorch loop, the same model in the same run.

python benchmarks/classify_speed.py [--kind transformer] [--texts 1024] [--device cuda]

The peer is what one writes with torch.utils.data: shuffled rows of a fixed number, each batch padded to its longest
text, AdamW, and one pass in the given order to predict. Both sides train the same fresh weights with the same number of
texts a step, and count real tokens only, over CPU seconds (seconds on a GPU). Lengths are drawn as those of film
reviews are spread (log-normal, cut at --longest).
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from seqwright import build
from seqwright.batch import Answers, Batch, ReaderSizes, Source, Vocabulary
from seqwright.data.labels import LabelledTexts, Labels
from seqwright.data.lengths import ByLength
from seqwright.data.sources import Sources
from seqwright.tasks.class_scores import answers
from seqwright.training.config import TrainingConfig
from seqwright.training.trainer import Trainer

VOCABULARY, CLASSES = 20_000, 2
SIZES = {
    "transformer": {"layers": 2, "width": 128, "heads": 4, "dropout": 0.1},
    "lstm": {"width": 128, "embedding": 128},
    "cnn": {},
}


def texts(count: int, longest: int) -> LabelledTexts:
    """Made-up reviews: half of up to 175 tokens, a tenth of more than 400."""
    drawn = np.random.default_rng(1)
    lengths = np.clip(drawn.lognormal(np.log(175), 0.65, count), 10, longest).astype(np.int64)
    sources = Sources(
        ids=drawn.integers(4, VOCABULARY, lengths.sum()),
        segments=None,
        starts=np.cumsum(lengths) - lengths,
        lengths=lengths,
        origin=np.arange(count),
        cut=0,
        lost=np.zeros(count, np.int64),
        pad=0,
    )
    return LabelledTexts(sources=sources, targets=drawn.integers(0, CLASSES, count))


def plain_batches(examples: LabelledTexts, rows: int, device: torch.device, *, shuffle: bool) -> Iterator[Batch]:
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


def plain_training(model: nn.Module, examples: LabelledTexts, rows: int, device: torch.device) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    model.train()
    for batch in plain_batches(examples, rows, device, shuffle=True):
        nn.functional.cross_entropy(model(batch), batch.target).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


@torch.inference_mode()
def plain_prediction(model: nn.Module, examples: LabelledTexts, rows: int, device: torch.device) -> Tensor:
    model.eval()
    return torch.cat([model(batch).cpu() for batch in plain_batches(examples, rows, device, shuffle=False)])


class Nothing:
    """A keeper that keeps nothing."""

    def log(self, record: object) -> None: ...
    def save(self, *what: object) -> None: ...
    def load(self, step: int) -> None: ...
    def rewind(self, step: int) -> None: ...


def our_training(model: nn.Module, examples: LabelledTexts, rows: int, device: torch.device) -> None:
    feed = ByLength(examples, seed=1, batch=rows)
    config = TrainingConfig(
        epochs=1, batch=rows, rate=1e-4, device=device.type, evaluate_every=0, checkpoint_every=0, log_every=10_000
    )
    Trainer(model, feed, config, Nothing()).fit()  # type: ignore[arg-type]


def seconds(way: Callable[[nn.Module], object], model: nn.Module, device: torch.device) -> float:
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
    parser.add_argument("--kind", choices=SIZES, default="transformer")
    parser.add_argument("--texts", type=int, default=1024)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--longest", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    given = parser.parse_args()
    device, examples = torch.device(given.device), texts(given.texts, given.longest)
    torch.manual_seed(1)
    sizes = ReaderSizes(answers=Answers(kind="class", count=CLASSES), vocabulary=Vocabulary(size=VOCABULARY))
    config = build.model_config({"kind": given.kind} | SIZES[given.kind], task="labelled")
    model = build.model(config, sizes, task="labelled").to(device)
    labels = Labels(kind="one", names=("0", "1"))
    ways: dict[str, tuple[Callable[[nn.Module], object], Callable[[nn.Module], object]]] = {
        "training": (
            lambda model: plain_training(model, examples, given.rows, device),
            lambda model: our_training(model, examples, given.rows, device),
        ),
        "prediction": (
            lambda model: plain_prediction(model, examples, given.rows, device),
            lambda model: answers(model, examples.sources, labels, device),
        ),
    }
    tokens = int(examples.lengths.sum())
    for name, (plain, ours) in ways.items():
        # In turn, so that whatever else the machine does meets both; the first round warms up.
        rounds = [[seconds(way, model, device) for way in (plain, ours)] for _ in range(given.repeats + 1)]
        peer, own = (tokens / min(spent[side] for spent in rounds[1:]) for side in (0, 1))
        said = f"plain {peer:,.0f}, ours {own:,.0f} real tokens/s, {own / peer:.2f}×"
        print(f"{given.kind} {name} on {given.device}: {said}", flush=True)


if __name__ == "__main__":
    main()
