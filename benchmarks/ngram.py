"""n-grams against KenLM: CPU seconds from text to an opened model, tokens a second, bytes on disk, peak memory.

KenLM's own programs are in no package, so their figures, measured once, stand below as constants; its Python module,
where installed, reads our ARPA file and scores the same text in the same run.

    SEQWRIGHT_DATA=... python benchmarks/ngram.py [--order 5] [--limit 128]
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from seqwright.core.batch import Batch, Vocabulary
from seqwright.core.storage import load_tensors, save_tensors
from seqwright.data.text.corpus import Corpus, read_corpus
from seqwright.data.text.stream import Stream, make_stream, to_batch
from seqwright.models.ngram.arpa_reading import read_arpa
from seqwright.models.ngram.arpa_writing import arpa_names, write_arpa
from seqwright.models.ngram.model import NGram, NGramConfig
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig, train

LMPLZ_SECONDS = 4.1  # WikiText-2, order 5, text to ARPA
QUERY_RATE = 4.5e6  # tokens a CPU second, from text
PROBING_MB, TRIE_MB = 121, 57  # WikiText-2, order 5


@contextmanager
def timed(what: str, seconds: dict[str, float]) -> Iterator[None]:
    start = time.process_time()
    yield
    seconds[what] = time.process_time() - start
    print(f"  {what:<38}{seconds[what]:8.2f} CPU s")


def whole(stream: Stream) -> Batch:
    positions = np.arange(stream.positions)[None]
    return to_batch(*stream.gather(positions, np.ones(positions.shape, bool)))


def build(text: Corpus, order: int, folder: Path) -> tuple[NGram, Tokenizer]:
    """Text to an opened model, as `seqwright train` does it."""
    seconds: dict[str, float] = {}
    print(f"text to an opened model, order {order}")
    with timed("vocabulary", seconds):
        tokenizer = train(TokenizerConfig(kind="words"), text.documents)
    with timed("ids", seconds):
        stream = make_stream(text, tokenizer)
    model = NGram(NGramConfig(order=order), tokenizer.vocabulary)
    with timed("count and estimate", seconds):
        model.fit(stream)
    with timed("write", seconds):
        save_tensors(folder / "model.safetensors", model.state_dict())
    with timed("open (mapped)", seconds):
        model.load_state_dict(load_tensors(folder / "model.safetensors")[0])
    total = sum(seconds.values())
    print(f"  {'in all':<38}{total:8.2f} CPU s, {total / LMPLZ_SECONDS:.2f} of lmplz's {LMPLZ_SECONDS}")
    compact = NGram(NGramConfig(order=order, compact=True), tokenizer.vocabulary)
    compact.tables = model.tables
    save_tensors(folder / "compact.safetensors", compact.state_dict())
    with timed("open (compact)", seconds):
        compact.load_state_dict(load_tensors(folder / "compact.safetensors")[0])
    for name, peer, kind in (("model", PROBING_MB, "probing"), ("compact", TRIE_MB, "trie")):
        size = (folder / f"{name}.safetensors").stat().st_size / 1e6
        print(f"  {name + '.safetensors':<38}{size:8.1f} MB, {size / peer:.2f} of KenLM's {kind} {peer}")
    names = arpa_names(tokenizer.tokens(range(tokenizer.vocabulary.size)), tokenizer.vocabulary)
    with timed("write ARPA", seconds):
        write_arpa(folder / "model.arpa", model.tables, names, tokenizer.vocabulary)
    with timed("read ARPA", seconds):
        read_arpa(folder / "model.arpa")
    return model, tokenizer


def score(model: NGram, tokenizer: Tokenizer, text: Corpus, folder: Path) -> None:
    """Tokens scored a CPU second, from ids and from text, and by KenLM's module."""
    print("scoring")
    stream = make_stream(text, tokenizer)
    batch = whole(stream)
    model.score(batch)  # the file's pages are in memory from here on
    seconds: dict[str, float] = {}
    with timed("from ids", seconds):
        scores, _ = model.score(batch)
    with timed("from text", seconds):
        model.score(whole(make_stream(text, tokenizer)))
    for size in (1 << 12, 1 << 14, 1 << 16):
        with timed(f"from ids, {size:,} at a time", seconds):
            for start in range(0, stream.positions, size):
                part = slice(start, start + size)
                model.score(Batch.of_text(batch.input[:, part], batch.target[:, part]))
    perplexity = math.exp(-scores.double().sum().item() / stream.targets)
    print(f"  perplexity {perplexity:.4f} over {stream.targets:,} tokens")
    for what, spent in seconds.items():
        rate = stream.targets / spent
        print(f"  {what:<38}{rate / 1e6:8.2f} M tokens a CPU s, {rate / QUERY_RATE:.2f} of query's {QUERY_RATE / 1e6}")
    if importlib.util.find_spec("kenlm") is None:
        print("  the kenlm module is not installed: no peer in this run")
        return
    import kenlm

    with timed("KenLM reads our ARPA", seconds):
        peer = kenlm.Model(str(folder / "model.arpa"))
    lines = [line.replace("<unk>", "\\<unk>") for line in text.documents]
    with timed("from text, by KenLM's module", seconds):
        total = sum(peer.score(line) for line in lines)
    print(f"  KenLM's perplexity of ours {10 ** (-total / stream.targets):.4f}")
    faster = seconds["from text, by KenLM's module"] / seconds["from text"]
    print(f"  ours from text is {faster:.2f} times as fast")


def limited(text: Corpus, order: int, limit: int, folder: Path) -> None:
    """Peak memory of counting a larger text without a limit and with one, each in a process of its own."""
    stream = make_stream(text, train(TokenizerConfig(kind="words", min_frequency=2), text.documents))
    np.save(folder / "ids.npy", stream.ids)
    print(f"counting {len(stream.ids):,} ids, order {order}: memory beyond what the interpreter takes")
    for megabytes in (0, limit):
        command = [sys.executable, __file__, "--peak", str(folder / "ids.npy"), "--order", str(order)]
        subprocess.run([*command, "--limit", str(megabytes)], check=True)


def peak_resident() -> float:
    """MiB at most resident so far; getrusage would count what the parent of this process held."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def peak(path: Path, order: int, limit: int) -> None:
    ids = np.load(path, mmap_mode="r")
    vocabulary = Vocabulary(size=int(ids.max()) + 1, unk=0, pad=1, sos=2, eos=3)
    model = NGram(NGramConfig(order=order, memory=limit * 2**20 or None), vocabulary)
    before, start = peak_resident(), time.process_time()
    model.fit(SimpleNamespace(ids=ids))
    taken = peak_resident() - before
    spent = time.process_time() - start
    print(f"  limit {f'{limit} MiB' if limit else 'none':<12} peak {taken:8.0f} MiB {spent:8.1f} CPU s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--limit", type=int, default=128, help="MiB of memory for counting beyond memory")
    parser.add_argument("--peak", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        peak(options.peak, options.order, options.limit)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"importing torch and all: {time.process_time():.2f} CPU s")
        text, test = (
            read_corpus(f"wikitext2/wiki.{part}.tokens.xz", "line", errors="strict") for part in ("train", "test")
        )
        model, tokenizer = build(text, options.order, folder)
        score(model, tokenizer, test, folder)
        reviews = read_corpus(["imdb/train.tsv.xz", "imdb/test.tsv.xz"], "line", errors="strict")
        limited(reviews, options.order, options.limit, folder)


if __name__ == "__main__":
    main()
