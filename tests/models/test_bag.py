"""Bag of n-grams: exact features, the optimum of scikit-learn, batch invariance, and model selection."""

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
from seqwright.models.bag.char_words import word_hashes, word_ids
from seqwright.models.bag.features import CSRMatrix, NGramVectorizer, hstack, merge_equal_columns
from seqwright.models.bag.linear import fit_linear
from seqwright.models.bag.model import BagConfig, bag
from seqwright.models.bag.ridge import inverse_document_frequency, kernel_matrix
from seqwright.models.bag.selection import FOLDS, fold_rows
from seqwright.models.bag.unpadded import Unpadded

WORDS = 12


class Corpus:
    """Texts as ids, each with a target."""

    def __init__(self, texts: list[list[int]], target: torch.Tensor):
        self.texts, self.target = texts, target
        self.lengths = np.array([len(text) for text in texts])

    @property
    def sources(self) -> Unpadded:
        """All texts without padding."""
        return Unpadded.of(self.batch(np.arange(len(self.texts))).source)

    @property
    def row_targets(self) -> torch.Tensor:
        return self.target

    def batch(self, rows: np.ndarray) -> Batch:
        width = max(1, max(self.lengths[rows]))
        mask = torch.arange(width) < torch.from_numpy(self.lengths[rows])[:, None]
        ids = torch.zeros(len(rows), width, dtype=torch.long)
        for n, row in enumerate(rows):
            ids[n, : self.lengths[row]] = torch.tensor(self.texts[row], dtype=torch.long)
        return Batch.of_source(Source(mask=mask, ids=ids), self.target[torch.from_numpy(rows)])


def random_texts(count: int, seed: int) -> list[list[int]]:
    generator = random.Random(seed)
    return [generator.choices(range(WORDS), k=generator.randint(0, 9)) for _ in range(count)]


def corpus(count: int = 120, classes: int = 2, seed: int = 1) -> Corpus:
    """Texts whose class depends on the bigram 3 4, with label noise."""
    texts = random_texts(count, seed)
    noise = random.Random(seed)
    pairs = [any(text[n : n + 2] == [3, 4] for n in range(len(text))) for text in texts]
    target = [int(pair) if noise.random() < 0.9 else noise.randrange(classes) for pair in pairs]
    return Corpus(texts, torch.tensor(target))


def sizes(kind: str = "class", count: int = 2) -> EncoderSizes:
    return EncoderSizes(answers=OutputSpec(kind=kind, count=count), vocabulary=Vocabulary(size=WORDS))  # type: ignore[arg-type]


def flat(texts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([id for text in texts for id in text], np.int64), np.array([len(text) for text in texts])


def brute_force_ngrams(texts: list[list[int]], order: int) -> list[set[tuple[int, ...]]]:
    return [{tuple(t[i : i + n]) for n in range(1, order + 1) for i in range(len(t) - n + 1)} for t in texts]


def rows_of(x: CSRMatrix) -> list[list[int]]:
    return [x.columns[x.indptr[n] : x.indptr[n + 1]].tolist() for n in range(len(x))]


@pytest.mark.parametrize("min_df", [1, 2, 3])
def test_vectorizer_columns_are_the_ngrams_of_min_df_texts(min_df: int) -> None:
    """One column per n-gram, once in every text that has it; `transform` finds the same columns."""
    texts, others = random_texts(60, 2), random_texts(30, 3)
    vectorizer, x = NGramVectorizer.fit_transform(*flat(texts), order=3, min_df=min_df, vocabulary=WORDS)
    sets = brute_force_ngrams(texts, 3)
    known = {ngram for ngrams in sets for ngram in ngrams if sum(ngram in other for other in sets) >= min_df}
    assert vectorizer.width == x.width == len(known)
    candidates: dict[int, set[tuple[int, ...]]] = {}
    for ngrams, columns in zip(sets, rows_of(x), strict=True):
        assert len(columns) == len(set(columns)) == len(ngrams & known)
        for column in columns:
            candidates[column] = candidates.get(column, ngrams & known) & ngrams
    again = vectorizer.transform(*flat(texts))
    assert [sorted(row) for row in rows_of(again)] == [sorted(row) for row in rows_of(x)]
    for ngrams, columns in zip(
        brute_force_ngrams(others, 3), rows_of(vectorizer.transform(*flat(others))), strict=True
    ):
        assert len(columns) == len(ngrams & known)
        assert all(candidates[column] & ngrams for column in columns)


def test_csr_products_equal_dense_products() -> None:
    _, x = NGramVectorizer.fit_transform(*flat(random_texts(40, 4)), order=2, min_df=1, vocabulary=WORDS)
    dense = torch.zeros(len(x), x.width)
    for n, columns in enumerate(rows_of(x)):
        dense[n, columns] = 1
    weight, rows = torch.randn(x.width, 3), torch.randn(len(x), 3)
    assert_close(x @ weight, dense @ weight)
    assert_close(x.transposed @ rows, dense.T @ rows)
    assert_close(x.select(torch.tensor([7, 0, 7])) @ weight, dense[[7, 0, 7]] @ weight)


def test_copies_of_a_text_are_in_one_fold() -> None:
    texts = [[n // 6, 6 + n % 6] for n in range(30)]
    _, once = NGramVectorizer.fit_transform(*flat(texts), order=2, min_df=1, vocabulary=WORDS)
    shuffled = torch.randperm(len(once), generator=torch.Generator().manual_seed(0))
    for part, fold in zip(shuffled.tensor_split(FOLDS), fold_rows(once, shuffled), strict=True):
        assert torch.equal(part, fold)
    _, twice = NGramVectorizer.fit_transform(*flat(texts + texts), order=2, min_df=1, vocabulary=WORDS)
    shuffled = torch.randperm(len(twice), generator=torch.Generator().manual_seed(0))
    folds = fold_rows(twice, shuffled)
    assert sorted(torch.cat([*folds]).tolist()) == list(range(60))
    assert [len(fold) for fold in folds] == [12] * FOLDS
    for fold in folds:
        assert {(n + 30) % 60 for n in fold.tolist()} == {*fold.tolist()}


@pytest.mark.parametrize("center", [0.0, 0.5])
def test_merged_columns_have_the_optimum_of_equal_ones(center: float) -> None:
    """Equal columns of one block become one; weights, scale and Gram matrix are those of the unmerged matrix."""
    texts = [[n % 3, 3 + n % 3, 6 + n % 5, 11 - n // 40] for n in range(60)]  # ids n % 3 and 3 + n % 3 occur together
    _, x = NGramVectorizer.fit_transform(*flat(texts), order=2, min_df=1, vocabulary=WORDS)
    both = hstack([x.scale_rows(torch.full((60, 1), 0.5)), x.scale_rows(torch.full((60, 1), 2.0))])
    merged, column_of = merge_equal_columns(both, [x.width, x.width])
    assert merged.width < both.width == merged.unmerged_width == len(column_of)
    assert merged.width % 2 == 0  # columns of different blocks are never merged
    target = torch.arange(60) % 4 % 3
    model = bag(BagConfig(), sizes(count=3))
    weights = []
    for features in (both, merged):
        scale = model.scale(features, target, True)
        start: dict[str, Any] = {"weight": torch.zeros_like(scale), "bias": torch.zeros(3)}
        weights.append(scale * fit_linear(features, target, "class", scale=scale, l2=1.0, center=center, **start)[0])
    assert_close((weights[1] / merged.unit_weight)[column_of], weights[0], atol=1e-3, rtol=0)
    kernels = [kernel_matrix(features, inverse_document_frequency(features)) for features in (both, merged)]
    assert_close(kernels[0], kernels[1])


def test_fit_from_the_weights_of_the_selection_is_that_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqwright.models.bag.selection.MAX_CROSS_VALIDATED", 50)  # one fold, as of many texts
    fits: list[tuple[torch.Tensor, torch.Tensor]] = []

    def both(*data: Any, weight: torch.Tensor, bias: torch.Tensor, max_iter: int, **options: Any) -> Any:
        warm = fit_linear(*data, weight=weight, bias=bias, max_iter=max_iter, **options)
        assert weight.any()
        fits.append((warm[0], fit_linear(*data, weight=0 * weight, bias=0 * bias, **options)[0]))
        return warm

    monkeypatch.setattr("seqwright.models.bag.model.fit_linear", both)
    bag(BagConfig(), sizes(count=3)).fit(corpus(200, 3))
    for warm, cold in fits:
        assert_close(warm, cold, atol=1e-3, rtol=0)
    assert fits


@pytest.mark.parametrize("classes", [2, 3])
def test_logistic_regression_matches_scikit_learn(classes: int) -> None:
    linear = pytest.importorskip("sklearn.linear_model", reason="scikit-learn is the oracle")
    data = corpus(200, classes)
    _, x = NGramVectorizer.fit_transform(*flat(data.texts), order=2, min_df=1, vocabulary=WORDS)
    dense = (x @ torch.eye(x.width)).numpy()
    start: dict[str, Any] = {"weight": torch.zeros(x.width, classes), "bias": torch.zeros(classes)}
    weight, bias = fit_linear(x, data.target, "class", scale=torch.ones(x.width, classes), l2=1.0, **start)
    ours = (torch.from_numpy(dense) @ weight + bias).softmax(-1)
    # For two classes scikit-learn has one weight vector where softmax has two: half the penalty on their difference.
    oracle = linear.LogisticRegression(C=1.0 if classes > 2 else 2.0, tol=1e-8, max_iter=10_000).fit(dense, data.target)
    assert_close(ours, torch.from_numpy(oracle.predict_proba(dense)).float(), atol=2e-3, rtol=0)


@pytest.mark.parametrize(("kind", "count"), [("class", 2), ("class", 3), ("multilabel", 3), ("regression", 1)])
def test_bag_fits_round_trips_and_is_batch_invariant(kind: str, count: int) -> None:
    data = corpus(classes=count)
    if kind != "class":
        data.target = torch.nn.functional.one_hot(data.target, max(count, 2))[:, -count:].float()
    model = bag(BagConfig(order=2), sizes(kind, count))
    model.fit(data)
    every = np.arange(len(data.texts))
    batched = model(data.batch(every))
    single = torch.cat([model(data.batch(np.array([row]))) for row in every])
    assert_close(batched, single)
    other = bag(BagConfig(order=2), sizes(kind, count))
    other.load_state_dict(model.state_dict())
    assert (other(data.batch(every)) == batched).all()
    if kind == "class":
        assert (batched.argmax(1) == data.target).float().mean() > 0.85


def word_marks(text: list[int]) -> list[int]:
    """1 at the first character of a word, 2 inside it, 0 between words; id 0 is a space."""
    return [0 if id == 0 else 2 if n and text[n - 1] else 1 for n, id in enumerate(text)]


def test_word_hashes_are_distinct_for_distinct_words() -> None:
    texts = [*random_texts(80, 5), [], [0, 0]]
    ids, lengths = flat(texts)
    hashes, counts = word_hashes(ids, np.array([mark for text in texts for mark in word_marks(text)]), lengths)
    words = [[word for word in "".join(map(chr, text)).split(chr(0)) if word] for text in texts]
    assert counts.tolist() == [len(of_text) for of_text in words]
    pairs = set(zip(hashes.tolist(), (word for of_text in words for word in of_text), strict=True))
    assert len(pairs) == len({value for value, _ in pairs}) == len({word for _, word in pairs}) > 80
    known = np.unique(hashes[:50])
    assert (known[word_ids(hashes[:50], known)] == hashes[:50]).all()
    assert word_ids(np.array([7]), known).tolist() == [len(known)]
    short, _ = word_hashes(np.zeros(3, np.int64), np.array([1, 1, 2]), np.array([1, 2]))  # the first id, once and twice
    assert short[0] != short[1]
    nothing, none = word_hashes(np.zeros(3, np.int64), np.zeros(3, np.int64), np.array([1, 2]))
    assert (nothing.tolist(), none.tolist()) == ([], [0, 0])


class CharacterCorpus(Corpus):
    """Texts of characters, in which id 0 is a space."""

    def batch(self, rows: np.ndarray) -> Batch:
        batch = super().batch(rows)
        marks = torch.zeros_like(batch.source.mask, dtype=torch.long)
        for n, row in enumerate(rows):
            marks[n, : self.lengths[row]] = torch.tensor(word_marks(self.texts[row]), dtype=torch.long)
        return replace(batch, source=replace(batch.source, words=marks))


def test_word_ngrams_add_to_character_ngrams() -> None:
    """The class is whether the word 1 2 follows the word 2 1, which character bigrams cannot represent."""
    generator = random.Random(3)
    pool = [[1, 2], [2, 1], [1, 1, 2], [2, 2, 1]]
    chosen = [[generator.choice(pool) for _ in range(3)] for _ in range(300)]
    target = [int(any(words[n : n + 2] == [[2, 1], [1, 2]] for n in range(2))) for words in chosen]
    texts = [[id for word in words for id in (*word, 0)] for words in chosen]
    data, every = CharacterCorpus(texts, torch.tensor(target)), np.arange(300)
    accuracy = []
    for words in (0, 2):
        model = bag(BagConfig(order=2, words=words), sizes())
        model.fit(data)
        accuracy.append(float((model(data.batch(every)).argmax(1) == data.target).float().mean()))
        other = bag(BagConfig(order=2, words=words), sizes())
        other.load_state_dict(model.state_dict())
        assert (other(data.batch(every)) == model(data.batch(every))).all()
    assert accuracy[0] < 0.95
    assert accuracy[1] == 1.0


def test_unknown_words_form_no_known_bigram() -> None:
    """Every bigram of the words 1 and 2 is known; none of them is 1 3 or 2 3."""
    data = CharacterCorpus([[a, 0, b] for a in (1, 2) for b in (1, 2)] * 2, torch.arange(8) % 2)
    model = bag(BagConfig(order=1, words=2, min_df=1, l2=1.0), sizes())
    model.fit(data)
    assert model.facts["types"] == [3, 2, 4]
    others = CharacterCorpus([[1, 0, 3], [2, 0, 3], [3, 0, 1], [1, 0, 2]], torch.zeros(4, dtype=torch.long))
    streams = model._streams(others.sources)
    assert model.vectorizers[1].transform(*streams[1]).row_sizes.flatten().tolist() == [1, 1, 1, 3]


def test_normalize_gives_every_view_its_mean_norm() -> None:
    """Every text has the mean IDF-weighted norm in each view, however many n-grams it has and however rare."""
    texts = [text for text in random_texts(60, 6) if len(set(text)) > 1]
    views = [
        NGramVectorizer.fit_transform(*flat(texts), order=order, min_df=1, vocabulary=WORDS)[1] for order in (1, 3)
    ]
    model = bag(BagConfig(words=1), sizes())
    model.mean_square_norm, model.idf = torch.tensor([4.0, 9.0]), 1 + torch.rand(sum(view.width for view in views))
    stacked = model._normalized(views)
    squares = replace(stacked, values=None if stacked.values is None else stacked.values.square())
    of_view = torch.zeros(stacked.width, 2)
    of_view[: views[0].width, 0] = of_view[views[0].width :, 1] = 1
    of_view *= model.idf.square().unsqueeze(1)
    assert_close(squares @ of_view, torch.tensor([[4.0, 9.0]]).expand(len(texts), 2))


@pytest.mark.parametrize("words", [0, 1])
def test_unnormalized_features_are_binary(words: int) -> None:
    """Without normalize, logits are the sum of the weights of the n-grams in a text."""
    data = CharacterCorpus([text or [0] for text in random_texts(60, 7)], torch.arange(60) % 2)
    model = bag(BagConfig(order=2, words=words, normalize=False, l2=1.0), sizes())
    model.fit(data)
    streams = model._streams(data.sources)
    views = [rows_of(view.transform(*stream)) for view, stream in zip(model.vectorizers, streams, strict=True)]
    first = model.vectorizers[0].width
    columns_of = [[*views[0][n], *(first + column for view in views[1:] for column in view[n])] for n in range(60)]
    sums = torch.stack([model.weight[columns].sum(0) + model.bias for columns in columns_of])
    assert_close(model(data.batch(np.arange(60))), sums)


def test_regression_does_not_use_naive_bayes() -> None:
    data = corpus()
    data.target = data.target[:, None].float()
    notes = []
    for naive_bayes in (None, True, False):
        model = bag(BagConfig(order=2, naive_bayes=naive_bayes), sizes("regression", 1))
        model.fit(data)
        notes += model.notes
    assert len(notes) == 3
    assert len(set(notes)) == 1
    assert "naive" not in notes[0]


def test_word_ngrams_need_a_character_tokenizer() -> None:
    with pytest.raises(UserError, match="characters"):
        bag(BagConfig(words=2), sizes()).fit(corpus())


def test_naive_bayes_is_selected_on_held_out_texts_where_they_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weighting of least loss is selected; with many weights naive Bayes is used without comparison."""

    def note(**options: object) -> str:
        model = bag(BagConfig(order=2, **options), sizes())  # type: ignore[arg-type]
        model.fit(corpus())
        return model.notes[-1]

    def loss(note: str) -> float:
        return float(note.split("loss ")[1].rstrip(")."))

    monkeypatch.setattr("seqwright.models.bag.selection.MAX_RIDGE_TEXTS", 0)  # which would hide the difference
    losses = {weighted: loss(note(naive_bayes=weighted)) for weighted in (True, False)}
    assert losses[True] != losses[False]
    assert loss(note()) == min(losses.values())
    monkeypatch.setattr("seqwright.models.bag.selection.MAX_GRID_WEIGHTS", 0)
    assert "with naive Bayes" in note()
    assert ", selected on 12 held-out texts (accuracy" in note()


def test_held_out_accuracy_is_noted() -> None:
    """One token decides the class: accuracy is 100 %. A class of one text is ignored where that text is held out."""
    texts = [[n % 2, 5, 6 + n % 3] for n in range(60)]
    notes = []
    for more in ([], [[9, 9]]):
        target = torch.tensor([*(n % 2 for n in range(60)), *(2 for _ in more)])
        model = bag(BagConfig(order=1), sizes(count=3))
        model.fit(Corpus([*texts, *more], target))
        notes.append(model.notes[-1])
    assert all("selected on 60 held-out texts (in 5 folds accuracy 100.00 %" in note for note in notes)


def test_l2_penalty_is_centered_at_naive_bayes_where_it_is_better(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words are independent given the class, so that naive Bayes is the right model and a regression gains nothing."""
    monkeypatch.setattr("seqwright.models.bag.selection.MAX_RIDGE_TEXTS", 0)
    draw = random.Random(2)
    target = torch.arange(60) % 2
    texts = [[draw.choice(range(6)) + 6 * (draw.random() < (0.9 if t else 0.1)) for _ in range(6)] for t in target]
    centered, plain = (bag(BagConfig(order=1, naive_bayes=weighted), sizes()) for weighted in (True, False))
    for model in (centered, plain):
        model.fit(Corpus(texts, target))
    assert "penalty centered at it" in centered.notes[-1]
    assert "centered" not in plain.notes[-1]
    ratios = centered.scale(
        NGramVectorizer.fit_transform(*flat(texts), order=1, min_df=1, vocabulary=WORDS)[1], target, True
    )
    assert float(torch.corrcoef(torch.stack([centered.weight[:, 0], ratios[:, 0]]))[0, 1]) > 0.99


def test_min_df_is_selected_on_few_texts() -> None:
    """The default takes min_df of 1 or 2, whichever has the lower held-out loss."""
    texts = [[n % 2, 2 + n % 2, 4 + n % 8] for n in range(40)]
    results = {}
    for min_df in (None, 1, 2):
        model = bag(BagConfig(order=3, min_df=min_df), sizes())
        model.fit(Corpus(texts, torch.arange(40) % 2))
        results[min_df] = float(model.notes[-1].split("loss ")[1].rstrip(").")), model.weight.size(0)
    assert results[None] == min(results[1], results[2])


def test_squared_hinge_matches_scikit_learn_linear_svc() -> None:
    """Between more than two classes; the fitted bag classifies well."""
    svm = pytest.importorskip("sklearn.svm", reason="scikit-learn is the oracle")
    data = corpus(200, 4)
    _, x = NGramVectorizer.fit_transform(*flat(data.texts), order=2, min_df=1, vocabulary=WORDS)
    dense = torch.cat([x @ torch.eye(x.width), torch.ones(len(x), 1)], 1).numpy()
    oracle = svm.LinearSVC(C=0.5, fit_intercept=False, tol=1e-8, max_iter=100_000).fit(dense, data.target)
    start: dict[str, Any] = {"scale": torch.ones(x.width, 4), "weight": torch.zeros(x.width, 4), "bias": torch.zeros(4)}
    weight, bias = fit_linear(x, data.target, "squared_hinge", l2=2.0, **start)
    ours = (x @ weight + bias).argmax(1).numpy()
    assert (ours == oracle.predict(dense)).mean() > 0.97  # scikit-learn regularizes the bias, too
    model = bag(BagConfig(order=2), sizes(count=4))
    model.fit(data)
    assert (model(data.batch(np.arange(200))).argmax(1) == data.target).float().mean() > 0.85


def test_two_texts_are_classified_by_their_unique_tokens() -> None:
    data = Corpus([[1, 2], [3, 4]], torch.tensor([0, 1]))
    model = bag(BagConfig(order=1), sizes())
    model.fit(data)
    assert model(data.batch(np.arange(2))).argmax(1).tolist() == [0, 1]


def test_strong_l2_penalty_keeps_weights_at_its_center() -> None:
    _, x = NGramVectorizer.fit_transform(*flat(random_texts(40, 8)), order=1, min_df=1, vocabulary=WORDS)
    start: dict[str, Any] = {"scale": torch.ones(x.width, 2), "weight": torch.zeros(x.width, 2), "bias": torch.zeros(2)}
    weight, _ = fit_linear(x, torch.arange(40) % 2, "class", l2=1e6, center=0.5, **start)
    assert_close(weight, torch.full_like(weight, 0.5), atol=1e-3, rtol=0)


def test_too_many_weights_drop_rare_ngrams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqwright.models.bag.model.MAX_WEIGHTS", 300)
    model = bag(BagConfig(order=3, min_df=1), sizes())
    model.fit(corpus())
    assert 0 < model.weight.numel() <= 300
    assert "are dropped" in model.notes[0]


def test_naive_bayes_scale_is_the_log_count_ratio() -> None:
    """Wang & Manning's r, by hand."""
    data = Corpus([[1, 2], [1, 3], [1, 3, 3], [2]], torch.tensor([0, 1, 1, 0]))
    model = bag(BagConfig(order=1, min_df=1), sizes())
    _, x = NGramVectorizer.fit_transform(*flat(data.texts), order=1, min_df=1, vocabulary=WORDS)
    p, q = np.array([2 + 1, 0 + 1, 2 + 1]), np.array([1 + 1, 2 + 1, 0 + 1])
    expected = np.log(p / p.sum()) - np.log(q / q.sum())
    assert_close(model.scale(x, data.target, True)[:, 1].double(), torch.from_numpy(expected), atol=1e-6, rtol=0)


def test_texts_of_a_pair_have_separate_features() -> None:
    batch = corpus(4).batch(np.arange(4))
    segments = torch.ones_like(batch.source.ids)  # type: ignore[arg-type]
    pairs = bag(
        BagConfig(),
        EncoderSizes(answers=OutputSpec(kind="class", count=2), vocabulary=Vocabulary(size=WORDS), segments=2),
    )
    plain = Source(mask=batch.source.mask, ids=batch.source.ids)
    second = Source(mask=batch.source.mask, ids=batch.source.ids, segments=segments)
    (one, _), (two, _) = (pairs._marked(Unpadded.of(source)) for source in (plain, second))
    assert (two == one + WORDS).all()
    assert pairs.vectorizers[0].vocabulary == 2 * WORDS


@pytest.mark.parametrize(
    "wrong", [{"order": 0}, {"words": -1}, {"min_df": 0}, {"smoothing": 0.0}, {"l2": -1.0}, {"l2": 0.0}]
)
def test_invalid_bag_configs_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError):
        BagConfig(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_ragged_texts_have_the_logits_of_padded_ones_however_many_at_a_time(
    monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    data = corpus()
    data.texts[7] = [5] * 1000  # longer than a block
    data.lengths[7] = 1000
    model = bag(BagConfig(l2=1.0), sizes())
    model.fit(data)
    monkeypatch.setattr("seqwright.models.bag.model.BLOCK_TOKENS", block)
    assert_close(model.logits(data.sources), model(data.batch(np.arange(len(data.texts)))))


@pytest.mark.parametrize("count", [40, 10])
def test_an_empty_text_gets_the_prior(count: int) -> None:
    """One empty text among others, between <sos> and <eos>, is no sign of its label, nor is a text of unknown ids."""
    sos, eos = 0, 1
    texts = [[sos, 2 + n % 2, 4 + n % 5, eos] for n in range(count)] + [[sos, eos]]
    data = Corpus(texts, torch.tensor([n % 2 for n in range(count)] + [1]))
    special = EncoderSizes(
        answers=OutputSpec(kind="class", count=2), vocabulary=Vocabulary(size=WORDS, sos=sos, eos=eos)
    )
    model, loaded = (bag(BagConfig(order=2), special) for _ in range(2))
    model.fit(data)
    loaded.load_state_dict(model.state_dict())
    unknown = Corpus([[sos, eos], [sos, 11, eos], [sos, 2, eos]], torch.zeros(3, dtype=torch.long))
    for fitted in (model, loaded):
        empty, unseen, known = fitted.logits(unknown.sources).softmax(1)
        prior = torch.tensor([count / 2, count / 2 + 1]) / (count + 1)
        assert_close(torch.stack([empty, unseen]), torch.stack([prior, prior]))
        assert float(known[0]) > 0.6
    assert model.selected is None or model.selected.rows is None or count not in model.selected.rows.tolist()
