"""n-grams against KenLM: CPU seconds from text to an opened model, tokens a second, bytes on disk, peak memory.

KenLM's programs are in no package, so their figures, measured once, stand below as constants; its Python module, where
installed, reads our ARPA file and scores the same text in the same run, turn by turn with ours. Three queries:

- a text: `seqwright evaluate` (one stream, a log-probability for every token) against `score` of every line, a number
  a line: KenLM's fastest;
- lines: `seqwright score` (text to the surprisal of every token) against `full_scores`, its equivalent;
- a line at a time, alone in a call: what a program would do that needs each score before it asks for the next.

    SEQWRIGHT_DATA=... python benchmarks/ngram.py [--order 5] [--limit 128] [--json FILE]
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from peers.peak import cpu_name
from seqwright.core.batch import Vocabulary
from seqwright.core.storage import load_tensors, save_tensors, write_json
from seqwright.data.text.corpus import Corpus, read_corpus
from seqwright.data.text.stream import make_stream
from seqwright.metrics.likelihood import score_text
from seqwright.metrics.lines import score_lines
from seqwright.models.ngram.arpa_reading import read_arpa
from seqwright.models.ngram.arpa_writing import arpa_names, write_arpa
from seqwright.models.ngram.model import NGram, NGramConfig
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig, train

LMPLZ_SECONDS, LMPLZ_WORDS = 4.1, 2_051_910
"""WikiText-2, order 5, text to ARPA: CPU seconds, and words."""
PROBING_BYTES, TRIE_BYTES = 121e6 / LMPLZ_WORDS, 57e6 / LMPLZ_WORDS
"""Bytes on disk per word, the same."""
TURNS = 7
ALONE = 400
"""Lines scored alone in a call."""
CORPORA = {"WikiText-2": "wikitext2/wiki.{}.tokens.xz", "Penn Treebank": "ptb/ptb.{}.txt.xz"}


@contextmanager
def timed(what: str, seconds: dict[str, float]) -> Iterator[None]:
    start = time.process_time()
    yield
    seconds[what] = time.process_time() - start
    print(f"  {what:<38}{seconds[what]:8.2f} CPU s")


def build(text: Corpus, order: int, folder: Path, seconds: dict[str, float]) -> tuple[NGram, Tokenizer]:
    """Text to an opened model, as `seqwright train` does it."""
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
    total = seconds["in all"] = sum(seconds.values())
    words = sum(len(line.split()) for line in text.documents)
    lmplz = LMPLZ_SECONDS * words / LMPLZ_WORDS
    print(f"  {'in all':<38}{total:8.2f} CPU s, {total / lmplz:.2f} of lmplz's {lmplz:.2f} (its rate per word)")
    compact = NGram(NGramConfig(order=order, compact=True), tokenizer.vocabulary)
    compact.tables = model.tables
    save_tensors(folder / "compact.safetensors", compact.state_dict())
    with timed("open (compact)", seconds):
        compact.load_state_dict(load_tensors(folder / "compact.safetensors")[0])
    for name, peer, kind in (("model", PROBING_BYTES, "probing"), ("compact", TRIE_BYTES, "trie")):
        size = (folder / f"{name}.safetensors").stat().st_size
        print(
            f"  {name + '.safetensors':<38}{size / 1e6:8.1f} MB, {size / peer / words:.2f} of KenLM's {kind} per word"
        )
    names = arpa_names(tokenizer.tokens(range(tokenizer.vocabulary.size)), tokenizer.vocabulary)
    with timed("write ARPA", seconds):
        write_arpa(folder / "model.arpa", model.tables, names, tokenizer.vocabulary)
    with timed("read ARPA", seconds):
        read_arpa(folder / "model.arpa")
    return model, tokenizer


def score(model: NGram, tokenizer: Tokenizer, text: Corpus, folder: Path) -> dict[str, Any]:
    """Tokens a CPU second from text, ours and those of KenLM's module, medians of turns in the same run."""
    stream = make_stream(text, tokenizer)
    lines = list(text.documents)
    few = lines[:ALONE]
    sos, eos = stream.sos, tokenizer.eos

    def evaluate() -> float:
        ids = torch.from_numpy(make_stream(text, tokenizer).ids.astype(np.int64))
        return float(score_text(model, ids, sos=sos).log_probs.sum())

    def score_all(lines: Sequence[str]) -> float:
        return sum(line.log_prob for line in score_lines(model, lines, tokenizer.encode_batch, sos=sos, eos=eos))

    ours: dict[str, Callable[[], float]] = {
        "a text": evaluate,
        "lines": lambda: score_all(lines),
        "a line at a time": lambda: sum(score_all([line]) for line in few),
    }
    theirs: dict[str, Callable[[], float]] = {}
    if importlib.util.find_spec("kenlm") is None:
        print("  the kenlm module is not installed: no peer in this run, which is not a pass")
    else:
        import kenlm

        peer = kenlm.Model(str(folder / "model.arpa"))
        # A literal <unk> in the text is a word to us, written with a backslash in ARPA.
        named, named_few = ([line.replace("<unk>", "\\<unk>") for line in part] for part in (lines, few))
        theirs = {
            "a text": lambda: sum(map(peer.score, named)) * math.log(10),
            "lines": lambda: sum(log for line in named for log, _, _ in peer.full_scores(line)) * math.log(10),
            "a line at a time": lambda: sum(map(peer.score, named_few)) * math.log(10),
        }
    tokens = dict.fromkeys(ours, stream.targets) | {"a line at a time": sum(len(line.split()) + 1 for line in few)}
    results: dict[str, Any] = {"perplexity": math.exp(-evaluate() / stream.targets), "tokens": stream.targets}
    print(f"  perplexity {results['perplexity']:.4f} over {stream.targets:,} tokens; M tokens a CPU s")
    for name in ours:
        spent: dict[str, list[float]] = {"ours": [], "kenlm": []}
        for _ in range(TURNS):
            for who, queries in (("ours", ours), ("kenlm", theirs)):
                if name in queries:
                    start = time.process_time()
                    total = queries[name]()
                    spent[who].append(time.process_time() - start)
                    assert who == "ours" or math.isclose(total, ours[name](), rel_tol=1e-5), name
        rates = {who: tokens[name] / statistics.median(times) for who, times in spent.items() if times}
        results[name] = rates | ({"ratio": rates["ours"] / rates["kenlm"]} if theirs else {})
        shown = "  ".join(f"{who} {rate / 1e6:.2f}" for who, rate in rates.items())
        print(f"  {name:<20}{shown}" + (f"  ratio {results[name]['ratio']:.2f}" if theirs else ""))
    return results


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
    parser.add_argument("--limit", type=int, default=128, help="MiB for counting beyond memory; 0 skips it")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--peak", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        peak(options.peak, options.order, options.limit)
        return
    results: dict[str, Any] = {"machine": cpu_name(), "order": options.order, "corpora": {}}
    for corpus, files in CORPORA.items():
        with tempfile.TemporaryDirectory() as name:
            print(corpus)
            text, test = (read_corpus(files.format(part), "line", errors="strict") for part in ("train", "test"))
            seconds: dict[str, float] = {}
            model, tokenizer = build(text, options.order, Path(name), seconds)
            results["corpora"][corpus] = {"cpu_seconds": seconds, "queries": score(model, tokenizer, test, Path(name))}
    if options.limit:
        with tempfile.TemporaryDirectory() as name:
            reviews = read_corpus(["imdb/train.tsv.xz", "imdb/test.tsv.xz"], "line", errors="strict")
            limited(reviews, options.order, options.limit, Path(name))
    if options.json:
        write_json(options.json, results)


if __name__ == "__main__":
    main()
