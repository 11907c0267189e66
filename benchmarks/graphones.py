"""Letters to phonemes by counting: joint n-grams of graphones (Bisani & Ney 2008) on the split of the cmudict recipe.

    SEQWRIGHT_DATA=… python benchmarks/graphones.py [--order 8] [--on validation]

A graphone is one or two letters said as none, one or two phonemes. Expectation-maximization finds how words fall into
graphones, modified Kneser-Ney (our own) counts their sequences, a beam over the letters of a new word finds what it
sounds like. The rival of the recipe's Transformer: the same words, the same references. Word error rate is 100 less
exact match.
"""

from __future__ import annotations

import argparse
import functools
import heapq
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import torch
from numpy.typing import NDArray

from seqwright.core.batch import Source, Vocabulary
from seqwright.core.state import State
from seqwright.data.parallel.formats import Pair
from seqwright.data.parallel.pairs import read_splits, read_test
from seqwright.models.ngram.model import NGram, NGramConfig
from seqwright.pipeline import recipe
from seqwright.tasks.translation.scores import METRICS

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MOVES = ((1, 0), (1, 1), (1, 2), (2, 1))
"""Letters and phonemes of a graphone. With (2, 2) too, EM would prefer to learn whole chunks by heart."""
SOS, EOS, FIRST = 0, 1, 2
"""Reserved ids of the n-gram; graphones are counted from FIRST."""


@dataclass(frozen=True)
class Numbered:
    """Symbols as numbers from 1; 0 is none, and a chunk of up to two is one number too."""

    number: dict[str, int]

    @property
    def base(self) -> int:
        return len(self.number) + 1

    def chunks(self, texts: Sequence[Sequence[str]], size: int) -> Ints:
        """(words, places) of the chunks of `size` that begin at each place of texts of one length."""
        ids = np.array([[self.number[symbol] for symbol in text] for text in texts], np.int64)
        if size == 0:
            return np.zeros((len(texts), ids.shape[1] + 1), np.int64)
        return ids if size == 1 else ids[:, :-1] * self.base + ids[:, 1:]


def numbered(texts: Sequence[Sequence[str]]) -> Numbered:
    return Numbered({symbol: n for n, symbol in enumerate(sorted({s for text in texts for s in text}), 1)})


class Aligned:
    """Words of the same numbers of letters and phonemes: all their graphones, by move and place."""

    def __init__(self, words: Sequence[str], said: Sequence[list[str]], letters: Numbered, phonemes: Numbered):
        self.rows, self.ends = len(words), (len(words[0]), len(said[0]))
        self.graphones: dict[tuple[int, int], Ints] = {}
        for move in MOVES:
            if move[0] <= self.ends[0] and move[1] <= self.ends[1]:
                given, heard = letters.chunks(words, move[0]), phonemes.chunks(said, move[1])
                self.graphones[move] = given[:, :, None] * phonemes.base**2 + heard[:, None, :]  # (words, I, J)

    def steps(self, at: tuple[int, int]) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Moves that lead to a place, and where from."""
        for move in self.graphones:
            before = (at[0] - move[0], at[1] - move[1])
            if min(before) >= 0:
                yield move, before

    def forward(self, log_prob: Floats, best: bool = False) -> dict[tuple[int, int], Floats]:
        """log of the sum (or greatest) over ways to each place."""
        reached = {(0, 0): np.zeros(self.rows)}
        for i in range(self.ends[0] + 1):
            for j in range(self.ends[1] + 1):
                ways = [
                    reached[before] + log_prob[self.graphones[move][:, before[0], before[1]]]
                    for move, before in self.steps((i, j))
                ]
                if ways:
                    reached[i, j] = np.max(ways, 0) if best else np.logaddexp.reduce(ways, 0)
                elif (i, j) != (0, 0):
                    reached[i, j] = np.full(self.rows, -np.inf)
        return reached

    def expected(self, log_prob: Floats, counts: Floats) -> float:
        """Adds how often each graphone is expected; the log-likelihood."""
        forward = self.forward(log_prob)
        total = forward[self.ends]
        behind = {self.ends: np.zeros(self.rows)}
        for i in range(self.ends[0], -1, -1):
            for j in range(self.ends[1], -1, -1):
                for move, before in self.steps((i, j)):
                    graphone = self.graphones[move][:, before[0], before[1]]
                    onward = behind.get((i, j), np.full(self.rows, -np.inf)) + log_prob[graphone]
                    np.add.at(counts, graphone, np.exp(forward[before] + onward - total))
                    earlier = behind.get(before)
                    behind[before] = onward if earlier is None else np.logaddexp(earlier, onward)
        return float(total.sum())

    def segmented(self, log_prob: Floats) -> list[list[int]]:
        """The most probable graphones of each word."""
        best = self.forward(log_prob, best=True)
        texts: list[list[int]] = [[] for _ in range(self.rows)]
        for row in range(self.rows):
            at = self.ends
            while at != (0, 0):
                ways = [
                    (best[before][row] + log_prob[graphone], before, graphone)
                    for move, before in self.steps(at)
                    for graphone in [int(self.graphones[move][row, before[0], before[1]])]
                ]
                _, at, graphone = max(ways)
                texts[row].append(graphone)
        return [text[::-1] for text in texts]


def segment(words: Sequence[str], said: Sequence[list[str]], rounds: int) -> tuple[list[list[int]], Numbered]:
    """Words as sequences of graphones, by EM from equal chances; and the numbers of the phonemes."""
    letters, phonemes = numbered(words), numbered(said)
    places: dict[tuple[int, int], list[int]] = defaultdict(list)
    for n, (word, heard) in enumerate(zip(words, said, strict=True)):
        places[len(word), len(heard)].append(n)
    groups = [Aligned([words[n] for n in own], [said[n] for n in own], letters, phonemes) for own in places.values()]
    size = letters.base**2 * phonemes.base**2
    log_prob = np.zeros(size)
    for number in range(rounds):
        counts = np.zeros(size)
        likelihood = sum(group.expected(log_prob, counts) for group in groups)
        with np.errstate(divide="ignore"):
            log_prob = np.log(counts / counts.sum())
        print(f"  round {number + 1}: {likelihood / len(words):9.4f} nats a word", flush=True)
    texts: list[list[int]] = [[] for _ in words]
    for own, group in zip(places.values(), groups, strict=True):
        for n, text in zip(own, group.segmented(log_prob), strict=True):
            texts[n] = text
    return texts, phonemes


@dataclass(frozen=True)
class Partial:
    """A word read up to some letter."""

    log_prob: float
    said: tuple[str, ...]
    state: State
    last: int
    """The graphone that the state has not read yet."""


class Graphones:
    """The joint n-gram and what its ids stand for."""

    def __init__(self, words: Sequence[str], said: Sequence[list[str]], *, order: int, rounds: int):
        texts, phonemes = segment(words, said, rounds)
        symbols = {n: symbol for symbol, n in phonemes.number.items()}
        codes = sorted({code for text in texts for code in text})
        ids = {code: FIRST + n for n, code in enumerate(codes)}
        self.said: dict[int, tuple[str, ...]] = {
            ids[code]: tuple(symbols[n] for n in divmod(code % phonemes.base**2, phonemes.base) if n) for code in codes
        }
        self.spelled: dict[str, list[int]] = defaultdict(list)
        given = numbered(words)
        letters = {n: letter for letter, n in given.number.items()}
        for code, id in ids.items():
            first, second = divmod(code // phonemes.base**2, given.base)
            self.spelled[letters.get(first, "") + letters[second]].append(id)
        framed = [id for text in texts for id in (SOS, *(ids[code] for code in text), EOS)]
        vocabulary = Vocabulary(size=FIRST + len(ids), sos=SOS, eos=EOS)
        self.model = NGram(NGramConfig(order=order), vocabulary)
        self.model.fit(SimpleNamespace(ids=np.array(framed, np.int64)))
        print(f"  {len(ids):,} graphones, order {order}")

    def say(self, word: str, beam: int) -> str:
        """The most probable pronunciation, summed over the ways to spell it that the beam kept."""
        waiting: dict[int, list[Partial]] = defaultdict(list)  # by the letters read
        waiting[0] = [Partial(0.0, (), self.model.start(Source.empty(1), capacity=0), SOS)]
        for at in range(len(word)):
            for partial, log_probs, state in self._read(waiting[at], beam):
                for chunk in {word[at : at + 1], word[at : at + 2]}:
                    for id in self.spelled.get(chunk, []):
                        total, said = partial.log_prob + log_probs[id], partial.said + self.said[id]
                        waiting[at + len(chunk)].append(Partial(total, said, state, id))
        ended: dict[tuple[str, ...], float] = defaultdict(float)
        for partial, log_probs, _ in self._read(waiting[len(word)], beam):
            ended[partial.said] += math.exp(partial.log_prob + log_probs[EOS])
        return " ".join(max(ended, key=lambda said: ended[said])) if ended else ""

    def _read(self, partials: list[Partial], beam: int) -> Iterator[tuple[Partial, list[float], State]]:
        """What may follow each of the best, all asked at once."""
        best = heapq.nlargest(beam, partials, key=lambda partial: partial.log_prob)
        if not best:
            return
        state = functools.reduce(lambda one, other: one.cat(other), (partial.state for partial in best))
        log_probs, after = self.model.step(torch.tensor([[partial.last] for partial in best]), state)
        for n, partial in enumerate(best):
            yield partial, log_probs[n].tolist(), after.select(torch.tensor([n]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--order", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--beam", type=int, default=20)
    parser.add_argument("--on", choices=["test", "validation"], default="test")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = recipe.load("cmudict").data
    train, valid = read_splits(data)
    assert valid is not None
    begun = time.process_time()
    every = [(pair.sources[0], target.split()) for pair in train.pairs for target in pair.targets]
    learned = [(word, said) for word, said in every if len(said) <= 2 * len(word)]
    print(
        f"  {len(learned):,} pronunciations; {len(every) - len(learned):,} of over two phonemes a letter are left out"
    )
    rival = Graphones([w for w, _ in learned], [s for _, s in learned], order=options.order, rounds=options.rounds)
    print(f"  counted in {time.process_time() - begun:.0f} CPU s")
    pairs: Sequence[Pair] = (read_test(data) if options.on == "test" else valid).pairs
    begun = time.process_time()
    outputs = [rival.say(pair.sources[0], options.beam) for pair in pairs]
    print(f"  {len(pairs):,} words said in {time.process_time() - begun:.0f} CPU s")
    for name in ("exact_match", "phoneme_error_rate"):
        score = METRICS[name](outputs, [pair.targets for pair in pairs]).score()
        print(f"{name}: {score.value:.2f} ({score.low:.2f} to {score.high:.2f})  {score.signature}")


if __name__ == "__main__":
    main()
