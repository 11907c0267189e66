"""Beam search equals that of transformers on the same weights, option by option."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqwright.core.batch import Source
from seqwright.core.state import State
from seqwright.decoding.options import SearchOptions
from seqwright.decoding.search import search
from tests.decoding.signs import character_pieces, forbid

transformers = pytest.importorskip("transformers")

SIZE, END, LENGTH = 23, 2, 9
STOPS = {True: "finished", False: "now", "never": "bound"}


@dataclass
class TokenHistory(State):
    """All ids so far, recomputed at every step: no KV cache."""

    ids: Tensor  # (R, T)


class DecoderOnly:
    """A decoder-only model of transformers as an `Autoregressive`."""

    context = None

    def __init__(self, model: Any):
        self.model = model

    def start(self, source: Source, *, capacity: int) -> TokenHistory:
        return TokenHistory(torch.zeros(source.rows, 0, dtype=torch.long))

    def step(self, ids: Tensor, state: TokenHistory, count: Tensor | None = None) -> tuple[Tensor, TokenHistory]:
        history = torch.cat([state.ids, ids], 1)
        return self.model(input_ids=history).logits[:, -1].log_softmax(-1), TokenHistory(history)


class EncoderDecoder(DecoderOnly):
    """An encoder-decoder of transformers; sources are expanded to the rows of the beam here."""

    source: Source

    def start(self, source: Source, *, capacity: int) -> TokenHistory:
        self.source = source
        return super().start(source, capacity=capacity)

    def step(self, ids: Tensor, state: TokenHistory, count: Tensor | None = None) -> tuple[Tensor, TokenHistory]:
        history = torch.cat([state.ids, ids], 1)
        rows = torch.arange(self.source.rows).repeat_interleave(len(history) // self.source.rows)
        source = self.source.select(rows)
        inputs = {"input_ids": source.ids, "attention_mask": source.mask.long(), "decoder_input_ids": history}
        return self.model(**inputs).logits[:, -1].log_softmax(-1), TokenHistory(history)


def randomize(model: Any) -> Any:
    """Random weights under which outputs end at different lengths."""
    torch.manual_seed(5)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.35)
    return model.double().eval()


@pytest.fixture(scope="module")
def gpt2() -> Any:
    config = transformers.GPT2Config(
        vocab_size=SIZE, n_positions=32, n_embd=16, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=END
    )
    return randomize(transformers.GPT2LMHeadModel(config))


@pytest.fixture(scope="module")
def marian() -> Any:
    config = transformers.MarianConfig(
        vocab_size=SIZE, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=32,
        pad_token_id=0, eos_token_id=END, decoder_start_token_id=1, forced_eos_token_id=None,
    )  # fmt: skip
    return randomize(transformers.MarianMTModel(config))


def theirs(model: Any, inputs: dict[str, Tensor], prompt: int, *, width: int, **settings: Any) -> list[Any]:
    """(ids without the end, whether it ended, score) of each hypothesis, a list for each source."""
    out = model.generate(
        **inputs, num_beams=width, num_return_sequences=width, max_new_tokens=LENGTH, do_sample=False,
        output_scores=True, return_dict_in_generate=True, pad_token_id=0, eos_token_id=END, **settings,
    )  # fmt: skip
    hypotheses = []
    for ids, score in zip(out.sequences[:, prompt:].tolist(), out.sequences_scores.tolist(), strict=True):
        ended = END in ids
        hypotheses.append((ids[: ids.index(END)] if ended else ids[:LENGTH], ended, score))
    return [hypotheses[n : n + width] for n in range(0, len(hypotheses), width)]


def ours(model: DecoderOnly, source: Source, width: int, early: bool | str, alpha: float, **more: Any) -> list[Any]:
    options = SearchOptions(
        beam_size=width, n_best=width, max_tokens=LENGTH, length_penalty="power", length_alpha=alpha,
        stopping=STOPS[early],  # type: ignore
        rank_unfinished="among", no_repeat_ngram=more.pop("no_repeat_ngram", 0), min_tokens=more.pop("min_tokens", 0),
    )  # fmt: skip
    outputs = search(model, source, options, eos=END, **more)  # type: ignore[arg-type]
    return [[(h.ids, h.reason == "end", h.score) for h in hypotheses] for hypotheses in outputs]


def assert_same(actual: list[Any], expected: list[Any]) -> None:
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert [h[:2] for h in one] == [h[:2] for h in other]
        assert [h[2] for h in one] == pytest.approx([h[2] for h in other], abs=1e-5)


@pytest.mark.parametrize("early", STOPS, ids=str)
@pytest.mark.parametrize("alpha", [0.0, 1.0, 1.7])
@pytest.mark.parametrize("width", [2, 5])
def test_gpt2_beam_search_equals_transformers(gpt2: Any, early: bool | str, alpha: float, width: int) -> None:
    prompts = torch.tensor([[3, 4, 5], [7, 8, 9], [6, 6, 6], [11, 3, 20]])
    settings = {"early_stopping": early, "length_penalty": alpha, "attention_mask": torch.ones_like(prompts)}
    expected = theirs(gpt2, {"input_ids": prompts}, 3, width=width, **settings)
    actual = ours(DecoderOnly(gpt2), Source.empty(4), width, early, alpha, sos=None, prompts=prompts.tolist())
    assert_same(actual, expected)


@pytest.mark.parametrize("early", STOPS, ids=str)
@pytest.mark.parametrize("rule", ["", "no_repeat_ngram", "min_tokens", "forbidden"])
def test_marian_beam_search_equals_transformers(marian: Any, early: bool | str, rule: str) -> None:
    ids = torch.tensor([[3, 4, 5, 6, 2], [7, 8, 2, 0, 0], [9, 2, 0, 0, 0], [20, 21, 22, 2, 0]])
    mask = ids != 0
    our_options, their_options = {
        "": ({}, {}),
        "no_repeat_ngram": ({"no_repeat_ngram": 2}, {"no_repeat_ngram_size": 2}),
        "min_tokens": ({"min_tokens": 4}, {"min_new_tokens": 4}),
        "forbidden": (
            {"forbidden": forbid([[5], [17, 9]], character_pieces(SIZE, 3), END)},
            {"bad_words_ids": [[5], [17, 9]]},
        ),
    }[rule]
    source = Source(mask=mask, ids=ids)
    settings = {"early_stopping": early, "length_penalty": 0.8, "attention_mask": mask.long()}
    expected = theirs(marian, {"input_ids": ids}, 1, width=4, **settings, **their_options)
    # One source at a time: EncoderDecoder has no state per source, so finished sources could not be dropped.
    actual = [
        ours(EncoderDecoder(marian), source.select(torch.tensor([n])), 4, early, 0.8, sos=1, **our_options)[0]
        for n in range(4)
    ]
    assert_same(actual, expected)
