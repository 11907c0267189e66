"""Tiny Shakespeare on a CPU: our recipe against nanoGPT's CPU settings in plain PyTorch, in the same run.

nanoGPT's README (Karpathy 2022) trains 4 layers of width 128, context 64, batch 12, for 2,000 steps on a CPU. The peer
below is that model, optimizer and schedule written with torch.nn alone. Both are scored by nanoGPT's measure: the mean
over 200 random batches of 12 windows of the last tenth of the text.

    SEQWRIGHT_DATA=... python benchmarks/shakespeare_cpu.py [--steps 2000]
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwright import api
from seqwright.data.text.corpus import documents_of, read_corpus
from seqwright.pipeline import recipe
from seqwright.pipeline import training as session

CONTEXT, WIDTH, HEADS, LAYERS, BATCH, RATE = 64, 128, 4, 4, 12, 1e-3


class PlainBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH, bias=False), nn.LayerNorm(WIDTH, bias=False)
        self.mix = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.inner = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        rows, steps, _ = x.shape
        query, key, value = (
            part.view(rows, steps, HEADS, -1).transpose(1, 2) for part in self.mix(self.first(x)).split(WIDTH, 2)
        )
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(rows, steps, WIDTH))
        return x + self.inner(self.second(x))


class PlainGPT(nn.Module):
    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(PlainBlock() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                last = name.endswith(("out.weight", "inner.2.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * LAYERS) if last else 0.02)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.size(1)))
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)


def windows(ids: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    places = torch.randint(len(ids) - CONTEXT, (BATCH,), generator=generator).tolist()
    both = torch.stack([ids[p : p + CONTEXT + 1] for p in places])
    return both[:, :-1].contiguous(), both[:, 1:].contiguous()


def plain(text: str, steps: int) -> tuple[float, float]:
    """Seconds of training and nll of the peer."""
    alphabet = sorted(set(text))
    ids = torch.tensor([alphabet.index(character) for character in text])
    cut = int(len(ids) * 0.9)
    train, valid = ids[:cut], ids[cut:]
    torch.manual_seed(1337)
    model = PlainGPT(len(alphabet))
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.99))
    generator = torch.Generator().manual_seed(1337)
    begun = time.perf_counter()
    for step in range(steps):
        fall = 0.1 + 0.9 * (1 + math.cos(math.pi * (step - 100) / max(1, steps - 100))) / 2
        for group in optimizer.param_groups:
            group["lr"] = RATE * (step / 100 if step < 100 else fall)
        input, target = windows(train, generator)
        loss = F.cross_entropy(model(input).flatten(0, 1), target.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    seconds = time.perf_counter() - begun
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        losses = []
        for _ in range(200):
            input, target = windows(valid, generator)
            losses.append(F.cross_entropy(model(input).flatten(0, 1), target.flatten()).item())
    return seconds, sum(losses) / len(losses)


def ours(overrides: list[str]) -> tuple[float, float, float]:
    """Seconds of training, nll over random windows, and nll over the whole text."""
    with tempfile.TemporaryDirectory() as folder:
        outcome = session.train(recipe.load("shakespeare-cpu", overrides), Path(folder) / "run")
        assert outcome.summary is not None
        return outcome.summary["seconds"], outcome.summary["random_windows_nll"], outcome.summary["nll"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2000, help="of the peer")
    parser.add_argument("--set", action="append", default=[], help="override a key of our recipe")
    arguments = parser.parse_args()
    corpus = read_corpus(api.load("shakespeare-cpu").data.train, "file", errors="strict")
    text = documents_of(corpus.documents[0], "file")[0]
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    our_seconds, our_nll, whole = ours(arguments.set)
    measure = "200 random batches, seed 1"
    print(f"seqwright shakespeare-cpu: {our_seconds:6.1f} s  nll {our_nll:.4f} ({measure}), whole text {whole:.4f}")
    peer_seconds, peer_nll = plain(text, arguments.steps)
    print(f"nanoGPT's CPU settings:    {peer_seconds:6.1f} s  nll {peer_nll:.4f} ({measure})")
    print(f"ratio: {our_seconds / peer_seconds:.2f} of the peer's time, {our_nll - peer_nll:+.4f} nats")


if __name__ == "__main__":
    main()
