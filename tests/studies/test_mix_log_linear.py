"""Log-linear mixtures of language models: chosen where they are better; scores and steps agree."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch

import seqwright as sw
from seqwright.cli import main
from seqwright.core.batch import Batch
from seqwright.core.config import UserError
from seqwright.models import mixture
from seqwright.studies import mix
from seqwright.studies.check import check

TEXT = "".join(f"the {a} {b} sees {'a' if n % 3 else 'the'} {c}.\n" for n in range(40) for a, b, c in [
    ("red", "fox", "dog"), ("old", "cat", "fox"), ("big", "dog", "bird"), ("shy", "bird", "cat")
][n % 4 : n % 4 + 1])  # fmt: skip
TINY = ["tokenizer.kind=characters", "model.layers=1", "model.width=16", "model.heads=2", "model.context=32"]
TINY += ["training.steps=30", "training.batch_size=4", "evaluation.resamples=0", "evaluation.baseline=false"]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("log-linear")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    (folder / "other.txt").write_text(TEXT[700:1100][::-1], encoding="utf-8")
    return sw.train(text=str(folder / "text.txt"), model="gpt", set=TINY, run=folder / "gpt")


def test_with_an_ngram_the_mean_of_lower_loss_is_chosen(network: Any) -> None:
    folder = network.path.parent
    mixed = sw.mix([network.path], folder / "both", ngram=True)
    summary = mixed.directory.summary()
    alone = [part["perplexity"] for part in summary["parts"]]
    assert summary["tuned"]["perplexity"] <= min(alone) * (1 + 1e-6)
    assert mixed.settings.model.config.mean == summary["mean"]
    assert all(result.holds for result in check(mixed))


def test_the_log_linear_mean_is_interpolated_with_its_parts(
    network: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that no token has less than the share of a part times what that part gives it."""
    monkeypatch.setattr(mix, "GAIN", -1.0)  # so that it is chosen
    folder = network.path.parent
    command = ["seqwright", "mix", str(network.path), "--ngram", "--run", str(folder / "interpolated")]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit):
        main()
    assert "interpolated with its parts: it has" in capsys.readouterr().out
    mixed, ngram = sw.open(folder / "interpolated"), sw.open(folder / "interpolated-ngram")
    summary = mixed.directory.summary()
    shares, powers = ([part[name] for part in summary["parts"]] for name in ("interpolation", "weight"))
    assert summary["tuned"]["perplexity"] <= min(part["perplexity"] for part in summary["parts"]) * (1 + 1e-6)
    ids = torch.tensor([network.tokenizer.encode("the old cat")])
    batch = Batch.of_text(ids[:, :-1], ids[:, 1:])
    with torch.no_grad():
        logs = [run.model(batch).log_softmax(-1) for run in (network, ngram)]
        product = sum(power * log for power, log in zip(powers, logs, strict=True)).softmax(-1)
        expected = (1 - sum(shares)) * product + sum(s * log.exp() for s, log in zip(shares, logs, strict=True))
        assert torch.allclose(mixed.model(batch).exp(), expected, atol=1e-6)
        assert torch.allclose(expected.sum(-1), torch.ones(1, ids.size(1) - 1), atol=1e-5)
    assert all(result.holds for result in check(mixed))


def test_an_interpolation_is_of_a_geometric_mean_and_has_a_weight_for_each_part(network: Any) -> None:
    with pytest.raises(UserError, match="of a geometric mean"):
        mixture.MixtureConfig(weights=(0.5, 0.5), interpolation=(0.1, 0.1), parts={})
    for wrong in ([0.1], [0.8, 0.4], [-0.1, 0.2]):
        with pytest.raises(UserError, match="a weight of 0 or more for each part"):
            mixture.Product([network.model, network.model], [0.5, 0.5], wrong)
    only_parts = mixture.Product([network.model, network.model], [0.5, 0.5], [0.25, 0.75])
    ids = torch.tensor([network.tokenizer.encode("the old cat")])
    batch = Batch.of_text(ids[:, :-1], ids[:, 1:])
    with torch.no_grad():
        assert torch.allclose(only_parts(batch), network.model(batch).log_softmax(-1), atol=1e-5)


def test_the_mean_is_chosen_by_the_whole_text(network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by the sample that tunes the weights, which of a large vocabulary is small."""
    monkeypatch.setattr(mix, "log_linear_weights", lambda runs, stream: np.array([9.0, 9.0]))
    monkeypatch.setattr(mix, "GAIN", 0.2)  # a part of such a mean helps even so
    mixed = sw.mix([network.path], network.path.parent / "sharp", ngram=True)
    summary = mixed.directory.summary()
    assert summary["mean"] == mixed.settings.model.config.mean == "arithmetic"
    assert np.isclose(sum(part["weight"] for part in summary["parts"]), 1)


def test_a_geometric_mean_that_is_asked_for_is_taken_with_an_ngram_too(
    network: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = network.path.parent
    monkeypatch.setattr(mix, "GAIN", 1.0)  # so that it is never chosen by itself
    assert sw.mix([network.path], folder / "linear-ngram", ngram=True).directory.summary()["mean"] == "arithmetic"
    mixed = sw.mix([network.path], folder / "product-ngram", ngram=True, geometric=True)
    assert mixed.directory.summary()["mean"] == "geometric"
    command = ["seqwright", "mix", str(network.path), "--ngram", "--geometric", "--run", str(folder / "command")]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit):
        main()
    shown = capsys.readouterr().out
    assert "log-linear mixture" in shown
    assert "lower NLL than" not in shown  # nothing was compared


def test_a_folder_that_holds_a_run_is_refused_before_anything_is_written(network: Any) -> None:
    folder = network.path.parent
    with pytest.raises(UserError, match="already holds a run"):
        sw.mix([network.path], network.path, ngram=True)
    assert not (folder / f"{network.path.name}-ngram").exists()


def test_asked_for_a_geometric_mean_it_is_the_normalized_product(network: Any) -> None:
    folder = network.path.parent
    ngram = sw.train(
        text=str(folder / "text.txt"),
        model="ngram",
        set=[f"tokenizer.file={network.path}/tokenizer.json", "data.refit=false"],
        run=folder / "ngram",
    )
    mixed = sw.mix([network.path, ngram.path], folder / "product", geometric=True)
    weights = [part["weight"] for part in mixed.directory.summary()["parts"]]
    ids = torch.tensor([network.tokenizer.encode("the old cat")])
    batch = Batch.of_text(ids[:, :-1], ids[:, 1:])
    with torch.no_grad():
        logs = [run.model(batch).log_softmax(-1) for run in (network, ngram)]
        expected = sum(weight * log for weight, log in zip(weights, logs, strict=True)).log_softmax(-1)
        assert torch.allclose(mixed.model(batch), expected, atol=1e-5)


def test_a_product_scores_alike_in_any_pieces(network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are scored some at a time, and text with a state some positions at a time."""
    product = mixture.Product([network.model, network.model], [0.3, 0.5])
    ids = torch.tensor(network.tokenizer.encode(TEXT[:61]))[:34].view(2, 17)
    batch = Batch.of_text(ids[:, :-1], ids[:, 1:])
    with torch.no_grad():
        whole, none = product.score(batch)
        monkeypatch.setattr(mixture, "POSITIONS", 6)
        one_by_one, _ = product.score(batch)
        pieces, after = product.score(batch, product.start(batch.source, capacity=16))
    assert none is None
    assert after is not None
    assert torch.allclose(whole, pieces, atol=1e-5)
    assert torch.allclose(whole, one_by_one, atol=1e-5)


def test_short_rows_are_scored_together(network: Any) -> None:
    """As many as have the positions of a pass: texts of a few tokens are not a pass of the models each."""
    passes = []
    hook = network.model.register_forward_hook(lambda module, batch, out: passes.append(out.size(0)))
    batch = Batch.of_text(torch.zeros(200, 10, dtype=torch.long), torch.zeros(200, 10, dtype=torch.long))
    with torch.no_grad():
        scores, _ = mixture.Product([network.model, network.model], [0.3, 0.5]).score(batch)
    hook.remove()
    assert scores.shape == (200, 10)
    assert passes == [102, 102, 98, 98]


def test_a_run_that_excludes_held_out_tokens_has_no_geometric_mean(network: Any) -> None:
    folder = network.path.parent
    excluding = sw.train(
        text=str(folder / "text.txt"),
        model="ngram",
        set=[
            f"tokenizer.file={network.path}/tokenizer.json",
            "model.smoothing=mle",
            "model.order=2",
            "data.refit=false",
        ],
        run=folder / "mle",
    )
    with pytest.raises(UserError, match="omit --geometric"):
        sw.mix([network.path, excluding.path], folder / "none", on=str(folder / "other.txt"), geometric=True)
    linear = sw.mix([network.path, excluding.path], folder / "linear", on=str(folder / "other.txt"))
    assert np.isclose(sum(part["weight"] for part in linear.directory.summary()["parts"]), 1)
