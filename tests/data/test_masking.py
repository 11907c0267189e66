"""Token masking: rates, replacements, whole words, and (seed, step) as the only source of randomness."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seqwright.core.batch import IGNORE
from seqwright.core.config import UserError
from seqwright.data.text.corpus import corpus_of
from seqwright.data.text.masked import MASK, MaskedConfig, MaskedRows, Masking
from seqwright.data.text.stream import make_stream
from seqwright.text.special_tokens import with_special_tokens
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig, train

TEXT = "the unbelievable cat sat quietly\non a remarkable doormat\n" * 40


def tokenizer_of(kind: str, **options: object) -> Tokenizer:
    config = TokenizerConfig(kind=kind, **options)  # type: ignore[arg-type]
    return with_special_tokens(train(config, [TEXT]), [MASK])


def rows(known: Tokenizer, *, seed: int = 1, **options: object) -> MaskedRows:
    config = MaskedConfig(train="a", **options)  # type: ignore[arg-type]
    return MaskedRows(make_stream(corpus_of(TEXT, "line"), known), known, config, length=16, batch=8, seed=seed)


def test_masking_rates_are_those_of_bert() -> None:
    plain = np.ones(1000, bool)
    plain[:5] = False
    ids = np.arange(200_000).reshape(200, 1000) % 1000
    seen, target = Masking(mask=4, plain=plain).apply(ids, seed=3, step=7)
    selected = target != IGNORE
    assert np.array_equal(target[selected], ids[selected])
    assert np.array_equal(seen[~selected], ids[~selected])
    assert not selected[~plain[ids]].any(), "a special token was selected"
    assert selected[plain[ids]].mean() == pytest.approx(0.15, abs=0.005)
    masked, same = (seen == 4)[selected].mean(), (seen == ids)[selected].mean()
    assert masked == pytest.approx(0.8, abs=0.01)
    assert same == pytest.approx(0.1, abs=0.01)
    replacements = seen[selected & (seen != 4) & (seen != ids)]
    assert plain[replacements].all(), "a special token was drawn as a replacement"
    assert len(np.unique(replacements)) > 900, "each of 995 tokens may be drawn, in some 3000 draws"
    assert replacements.mean() == pytest.approx(502, abs=20)


def test_masking_is_a_function_of_seed_and_step() -> None:
    known = tokenizer_of("words")
    one, again, other = (rows(known).batch(step) for step in (2, 2, 3))
    assert torch.equal(one.target, again.target)
    assert torch.equal(one.source.ids, again.source.ids)
    assert not torch.equal(one.target, other.target)
    assert not torch.equal(one.target, rows(known, seed=2).batch(2).target)


@pytest.mark.parametrize("kind", ["wordpiece", "byte-bpe", "bpe", "unigram"])
def test_whole_word_masking_selects_all_pieces_or_none(kind: str) -> None:
    known = tokenizer_of(kind, size=275 if kind == "byte-bpe" else 45)
    text = "the unbelievable cat"
    ids = np.array([known.sos, *known.encode(text), known.eos])
    starts = known.word_start_mask(ids)
    words = np.split(ids, np.flatnonzero(starts)[1:])
    assert [known.decode(word.tolist()).strip() for word in words] == ["", "the", "unbelievable", "cat", ""]
    assert len(words[2]) > 1, "the test needs a word of several pieces"
    several = np.tile(ids, (400, 1))
    _, target = Masking(mask=known.mask, plain=known.is_text).apply(  # type: ignore[arg-type]
        several, seed=1, step=0, word_starts=known.word_start_mask(several)
    )
    word = np.cumsum(starts) - 1
    for number in range(5):
        selected = target[:, word == number] != IGNORE
        assert (selected.all(1) | ~selected.any(1)).all()
        assert selected.any() == (0 < number < 4)
    one, other = (target[:, word == number][:, 0] != IGNORE for number in (1, 2))
    assert (one != other).mean() == pytest.approx(2 * 0.15 * 0.85, abs=0.08)  # words are selected independently


def test_masked_rows_with_whole_word_masking() -> None:
    known = tokenizer_of("byte-bpe", size=275)
    for whole in (True, False):
        feed = rows(known, whole_words=whole)
        split = 0
        for step in range(feed.steps_per_epoch):
            batch = feed.batch(step)
            ids = torch.where(batch.target == IGNORE, batch.source.ids, batch.target).numpy()
            goes_on = ~known.word_start_mask(ids)[:, 1:] & known.is_text[ids][:, 1:]
            hidden = batch.target.numpy() != IGNORE
            split += int((goes_on & (hidden[:, 1:] != hidden[:, :-1])).sum())
        assert (split == 0) == whole


def test_masked_rows_without_shift_lie_on_the_grid() -> None:
    known = tokenizer_of("words")
    feed = MaskedRows(
        make_stream(corpus_of(TEXT, "line"), known),
        known,
        MaskedConfig(train="a"),
        length=16,
        batch=8,
        seed=1,
        shift=False,
    )
    assert feed.windows == -(-len(feed.ids) // 15)  # <sos> takes a position
    starts = set()
    for step in range(2 * feed.steps_per_epoch):
        batch = feed.batch(step)
        assert batch.source.ids.shape[1] == 16
        whole = torch.where(batch.target == IGNORE, batch.source.ids, batch.target)[:, 1:]
        starts |= {tuple(row[real].tolist()) for row, real in zip(whole, batch.source.mask[:, 1:], strict=True)}
    assert starts == {tuple(feed.ids[n : n + 15].tolist()) for n in range(0, len(feed.ids), 15)}


def test_every_token_once_per_epoch() -> None:
    known = tokenizer_of("words")
    feed = rows(known)
    assert feed.batch(0).source.ids.shape == (8, 16)
    for epoch in (0, 1):
        read: list[int] = []
        for step in range(feed.steps_per_epoch):
            batch = feed.batch(epoch * feed.steps_per_epoch + step)
            whole = torch.where(batch.target == IGNORE, batch.source.ids, batch.target)
            assert (whole[:, 0] == known.sos).all()
            read += whole[:, 1:][batch.source.mask[:, 1:]].tolist()
        assert sorted(read) == sorted(feed.ids.tolist())


def test_padding_is_never_masked() -> None:
    feed = rows(tokenizer_of("words"), mask_rate=0.9)
    for step in range(feed.steps_per_epoch):
        batch = feed.batch(step)
        assert (batch.target[~batch.source.mask] == IGNORE).all()


def test_mask_rate_is_between_0_and_1() -> None:
    with pytest.raises(UserError, match="mask_rate must be between 0 and 1"):
        MaskedConfig(train="a", mask_rate=1.0)


def test_an_existing_mask_token_is_used() -> None:
    known = train(TokenizerConfig(kind="words", special_tokens=("<unk>", "<pad>", "<sos>", "<eos>", "<mask>")), [TEXT])
    assert known.mask == 4
    assert with_special_tokens(known, [MASK]) is known
