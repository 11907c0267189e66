"""States of any shape: nested, shared by beams, written and read; on a toy translator that is nothing but the seam."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from seqwright.core.batch import Source
from seqwright.core.state import State, per_source, shared
from seqwright.decoding.generate import generate
from seqwright.decoding.options import SamplingOptions
from seqwright.layers.attention import Attend

WIDTH, VOCABULARY = 4, 9


@dataclass
class Memory(State):
    vectors: Tensor = per_source()
    mask: Tensor = per_source()


@dataclass
class Saying(State):
    memory: Memory
    hidden: Tensor  # (R, D): R rows over B sources


class Translator(nn.Module):
    """A recurrent decoder that asks the source at every step; beams of one source share its memory."""

    context = None

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.move = nn.Linear(2 * WIDTH, WIDTH)
        self.attend = Attend()
        self.readout = nn.Linear(2 * WIDTH, VOCABULARY)

    def start(self, source: Source, *, capacity: int) -> Saying:
        assert source.ids is not None
        vectors = self.embedding(source.ids)  # (B, S, D)
        return Saying(Memory(vectors, source.mask), vectors.new_zeros(source.rows, WIDTH))

    def step(self, ids: Tensor, state: Saying, count: Tensor | None = None) -> tuple[Tensor, Saying]:
        assert ids.size(1) == 1
        memory = state.memory.vectors.unsqueeze(1)  # (B, 1, S, D)
        hidden = self.move(torch.cat([self.embedding(ids[:, 0]), state.hidden], -1)).tanh()  # (R, D)
        query = hidden.view(memory.size(0), 1, -1, WIDTH)  # the beam is folded into the query axis
        asked = self.attend(query, memory, memory, mask=state.memory.mask[:, None, None])
        logits = self.readout(torch.cat([hidden, asked.reshape(-1, WIDTH)], -1))
        return logits.log_softmax(-1), Saying(state.memory, hidden)


@pytest.fixture
def model() -> Translator:
    torch.manual_seed(0)
    made = Translator().double()
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    return made.requires_grad_(False)


def sources() -> Source:
    """Three, of different lengths."""
    ids = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0], [7, 0, 0, 0]])
    return Source(mask=torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]).bool(), ids=ids)


def indices(*rows: int) -> Tensor:
    return torch.tensor(rows)


def said_alone(model: Translator, source: int, ids: list[int]) -> Tensor:
    """Log-probabilities (1, V) after these ids, for one source with a beam of one."""
    state = model.start(sources().select(indices(source)), capacity=8)
    for id in ids:
        log_probs, state = model.step(torch.tensor([[id]]), state)
    return log_probs


def test_beams_share_a_memory_that_is_never_copied(model: Translator) -> None:
    state = model.start(sources(), capacity=8)
    held = state.memory.vectors.data_ptr()
    texts = [[1], [1], [2]]
    _, state = model.step(torch.tensor(texts), state)
    state = state.select(indices(0, 0, 1, 1, 2, 2))  # every source fans out to a beam of two
    texts = [texts[row // 2] + [row] for row in range(6)]
    _, state = model.step(torch.tensor([text[-1:] for text in texts]), state)
    parents = indices(1, 0, 3, 3, 4, 5)  # beams move and multiply within their groups
    state = state.select(parents)
    texts = [texts[parent] + [8 - place] for place, parent in enumerate(parents.tolist())]
    log_probs, state = model.step(torch.tensor([text[-1:] for text in texts]), state)
    assert state.memory.vectors.data_ptr() == held
    assert state.memory.vectors.size(0) == 3
    for row, text in enumerate(texts):
        assert_close(log_probs[row : row + 1], said_alone(model, row // 2, text))


def test_reordering_is_selecting_within_groups(model: Translator) -> None:
    state = model.start(sources(), capacity=8).select(indices(0, 0, 1, 1, 2, 2))
    _, state = model.step(indices(1, 2, 3, 4, 5, 6).unsqueeze(1), state)
    held, parents = state.memory.vectors.data_ptr(), indices(1, 1, 2, 3, 5, 4)
    expected = state.select(parents)
    moved = state.reorder(parents)
    assert moved.memory.vectors.data_ptr() == held
    assert_close(dict(moved.named_tensors()), dict(expected.named_tensors()))


def test_dropping_a_source_drops_its_group(model: Translator) -> None:
    state = model.start(sources(), capacity=8).select(indices(0, 0, 1, 1, 2, 2))
    texts = [[row] for row in range(6)]
    _, state = model.step(torch.tensor(texts), state)
    kept = indices(5, 4, 0, 1)  # the second source is finished, the others change places
    state = state.select(kept, indices(2, 0))
    assert state.memory.vectors.shape[:2] == (2, 4)
    log_probs, _ = model.step(indices(3, 3, 3, 3).unsqueeze(1), state)
    for place, row in enumerate(kept.tolist()):
        assert_close(log_probs[place : place + 1], said_alone(model, row // 2, [row, 3]))


def test_joining_admits_sources_with_their_rows(model: Translator) -> None:
    first = model.start(sources().select(indices(0)), capacity=8)
    rest = model.start(sources().select(indices(1, 2)), capacity=8)
    log_probs, _ = model.step(indices(1, 2, 3).unsqueeze(1), first.cat([rest]))
    for row in range(3):
        assert_close(log_probs[row : row + 1], said_alone(model, row, [row + 1]))


@dataclass
class Counted(State):
    seen: Tensor  # (R,)
    steps: Tensor = shared()


def test_what_all_rows_share_is_kept_whole() -> None:
    state = Counted(indices(4, 5, 6), torch.tensor(3))
    taken = state.select(indices(2, 0), indices(0))
    assert (taken.seen.tolist(), int(taken.steps)) == ([6, 4], 3)
    joined = taken.cat([Counted(indices(9), torch.tensor(8))])
    assert (joined.seen.tolist(), int(joined.steps)) == ([6, 4, 9], 8)


def test_a_nested_state_is_written_and_read_by_dotted_names(model: Translator) -> None:
    state = model.start(sources(), capacity=8)
    _, moved = model.step(indices(1, 2, 3).unsqueeze(1), state)
    written = dict(moved.named_tensors())
    assert list(written) == ["memory.vectors", "memory.mask", "hidden"]
    read = state.from_tensors({name: tensor.clone() for name, tensor in written.items()})
    assert isinstance(read.memory, Memory)
    assert_close(dict(read.named_tensors()), written)


def test_detaching_forgets_history_and_keeps_values(model: Translator) -> None:
    model.requires_grad_(True)
    _, state = model.step(indices(1, 2, 3).unsqueeze(1), model.start(sources(), capacity=8))
    assert state.hidden.requires_grad
    assert state.memory.vectors.requires_grad
    detached = state.detach()
    assert not any(tensor.requires_grad for _, tensor in detached.named_tensors())
    assert_close(dict(detached.named_tensors()), dict(state.named_tensors()), check_stride=False)


def test_rows_with_sources_are_generated_as_if_alone(model: Translator) -> None:
    options = SamplingOptions(max_tokens=6, temperature=1.5)
    together = generate(model, [[1], [2], [3]], options, end=0, seeds=[4, 5, 6], source=sources())
    assert len({len(row.ids) for row in together}) > 1  # some end early, and their sources with them
    for n, row in enumerate(together):
        source = sources().select(indices(n))
        alone = generate(model, [[n + 1]], options, end=0, seeds=[4 + n], source=source)
        assert row.ids == alone[0].ids
