"""Counting beyond memory: seconds, peak memory and disk of an n-gram model of a large synthetic text, against lmplz.

The text is sampled from the bigrams of WikiText-2 (seed 0); one word in fifty is drawn by Zipf's law from a million
made-up words, so that the vocabulary and the n-grams keep growing as they do in real text. It is written once to a
temporary folder. Every stage runs in a process of its own, whose peak (VmHWM) includes Python and its libraries.

lmplz took 4.1 CPU seconds from text to ARPA for WikiText-2 (2,051,910 words, order 5); its rate is taken per word.

    SEQWRIGHT_DATA=... python benchmarks/ngram_scale.py [--words 100_000_000] [--order 5] [--memory BYTES] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from seqwright.core.storage import save_tensors, write_json
from seqwright.data.text.corpus import read_corpus
from seqwright.data.text.prepare import prepare, train_tokenizer
from seqwright.data.text.prepared import open_prepared
from seqwright.data.text.stream import make_stream
from seqwright.models.ngram.model import NGram, NGramConfig
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig, train

LMPLZ_RATE = 2_051_910 / 4.1
"""Words a CPU second, text to ARPA, order 5."""
CHAINS = 4096
"""Sentences sampled in parallel."""
MADE_UP = 1_000_000
RARE = 0.02
"""Share of made-up words."""
MIN_FREQUENCY = 3
"""Of a word in the vocabulary; the others are <unk>."""


def write_text(path: Path, words: int) -> None:
    """Writes at least `words` words, a sentence a line."""
    text = read_corpus("wikitext2/wiki.train.tokens.xz", "line", errors="strict")
    tokenizer = train(TokenizerConfig(kind="words"), text.documents)
    ids = make_stream(text, tokenizer).ids.astype(np.int64)
    key = np.sort(ids[:-1] * tokenizer.size + ids[1:])
    first = np.searchsorted(key, np.arange(tokenizer.size + 1) * tokenizer.size)
    sos, eos = tokenizer.sos, tokenizer.eos
    spelled = np.array(tokenizer.tokens(range(tokenizer.size)), object)
    generator = np.random.default_rng(0)
    with path.open("w", encoding="utf-8") as file:
        while words > 0:
            word, columns = np.full(CHAINS, sos), []
            for _ in range(64):
                # A bigram of the text, drawn uniformly among those of the word before: its relative frequency.
                at = first[word] + (generator.random(CHAINS) * (first[word + 1] - first[word])).astype(np.int64)
                word = np.where(word == eos, eos, key[np.minimum(at, len(key) - 1)] % tokenizer.size)
                columns.append(word)
            rows = np.stack(columns, 1)  # (CHAINS, 64)
            text_words = spelled[rows]
            rare = generator.random(rows.shape) < RARE
            text_words[rare] = [f"w{rank}" for rank in np.minimum(generator.zipf(1.2, rare.sum()), MADE_UP)]
            lengths = np.where((rows == eos).any(1), (rows == eos).argmax(1), rows.shape[1])
            file.writelines(
                " ".join(row[:n]) + "\n" for row, n in zip(text_words.tolist(), lengths.tolist(), strict=True) if n
            )
            words -= int(lengths.sum())


def peak() -> int:
    """Bytes at most resident in this process."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def encode(folder: Path) -> dict[str, int]:
    config = TokenizerConfig(kind="words", min_frequency=MIN_FREQUENCY)
    tokenizer = train_tokenizer(config, [folder / "text.txt"], "line")
    stream = prepare([folder / "text.txt"], folder / "prepared", tokenizer, document="line")
    return {"words": len(stream.ids) - 2 * stream.documents, "vocabulary": tokenizer.size}


def fit(folder: Path, order: int, memory: int | None) -> dict[str, object]:
    tokenizer = Tokenizer.open(folder / "prepared" / "tokenizer.json")
    model = NGram(NGramConfig(order=order, memory=memory), tokenizer.vocabulary)
    model.fit(open_prepared(folder / "prepared", tokenizer))
    save_tensors(folder / "model.safetensors", model.state_dict())
    return {"types": model.facts["types"], "file_bytes": (folder / "model.safetensors").stat().st_size}


def stage(name: str, folder: Path, options: argparse.Namespace) -> None:
    """One stage, in this process; prints its measurements as JSON."""
    before, cpu, wall = peak(), time.process_time(), time.perf_counter()
    found = encode(folder) if name == "encode" else fit(folder, options.order, options.memory)
    spent = {"cpu_seconds": time.process_time() - cpu, "seconds": time.perf_counter() - wall}
    print(json.dumps({**found, **spent, "peak_bytes": peak(), "interpreter_bytes": before}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--words", type=int, default=100_000_000)
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--memory", type=int, help="model.memory; default: chosen by the model")
    parser.add_argument("--folder", type=Path, help="keep the text here, and use it if it is there")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        stage(options.stage, options.folder, options)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "text.txt").exists():
            write_text(folder / "text.txt", options.words)
        results: dict[str, Any] = {}
        for name in ("encode", "fit"):
            command = [sys.executable, __file__, *sys.argv[1:], "--folder", str(folder), "--stage", name]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            results[name] = json.loads(output.splitlines()[-1])
            print(name, results[name])
        words = results["encode"]["words"]
        total = sum(results[name]["cpu_seconds"] for name in results)
        results["lmplz_ratio"] = words / total / LMPLZ_RATE
        peak_bytes = max(results[name]["peak_bytes"] for name in ("encode", "fit"))
        print(f"{words:,} words, order {options.order}: {total:.0f} CPU s, {words / total:,.0f} words a CPU s,")
        print(f"{results['lmplz_ratio']:.2f} of lmplz's rate ({LMPLZ_RATE:,.0f}); peak {peak_bytes / 1e9:.2f} GB")
        if options.json:
            write_json(options.json, results)


if __name__ == "__main__":
    main()
