"""Documents packed into rows and kept apart: a packed row = its documents alone, whatever says where tokens stand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from seqwright.core.batch import IGNORE, Batch
from seqwright.layers.transformer_stack import document_positions, same_document
from seqwright.metrics.likelihood import random_windows, score_text
from seqwright.training.accumulation import accumulate
from seqwright.training.objective import Objective
from seqwright.training.parallel import SingleProcess
from tests.contract.kinds import CONTEXT, SMALL, VOCABULARY, small

SOS, EOS = VOCABULARY.sos, VOCABULARY.eos
APART = [name for name, row in SMALL.items() if row["kind"] == "gpt" and "readout" not in row]
LENGTHS = [[3, 1, 4], [CONTEXT], [1, 1, 1, 5], [2, 6]]
"""Tokens of the documents in each row, <sos> included."""


def packed() -> Batch:
    """Rows of several documents; the first of the third row began in an earlier window, without <sos>."""
    generator = torch.Generator().manual_seed(4)
    ids = torch.randint(4, VOCABULARY.size, (len(LENGTHS), CONTEXT + 1), generator=generator)
    for row, lengths in enumerate(LENGTHS):
        begins = [sum(lengths[:n]) for n in range(len(lengths))]
        ids[row, begins if row != 2 else begins[1:]] = SOS
    target = ids[:, 1:].masked_fill(ids[:, 1:] == SOS, IGNORE)
    return Batch.of_text(ids[:, :-1].contiguous(), target).with_documents(SOS)


def spans() -> list[tuple[int, slice]]:
    """(row, span) of each document."""
    found = []
    for row, lengths in enumerate(LENGTHS):
        for n, length in enumerate(lengths):
            first = sum(lengths[:n])
            found.append((row, slice(first, first + length)))
    return found


def test_documents_are_told_apart_by_what_begins_them() -> None:
    batch = packed()
    assert batch.documents is not None
    assert batch.documents.tolist() == [
        [1, 1, 1, 2, 3, 3, 3, 3],
        [1] * 8,
        [0, 1, 2, 3, 3, 3, 3, 3],
        [1, 1, 2, 2, 2, 2, 2, 2],
    ]
    assert document_positions(batch.documents).tolist() == [
        [0, 1, 2, 0, 0, 1, 2, 3],
        [0, 1, 2, 3, 4, 5, 6, 7],
        [0, 0, 0, 0, 1, 2, 3, 4],
        [0, 1, 0, 1, 2, 3, 4, 5],
    ]
    assert same_document(batch.documents)[3, 0, 1].tolist() == [True, True, *[False] * 6]


@pytest.mark.parametrize("name", APART)
def test_a_packed_row_is_its_documents_alone(name: str) -> None:
    model, batch = small(name), packed()
    with torch.no_grad():
        together = model(batch)  # (B, T, V)
        for row, span in spans():
            alone = model(Batch.of_text(batch.input[row : row + 1, span], batch.target[row : row + 1, span]))
            assert_close(together[row : row + 1, span], alone, rtol=0, atol=1e-12)
        blurred = model(replace(batch, documents=None))
    assert (together - blurred).abs().max() > 1e-3  # a mask that does nothing would pass on a model that sees nothing
    assert_close(together[1], blurred[1], rtol=0, atol=1e-12)  # one document a row: nothing to keep apart


@pytest.mark.parametrize("name", ["gpt", "gpt alibi", "gpt window", "gpt as llama"])
def test_gradients_of_packed_rows_are_those_of_the_documents(name: str) -> None:
    batch = packed()
    alone = [
        Batch.of_text(batch.input[row : row + 1, span], batch.target[row : row + 1, span].contiguous())
        for row, span in spans()
    ]

    def gradients(batches: list[Batch]) -> list[Tensor]:
        model = small(name)
        for one in batches:
            Objective(model)(one)[0].backward()
        return [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]

    for one, other in zip(gradients([batch]), gradients(alone), strict=True):
        assert_close(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("rows", [1, 3])
def test_micro_batches_keep_documents_apart(rows: int) -> None:
    batch, found = packed(), []
    for size in (batch.rows, rows):
        model = small("gpt")
        scale = torch.tensor(1 / batch.count)
        loss, _ = accumulate(
            SingleProcess(Objective(model)),
            batch,
            None,
            rows=size,
            scale=scale,
            device=torch.device("cpu"),
            precision="fp32",
        )
        found.append((loss.item(), model.embedding.weight.grad))
    assert found[0][0] == pytest.approx(found[1][0], abs=1e-9)
    assert_close(found[0][1], found[1][1], rtol=0, atol=1e-10)


def test_a_text_scored_apart_is_its_documents() -> None:
    """Every document fits the context, and every token is scored in a window that holds its document from <sos> on."""
    generator = torch.Generator().manual_seed(5)
    documents = [[SOS, *torch.randint(4, 11, (n,), generator=generator).tolist(), EOS] for n in (2, 1, 0, 2, 2, 1, 2)]
    model = small("gpt")
    ids = torch.tensor([id for document in documents for id in document])
    scored = score_text(model, ids, sos=SOS, stride=1, mask_documents=True)
    alone = [score_text(model, torch.tensor(document), sos=SOS) for document in documents]
    assert scored.nll == pytest.approx(sum(one.nll * one.tokens for one in alone) / scored.tokens, abs=1e-9)
    assert scored.nll != pytest.approx(score_text(model, ids, sos=SOS, stride=1).nll, abs=1e-3)


def test_random_windows_are_kept_apart_too() -> None:
    ids = torch.tensor([SOS, 5, SOS, 6] * 20)
    drawn = {"sos": SOS, "context": CONTEXT, "batch_size": 4, "batches": 2, "seed": 1, "device": "cpu"}
    mixed, apart = (random_windows(small("gpt"), ids, mask_documents=apart, **drawn) for apart in (False, True))
    assert apart != pytest.approx(mixed, abs=1e-3)
