"""Traces of training passes: on the meta device they have the memory and arithmetic of tensors that exist."""

from __future__ import annotations

import pytest
import torch

from seqwright import build
from seqwright.core.batch import Batch, Vocabulary
from seqwright.studies.layer_table import on_meta_device
from seqwright.studies.step_trace import _Tracer, trace_step
from seqwright.training import machine
from tests.contract.kinds import configured

IDS = torch.full((8, 24), 2)
BATCH = Batch.of_text(IDS, IDS)
GPT = {"layers": 3, "width": 32, "heads": 2, "context": 24}


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("options", [{}, {"activation": "swiglu", "norm": "rmsnorm", "positions": "rope"}])
def test_traces_on_the_meta_device_equal_those_of_real_passes(options: dict[str, object], checkpointed: bool) -> None:
    config = configured("gpt", **GPT, **options)
    model = build.model(config, Vocabulary(size=50)).train()
    trace = trace_step(
        on_meta_device(lambda: build.model(config, Vocabulary(size=50))), BATCH, half=False, checkpointed=checkpointed
    )
    if checkpointed:
        machine.checkpoint_blocks(model)
    tracer = _Tracer()
    with tracer:
        hidden, _ = model.hidden(BATCH, None)
        kept = tracer.live
        hidden.backward(torch.empty_like(hidden))
    del hidden
    assert trace.kept == pytest.approx(kept, rel=0.01)
    assert trace.peak == pytest.approx(tracer.peak, rel=0.03)
    assert trace.gradients == tracer.live
    products = [
        sum(each.flops for each in trace if "mm" in each.name) for trace in (trace.operations, tracer.operations)
    ]
    assert products[0] == products[1]


def test_checkpointing_and_half_precision_keep_less() -> None:
    def trace(**options: bool) -> int:
        model = on_meta_device(lambda: build.model(configured("gpt", **GPT), Vocabulary(size=50)))
        return trace_step(model, BATCH, **options).kept  # type: ignore[arg-type]

    assert trace(half=True) < trace(half=False)
    assert trace(half=True, checkpointed=True) < trace(half=True) / 3
