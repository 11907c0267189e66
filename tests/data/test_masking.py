"""What is hidden of a text: shares, fates, whole words, and nothing but (seed, step) to decide."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seqwright.core.batch import IGNORE
from seqwright.core.config import UserError
from seqwright.data.text.corpus import corpus_of
from seqwright.data.text.masked import MASK, MaskedConfig, MaskedRows
from seqwright.data.text.masking import Masking
from seqwright.data.text.stream import make_stream
from seqwright.text.special_tokens import with_special_tokens
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig, train

TEXT = "the unbelievable cat sat quietly\non a remarkable doormat\n" * 40


def tokenizer(kind: str, **options: object) -> Tokenizer:
    config = TokenizerConfig(kind=kind, **options)  # type: ignore[arg-type]
    return with_special_tokens(train(config, [TEXT]), [MASK])


def rows(known: Tokenizer, *, seed: int = 1, **options: object) -> MaskedRows:
    config = MaskedConfig(train="a", **options)  # type: ignore[arg-type]
    return MaskedRows(make_stream(corpus_of(TEXT, "line"), known), known, config, length=16, batch=8, seed=seed)


def test_shares_are_those_of_the_paper() -> None:
    plain = np.ones(1000, bool)
    plain[:5] = False
    ids = np.arange(200_000).reshape(200, 1000) % 1000
    seen, target = Masking(mask=4, plain=plain).hide(ids, seed=3, step=7)
    hidden = target != IGNORE
    assert np.array_equal(target[hidden], ids[hidden])
    assert np.array_equal(seen[~hidden], ids[~hidden])
    assert not hidden[~plain[ids]].any(), "a special was hidden"
    assert hidden[plain[ids]].mean() == pytest.approx(0.15, abs=0.005)
    masked, same = (seen == 4)[hidden].mean(), (seen == ids)[hidden].mean()
    assert masked == pytest.approx(0.8, abs=0.01)
    assert same == pytest.approx(0.1, abs=0.01)
    strangers = seen[hidden & (seen != 4) & (seen != ids)]
    assert plain[strangers].all(), "a special was shown in the place of a token"
    assert len(np.unique(strangers)) > 900, "each of 995 tokens may be shown, of some 3000 draws"
    assert strangers.mean() == pytest.approx(502, abs=20)


def test_a_step_hides_the_same_and_another_step_something_else() -> None:
    known = tokenizer("words")
    one, again, other = (rows(known).batch(step) for step in (2, 2, 3))
    assert torch.equal(one.target, again.target)
    assert torch.equal(one.source.ids, again.source.ids)
    assert not torch.equal(one.target, other.target)
    assert not torch.equal(one.target, rows(known, seed=2).batch(2).target)


@pytest.mark.parametrize("kind", ["wordpiece", "byte-bpe", "bpe", "unigram"])
def test_whole_words_are_hidden_or_shown(kind: str) -> None:
    known = tokenizer(kind, size=275 if kind == "byte-bpe" else 45)
    text = "the unbelievable cat"
    ids = np.array([known.sos, *known.encode(text), known.eos])
    starts = known.word_start_mask(ids)
    words = np.split(ids, np.flatnonzero(starts)[1:])
    assert [known.decode(word.tolist()).strip() for word in words] == ["", "the", "unbelievable", "cat", ""]
    assert len(words[2]) > 1, "the test needs a word of several pieces"
    several = np.tile(ids, (400, 1))
    _, target = Masking(mask=known.mask, plain=known.is_text).hide(  # type: ignore[arg-type]
        several, seed=1, step=0, word_starts=known.word_start_mask(several)
    )
    word = np.cumsum(starts) - 1
    for number in range(5):
        hidden = target[:, word == number] != IGNORE
        assert (hidden.all(1) | ~hidden.any(1)).all()
        assert hidden.any() == (0 < number < 4)
    one, other = (target[:, word == number][:, 0] != IGNORE for number in (1, 2))
    assert (one != other).mean() == pytest.approx(2 * 0.15 * 0.85, abs=0.08)  # each word has a chance of its own


def test_a_feed_hides_whole_words_where_asked() -> None:
    known = tokenizer("byte-bpe", size=275)
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


def test_unmoved_rows_lie_on_the_grid() -> None:
    known = tokenizer("words")
    feed = MaskedRows(
        make_stream(corpus_of(TEXT, "line"), known),
        known,
        MaskedConfig(train="a"),
        length=16,
        batch=8,
        seed=1,
        shift=False,
    )
    assert feed.windows == -(-len(feed.ids) // 15)  # <sos> takes a place
    starts = set()
    for step in range(2 * feed.steps_per_epoch):
        batch = feed.batch(step)
        assert batch.source.ids.shape[1] == 16
        whole = torch.where(batch.target == IGNORE, batch.source.ids, batch.target)[:, 1:]
        starts |= {tuple(row[real].tolist()) for row, real in zip(whole, batch.source.mask[:, 1:], strict=True)}
    assert starts == {tuple(feed.ids[n : n + 15].tolist()) for n in range(0, len(feed.ids), 15)}


def test_every_token_is_read_once_an_epoch() -> None:
    known = tokenizer("words")
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


def test_padding_is_never_hidden() -> None:
    feed = rows(tokenizer("words"), mask_rate=0.9)
    for step in range(feed.steps_per_epoch):
        batch = feed.batch(step)
        assert (batch.target[~batch.source.mask] == IGNORE).all()


def test_a_share_is_a_share() -> None:
    with pytest.raises(UserError, match="between 0 and 1"):
        MaskedConfig(train="a", mask_rate=1.0)


def test_a_mask_of_another_name_is_used() -> None:
    known = train(TokenizerConfig(kind="words", special_tokens=("<unk>", "<pad>", "<sos>", "<eos>", "<mask>")), [TEXT])
    assert known.mask == 4
    assert with_special_tokens(known, [MASK]) is known
