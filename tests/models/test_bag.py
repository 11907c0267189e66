"""The bag of n-grams: exact n-grams, an optimum that scikit-learn finds too, answers that neighbors never change."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from seqwright.core.batch import Batch, EncoderSizes, OutputSpec, Source, Vocabulary
from seqwright.core.config import UserError
from seqwright.models.bag.char_words import numbered, spelled
from seqwright.models.bag.features import Grams, Presence
from seqwright.models.bag.linear import descend
from seqwright.models.bag.model import AT_ONCE, BagConfig, bag

WORDS = 12


class Corpus:
    """Texts as ids with an answer each, as a bag is given them."""

    def __init__(self, texts: list[list[int]], target: torch.Tensor):
        self.texts, self.target = texts, target
        self.lengths = np.array([len(text) for text in texts])

    def batch(self, rows: np.ndarray) -> Batch:
        width = max(1, max(self.lengths[rows]))
        mask = torch.arange(width) < torch.from_numpy(self.lengths[rows])[:, None]
        ids = torch.zeros(len(rows), width, dtype=torch.long)
        for place, row in enumerate(rows):
            ids[place, : self.lengths[row]] = torch.tensor(self.texts[row], dtype=torch.long)
        return Batch.of_source(Source(mask=mask, ids=ids), self.target[torch.from_numpy(rows)])


def drawn(many: int, seed: int) -> list[list[int]]:
    chosen = random.Random(seed)
    return [chosen.choices(range(WORDS), k=chosen.randint(0, 9)) for _ in range(many)]


def corpus(many: int = 120, classes: int = 2, seed: int = 1) -> Corpus:
    """Texts whose class hangs on whether 3 is followed by 4, and on luck."""
    texts = drawn(many, seed)
    luck = random.Random(seed)
    pairs = [any(text[n : n + 2] == [3, 4] for n in range(len(text))) for text in texts]
    target = [int(pair) if luck.random() < 0.9 else luck.randrange(classes) for pair in pairs]
    return Corpus(texts, torch.tensor(target))


def sizes(kind: str = "class", count: int = 2) -> EncoderSizes:
    return EncoderSizes(answers=OutputSpec(kind=kind, count=count), vocabulary=Vocabulary(size=WORDS))  # type: ignore[arg-type]


def flat(texts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([id for text in texts for id in text], np.int64), np.array([len(text) for text in texts])


def brute(texts: list[list[int]], order: int) -> list[set[tuple[int, ...]]]:
    return [{tuple(t[i : i + n]) for n in range(1, order + 1) for i in range(len(t) - n + 1)} for t in texts]


def rows_of(x: Presence) -> list[list[int]]:
    return [x.columns[x.starts[n] : x.starts[n + 1]].tolist() for n in range(len(x))]


@pytest.mark.parametrize("min_df", [1, 2, 3])
def test_columns_are_the_ngrams_of_enough_texts(min_df: int) -> None:
    """Each n-gram one column, in every text that has it, once; found again in other texts."""
    texts, others = drawn(60, 2), drawn(30, 3)
    grams, x = Grams.of(*flat(texts), order=3, min_df=min_df, vocabulary=WORDS)
    sets = brute(texts, 3)
    known = {gram for own in sets for gram in own if sum(gram in other for other in sets) >= min_df}
    assert grams.width == x.width == len(known)
    named: dict[int, set[tuple[int, ...]]] = {}
    for own, columns in zip(sets, rows_of(x), strict=True):
        assert len(columns) == len(set(columns)) == len(own & known)
        for column in columns:
            named[column] = named.get(column, own & known) & own
    again = grams.read(*flat(texts))
    assert [sorted(row) for row in rows_of(again)] == [sorted(row) for row in rows_of(x)]
    for own, columns in zip(brute(others, 3), rows_of(grams.read(*flat(others))), strict=True):
        assert len(columns) == len(own & known)
        assert all(named[column] & own for column in columns)


def test_products_are_those_of_the_dense_matrix() -> None:
    _, x = Grams.of(*flat(drawn(40, 4)), order=2, min_df=1, vocabulary=WORDS)
    dense = torch.zeros(len(x), x.width)
    for n, columns in enumerate(rows_of(x)):
        dense[n, columns] = 1
    weight, rows = torch.randn(x.width, 3), torch.randn(len(x), 3)
    assert_close(x @ weight, dense @ weight)
    assert_close(x.transposed @ rows, dense.T @ rows)
    assert_close(x.select(torch.tensor([7, 0, 7])) @ weight, dense[[7, 0, 7]] @ weight)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_optimum_is_that_of_scikit_learn(classes: int) -> None:
    linear = pytest.importorskip("sklearn.linear_model", reason="scikit-learn is the oracle")
    data = corpus(200, classes)
    _, x = Grams.of(*flat(data.texts), order=2, min_df=1, vocabulary=WORDS)
    dense = (x @ torch.eye(x.width)).numpy()
    start: dict[str, Any] = {"weight": torch.zeros(x.width, classes), "bias": torch.zeros(classes)}
    weight, bias = descend(x, data.target, "class", scale=torch.ones(x.width, classes), l2=1.0, **start)
    mine = (torch.from_numpy(dense) @ weight + bias).softmax(-1)
    # Of two classes scikit-learn has one weight where softmax has two: half the penalty on their difference.
    oracle = linear.LogisticRegression(C=1.0 if classes > 2 else 2.0, tol=1e-8, max_iter=10_000).fit(dense, data.target)
    assert_close(mine, torch.from_numpy(oracle.predict_proba(dense)).float(), atol=2e-3, rtol=0)


@pytest.mark.parametrize(("kind", "count"), [("class", 2), ("class", 3), ("multilabel", 3), ("regression", 1)])
def test_a_bag_learns_keeps_and_answers_alone_as_in_company(kind: str, count: int) -> None:
    data = corpus(classes=count)
    if kind != "class":
        data.target = torch.nn.functional.one_hot(data.target, max(count, 2))[:, -count:].float()
    model = bag(BagConfig(order=2), sizes(kind, count))
    model.fit(data)
    every = np.arange(len(data.texts))
    together = model(data.batch(every))
    alone = torch.cat([model(data.batch(np.array([row]))) for row in every])
    assert_close(together, alone)
    other = bag(BagConfig(order=2), sizes(kind, count))
    other.load_state_dict(model.state_dict())
    assert (other(data.batch(every)) == together).all()
    if kind == "class":
        assert (together.argmax(1) == data.target).float().mean() > 0.85


def marked(text: list[int]) -> list[int]:
    """Where words are, if 0 is a space: 1 where one begins, 2 where it goes on."""
    return [0 if id == 0 else 2 if n and text[n - 1] else 1 for n, id in enumerate(text)]


def test_words_are_told_apart_by_all_their_letters() -> None:
    texts = [*drawn(80, 5), [], [0, 0]]
    ids, lengths = flat(texts)
    keys, counts = spelled(ids, np.array([mark for text in texts for mark in marked(text)]), lengths)
    words = [[word for word in "".join(map(chr, text)).split(chr(0)) if word] for text in texts]
    assert counts.tolist() == [len(own) for own in words]
    pairs = set(zip(keys.tolist(), (word for own in words for word in own), strict=True))
    assert len(pairs) == len({key for key, _ in pairs}) == len({word for _, word in pairs}) > 80
    known = np.unique(keys[:50])
    assert (known[numbered(keys[:50], known)] == keys[:50]).all()
    assert numbered(np.array([7]), known).tolist() == [len(known)]
    short, _ = spelled(np.zeros(3, np.int64), np.array([1, 1, 2]), np.array([1, 2]))  # the first id, once and twice
    assert short[0] != short[1]
    nothing, none = spelled(np.zeros(3, np.int64), np.zeros(3, np.int64), np.array([1, 2]))
    assert (nothing.tolist(), none.tolist()) == ([], [0, 0])


class Spelled(Corpus):
    """Texts of which 0 parts the words."""

    def batch(self, rows: np.ndarray) -> Batch:
        batch = super().batch(rows)
        marks = torch.zeros_like(batch.source.mask, dtype=torch.long)
        for place, row in enumerate(rows):
            marks[place, : self.lengths[row]] = torch.tensor(marked(self.texts[row]), dtype=torch.long)
        return replace(batch, source=replace(batch.source, words=marks))


def test_a_bag_of_letters_and_words_knows_what_neither_can_tell() -> None:
    """The class is whether the word 1 2 follows the word 2 1; 2-grams of letters never see both whole."""
    luck = random.Random(3)
    pool = [[1, 2], [2, 1], [1, 1, 2], [2, 2, 1]]
    chosen = [[luck.choice(pool) for _ in range(3)] for _ in range(300)]
    target = [int(any(own[n : n + 2] == [[2, 1], [1, 2]] for n in range(2))) for own in chosen]
    texts = [[id for word in own for id in (*word, 0)] for own in chosen]
    data, every = Spelled(texts, torch.tensor(target)), np.arange(300)
    right = []
    for words in (0, 2):
        model = bag(BagConfig(order=2, words=words), sizes())
        model.fit(data)
        right.append(float((model(data.batch(every)).argmax(1) == data.target).float().mean()))
        other = bag(BagConfig(order=2, words=words), sizes())
        other.load_state_dict(model.state_dict())
        assert (other(data.batch(every)) == model(data.batch(every))).all()
    assert right[0] < 0.95
    assert right[1] == 1.0


def test_an_unknown_word_makes_no_known_pair() -> None:
    """Every pair of the words 1 and 2 is known; none of them is 1 3 or 2 3."""
    data = Spelled([[a, 0, b] for a in (1, 2) for b in (1, 2)] * 2, torch.arange(8) % 2)
    model = bag(BagConfig(order=1, words=2, min_df=1, l2=1.0), sizes())
    model.fit(data)
    assert model.facts["types"] == [3, 2, 4]
    asked = Spelled([[1, 0, 3], [2, 0, 3], [3, 0, 1], [1, 0, 2]], torch.zeros(4, dtype=torch.long))
    streams = model._streams(*model._flat(asked.batch(np.arange(4)).source))
    assert model.views[1].read(*streams[1]).sizes.flatten().tolist() == [1, 1, 1, 3]


def test_each_view_is_scaled_by_itself() -> None:
    """In every text a view has the length it has in a usual one, however many n-grams the text has and however rare."""
    texts = [text for text in drawn(60, 6) if len(set(text)) > 1]
    found = [Grams.of(*flat(texts), order=order, min_df=1, vocabulary=WORDS)[1] for order in (1, 3)]
    model = bag(BagConfig(words=1), sizes())
    model.typical, model.rarity = torch.tensor([4.0, 9.0]), 1 + torch.rand(sum(view.width for view in found))
    together = model._beside(found)
    squares = replace(together, values=None if together.values is None else together.values.square())
    of_view = torch.zeros(together.width, 2)
    of_view[: found[0].width, 0] = of_view[found[0].width :, 1] = 1
    of_view *= model.rarity.square().unsqueeze(1)
    assert_close(squares @ of_view, torch.tensor([[4.0, 9.0]]).expand(len(texts), 2))


@pytest.mark.parametrize("words", [0, 1])
def test_unscaled_texts_are_zeros_and_ones(words: int) -> None:
    """Without normalize an answer is the sum of the weights of what a text has."""
    data = Spelled(drawn(60, 7), torch.arange(60) % 2)
    model = bag(BagConfig(order=2, words=words, normalize=False, l2=1.0), sizes())
    model.fit(data)
    streams = model._streams(*model._flat(data.batch(np.arange(60)).source))
    views = [rows_of(view.read(*stream)) for view, stream in zip(model.views, streams, strict=True)]
    first = model.views[0].width
    own = [[*views[0][n], *(first + column for view in views[1:] for column in view[n])] for n in range(60)]
    sums = torch.stack([model.weight[columns].sum(0) + model.bias for columns in own])
    assert_close(model(data.batch(np.arange(60))), sums)


def test_numbers_are_learned_without_naive_bayes() -> None:
    data = corpus()
    data.target = data.target[:, None].float()
    noted = []
    for naive_bayes in (None, True, False):
        model = bag(BagConfig(order=2, naive_bayes=naive_bayes), sizes("regression", 1))
        model.fit(data)
        noted += model.notes
    assert len(noted) == 3
    assert len(set(noted)) == 1
    assert "naive" not in noted[0]


def test_words_need_characters() -> None:
    with pytest.raises(UserError, match="characters"):
        bag(BagConfig(words=2), sizes()).fit(corpus())


def test_held_out_texts_decide_about_naive_bayes_where_they_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least loss over both ways is taken; of many texts the ratios are taken unasked."""

    def noted(**options: object) -> str:
        model = bag(BagConfig(order=2, **options), sizes())  # type: ignore[arg-type]
        model.fit(corpus())
        return model.notes[-1]

    losses = {way: float(noted(naive_bayes=way).split("loss ")[1].rstrip(").")) for way in (True, False)}
    best = min(losses, key=losses.__getitem__)
    assert noted() == noted(naive_bayes=best)
    assert losses[True] != losses[False]
    monkeypatch.setattr("seqwright.models.bag.selection.MANY", 10)
    monkeypatch.setattr("seqwright.models.bag.selection.DUAL", 0)
    assert "and naive Bayes" in noted()
    assert " suit 12 held-out texts best (accuracy" in noted()


def test_held_out_texts_are_told_of() -> None:
    """What one token decides is learned without a mistake; a class of one text is not asked for where it is held out."""
    texts = [[n % 2, 5, 6 + n % 3] for n in range(60)]
    notes = []
    for more in ([], [[9, 9]]):
        target = torch.tensor([*(n % 2 for n in range(60)), *(2 for _ in more)])
        model = bag(BagConfig(order=1), sizes(count=3))
        model.fit(Corpus([*texts, *more], target))
        notes.append(model.notes[-1])
    assert all("suit 60 held-out texts best (in 5 folds accuracy 100.00 %" in note for note in notes)


def test_naive_bayes_is_held_at_where_it_answers_better_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every word speaks for its class by itself, and there are more words than texts: nothing is left to be learned."""
    monkeypatch.setattr("seqwright.models.bag.selection.DUAL", 0)
    luck = random.Random(2)
    target = torch.arange(60) % 2
    texts = [[luck.choice(range(6)) + 6 * (luck.random() < (0.9 if own else 0.1)) for _ in range(6)] for own in target]
    held, free = (bag(BagConfig(order=1, naive_bayes=way), sizes()) for way in (True, False))
    for model in (held, free):
        model.fit(Corpus(texts, target))
    assert "which weights are held at" in held.notes[-1]
    assert "held at" not in free.notes[-1]
    ratios = held.scale(Grams.of(*flat(texts), order=1, min_df=1, vocabulary=WORDS)[1], target, True)
    assert float(torch.corrcoef(torch.stack([held.weight[:, 0], ratios[:, 0]]))[0, 1]) > 0.99


def test_few_texts_say_whether_ngrams_of_one_text_count() -> None:
    """Where each text's words are its own, those that were seen once are all there is to go by."""
    texts = [[n % 2, 2 + n % 2, 4 + n % 8] for n in range(40)]
    counted = {}
    for minimum in (None, 1, 2):
        model = bag(BagConfig(order=3, min_df=minimum), sizes())
        model.fit(Corpus(texts, torch.arange(40) % 2))
        counted[minimum] = float(model.notes[-1].split("loss ")[1].rstrip(").")), model.weight.size(0)
    assert counted[None] == min(counted[1], counted[2])


def test_margins_choose_between_many_classes_and_become_probabilities() -> None:
    """The margin is scikit-learn's; what is answered are logits whose loss on held-out texts is the least."""
    svm = pytest.importorskip("sklearn.svm", reason="scikit-learn is the oracle")
    data = corpus(200, 4)
    _, x = Grams.of(*flat(data.texts), order=2, min_df=1, vocabulary=WORDS)
    dense = torch.cat([x @ torch.eye(x.width), torch.ones(len(x), 1)], 1).numpy()
    oracle = svm.LinearSVC(C=0.5, fit_intercept=False, tol=1e-8, max_iter=100_000).fit(dense, data.target)
    start: dict[str, Any] = {"scale": torch.ones(x.width, 4), "weight": torch.zeros(x.width, 4), "bias": torch.zeros(4)}
    weight, bias = descend(x, data.target, "margins", l2=2.0, **start)
    mine = (x @ weight + bias).argmax(1).numpy()
    assert (mine == oracle.predict(dense)).mean() > 0.97  # scikit-learn holds the bias back, too
    model = bag(BagConfig(order=2), sizes(count=4))
    model.fit(data)
    assert (model(data.batch(np.arange(200))).argmax(1) == data.target).float().mean() > 0.85


def test_a_few_texts_are_told_apart_by_what_each_has_alone() -> None:
    data = Corpus([[1, 2], [3, 4]], torch.tensor([0, 1]))
    model = bag(BagConfig(order=1), sizes())
    model.fit(data)
    assert model(data.batch(np.arange(2))).argmax(1).tolist() == [0, 1]


def test_weights_are_held_at_their_center() -> None:
    _, x = Grams.of(*flat(drawn(40, 8)), order=1, min_df=1, vocabulary=WORDS)
    start: dict[str, Any] = {"scale": torch.ones(x.width, 2), "weight": torch.zeros(x.width, 2), "bias": torch.zeros(2)}
    weight, _ = descend(x, torch.arange(40) % 2, "class", l2=1e6, center=0.5, **start)
    assert_close(weight, torch.full_like(weight, 0.5), atol=1e-3, rtol=0)


def test_too_many_weights_leave_out_rare_ngrams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqwright.models.bag.model.MOST_WEIGHTS", 300)
    model = bag(BagConfig(order=3, min_df=1), sizes())
    model.fit(corpus())
    assert 0 < model.weight.numel() <= 300
    assert "left out" in model.notes[0]


def test_naive_bayes_alone_is_the_log_count_ratio() -> None:
    """Weights held at zero leave only the scale to look at: Wang & Manning's r, by hand."""
    data = Corpus([[1, 2], [1, 3], [1, 3, 3], [2]], torch.tensor([0, 1, 1, 0]))
    model = bag(BagConfig(order=1, min_df=1), sizes())
    _, x = Grams.of(*flat(data.texts), order=1, min_df=1, vocabulary=WORDS)
    p, q = np.array([2 + 1, 0 + 1, 2 + 1]), np.array([1 + 1, 2 + 1, 0 + 1])
    expected = np.log(p / p.sum()) - np.log(q / q.sum())
    assert_close(model.scale(x, data.target, True)[:, 1].double(), torch.from_numpy(expected), atol=1e-6, rtol=0)


def test_a_token_of_the_other_text_is_another_one() -> None:
    batch = corpus(4).batch(np.arange(4))
    segments = torch.ones_like(batch.source.ids)  # type: ignore[arg-type]
    pairs = bag(
        BagConfig(),
        EncoderSizes(answers=OutputSpec(kind="class", count=2), vocabulary=Vocabulary(size=WORDS), segments=2),
    )
    plain = Source(mask=batch.source.mask, ids=batch.source.ids)
    second = Source(mask=batch.source.mask, ids=batch.source.ids, segments=segments)
    assert (pairs._flat(second)[0] == pairs._flat(plain)[0] + WORDS).all()
    assert pairs.views[0].vocabulary == 2 * WORDS


@pytest.mark.parametrize(
    "wrong", [{"order": 0}, {"words": -1}, {"min_df": 0}, {"smoothing": 0.0}, {"l2": -1.0}, {"l2": 0.0}]
)
def test_what_cannot_be_counted_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError):
        BagConfig(**wrong)  # type: ignore[arg-type]


def test_one_very_long_text_does_not_pad_all_the_others() -> None:
    given = corpus()
    given.texts[7] = [5] * 100_000
    given.lengths[7] = 100_000
    read: list[int] = []
    whole = given.batch

    def watched(rows: np.ndarray) -> Batch:
        batch = whole(rows)
        read.append(batch.source.mask.numel())
        return batch

    given.batch = watched  # type: ignore[method-assign]
    model = bag(BagConfig(l2=1.0), sizes())
    model.fit(given)
    assert max(read) <= AT_ONCE
    assert model(whole(np.arange(4))).shape == (4, 2)
