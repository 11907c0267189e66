"""Training speed on Multi30k, one CPU thread: ours beside JoeyNMT's, same model, same ids, in one run.

    SEQWRIGHT_DATA=… python benchmarks/translation_cpu.py [--steps 12]

JoeyNMT (`pip install joeynmt importlib_metadata`) is measured twice: on batches of random pairs under the same budget
of tokens, as its own sampler draws them, and on our buckets, which hold less padding. Both take target tokens
(padding not counted) over CPU seconds of forward, backward and update.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from seqwright import build
from seqwright.core.batch import IGNORE, Batch
from seqwright.data.order import permutation
from seqwright.data.parallel.buckets import Buckets, EncodedPairs, Tokenizers, encode_pairs
from seqwright.data.parallel.pairs import PairsConfig, read_pairs
from seqwright.data.parallel.sides import Sides
from seqwright.decoding.degeneration import TargetStatistics
from seqwright.tasks.translation.codec import TranslationCodec
from seqwright.text.trainers import TokenizerConfig, train
from seqwright.training.objective import Objective

LAYERS, WIDTH, HEADS, INNER, DROPOUT, SMOOTHING = 4, 128, 4, 256, 0.3, 0.1
TOKENS, SIZE = 2048, 10_000
Step = Callable[[Batch], None]


def data() -> EncodedPairs:
    files = ["multi30k/train.en.xz", "multi30k/train.de.xz"]
    pairs = read_pairs(files, PairsConfig(train=tuple(files))).pairs
    texts = [text for pair in pairs for text in (*pair.sources, *pair.targets)]
    tokenizer = train(TokenizerConfig(size=SIZE, lowercase=True), texts)
    return encode_pairs(pairs, Tokenizers(source=tokenizer, target=tokenizer))


def ours(pairs: EncodedPairs, precision: str) -> Step:
    table = {
        "kind": "transformer",
        "layers": LAYERS,
        "width": WIDTH,
        "heads": HEADS,
        "ffn_width": INNER,
        "dropout": DROPOUT,
    }
    codec = TranslationCodec(tokenizers=pairs.tokenizers, typical=TargetStatistics(), sides=Sides())
    model = build.model(build.model_config(table, task="pairs"), codec.sizes, task="pairs")
    objective = Objective(model, smoothing=SMOOTHING).train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step(batch: Batch) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            total, count, _ = objective(batch)
        (total / count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def joeynmt(pairs: EncodedPairs) -> Step:
    from joeynmt.batch import Batch as JoeyBatch
    from joeynmt.model import build_model

    tokenizer = pairs.tokenizers.target
    side = {
        "type": "transformer", "num_layers": LAYERS, "num_heads": HEADS, "hidden_size": WIDTH, "ff_size": INNER,
        "dropout": DROPOUT, "layer_norm": "pre",
        "embeddings": {"embedding_dim": WIDTH, "scale": True, "dropout": 0.0},
    }  # fmt: skip
    config = {"encoder": side, "decoder": dict(side), "tied_embeddings": True, "tied_softmax": True}

    class Vocabulary(SimpleNamespace):
        def __len__(self) -> int:
            return tokenizer.size

    names = Vocabulary(
        pad_index=tokenizer.pad, bos_index=tokenizer.sos, eos_index=tokenizer.eos, unk_index=tokenizer.unk,
        sep_index=None, special_tokens=[], lang_tags=[],
    )  # fmt: skip
    model: Any = build_model(config, names, names).train()
    model.loss_function = ("crossentropy", SMOOTHING)
    optimizer = torch.optim.Adam(model.parameters())

    def step(batch: Batch) -> None:
        assert batch.source.ids is not None
        last = torch.where(batch.target == IGNORE, tokenizer.pad, batch.target)
        given = JoeyBatch(
            src=batch.source.ids, src_length=batch.source.mask.sum(1), src_prompt_mask=None,
            trg=torch.cat([batch.input[:, :1], last], 1), trg_prompt_mask=None, indices=torch.arange(batch.rows),
            device=torch.device("cpu"), pad_index=tokenizer.pad, eos_index=tokenizer.eos,
        )  # fmt: skip
        loss, *_ = model(return_type="loss", **vars(given))
        (loss / given.ntokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def random_batches(pairs: EncodedPairs) -> Iterator[Batch]:
    """Pairs in random order, as many as fit the budget with the longest of them."""
    lengths = np.maximum(pairs.source.lengths, pairs.target.lengths)
    rows: list[int] = []
    for n in permutation(0, 0, len(pairs)).tolist():
        if rows and (len(rows) + 1) * max(lengths[[*rows, n]]) > TOKENS:
            yield pairs.batch(np.array(rows))
            rows = []
        rows.append(n)


def measured(name: str, step: Step, batches: Iterator[Batch], steps: int) -> float:
    """Target tokens a CPU second."""
    for _ in range(2):
        step(next(batches))
    chosen = [next(batches) for _ in range(steps)]
    begun = time.process_time()
    for batch in chosen:
        step(batch)
    rate = sum(batch.count for batch in chosen) / (time.process_time() - begun)
    print(f"{name:40} {rate:8,.0f} target tokens a CPU second", flush=True)
    return rate


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    torch.manual_seed(1)
    pairs = data()
    feed = Buckets(pairs, seed=1, tokens=TOKENS, batch=1, max_length=256)

    def bucketed() -> Iterator[Batch]:
        return map(feed.batch, range(feed.steps_per_epoch))

    mine = measured("seqwright, fp32", ours(pairs, "fp32"), bucketed(), steps)
    measured("seqwright, bf16", ours(pairs, "bf16"), bucketed(), steps)
    try:
        peer = joeynmt(pairs)
    except ImportError as error:
        print(f"JoeyNMT is not installed ({error}): no ratio.")
        return
    theirs = measured("JoeyNMT, random batches (its sampler)", peer, random_batches(pairs), steps)
    same = measured("JoeyNMT, our batches", peer, bucketed(), steps)
    print(f"ratio {mine / theirs:.2f} (its own batches), {mine / same:.2f} (the same batches); both fp32")


if __name__ == "__main__":
    main()
