"""Encoder-decoders: sizes of the papers, weight tying, attention without parameters, initialization."""

from __future__ import annotations

import pytest
import torch

from seqwright import build
from seqwright.core.batch import Vocabularies, Vocabulary
from seqwright.core.config import UserError
from seqwright.models.encoder_decoder import EncoderDecoder
from tests.contract.kinds import configured


def built(config: object, source: int = 20, target: int | None = None) -> EncoderDecoder:
    sides = Vocabulary(size=source), Vocabulary(size=source if target is None else target)
    with torch.device("meta"):
        return build.model(config, Vocabularies(source=sides[0], target=sides[1], joint=target is None), task="pairs")


def parameters(model: EncoderDecoder) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("width", "ffn_width", "heads", "expected"), [(512, 2048, 8, 63_082_496), (1024, 4096, 16, 214_245_376)]
)
def test_the_papers_base_and_big(width: int, ffn_width: int, heads: int, expected: int) -> None:
    config = configured(
        "transformer", task="pairs", layers=6, width=width, ffn_width=ffn_width, heads=heads, norm_position="post"
    )
    assert parameters(built(config, 37_000)) == expected


def test_weight_tying() -> None:
    joint = built(configured("transformer", task="pairs", width=8, heads=2))
    assert joint.source_embedding is joint.target_embedding
    assert joint.head.readout.weight is joint.source_embedding.weight
    separate = built(configured("transformer", task="pairs", width=8, heads=2), 20, 30)
    assert separate.head.readout.weight is separate.target_embedding.weight
    assert separate.source_embedding.weight.size(0) == 20
    untied = built(configured("transformer", task="pairs", width=8, heads=2, tied="none"))
    assert len({id(p) for p in (untied.source_embedding.weight, untied.target_embedding.weight)}) == 2
    assert untied.head.readout.weight is not untied.target_embedding.weight


def test_three_way_needs_one_vocabulary() -> None:
    with pytest.raises(UserError, match=r"tokenizer\.joint"):
        built(configured("transformer", task="pairs", width=8, heads=2, tied="three-way"), 20, 30)


def test_parameter_free_attention_adds_none() -> None:
    bottleneck, free, dot = (
        parameters(built(configured("gru", task="pairs", width=8, attention=kind)))  # type: ignore[arg-type]
        for kind in ("none", "parameter-free", "dot")
    )
    assert free == bottleneck
    assert dot == bottleneck + 2 * 8 * 8  # the projection of state and context


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 7}, "even"),
        ({"width": 8, "embedding": 4, "tied": "two-way"}, "embedding = width"),
        ({"width": 8, "attention": "none", "input_feeding": True}, "input_feeding"),
        ({"width": 0}, "at least 1"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        configured("gru", task="pairs", **options)  # type: ignore[arg-type]


def test_an_unknown_attention_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UserError, match="additive"):
        build.model_config({"kind": "gru", "attention": "aditive"}, task="pairs")


@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_newly_initialized_layers_preserve_the_direction_of_embeddings(norm_position: str) -> None:
    torch.manual_seed(0)
    sides = Vocabulary(size=50)
    config = configured(
        "transformer",
        task="pairs",
        width=64,
        heads=4,
        layers=6,
        dropout=0.0,
        norm_position=norm_position,
        positions="none",
    )  # type: ignore[arg-type]
    model = build.model(config, Vocabularies(source=sides, target=sides, joint=True), task="pairs")
    outputs = [part.weight for name, part in model.reader.named_modules() if name.endswith("attention.output")]
    glorot = (2 / (64 + 64)) ** 0.5
    assert outputs[0].std().item() == pytest.approx(glorot / (12**0.5 if norm_position == "post" else 1), rel=0.05)
    x = torch.nn.functional.normalize(torch.randn(1, 20, 64), dim=-1) * 8
    with torch.no_grad():
        hidden = model.reader(x, torch.ones(1, 20, dtype=torch.bool)).vectors
    similarity = torch.nn.functional.cosine_similarity(x, hidden, dim=-1).mean().item()
    assert similarity > (0.8 if norm_position == "post" else 0.4)
