"""Explanations compute the numbers of the lectures' worked examples."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
import torch

import seqwright as sw
from seqwright.studies.explain.examples import example
from seqwright.studies.explain.explanation import Explanation
from seqwright.studies.explain.figures import Matrix, Table
from tests.worked.golden import golden, near

RNN, TRANSFORMER = golden("rnn"), golden("transformer")


@functools.cache
def explained(topic: str, *overrides: str) -> Explanation:
    return sw.explain(topic, set=overrides)


def values(topic: str, name: str) -> Any:
    figure = explained(topic)[name]
    assert isinstance(figure, Matrix)
    return figure.values


def rows(topic: str, name: str, *overrides: str) -> tuple[tuple[Any, ...], ...]:
    figure = explained(topic, *overrides)[name]
    assert isinstance(figure, Table)
    return figure.rows


def column(topic: str, name: str, title: str) -> list[Any]:
    figure = explained(topic)[name]
    assert isinstance(figure, Table)
    return [row[figure.columns.index(title)] for row in figure.rows]


@pytest.mark.parametrize("name", ["rnn", "transformer"])
def test_the_shipped_parameters_are_those_of_the_examples(name: str) -> None:
    shipped, expected = example(name), golden(name)
    assert (shipped.ids, shipped.target, shipped.parameters) == tuple(
        expected[key] for key in ("ids", "target", "parameters")
    )


SQUARE_BY_TOPIC: dict[tuple[str, str], tuple[object, int]] = {
    ("attention", "Q"): ([[-0.082, -0.140, -0.247], [-0.383, 0.763, 0.687]], 3),
    ("attention", "K"): ([[0.026, -0.008, 0.132], [0.267, 0.264, -0.258]], 3),
    ("attention", "V"): ([[-0.164, -0.085, -0.056], [0.441, 0.272, 0.201]], 3),
    ("attention", "S"): ([[-0.0194, 0.0028], [0.0431, -0.0451]], 4),
    ("attention", "P"): ([[0.4944, 0.5056], [0.5220, 0.4780]], 4),
    ("attention", "A"): ([[0.1419, 0.0955, 0.0739], [0.1252, 0.0856, 0.0668]], 4),
    ("attention", "Y"): ([[-0.0290, -0.0273, 0.0634], [-0.0253, -0.0244, 0.0562]], 4),
    ("attention", "Y of one token"): ([[0.0389, 0.0246, -0.0680]], 4),
    ("attention", "P without parameters"): ([[0.5503, 0.4497], [0.2726, 0.7274]], 4),
    ("attention", "A without parameters"): ([[0.1248, -0.4396, 0.0302], [0.2637, -0.7729, -0.1364]], 4),
    ("attention", "scaled scores"): ([14, 12], 6),
    ("attention", "scaled weights"): ([0.88, 0.12], 2),
    ("attention", "x'4"): ([0.1, 0.2, 1.2, 0.1], 6),
    ("attention", "x'4 with x2 and x3 exchanged"): ([0.1, 0.2, 1.2, 0.1], 6),
    ("masking", "softmax, then mask"): ([[0.4944, 0], [0.5220, 0.4780]], 4),
    ("masking", "mask, then softmax"): ([[0.4951, 0.5049], [0.5220, 0.4780]], 4),
    ("masking", "P"): ([[1, 0], [0.5220, 0.4780]], 4),
    ("masking", "Y"): ([[0.0389, 0.0246, -0.0680], [-0.0253, -0.0244, 0.0562]], 4),
    ("cross-attention", "S"): ([[-0.0028, 0.0452], [0.0270, 0.0073]], 4),
    ("cross-attention", "P"): ([[0.4880, 0.5120], [0.5049, 0.4951]], 4),
    ("cross-attention", "A"): ([[0.1457, 0.0978, 0.0756], [0.1355, 0.0917, 0.0712]], 4),
    ("cross-attention", "Y"): ([[-0.0298, -0.0279, 0.0651], [-0.0276, -0.0262, 0.0607]], 4),
    ("rnn", "h of way 3"): ([[-0.0884, 0.6857, -0.0886, -0.5303], [-0.3054, 0.7771, -0.1560, -0.5824]], 4),
    ("multi-head", "P of head 1"): (TRANSFORMER["attention"][0], 6),
    ("multi-head", "P of head 2"): (TRANSFORMER["attention"][1], 6),
    ("rnn", "h"): (RNN["hidden"], 6),
    ("rnn", "p"): (RNN["probabilities"], 6),
    ("rnn", "L"): (RNN["loss"], 6),
    ("rnn", "sums"): ([2, 1.5, 2.5, 3.5], 6),
    ("rnn", "comparison"): ([1.0000, 0.9241, 0.0293], 4),
    ("transformer", "P of head 1"): (TRANSFORMER["attention"][0], 6),
    ("transformer", "P of head 2"): (TRANSFORMER["attention"][1], 6),
    ("transformer", "p"): (TRANSFORMER["probabilities"], 6),
    ("transformer", "L"): (TRANSFORMER["loss"], 6),
    ("lstm", "states"): ([[0.5568, -0.0005, 0.2872], [0.3696, -0.0002, 0.1740]], 4),
    ("lstm", "states with forget bias"): ([[0.5568, 0.1353, 0.4270], [0.3696, 0.0467, 0.2551]], 4),
    ("layer-norm", "y"): ([-1.3416, -0.4472, 0.4472, 1.3416], 4),
    ("positions", "by distance"): ([2, 1.5403, 0.5837, 0.0096, 0.3456], 4),
    ("bleu", "simplified BLEU of reference 1"): (0.3539, 4),
    ("bleu", "BLEU of reference 1"): (0.3419, 4),
    ("bleu", "simplified BLEU of all references"): (0.4374, 4),
    ("bleu", "BLEU of all references"): (0.4226, 4),
    ("f1", "precision"): (6 / 7, 6),
    ("f1", "recall"): (6 / 9, 6),
    ("f1", "F1"): (0.75, 6),
    ("ngram", "p of the sentence"): (0.006612, 6),
    ("search", "outputs in all"): (39, 6),
}


@pytest.mark.parametrize(("topic", "name"), SQUARE_BY_TOPIC, ids=lambda part: part)
def test_matrices_equal_the_worked_example(topic: str, name: str) -> None:
    expected, digits = SQUARE_BY_TOPIC[topic, name]
    near(torch.tensor(values(topic, name), dtype=torch.float64), expected, digits)


def test_rnn_gradients_and_sgd_step() -> None:
    names = {"E": "embedding.weight", "W_ih": "rnn.weight_ih", "W_hh": "rnn.weight_hh", "b_ih": "rnn.bias_ih"}
    for ours, theirs in (names | {"W_out": "readout.weight", "b_out": "readout.bias"}).items():
        near(torch.tensor(values("rnn", f"∂L/∂{ours}")), RNN["gradients"][theirs], 6)
    assert column("rnn", "after one step", "loss") == pytest.approx([2.505397, 1.894523, 1.892993], abs=1e-6)
    assert column("rnn", "after one step", "p(nên)")[-1] == pytest.approx(RNN["target_probability_after"], abs=1e-6)


def test_rnn_gradient_of_a_hidden_state_is_that_of_the_read_out_and_of_later_states() -> None:
    h = torch.tensor(values("rnn", "h"), dtype=torch.float64)
    total = torch.tensor(values("rnn", "∂L/∂h"), dtype=torch.float64)
    through = torch.tensor(values("rnn", "through time"), dtype=torch.float64)
    w_hh = example("rnn")["rnn.weight_hh"]
    for t in range(3):
        near(through[t], w_hh.T @ ((1 - h[t + 1] ** 2) * total[t + 1]), 10)


def test_transformer_gradients_and_sgd_steps() -> None:
    names = {"W_Q": "query", "W_K": "key", "W_V": "value", "W_O": "output", "W_1": "up", "W_2": "down"}
    for ours, theirs in names.items():
        near(torch.tensor(values("transformer", f"∂L/∂{ours}")), TRANSFORMER["gradients"][f"{theirs}.weight"], 6)
        near(torch.tensor(values("transformer", ours)), TRANSFORMER["parameters"][f"{theirs}.weight"], 6)
    assert values("transformer", "W_2 after one step")[0][6] == pytest.approx(0.1515, abs=5e-5)  # a slip of the slides
    near(torch.tensor(values("transformer", "∂L/∂γ_1")), TRANSFORMER["gradients"]["norm1.weight"], 6)
    near(torch.tensor(values("transformer", "∂L/∂E")), TRANSFORMER["gradients"]["embedding.weight"], 6)
    losses = column("transformer", "losses", "loss")
    assert losses == pytest.approx([TRANSFORMER["loss"], *TRANSFORMER["losses_after_sgd_0.1"]], abs=1e-6)


def test_vocabulary_and_pairs() -> None:
    tokens = ["<unk>", "<pad>", "<sos>", "chí", "cây", "có", "kẻ", "nhớ", "nên", "quả", "thì", "trồng", "ăn"]
    assert column("vocabulary", "vocabulary", "token") == tokens
    assert rows("vocabulary", "ids by form")[-1] == ("ăn", 12, 3)
    pairs = [(row[1], row[3]) for row in rows("pairs", "pairs")]
    assert pairs[0] == ("2 1 1 1 1 1", 12)
    assert pairs[5] == ("2 12 9 7 6 11", 4)
    assert pairs[6:] == [("2 1 1 1 1 1", 5), ("2 5 1 1 1 1", 3), ("2 5 3 1 1 1", 10), ("2 5 3 10 1 1", 8)]
    assert rows("pairs", "documents")[1] == ("<sos> có chí thì nên", "có chí thì nên <eos>")


def test_ngram_counts_probabilities_and_sums() -> None:
    counts = {"corn": 4, "grass": 3, "hay": 2, "if": 1, "which": 1}
    assert dict(rows("ngram", "counts")) == counts
    assert column("ngram", "p(w | h)", "p") == pytest.approx([count / 11 for count in counts.values()], abs=1e-6)
    assert column("ngram", "factors", "p") == pytest.approx([1 / 11, 1, 4 / 11, 1 / 5], abs=1e-6)
    assert values("ngram", "sums") == pytest.approx([1] * 6, abs=1e-5)


def test_ngram_columns_fit_their_formulas() -> None:
    p = {row["next"]: row for row in explained("ngram")["smoothing"].as_json()["rows"]}
    discounts = {row[0]: row[1:4] for row in rows("ngram", "discounts and totals")}
    assert discounts["absolute"] == pytest.approx((0.9, 0.9, 0.9))
    # Five words follow “cows eat”, 11 times in all: weight(h) of absolute is 5 · 0.9 / 11.
    bigram = explained("ngram", "context=eat")["smoothing"].as_json()["rows"]
    after_eat = {row["next"]: row for row in bigram}
    for word, count in {"corn": 4, "grass": 3, "if": 1}.items():
        assert p[word]["absolute"] == pytest.approx(
            (count - 0.9) / 11 + 4.5 / 11 * after_eat[word]["absolute"], abs=1e-4
        )
        assert p[word]["add-k"] == pytest.approx((count + 1) / (11 + 37))
    assert p["grass"]["stupid-backoff"] / p["corn"]["stupid-backoff"] == pytest.approx(3 / 4)  # S / Z keeps ratios


def test_bpe_merges() -> None:
    assert column("bpe", "merges", "new symbol") == ["es", "est", "est</w>", "lo", "low"]
    assert column("bpe", "pair counts", "count")[:7] == [2] * 6 + [1]
    assert rows("bpe", "word")[-1][1] == "low est</w>"


def test_attention_score_kinds() -> None:
    kinds = {row[0]: row[2:] for row in rows("attention", "score kinds")}
    assert kinds["dot"] == pytest.approx((1, 2, 3, 0.0900, 0.2447, 0.6652), abs=5e-5)
    assert kinds["scaled-dot"][3:] == pytest.approx((0.140, 0.284, 0.576), abs=5e-4)
    assert kinds["general"][:3] == (2, 1, 3)
    assert kinds["additive"] == pytest.approx((1.9281, 1.7566, 1.9591, 0.3479, 0.2931, 0.3589), abs=5e-5)
    assert kinds["concat"] == pytest.approx(kinds["additive"])


def test_positions_candidates_and_rope() -> None:
    passed = {row[0]: row[2:] for row in rows("positions", "candidates")}
    assert passed["counter"] == ("yes", "no", "no")
    assert passed["exponential"] == ("yes", "no", "yes")
    assert passed["powers of a unitary matrix"] == passed["sinusoids"] == ("yes", "yes", "yes")
    assert column("positions", "rotary dot products", "q · k") == pytest.approx(
        [1, 1, -5.35, -5.35, -5.35, -6.7812, -6.7812], abs=5e-3
    )
    near(torch.tensor(values("positions", "P of odd width"))[4], [-0.757, -0.654, 0.100, 0.995, 0.003], 3)
    near(torch.tensor(values("positions", "M_c M_cᵀ")), torch.eye(4).tolist(), 10)
    near(torch.tensor(values("positions", "learned angles"))[-1], [1.0, 0.01, 0.0], 6)


def test_search_outputs_and_tree() -> None:
    assert rows("search", "greedy")[0][:2] == ("a b c END", pytest.approx(-3.0366, abs=5e-5))
    assert rows("search", "beam")[0][:2] == ("b c END", pytest.approx(-2.3434, abs=5e-5))
    assert rows("search", "exhaustive")[0][:2] == ("a END", pytest.approx(-1.8971, abs=5e-5))
    assert rows("search", "beams")[2][1] == "a END"
    for row in rows("search", "normalized"):
        assert row[1] == "a b c END"
        assert row[3] == pytest.approx(-0.7591, abs=5e-5)


def test_search_says_which_rows_were_divided_by_their_sums() -> None:
    assert "divided" not in explained("search").steps[0].prose
    changed = explained("search", "p[0,0]=0.9")
    assert "(START: 1.4) were divided by their sums" in changed.steps[0].prose
    assert changed["p(next | last)"].values[0][0] == pytest.approx(0.9 / 1.4)  # type: ignore[attr-defined]


def test_imdb_parameters_and_shapes() -> None:
    assert column("imdb", "parameters", "parameters") == [68_228_482, 4_641_538, 2_806_402, 2_572_546, 2_758_786]
    shapes = dict(
        zip(column("imdb", "layers of imdb-cnn", "module"), column("imdb", "layers of imdb-cnn", "output"), strict=True)
    )
    assert shapes["pooling"] == "4 × 13568"


def test_gru_gates_equal_the_kernel() -> None:
    assert column("gru", "gates", "h") == pytest.approx(values("gru", "h"))


def test_sgd_batches_are_disjoint_and_their_mean_is_the_gradient() -> None:
    batches = [row[1].split(", ") for row in rows("sgd", "batches")]
    assert sorted(pair for batch in batches for pair in batch) == sorted(column("sgd", "examples", "pair"))
    assert values("sgd", "their mean, weighted by size") == pytest.approx(values("sgd", "gradient of J"), abs=1e-12)
    (final,) = explained("sgd", "epochs=150").steps[-1].figures
    assert math.log(2) / 2 <= final.as_json()["values"] < 0.37


def test_seq2seq_learns_its_pair_by_teacher_forcing() -> None:
    assert rows("seq2seq", "shifted") == (("<sos>", "i"), ("i", "read"), ("read", "books"), ("books", "<eos>"))
    assert rows("seq2seq", "output after training")[0][0] == "i read books <eos>"
    assert [sum(row) for row in values("seq2seq", "attention weights")] == pytest.approx([1] * 4)


def test_sampling_filters_and_draws() -> None:
    p = dict(row[:2] for row in rows("sampling", "p"))
    assert p["corn"] == pytest.approx(4 / 11, abs=1e-6)
    assert column("sampling", "top-k", "top-k")[:3] == pytest.approx([4 / 7, 3 / 7, 0], abs=1e-6)
    assert column("sampling", "top-p", "top-p")[:4] == pytest.approx([4 / 9, 3 / 9, 2 / 9, 0], abs=1e-6)
    assert {row[2] for row in rows("sampling", "draws")} <= {"corn", "grass"}
    few = explained("sampling", "min_p=0.9")  # grass is (3/4)² times as probable as corn at temperature 0.5
    assert {row[2] for row in few["draws"].rows} == {"corn"}  # type: ignore[attr-defined]
    assert "Temperature 0.5, then top-k, top-p and min-p" in few.steps[-1].prose


def test_bert_selects_its_share_and_vit_cuts_patches() -> None:
    shares = column("bert", "shares", "share")
    assert shares[:2] == pytest.approx([0.3, 0.8], abs=0.02)
    assert values("vit", "patches")[0] == [0, 0, 0, 255]
    assert rows("vit", "shapes")[-2][2] == "2 × 10 × 10"


def test_a_changed_number_changes_what_follows() -> None:
    plain, changed = explained("attention"), explained("attention", "W_Q[0,1]=2", "X[1,0]=0.9")
    assert plain["K"].values[0] == changed["K"].values[0]  # type: ignore[attr-defined]
    assert plain["Y"].values != changed["Y"].values  # type: ignore[attr-defined]
    near(torch.tensor(changed["P"].values).sum(-1), [1, 1], 12)  # type: ignore[attr-defined]


def test_gradients_of_an_rnn_vanish_and_those_of_lstm_and_attention_do_not() -> None:
    lines = explained("gradients")["g by distance"].as_json()["lines"]
    assert lines["Elman RNN"][-1] < 0.01 < lines["LSTM"][-1]
    assert lines["attention"][-1] > 0.01
    exploding = sw.explain("gradients", set=["gain=1.5"])["g by distance"].as_json()["lines"]
    assert exploding["Elman RNN"][-1] > 1
    tiny = sw.explain("gradients", set=["gain=0.3", "length=128"])
    assert 0 < tiny["mean factor per step back"].as_json()["values"] <= 0.3
    assert sw.explain("gradients", set=["forget_bias=0"])["g by distance"].as_json()["lines"]["LSTM"][-1] < 1e-5


def test_growth_is_linear_for_recurrent_networks_and_quadratic_for_attention() -> None:
    figure = sw.explain("growth", set=["lengths=[256,512,1024]"])["mult-adds"].as_json()["rows"]
    assert [row["Elman RNN"] for row in figure] == [n * (2 * 32**2 + 32 * 100) for n in (256, 512, 1024)]
    assert [row["attention"] for row in figure] == [
        n * (12 * 32**2 + 32 * 100) + 2 * n * n * 32 for n in (256, 512, 1024)
    ]


def test_tricks_switched_off_one_by_one() -> None:
    explanation = explained("tricks")
    [first, *_, last] = column("tricks", "largest of 8 attention weights, mean of 64 queries", "unscaled")
    assert last > 0.9 > first
    gradients = explanation["∂L/∂x by depth"].as_json()["lines"]
    assert gradients["with residuals"][-1] > 100 * gradients["without residuals"][-1]
    sizes = explanation["size of the residual stream by depth"].as_json()["lines"]
    assert sizes["without"][-1] > 2 * sizes["with normalization"][-1]
    changes = {
        row["positions"]: row["largest change"] for row in explanation["change of the last output"].as_json()["rows"]
    }
    assert changes["none"] == pytest.approx(0, abs=1e-12)
    assert changes["none, stack of 12"] > 1e-5  # the mask tells a deeper stack some order
    assert min(changes["sinusoidal"], changes["rope"]) > 1e-5
