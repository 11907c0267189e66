"""The laws that every autoregressive model keeps. Tests run them on every kind; `seqwright check` on a user's own run.

Each law is asked of a model and a batch without padding, and answers with the largest difference between two ways
to the same numbers: 0 in exact arithmetic, rounding in floating point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from seqwright.core.batch import IGNORE, Batch, Source
from seqwright.core.protocols import Autoregressive, State
from seqwright.decoding.generate import generate
from seqwright.decoding.options import SearchOptions
from seqwright.decoding.sampling import SamplingOptions
from seqwright.decoding.search import search

Law = Callable[[Autoregressive, Batch], float]


def stepping_is_teacher_forcing(model: Autoregressive, batch: Batch) -> float:
    """One id at a time = the whole row at once."""
    log_probs = model(batch).log_softmax(-1)  # (B, T, V)
    state = _start(model, batch)
    worst = 0.0
    for t in range(batch.input.size(1)):
        stepped, state = model.step(batch.input[:, t : t + 1], state)
        worst = max(worst, gap(stepped, log_probs[:, t]))
    return worst


def probabilities_sum_to_one(model: Autoregressive, batch: Batch) -> float:
    """exp of what `step` answers sums to one, and nothing is undefined."""
    stepped, _ = model.step(batch.input, _start(model, batch))
    return gap(stepped.exp().sum(-1), torch.ones_like(stepped[:, 0]))


def a_chunk_is_its_ids(model: Autoregressive, batch: Batch) -> float:
    """Chunks of different sizes = one id at a time."""
    chunked, state = model.step(batch.input[:, :1], _start(model, batch))
    for ids in (batch.input[:, 1:4], batch.input[:, 4:]):
        if ids.size(1):
            chunked, state = model.step(ids, state)
    whole, _ = model.step(batch.input, _start(model, batch))
    return gap(chunked, whole)


def a_ragged_chunk_is_its_rows(model: Autoregressive, batch: Batch) -> float:
    """Prompts of different lengths in one padded chunk = each alone, and so is the next padded chunk."""
    count = _ragged(batch)
    left = batch.input.size(1) - count
    then = (torch.arange(batch.rows, device=left.device) + 1).clamp(max=left)
    width, wide = int(count.max()), int(then.max())
    state = model.start(batch.source, capacity=batch.input.size(1) + wide)  # padding takes slots too
    first, state = model.step(batch.input[:, :width], state, count)
    more = batch.input[:, -wide:]
    second, _ = model.step(more, state, then)
    worst = 0.0
    for row, (real, further) in enumerate(zip(count.tolist(), then.tolist(), strict=True)):
        alone, own = model.step(batch.input[row : row + 1, :real], _start(model, batch, row))
        after, _ = model.step(more[row : row + 1, :further], own)
        worst = max(worst, gap(first[row : row + 1], alone), gap(second[row : row + 1], after))
    return worst


def score_is_the_targets_probability(model: Autoregressive, batch: Batch) -> float:
    """What `score` answers = the target's entry of the normalized logits."""
    scored, _ = model.score(batch)
    log_probs = model(batch).log_softmax(-1)
    return gap(scored, log_probs.gather(-1, batch.target.unsqueeze(-1)).squeeze(-1))


def padding_changes_nothing(model: Autoregressive, batch: Batch) -> float:
    """A padded row scores as it does alone, and padding scores nothing."""
    count = _ragged(batch)
    padded = torch.arange(batch.input.size(1), device=count.device) >= count.unsqueeze(1)
    given = replace(batch, input=batch.input.masked_fill(padded, 0), target=batch.target.masked_fill(padded, IGNORE))
    scored, _ = model.score(given)
    worst = scored[padded].abs().max().item() if padded.any() else 0.0
    for row, real in enumerate(count.tolist()):
        alone = Batch(
            source=_source(batch, row),
            input=batch.input[row : row + 1, :real],
            target=batch.target[row : row + 1, :real].contiguous(),
        )
        worst = max(worst, gap(scored[row : row + 1, :real], model.score(alone)[0]))
    return worst


def carried_windows_are_one_window(model: Autoregressive, batch: Batch) -> float:
    """Scoring window after window with the state carried along = one long window."""
    whole, _ = model.score(batch)
    state: State | None = _start(model, batch)
    parts = []
    for span in (slice(0, 3), slice(3, 4), slice(4, None)):
        if batch.input[:, span].size(1):
            window = replace(batch, input=batch.input[:, span].contiguous(), target=batch.target[:, span].contiguous())
            part, state = model.score(window, state)
            parts.append(part)
    return gap(torch.cat(parts, 1), whole)


def selected_rows_are_alone(model: Autoregressive, batch: Batch) -> float:
    """Rows taken, repeated and reordered go on as they would alone."""
    half = max(1, batch.input.size(1) // 2)
    sources = torch.arange(batch.rows, device=batch.input.device).flip(0)
    rows = sources.repeat_interleave(2)
    _, state = model.step(batch.input[:, :half], _start(model, batch))
    more = batch.input[rows, half : half + 1]
    continued, _ = model.step(more, state.select(rows, sources))
    worst = 0.0
    for place, row in enumerate(rows.tolist()):
        ids = torch.cat([batch.input[row : row + 1, :half], more[place : place + 1]], 1)
        alone, _ = model.step(ids, _start(model, batch, row))
        worst = max(worst, gap(continued[place : place + 1], alone))
    return worst


def beams_share_their_memory(model: Autoregressive, batch: Batch) -> float:
    """Rows of one source multiply and change places among themselves; what was read of it stays where it is."""
    half = max(1, batch.input.size(1) // 2)
    _, state = model.step(batch.input[:, :half], _start(model, batch))
    fanned = torch.arange(batch.rows, device=batch.input.device).repeat_interleave(2)
    wide = state.select(fanned)
    more = batch.input[:, half : half + 1].repeat_interleave(2, 0)
    more[1::2] = batch.input[:, :1]  # the second of each pair goes another way
    _, wide = model.step(more, wide)
    swapped = torch.arange(2 * batch.rows, device=batch.input.device).view(-1, 2).flip(1).flatten()
    wide = wide.select(swapped)
    last = batch.input[:, -1:].repeat_interleave(2, 0)
    continued, after = model.step(last, wide)
    held = {name: tensor.data_ptr() for name, tensor in state.named_tensors() if name.startswith("memory.")}
    if any(tensor.data_ptr() != held[name] for name, tensor in after.named_tensors() if name in held):
        return float("inf")
    worst = 0.0
    for place, row in enumerate(swapped.tolist()):
        ids = torch.cat([batch.input[row // 2, :half], more[row], last[row]]).unsqueeze(0)
        alone, _ = model.step(ids, _start(model, batch, row // 2))
        worst = max(worst, gap(continued[place : place + 1], alone))
    return worst


def reordered_rows_are_selected(model: Autoregressive, batch: Batch) -> float:
    """Rows moved in place within their groups, as a beam moves them, go on as selected ones do."""
    half = max(1, batch.input.size(1) // 2)
    numbers = torch.arange(batch.rows, device=batch.input.device)
    _, state = model.step(batch.input[:, :half], _start(model, batch))
    more = batch.input[:, half : half + 1].repeat_interleave(3, 0)
    more[1::3] = batch.input[:, :1]  # beams of a source part ways
    _, wide = model.step(more, state.select(numbers.repeat_interleave(3)))
    rows = (
        3 * numbers.unsqueeze(1) + torch.tensor([1, 1, 0], device=numbers.device)
    ).flatten()  # one lost, one doubled
    last = batch.input[:, -1:].repeat_interleave(3, 0)
    selected, _ = model.step(last, wide.select(rows))
    return gap(model.step(last, wide.reorder(rows))[0], selected)


def joined_rows_are_alone(model: Autoregressive, batch: Batch) -> float:
    """Rows admitted later, with less behind them, go on as they would alone."""
    lengths = [1 + (row % max(1, batch.input.size(1) - 1)) for row in range(batch.rows)]
    states = [model.step(batch.input[n : n + 1, :size], _start(model, batch, n))[1] for n, size in enumerate(lengths)]
    joined = states[0]
    for state in states[1:]:
        joined = joined.cat(state)
    more = batch.input[:, -1:]
    continued, _ = model.step(more, joined)
    worst = 0.0
    for row, size in enumerate(lengths):
        ids = torch.cat([batch.input[row : row + 1, :size], more[row : row + 1]], 1)
        alone, _ = model.step(ids, _start(model, batch, row))
        worst = max(worst, gap(continued[row : row + 1], alone))
    return worst


def a_state_survives_writing(model: Autoregressive, batch: Batch) -> float:
    """A state taken apart into named tensors and put together again goes on as it was."""
    half = max(1, batch.input.size(1) // 2)
    _, state = model.step(batch.input[:, :half], _start(model, batch))
    written = {name: tensor.clone() for name, tensor in state.named_tensors()}
    read = _start(model, batch).from_tensors(written)
    more = batch.input[:, half : half + 1]
    return gap(model.step(more, read)[0], model.step(more, state)[0])


def the_future_is_not_seen(model: Autoregressive, batch: Batch) -> float:
    """Later ids do not change earlier answers."""
    half = max(1, batch.input.size(1) // 2)
    changed = batch.input.clone()
    changed[:, half:] = batch.input[:, half:].flip(1)
    changed[:, -1] = batch.input[:, 0]
    return gap(model(replace(batch, input=changed))[:, :half], model(batch)[:, :half])


def a_generated_row_is_alone(model: Autoregressive, batch: Batch) -> float:
    """Share of rows whose text depends on the rest of the batch; prompts differ in length, texts pass the context."""
    count = _ragged(batch).tolist()
    prompts = [batch.input[row, :real].tolist() for row, real in enumerate(count)]
    seeds = [row + 5 for row in range(len(prompts))]
    options = SamplingOptions(max_tokens=batch.input.size(1) + 4, temperature=0.8)
    device = batch.input.device
    together = generate(model, prompts, options, seeds=seeds, source=batch.source, device=device)
    changed = 0
    for n, row in enumerate(together):
        alone = generate(model, [prompts[n]], options, seeds=[seeds[n]], source=_source(batch, n), device=device)[0]
        changed += alone.ids != row.ids
    return changed / len(prompts)


def a_searched_row_is_alone(model: Autoregressive, batch: Batch) -> float:
    """By how much the best outputs of a beam differ from those of each row alone."""
    prompts = [batch.input[row, :real].tolist() for row, real in enumerate(_ragged(batch).tolist())]
    options = SearchOptions(beam_size=3, n_best=3, max_tokens=6)
    together = search(model, batch.source, options, sos=None, eos=None, prompts=prompts)
    worst = 0.0
    for row, found in enumerate(together):
        (alone,) = search(model, _source(batch, row), options, sos=None, eos=None, prompts=prompts[row : row + 1])
        if len(alone) != len(found):
            return float("inf")
        worst = max(worst, *(abs(one.score - other.score) for one, other in zip(found, alone, strict=True)))
    return worst


LAWS: dict[str, Law] = {
    "stepping = teacher forcing": stepping_is_teacher_forcing,
    "probabilities sum to one": probabilities_sum_to_one,
    "a chunk = its ids one by one": a_chunk_is_its_ids,
    "ragged prompts = each alone": a_ragged_chunk_is_its_rows,
    "score = log p(target)": score_is_the_targets_probability,
    "padded = unpadded": padding_changes_nothing,
    "carried windows = one window": carried_windows_are_one_window,
    "selected rows = alone": selected_rows_are_alone,
    "beams share their memory": beams_share_their_memory,
    "reordered rows = selected": reordered_rows_are_selected,
    "joined rows = alone": joined_rows_are_alone,
    "a state written = read": a_state_survives_writing,
    "the future is not seen": the_future_is_not_seen,
    "a generated row = alone": a_generated_row_is_alone,
    "a searched row = alone": a_searched_row_is_alone,
}


def gap(one: Tensor, other: Tensor) -> float:
    """The largest difference; equal infinities agree, and anything undefined is infinitely far off."""
    if one.isnan().any() or other.isnan().any():
        return float("inf")
    return torch.where(one == other, 0.0, (one - other).abs()).max().item()


def _start(model: Autoregressive, batch: Batch, row: int | None = None) -> State:
    source = batch.source if row is None else _source(batch, row)
    return model.start(source, capacity=batch.input.size(1) + 1)


def _source(batch: Batch, row: int) -> Source:
    """The source of one row, without the padding that its neighbors needed."""
    own = batch.source.select(torch.tensor([row], device=batch.input.device))
    real = int(own.mask.sum())
    return replace(own, mask=own.mask[:, :real], ids=None if own.ids is None else own.ids[:, :real])


def _ragged(batch: Batch) -> Tensor:
    """Different real lengths for the rows, leaving room for one more id."""
    most = max(1, batch.input.size(1) - 1)
    lengths = [max(1, most - 3 * row) for row in range(batch.rows)]
    return torch.tensor(lengths, device=batch.input.device)
