"""Reference implementation of n-gram smoothing: the textbook formulas over dictionaries."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property

SOS = 2


class Oracle:
    """p(w | h) of every kind of smoothing, for documents as lists of ids framed by <sos> and <eos>."""

    def __init__(self, documents, order, kind, *, predictable, discounts=None, k=1.0, cutoff=0, running=False):
        self.order, self.kind, self.k, self.cutoff = order, kind, k, cutoff
        self.predictable, self.discounts = predictable, discounts
        self.texts = [[id for document in documents for id in document]] if running else documents
        self.raw = Counter()
        for text in self.texts:
            for n in range(1, order + 1):
                for i in range(len(text) - n + 1):
                    self.raw[tuple(text[i : i + n])] += 1

    @cached_property
    def counts(self):
        """The count of each n-gram that the smoothing uses: raw, or continuation count."""
        left = defaultdict(set)
        for ngram in self.raw:
            if ngram[-1] in self.predictable:
                left[ngram[1:]].add(ngram[0])
        adjusted = {}
        for ngram, raw in self.raw.items():
            full = len(ngram) == self.order or ngram[0] == SOS
            if ngram[-1] not in self.predictable:
                adjusted[ngram] = 0
            elif self.kind == "kneser-ney":
                adjusted[ngram] = raw if full else len(left[ngram])
            elif self.kind in ("add-k", "mle"):
                adjusted[ngram] = raw if full else 0
            else:
                adjusted[ngram] = raw
        return adjusted

    @cached_property
    def followers(self):
        followers = defaultdict(list)
        for ngram, count in self.counts.items():
            if count:
                followers[ngram[:-1]].append(ngram)
        return followers

    def kept(self, ngram):
        return len(ngram) == 1 or self.raw[ngram] > self.cutoff

    def discounted(self, ngram):
        """The count less its discount; 0 below the cut-off."""
        count = self.counts.get(ngram, 0)
        if not count or not self.kept(ngram):
            return 0
        return count - (0 if self.discounts is None else self.discounts[len(ngram) - 1][min(count, 3)])

    def probability(self, word, history):
        if word not in self.predictable:
            return 0.0
        return self._p(word, tuple(history[max(0, len(history) - self.order + 1) :]))

    def _p(self, word, history):
        lower = self._p(word, history[1:]) if history else 1 / len(self.predictable)
        total = sum(self.counts[ngram] for ngram in self.followers[history])
        if not total:
            return lower
        if self.kind == "stupid-backoff":
            return self._score(word, history) / sum(self._score(w, history) for w in self.predictable)
        if self.kind == "add-k":
            total += self.k * len(self.predictable)
        if self.kind == "witten-bell":
            total += len(self.followers[history])
        weight = 1 - sum(self.discounted(ngram) for ngram in self.followers[history]) / total
        return self.discounted((*history, word)) / total + weight * lower

    def _score(self, word, history):
        """The unnormalized score of stupid back-off, over the uniform distribution."""
        total = sum(self.counts[ngram] for ngram in self.followers[history])
        if total and self.discounted((*history, word)):
            return self.counts[(*history, word)] / total
        return 0.4 * (self._score(word, history[1:]) if history else 1 / len(self.predictable))
