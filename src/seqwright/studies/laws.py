"""Laws of autoregressive models. Tests run them on every kind of model; `seqwright check` on the model of a run.

Each law takes a model and a batch without padding and returns the largest difference between two ways to compute the
same numbers: 0 in exact arithmetic, rounding error in floating point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from seqwright.core.batch import IGNORE, Batch, Source
from seqwright.core.protocols import Autoregressive
from seqwright.core.state import State
from seqwright.decoding.engine import Engine
from seqwright.decoding.options import SamplingOptions, SearchOptions
from seqwright.decoding.requests import Request
from seqwright.decoding.search import search

Law = Callable[[Autoregressive, Batch], float]


def stepping_equals_teacher_forcing(model: Autoregressive, batch: Batch) -> float:
    """Decoding one id at a time = a teacher-forced forward pass."""
    log_probs = model(batch).log_softmax(-1)  # (B, T, V)
    state = _start(model, batch)
    worst = 0.0
    for t in range(batch.input.size(1)):
        stepped, state = model.step(batch.input[:, t : t + 1], state)
        worst = max(worst, max_difference(stepped, log_probs[:, t]))
    return worst


def probabilities_sum_to_one(model: Autoregressive, batch: Batch) -> float:
    """exp of the log-probabilities of `step` sums to one, without NaN."""
    stepped, _ = model.step(batch.input, _start(model, batch))
    return max_difference(stepped.exp().sum(-1), torch.ones_like(stepped[:, 0]))


def chunked_prefill_equals_one_chunk(model: Autoregressive, batch: Batch) -> float:
    """A prefill in chunks of different sizes = a prefill of the whole row."""
    chunked, state = model.step(batch.input[:, :1], _start(model, batch))
    for ids in (batch.input[:, 1:4], batch.input[:, 4:]):
        if ids.size(1):
            chunked, state = model.step(ids, state)
    whole, _ = model.step(batch.input, _start(model, batch))
    return max_difference(chunked, whole)


def all_positions_equal_steps(model: Autoregressive, batch: Batch) -> float:
    """Log-probabilities at every position of a chunk = those of its ids one at a time, with the same state after."""
    every, after = model.step(batch.input, _start(model, batch), all_positions=True)  # (B, T, V)
    state = _start(model, batch)
    worst = 0.0
    for t in range(batch.input.size(1)):
        stepped, state = model.step(batch.input[:, t : t + 1], state)
        worst = max(worst, max_difference(every[:, t], stepped))
    count, more = _ragged(batch), batch.input[:, :1]
    padded, ragged = model.step(batch.input, _start(model, batch), count, all_positions=True)
    last, plain = model.step(batch.input, _start(model, batch), count)
    rows = torch.arange(batch.rows, device=count.device)
    pairs = [(padded[rows, count - 1], last)]
    pairs += [
        (model.step(more, one)[0], model.step(more, other)[0]) for one, other in ((after, state), (ragged, plain))
    ]
    return max(worst, *(max_difference(one, other) for one, other in pairs))


def ragged_prefill_equals_single_rows(model: Autoregressive, batch: Batch) -> float:
    """Prompts of different lengths in one padded chunk = each alone, and likewise a second padded chunk."""
    count = _ragged(batch)
    remaining = batch.input.size(1) - count
    second_count = (torch.arange(batch.rows, device=remaining.device) + 1).clamp(max=remaining)
    width, second_width = int(count.max()), int(second_count.max())
    state = model.start(batch.source, capacity=batch.input.size(1) + second_width)  # padding takes KV cache slots too
    first, state = model.step(batch.input[:, :width], state, count)
    more = batch.input[:, -second_width:]
    second, _ = model.step(more, state, second_count)
    worst = 0.0
    for row, (real, further) in enumerate(zip(count.tolist(), second_count.tolist(), strict=True)):
        alone, row_state = model.step(batch.input[row : row + 1, :real], _start(model, batch, row))
        after, _ = model.step(more[row : row + 1, :further], row_state)
        worst = max(worst, max_difference(first[row : row + 1], alone), max_difference(second[row : row + 1], after))
    return worst


def score_equals_target_log_prob(model: Autoregressive, batch: Batch) -> float:
    """`score` = the log-softmax of the logits at the targets."""
    scored, _ = model.score(batch)
    log_probs = model(batch).log_softmax(-1)
    return max_difference(scored, log_probs.gather(-1, batch.target.unsqueeze(-1)).squeeze(-1))


def padding_has_no_effect(model: Autoregressive, batch: Batch) -> float:
    """A padded row has the scores it has alone, and padding scores 0."""
    count = _ragged(batch)
    padded = torch.arange(batch.input.size(1), device=count.device) >= count.unsqueeze(1)
    ragged = replace(batch, input=batch.input.masked_fill(padded, 0), target=batch.target.masked_fill(padded, IGNORE))
    scored, _ = model.score(ragged)
    worst = scored[padded].abs().max().item() if padded.any() else 0.0
    for row, real in enumerate(count.tolist()):
        alone = Batch(
            source=_source(batch, row),
            input=batch.input[row : row + 1, :real],
            target=batch.target[row : row + 1, :real].contiguous(),
        )
        worst = max(worst, max_difference(scored[row : row + 1, :real], model.score(alone)[0]))
    return worst


def carried_state_equals_one_window(model: Autoregressive, batch: Batch) -> float:
    """Scoring in successive windows with a carried state = scoring one long window."""
    whole, _ = model.score(batch)
    state: State | None = _start(model, batch)
    parts = []
    for span in (slice(0, 3), slice(3, 4), slice(4, None)):
        if batch.input[:, span].size(1):
            window = replace(batch, input=batch.input[:, span].contiguous(), target=batch.target[:, span].contiguous())
            part, state = model.score(window, state)
            parts.append(part)
    return max_difference(torch.cat(parts, 1), whole)


def selected_rows_equal_single_rows(model: Autoregressive, batch: Batch) -> float:
    """Rows of a state selected, repeated and reordered = each row decoded alone."""
    half = max(1, batch.input.size(1) // 2)
    sources = torch.arange(batch.rows, device=batch.input.device).flip(0)
    rows = sources.repeat_interleave(2)
    _, state = model.step(batch.input[:, :half], _start(model, batch))
    more = batch.input[rows, half : half + 1]
    continued, _ = model.step(more, state.select(rows, sources))
    worst = 0.0
    for position, row in enumerate(rows.tolist()):
        ids = torch.cat([batch.input[row : row + 1, :half], more[position : position + 1]], 1)
        alone, _ = model.step(ids, _start(model, batch, row))
        worst = max(worst, max_difference(continued[position : position + 1], alone))
    return worst


def beams_share_encoder_memory(model: Autoregressive, batch: Batch) -> float:
    """Fanning out and reordering the beams of a source leaves its encoder output in place, without a copy."""
    half = max(1, batch.input.size(1) // 2)
    _, state = model.step(batch.input[:, :half], _start(model, batch))
    fanned = torch.arange(batch.rows, device=batch.input.device).repeat_interleave(2)
    wide = state.select(fanned)
    more = batch.input[:, half : half + 1].repeat_interleave(2, 0)
    more[1::2] = batch.input[:, :1]  # the beams of each source diverge
    _, wide = model.step(more, wide)
    swapped = torch.arange(2 * batch.rows, device=batch.input.device).view(-1, 2).flip(1).flatten()
    wide = wide.select(swapped)
    last = batch.input[:, -1:].repeat_interleave(2, 0)
    continued, after = model.step(last, wide)
    pointers = {name: tensor.data_ptr() for name, tensor in state.named_tensors() if name.startswith("memory.")}
    if any(tensor.data_ptr() != pointers[name] for name, tensor in after.named_tensors() if name in pointers):
        return float("inf")
    worst = 0.0
    for position, row in enumerate(swapped.tolist()):
        ids = torch.cat([batch.input[row // 2, :half], more[row], last[row]]).unsqueeze(0)
        alone, _ = model.step(ids, _start(model, batch, row // 2))
        worst = max(worst, max_difference(continued[position : position + 1], alone))
    return worst


def reorder_equals_select(model: Autoregressive, batch: Batch) -> float:
    """`reorder`, in place and within the beams of each source, = `select`."""
    half = max(1, batch.input.size(1) // 2)
    numbers = torch.arange(batch.rows, device=batch.input.device)
    _, state = model.step(batch.input[:, :half], _start(model, batch))
    more = batch.input[:, half : half + 1].repeat_interleave(3, 0)
    more[1::3] = batch.input[:, :1]  # the beams of each source diverge
    _, wide = model.step(more, state.select(numbers.repeat_interleave(3)))
    rows = (
        3 * numbers.unsqueeze(1) + torch.tensor([1, 1, 0], device=numbers.device)
    ).flatten()  # one beam dropped, one duplicated
    last = batch.input[:, -1:].repeat_interleave(3, 0)
    selected, _ = model.step(last, wide.select(rows))
    return max_difference(model.step(last, wide.reorder(rows))[0], selected)


def concatenated_states_equal_single_rows(model: Autoregressive, batch: Batch) -> float:
    """Rows of different lengths in one state by `cat` (continuous batching) = each row alone."""
    lengths = [1 + (row % max(1, batch.input.size(1) - 1)) for row in range(batch.rows)]
    states = [model.step(batch.input[n : n + 1, :size], _start(model, batch, n))[1] for n, size in enumerate(lengths)]
    joined = states[0]
    for state in states[1:]:
        joined = joined.cat([state])
    more = batch.input[:, -1:]
    continued, _ = model.step(more, joined)
    worst = 0.0
    for row, size in enumerate(lengths):
        ids = torch.cat([batch.input[row : row + 1, :size], more[row : row + 1]], 1)
        alone, _ = model.step(ids, _start(model, batch, row))
        worst = max(worst, max_difference(continued[row : row + 1], alone))
    return worst


def state_round_trips_through_tensors(model: Autoregressive, batch: Batch) -> float:
    """A state rebuilt from its named tensors continues as the original."""
    half = max(1, batch.input.size(1) // 2)
    _, state = model.step(batch.input[:, :half], _start(model, batch))
    tensors = {name: tensor.clone() for name, tensor in state.named_tensors()}
    restored = _start(model, batch).from_tensors(tensors)
    more = batch.input[:, half : half + 1]
    return max_difference(model.step(more, restored)[0], model.step(more, state)[0])


def predictions_are_causal(model: Autoregressive, batch: Batch) -> float:
    """Causality: later inputs do not change earlier logits."""
    half = max(1, batch.input.size(1) // 2)
    changed = batch.input.clone()
    changed[:, half:] = batch.input[:, half:].flip(1)
    changed[:, -1] = batch.input[:, 0]
    return max_difference(model(replace(batch, input=changed))[:, :half], model(batch)[:, :half])


def sampling_is_batch_invariant(model: Autoregressive, batch: Batch) -> float:
    """Fraction of rows whose sample depends on what else the engine decodes: rows are admitted one step after another,
    one is canceled, prompts differ in length, and outputs exceed the context."""
    device = batch.input.device
    options = SamplingOptions(max_tokens=batch.input.size(1) + 4, temperature=0.8)
    requests = [
        Request(prompt=batch.input[row, :real].tolist(), options=options, seed=row + 5)
        for row, real in enumerate(_ragged(batch).tolist())
    ]
    engine, rows = Engine(model, device=device), []
    for n, request in enumerate(requests):
        rows += engine.admit([request], _source(batch, n))
        engine.step()
    engine.cancel(rows[0].id)
    while engine.active:
        engine.step()
    changed = 0
    for n, row in enumerate(rows):
        alone = Engine(model, device=device)
        [expected] = alone.admit([requests[n]], _source(batch, n))
        while alone.active:
            alone.step()
        changed += expected.ids[: len(row.ids)] != row.ids
    return changed / len(rows)


def beam_search_is_batch_invariant(model: Autoregressive, batch: Batch) -> float:
    """Scores of the n-best hypotheses of a batch = those of each row searched alone."""
    prompts = [batch.input[row, :real].tolist() for row, real in enumerate(_ragged(batch).tolist())]
    options = SearchOptions(beam_size=3, n_best=3, max_tokens=6)
    batched = search(model, batch.source, options, sos=None, eos=None, prompts=prompts)
    worst = 0.0
    for row, hypotheses in enumerate(batched):
        (alone,) = search(model, _source(batch, row), options, sos=None, eos=None, prompts=prompts[row : row + 1])
        if len(alone) != len(hypotheses):
            return float("inf")
        worst = max(worst, *(abs(one.score - other.score) for one, other in zip(hypotheses, alone, strict=True)))
    return worst


LAWS: dict[str, Law] = {
    "stepping = teacher forcing": stepping_equals_teacher_forcing,
    "probabilities sum to one": probabilities_sum_to_one,
    "a chunk = its ids one by one": chunked_prefill_equals_one_chunk,
    "all positions = one by one": all_positions_equal_steps,
    "ragged prompts = each alone": ragged_prefill_equals_single_rows,
    "score = log p(target)": score_equals_target_log_prob,
    "padded = unpadded": padding_has_no_effect,
    "carried windows = one window": carried_state_equals_one_window,
    "selected rows = alone": selected_rows_equal_single_rows,
    "beams share their memory": beams_share_encoder_memory,
    "reordered rows = selected": reorder_equals_select,
    "joined rows = alone": concatenated_states_equal_single_rows,
    "a state written = read": state_round_trips_through_tensors,
    "the future is not seen": predictions_are_causal,
    "a generated row = alone": sampling_is_batch_invariant,
    "a searched row = alone": beam_search_is_batch_invariant,
}


def max_difference(one: Tensor, other: Tensor) -> float:
    """The largest absolute difference; equal infinities agree, and NaN counts as infinite."""
    if one.isnan().any() or other.isnan().any():
        return float("inf")
    return torch.where(one == other, 0.0, (one - other).abs()).max().item()


def _start(model: Autoregressive, batch: Batch, row: int | None = None) -> State:
    """The initial state of the batch, or of one of its rows, with capacity for one more id."""
    source = batch.source if row is None else _source(batch, row)
    return model.start(source, capacity=batch.input.size(1) + 1)


def _source(batch: Batch, row: int) -> Source:
    """The source of one row, without padding."""
    source = batch.source.select(torch.tensor([row], device=batch.input.device))
    real = int(source.mask.sum())
    return replace(source, mask=source.mask[:, :real], ids=None if source.ids is None else source.ids[:, :real])


def _ragged(batch: Batch) -> Tensor:
    """Row lengths that differ, at most one less than the batch's."""
    longest = max(1, batch.input.size(1) - 1)
    lengths = [max(1, longest - 3 * row) for row in range(batch.rows)]
    return torch.tensor(lengths, device=batch.input.device)
