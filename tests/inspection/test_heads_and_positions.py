"""Statistics of heads over a file equal those of its windows; similarities of positions are those of their vectors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from seqwright.core.config import UserError
from seqwright.inspection.forward import forward
from seqwright.inspection.heads import head_statistics
from seqwright.layers.attention_bias import ALiBi
from seqwright.layers.positions import Rotary, Sinusoidal, sinusoids
from seqwright.studies.explain.position_similarity import encoding_similarity, rotary_similarity, similarity_step
from seqwright.tasks.example import file_examples

from .conftest import Runs


@pytest.mark.parametrize("kind", ["gpt", "masked"])
def test_statistics_over_a_file_are_means_over_its_tokens(runs: Runs, kind: str, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"the cat sat on the mat\r\nthe dog sat\r\n" * 4)
    run = runs[kind]
    windows = [forward(run, one).attention["self"].layers for one in file_examples(run, str(file))]
    assert len(windows) > 1
    assert sum(layers[0].size(-1) for layers in windows) == len(run.stream(str(file)).ids)
    statistics = run.inspect(on=str(file))["heads"]
    parts = [head_statistics([layers]) for layers in windows]
    for name, values in parts[0][0].items():
        mean = sum(tokens * part[name] for part, tokens in parts) / sum(tokens for _, tokens in parts)
        assert values.shape == statistics[name].shape
        assert_close(statistics[name], mean)


def test_statistics_over_a_file_refuse_other_views(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the cat\n")
    for options in ({"text": "the cat"}, {"against": runs["ngram"]}, {"views": ["tokens"]}):
        with pytest.raises(UserError, match="leave texts, --against and other views out"):
            runs["gpt"].inspect(on=str(tmp_path / "a.txt"), **options)
    with pytest.raises(UserError, match="Give one text instead of --on"):
        runs["transformer"].inspect(on=str(tmp_path / "a.txt"))


def test_similarity_of_sinusoids_depends_on_the_distance_only() -> None:
    similarity = encoding_similarity(Sinusoidal(16, 20), 20)
    vectors = torch.nn.functional.normalize(sinusoids(torch.arange(20), 16).float(), dim=-1)
    assert_close(similarity, vectors @ vectors.T)
    for distance in range(20):
        diagonal = similarity.diagonal(distance)
        assert_close(diagonal, diagonal[:1].expand_as(diagonal))


def test_similarity_of_rotations_is_the_mean_factor_of_dot_products() -> None:
    module, size = Rotary(8, 12), 8
    vectors = torch.eye(size).reshape(size, 1, 1, size).expand(size, 12, 1, size)  # each axis at every position
    rotated = module(vectors, torch.arange(12).unsqueeze(0)).squeeze(2)  # (E, N, E)
    assert_close(rotary_similarity(module, 12), torch.einsum("ame,ane->mn", rotated, rotated) / size)


def test_biases_are_shown_by_distance_and_head() -> None:
    step, _ = similarity_step(ALiBi(2), 8)
    assert step.figures[0].as_json()["values"][1] == pytest.approx([-(2.0**-4), -(2.0**-8)])
