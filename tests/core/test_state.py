"""Decoding states: nested, shared by the beams of a source, saved and loaded; on a toy encoder-decoder."""

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
class DecoderState(State):
    memory: Memory
    hidden: Tensor  # (R, D): R rows over B sources


class Translator(nn.Module):
    """A recurrent decoder with attention to the source; beams of one source share its memory."""

    context = None

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.move = nn.Linear(2 * WIDTH, WIDTH)
        self.attend = Attend()
        self.readout = nn.Linear(2 * WIDTH, VOCABULARY)

    def start(self, source: Source, *, capacity: int) -> DecoderState:
        assert source.ids is not None
        vectors = self.embedding(source.ids)  # (B, S, D)
        return DecoderState(Memory(vectors, source.mask), vectors.new_zeros(source.rows, WIDTH))

    def step(
        self, ids: Tensor, state: DecoderState, count: Tensor | None = None, *, all_positions: bool = False
    ) -> tuple[Tensor, DecoderState]:
        assert ids.size(1) == 1
        memory = state.memory.vectors.unsqueeze(1)  # (B, 1, S, D)
        hidden = self.move(torch.cat([self.embedding(ids[:, 0]), state.hidden], -1)).tanh()  # (R, D)
        query = hidden.view(memory.size(0), 1, -1, WIDTH)  # the beam is folded into the query axis
        attended = self.attend(query, memory, memory, mask=state.memory.mask[:, None, None])
        logits = self.readout(torch.cat([hidden, attended.reshape(-1, WIDTH)], -1))
        return logits.log_softmax(-1), DecoderState(state.memory, hidden)


@pytest.fixture
def model() -> Translator:
    torch.manual_seed(0)
    model = Translator().double()
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model.requires_grad_(False)


def sources() -> Source:
    """Three sources of different lengths."""
    ids = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0], [7, 0, 0, 0]])
    return Source(mask=torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]).bool(), ids=ids)


def indices(*rows: int) -> Tensor:
    return torch.tensor(rows)


def log_probs_alone(model: Translator, source: int, ids: list[int]) -> Tensor:
    """Log-probabilities (1, V) after these ids, for one source with a beam of one."""
    state = model.start(sources().select(indices(source)), capacity=8)
    for id in ids:
        log_probs, state = model.step(torch.tensor([[id]]), state)
    return log_probs


def test_beams_share_the_encoder_output_without_copies(model: Translator) -> None:
    state = model.start(sources(), capacity=8)
    address = state.memory.vectors.data_ptr()
    outputs = [[1], [1], [2]]
    _, state = model.step(torch.tensor(outputs), state)
    state = state.select(indices(0, 0, 1, 1, 2, 2))  # expand every source to a beam of two
    outputs = [outputs[row // 2] + [row] for row in range(6)]
    _, state = model.step(torch.tensor([ids[-1:] for ids in outputs]), state)
    parents = indices(1, 0, 3, 3, 4, 5)  # beams are reordered within their groups
    state = state.select(parents)
    outputs = [outputs[parent] + [8 - row] for row, parent in enumerate(parents.tolist())]
    log_probs, state = model.step(torch.tensor([ids[-1:] for ids in outputs]), state)
    assert state.memory.vectors.data_ptr() == address
    assert state.memory.vectors.size(0) == 3
    for row, ids in enumerate(outputs):
        assert_close(log_probs[row : row + 1], log_probs_alone(model, row // 2, ids))


def test_reorder_equals_select_within_groups(model: Translator) -> None:
    state = model.start(sources(), capacity=8).select(indices(0, 0, 1, 1, 2, 2))
    _, state = model.step(indices(1, 2, 3, 4, 5, 6).unsqueeze(1), state)
    address, parents = state.memory.vectors.data_ptr(), indices(1, 1, 2, 3, 5, 4)
    expected = state.select(parents)
    reordered = state.reorder(parents)
    assert reordered.memory.vectors.data_ptr() == address
    assert_close(dict(reordered.named_tensors()), dict(expected.named_tensors()))


def test_select_drops_finished_sources_with_their_rows(model: Translator) -> None:
    state = model.start(sources(), capacity=8).select(indices(0, 0, 1, 1, 2, 2))
    _, state = model.step(torch.tensor([[row] for row in range(6)]), state)
    kept = indices(5, 4, 0, 1)  # the second source is finished, the others are exchanged
    state = state.select(kept, indices(2, 0))
    assert state.memory.vectors.shape[:2] == (2, 4)
    log_probs, _ = model.step(indices(3, 3, 3, 3).unsqueeze(1), state)
    for n, row in enumerate(kept.tolist()):
        assert_close(log_probs[n : n + 1], log_probs_alone(model, row // 2, [row, 3]))


def test_cat_appends_sources_with_their_rows(model: Translator) -> None:
    first = model.start(sources().select(indices(0)), capacity=8)
    rest = model.start(sources().select(indices(1, 2)), capacity=8)
    log_probs, _ = model.step(indices(1, 2, 3).unsqueeze(1), first.cat([rest]))
    for row in range(3):
        assert_close(log_probs[row : row + 1], log_probs_alone(model, row, [row + 1]))


@dataclass
class Counted(State):
    seen: Tensor  # (R,)
    steps: Tensor = shared()


def test_select_and_cat_keep_shared_tensors() -> None:
    state = Counted(indices(4, 5, 6), torch.tensor(3))
    selected = state.select(indices(2, 0), indices(0))
    assert (selected.seen.tolist(), int(selected.steps)) == ([6, 4], 3)
    joined = selected.cat([Counted(indices(9), torch.tensor(8))])
    assert (joined.seen.tolist(), int(joined.steps)) == ([6, 4, 9], 8)


def test_nested_state_round_trips_by_dotted_names(model: Translator) -> None:
    state = model.start(sources(), capacity=8)
    _, stepped = model.step(indices(1, 2, 3).unsqueeze(1), state)
    tensors = dict(stepped.named_tensors())
    assert list(tensors) == ["memory.vectors", "memory.mask", "hidden"]
    loaded = state.from_tensors({name: tensor.clone() for name, tensor in tensors.items()})
    assert isinstance(loaded.memory, Memory)
    assert_close(dict(loaded.named_tensors()), tensors)


def test_detach_cuts_the_graph_and_keeps_values(model: Translator) -> None:
    model.requires_grad_(True)
    _, state = model.step(indices(1, 2, 3).unsqueeze(1), model.start(sources(), capacity=8))
    assert state.hidden.requires_grad
    assert state.memory.vectors.requires_grad
    detached = state.detach()
    assert not any(tensor.requires_grad for _, tensor in detached.named_tensors())
    assert_close(dict(detached.named_tensors()), dict(state.named_tensors()), check_stride=False)


def test_generation_with_sources_is_batch_invariant(model: Translator) -> None:
    options = SamplingOptions(max_tokens=6, temperature=1.5)
    batched = generate(model, [[1], [2], [3]], options, end=0, seeds=[4, 5, 6], source=sources())
    assert len({len(row.ids) for row in batched}) > 1  # some end early, and their sources are dropped
    for n, row in enumerate(batched):
        source = sources().select(indices(n))
        alone = generate(model, [[n + 1]], options, end=0, seeds=[4 + n], source=source)
        assert row.ids == alone[0].ids
